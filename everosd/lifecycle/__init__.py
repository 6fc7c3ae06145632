"""Typed memories on their way: remembered, changed and forgotten by hand; summarized, promoted, expired, decayed, archived by rule.

In come requests, and the fires of `run_lifecycle`; out go entries under `memories/` and rows of `.lifecycle/`, nothing else:
indexes follow by themselves. What is done by rule is decided by pure planners, from what the ledger knows at one moment,
and is the same in a dry run; no text is lost, and everything can be restored.
"""
