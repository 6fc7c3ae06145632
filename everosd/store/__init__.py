"""The ledger in SQLite: one writer thread, many readers.

Parsed files come in and numbered changes (LSN) go out; rows answer get, filters and lineage. Promised: a transaction
is all or nothing, LSNs only grow, and everything here can be deleted and read again from the Markdown.
"""
