"""The first step of the demonstration: two conversations go in, and what became of them is shown."""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Callable
from importlib import resources
from pathlib import Path

from everosd import errors
from everosd.cli import client, show, transcript

USER = "ines"
TALKS = ("ines-april-2", "ines-april-20")
SECRET = "Ton&Glaze77"  # noqa: S105  # what is shown to be gone
QUESTION = "Which day is the pottery course on?"
CURRENT, EARLIER = "Thursdays", "Tuesdays at seven"
API = "/api/v1/memory"
TIMEOUT_S = 30.0
LOOK_S = 0.02
FOLDER = Path("default_app/default_project/users") / USER


class NotAsPromised(errors.EverosdError):
    """A step did not do what it shows."""


def tell(asked: client.Client, root: Path, say: Callable[[str], None]) -> None:
    """Send the conversations as a program would, and show Episode, facts, secret and correction.

    Raises:
        NotAsPromised: one of them is not as it should be.
    """
    say("\n3. a conversation goes in, as a program sends it (POST memory/add, memory/flush)")
    for name in TALKS:
        say(send(asked, name))
    facts = _facts(root)
    say(f"   {show.count(len(facts), 'fact')} in .atomic_facts/, for instance: {facts[-1]}")
    written = "".join(path.read_text(encoding="utf-8") for path in (root / "default_app").rglob("*.md"))
    if SECRET in written:
        reason = "a password of the conversation stands in a file"
        raise NotAsPromised(reason)
    say("   the password that was said stands in no file: [redacted]")
    say(f"   {USER}: {QUESTION}  →  {_first_fact(asked)}\n     (the later statement; the earlier one ranks below it)")


def send(asked: client.Client, name: str) -> str:
    """Send one conversation and have it extracted; return what became of it, and how soon.

    Raises:
        NotAsPromised: nothing was extracted.
    """
    source = resources.files("everosd.cli") / "talk" / f"{name}.txt"
    now = transcript.Time(zone=dt.UTC, saved_at=dt.datetime.now(dt.UTC))
    (session,) = transcript.read(
        source.read_bytes(), source.name, form="transcript", names=transcript.Names(), time=now
    )
    started_s = time.monotonic()
    key = {"session_id": session.id}
    added = asked.call("POST", f"{API}/add", {**key, "messages": session.messages})
    added_ms = (time.monotonic() - started_s) * 1000
    flushed = asked.call("POST", f"{API}/flush", key)
    took_ms = (time.monotonic() - started_s) * 1000 - added_ms
    if show.section(flushed.body, "data").get("status") != "extracted":
        reason = f"the conversation was not extracted: {added.body} {flushed.body}"
        raise NotAsPromised(reason)
    n_messages = show.count(len(session.messages), "message")
    return f"   {n_messages} in sessions/{name}/ after {added_ms:.0f} ms, an Episode {took_ms:.0f} ms after the flush"


def _facts(root: Path) -> list[str]:
    """Wait until the facts of both conversations are on disk; return those that were said by the person."""
    give_up_s = time.monotonic() + TIMEOUT_S
    while time.monotonic() < give_up_s:
        written = "".join(path.read_text(encoding="utf-8") for path in (root / FOLDER / ".atomic_facts").glob("*.md"))
        facts = [each.partition("\n")[0] for each in written.split("### Fact\n")[1:]]
        if any(CURRENT in each for each in facts) and any(EARLIER in each for each in facts):
            return [each for each in facts if each.startswith(f"{USER}:")]
        time.sleep(LOOK_S)
    reason = f"there were no facts after {TIMEOUT_S:.0f} s"
    raise NotAsPromised(reason)


def _first_fact(asked: client.Client) -> str:
    """Return the best fact of the best Episode, once both are searchable."""
    body = {"user_id": USER, "query": QUESTION, "method": "hybrid", "top_k": 5}
    give_up_s = time.monotonic() + TIMEOUT_S
    found: list[str] = []
    while time.monotonic() < give_up_s:
        episodes = show.rows(show.section(asked.call("POST", f"{API}/search", body).body, "data"), "episodes")
        found = [str(fact["content"]) for one in episodes for fact in show.rows(one, "atomic_facts")]
        both = [each for each in found if CURRENT in each or EARLIER in each]
        if len(both) > 1 and CURRENT in both[0]:
            return both[0]
        time.sleep(LOOK_S)
    reason = f"{QUESTION!r} did not find the later statement first: {found}"
    raise NotAsPromised(reason)
