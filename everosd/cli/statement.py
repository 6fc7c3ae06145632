"""The typed memory of the demonstration: remembered, corrected, recalled, and what a pass of the lifecycle would decide."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator
from pathlib import Path

from everosd.cli import client, conversation, decided, show

USER = "ines"
PATH = "projects/stall"
KEY = "stall-opening"
BEFORE, AFTER = "The pottery stall opens on 3 June.", "The pottery stall opens on 10 June, a week late."
NOTE = "Ask Ilse for the key to the kiln."
NOTED_DAYS = 3
QUESTION = "When does the stall open?"
API = "/api/v1/memory"


def keep(asked: client.Client, root: Path, say: Callable[[str], None]) -> None:
    """Remember, correct, recall, and look at what would become of an old note.

    Raises:
        conversation.NotAsPromised: one of them is not as it should be.
    """
    say("\n9. a typed memory: one statement under a path and a key (everosd remember, or an agent over MCP)")
    first = _post(asked, "remember", path=PATH, content=BEFORE, semantic_key=KEY)
    second = _post(asked, "remember", path=PATH, content=AFTER, semantic_key=KEY)
    if first.get("id") != second.get("id") or second.get("outcome") != "updated":
        reason = f"the second statement did not update the first: {second}"
        raise conversation.NotAsPromised(reason)
    say(
        f"   {BEFORE}  →  the same key again: {AFTER}\n   version {second.get('version')}, the one before is kept; in {second.get('file')}"
    )
    text = str(_post(asked, "recall", query=QUESTION, max_tokens=200, memory_type="semantic").get("text"))
    if AFTER not in text or BEFORE in text:
        reason = f"{QUESTION!r} did not recall the later statement: {text}"
        raise conversation.NotAsPromised(reason)
    say(f"   {USER}: {QUESTION}  →  everosd recall, for a model to read:")
    say("\n".join(f"     {line}" for line in text.splitlines()))
    then = dt.datetime.now(dt.UTC) - dt.timedelta(days=NOTED_DAYS)
    note = _post(asked, "remember", path=PATH, content=NOTE, memory_type="working", timestamp=then.isoformat())
    say(
        f"   a working note of {NOTED_DAYS} days ago, not used since. What would become of it (everosd lifecycle run --dry-run):"
    )
    say("\n".join(_decisions(asked, root, note)))


def _decisions(asked: client.Client, root: Path, note: show.Body) -> Iterator[str]:
    """Yield what a dry run decides about the note, once it is clear that it changes nothing."""
    path = root / str(note["file"])
    before = path.read_bytes()
    found = _post(asked, "reflect", actions=["expire", "decay", "archive"], dry_run=True)
    decisions = [one for action in show.rows(found, "actions") for one in show.rows(action, "candidates")]
    if not [one for one in decisions if one.get("id") == note["id"]] or path.read_bytes() != before:
        reason = f"the dry run did not decide about the note, or changed it: {found}"
        raise conversation.NotAsPromised(reason)
    titles = {str(note["id"]): NOTE, **{str(one["id"]): "" for one in decisions if one.get("id") != note["id"]}}
    yield from (f"     {line}" for line in decided.told(found, titles, full=False))


def _post(asked: client.Client, route: str, **fields: object) -> show.Body:
    """Ask one of the routes of typed memories.

    Raises:
        conversation.NotAsPromised: it refuses.
    """
    answer = asked.call("POST", f"{API}/{route}", {"user_id": USER, **fields})
    if answer.status != client.OK:
        reason = f"{route} answered {answer.status}: {answer.body}"
        raise conversation.NotAsPromised(reason)
    return show.section(answer.body, "data")
