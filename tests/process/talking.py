"""What a program says to memory/add and memory/flush, for tests of the whole daemon."""

from __future__ import annotations

from typing import Any

import httpx

START_MS = 1_772_442_000_000
"""2026-03-02T09:00:00Z."""


def said(text: str, at: int = 0, sender: str = "mara", role: str = "user") -> dict[str, object]:
    """Return a message; `at` is seconds after the start of the talk."""
    return {"sender_id": sender, "role": role, "timestamp": START_MS + at * 1000, "content": text}


def add(http: httpx.Client, session: str, *messages: dict[str, object], **more: object) -> dict[str, Any]:
    """Add messages and return what stands under `data`."""
    answer = http.post("/api/v1/memory/add", json={"session_id": session, "messages": list(messages), **more})
    assert answer.status_code in (200, 202), answer.text
    data: dict[str, Any] = answer.json()["data"]
    return data


def flush(http: httpx.Client, session: str) -> httpx.Response:
    """Flush a session and return the answer."""
    return http.post("/api/v1/memory/flush", json={"session_id": session})


def episodes(http: httpx.Client, user: str = "mara") -> list[dict[str, Any]]:
    """Return all Episodes of a user."""
    found: list[dict[str, Any]] = []
    while True:
        page = len(found) // 100 + 1
        body = {"memory_type": "episode", "user_id": user, "page": page, "page_size": 100}
        data = http.post("/api/v1/memory/get", json=body).json()["data"]
        found += data["episodes"]
        if len(found) >= data["total_count"]:
            return found
