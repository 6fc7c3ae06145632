"""A text and its sources come in, what the text invented or lost goes out."""
