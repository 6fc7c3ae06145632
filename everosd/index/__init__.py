"""Indexes: documents come in by key, hits with scores go out.

Promised: after `commit` a document is found, a crash leaves the last commit, a damaged index is set aside instead of
loaded, and applying the same batch twice changes nothing. An index knows nothing of files or of the ledger.
"""
