"""Watching: kernel events and walks of the disk become settled batches of paths to look at.

What comes in is a folder that anyone may change at any time; what goes out is where to look (`settle.Batch`) and
what is there (`scan.Scan`, `scan.look`). Promised: no change stays unnoticed (lost events, a dead watcher or a
replaced root end in a rescan), one save is one batch, what cannot be read is never called absent, and nothing under
`.index/`, `.cache/` and `.tmp/` wakes anybody. Nothing here reads the text of a file.
"""
