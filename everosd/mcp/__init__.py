"""Memory for agents over MCP: calls of tools come in, requests to the HTTP routes go out, answers come back as text.

Nothing here opens a part of the daemon: every tool is one request through a `backend.Backend`, and whose memory it is
about is never a parameter of a tool. The SDK is imported by `server.py`, `http.py` and `stdio.py` alone, which nobody
imports before somebody speaks MCP.
"""
