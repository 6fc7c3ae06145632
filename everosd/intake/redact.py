"""Credentials in messages, made unreadable before anything is written."""

from __future__ import annotations

import re

INLINE_CHARS = 200_000
"""More text than this is looked through beside the event loop."""

_SECRETS = re.compile(
    r"""
    (?P<key>-----BEGIN[ A-Z]*PRIVATE\ KEY-----.*?(?:-----END[ A-Z]*PRIVATE\ KEY-----|\Z))
    | \b(?P<token>sk-[A-Za-z0-9_-]{16,} | gh[pousr]_[A-Za-z0-9]{20,} | AKIA[0-9A-Z]{16} | xox[abprs]-[A-Za-z0-9-]{10,})
    """,
    re.VERBOSE | re.DOTALL,
)


def redacted(text: str) -> str:
    """Return `text` with every obvious credential replaced by what kind it was."""
    return _SECRETS.sub(lambda found: f"[redacted {found.lastgroup}]", text)


def redacted_all(texts: tuple[str, str, str]) -> tuple[str, str, str]:
    """Return the texts of a message without credentials: what was said, its items, its calls of tools."""
    said, content, tool_calls = texts
    return redacted(said), redacted(content), redacted(tool_calls)
