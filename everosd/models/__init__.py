"""Models: texts come in, vectors go out. The only package that talks to a model.

Promised: a vector is of the space that is said, finite and of length 1; a request that fails says whether the same one
may succeed later; nothing here blocks the event loop, and a crash of the built-in model is no crash of the daemon.
"""
