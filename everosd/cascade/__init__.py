"""The cascade: dirty paths come in, the ledger and every index follow.

Promised: the disk decides and events only say where to look; absence is not deletion; each projection advances on
its own from its checkpoint; applying anything twice changes nothing.
"""
