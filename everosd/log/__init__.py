"""The log: Markdown files as entries.

Bytes of a file come in and entries with stable ids go out; entries come in and bytes go out that read back as the
same. Promised: what people wrote is kept to the byte, unknown fields survive, ids are never reused, and a file that
cannot be parsed is never rewritten. Knows nothing of the ledger: what it needs of it is passed in.
"""
