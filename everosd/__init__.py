"""everosd: a memory daemon for AI agents and the people beside them.

Markdown files come in, edited by people or appended by the daemon; a ledger numbers every change of an entry; indexes
follow the ledger; search answers from them. Only the Markdown is the truth: everything else can be deleted and rebuilt.
"""

from __future__ import annotations

__version__ = "0.1.0"
