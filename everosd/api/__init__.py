"""The HTTP door: requests come in, envelopes go out, nothing is decided here.

In: `services.Services`, opened by the daemon. Out: one Litestar application. Promised: every answer carries a request id,
every error the same envelope; a scope is never wider than what was named; no handler blocks the event loop; what
rebuilds or verifies is reachable from this machine only.
"""
