"""Messages come in, Episodes, facts, clusters, profiles, cases and skills go out, all of it through the log.

Promised: a message is on disk before its sender hears so, is extracted once, and is never lost, whatever a model says.
"""
