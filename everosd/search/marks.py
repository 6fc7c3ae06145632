"""The marks around memory that an agent is given to read, by which it is known again when it comes back."""

from __future__ import annotations

OPENING, CLOSING = "<recalled_memory>", "</recalled_memory>"
