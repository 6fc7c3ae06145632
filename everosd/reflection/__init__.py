"""Clusters of Episodes come in, one narrative for each goes out, and all of it can be undone.

Promised: a consolidation is committed by one append and finished from it after any crash; nothing is deprecated without
a live successor, nor against a text that a person has changed since it was read; what is undone stays undone.
"""
