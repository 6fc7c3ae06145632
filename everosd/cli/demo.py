"""`everosd demo`: a sample root, a daemon, a conversation, searches, how soon an edit is found, fragments made one.

A statement is remembered and corrected at the end. Everything is the real thing: the installed daemon in a process of its own, asked over HTTP. No key, no network. What
needs the model is left out, with the reason, where the model cannot run.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from typing import cast

from everosd import config, errors, lock
from everosd.cli import client, conversation, fragments, progress, show, statement

READY_TIMEOUT_S = 30.0
FOUND_TIMEOUT_S = 10.0
STOP_TIMEOUT_S = 20.0
VECTORS_TIMEOUT_S = 40.0
"""On a machine of its own the model takes five seconds for the sample."""
POLL_S = 0.001
"""Finer than what is measured."""
LOOK_S = 0.05
LOG_LINES = 20

EPISODES = Path("default_app/default_project/users/lena/episodes")
EDITED = EPISODES / "episode-2026-07-11.md"
BEFORE, AFTER = "a diet of 180 grams a day", "a diet of 145 grams of venison a day"
APPENDED = EPISODES / "episode-2026-09-06.md"
HAND_WRITTEN = "\n## Packed for the hut\n\nTwo leads, the basket, a thermos and the folding ramp for Pesto.\n"

QUERIES = (
    ("lena", "Walnut's diet"),
    ("tomas", "NR-8812-C"),
    ("yuki", "茶道の稽古"),
    ("amina", "Saturn rings"),
)
QUESTIONS = (
    ("tomas", "dangerous painkillers"),
    ("yuki", "What sweets does she dislike?"),
)
"""None of their words stands in what answers them; one answer is in another language."""
MODEL_SETTINGS = ("EVEROS_EMBEDDING__", "EVEROS_LLM__")
"""Begin the variables that the demo ignores: it sends its sample to nobody's endpoint."""


class _LeftOut(Exception):  # noqa: N818  # it says what happened
    """Why a step cannot be shown here; the others can."""


class DemoFailed(errors.EverosdError):
    """A step of the demo did not do what it shows."""


def run(root: Path | None) -> int:
    """Show it; return 0 when everything happened as promised.

    Raises:
        DemoFailed: a step did not; the daemon is stopped and its last lines are part of the message.
    """
    with tempfile.TemporaryDirectory(prefix="everosd-demo-") as folder:
        where = Path(folder) / "memory" if root is None else root.expanduser().absolute()
        _say(
            f"1. a sample memory root: {make(where)} Markdown files of four people and an agent, seven months\n   {where}"
        )
        with serving(where, Path(folder) / "everosd.log") as asked:
            conversation.tell(asked, where, _say)
            _search(asked)
            _search_by_meaning(asked)
            _edit(asked, where)
            _write_by_hand(asked, where)
            _reflect(asked, where)
            statement.keep(asked, where, _say)
            _verify(asked)
            _say("\n10. stopping")
        _say("   stopped, exit code 0")
        if root is None:
            _say("\nThe sample is gone again. Keep one to play with: everosd demo --root ~/everosd-demo")
        else:
            _say(f"\nThe sample stays: everosd serve --root {where}")
    return 0


def make(root: Path) -> int:
    """Write the sample memory root; return the number of its files.

    Raises:
        RootError: there is something at `root` already.
    """
    if root.exists() and (not root.is_dir() or any(root.iterdir())):
        raise errors.RootError(
            str(root), "is not empty, and the demo edits what it finds", hint="name a new folder with --root"
        )
    from everosd.cli import root as root_folder

    root_folder.make(root)
    with resources.as_file(resources.files("everosd.cli") / "sample") as sample:
        shutil.copytree(sample, root, dirs_exist_ok=True, copy_function=shutil.copyfile)
    with (root / config.FILE_NAME).open("a", encoding="utf-8") as settings:
        settings.write(fragments.SETTINGS)
    root.chmod(0o700)  # copying gave it the mode of the folder in the package
    for path in root.rglob("*"):
        path.chmod(0o700 if path.is_dir() else 0o600)
    return sum(1 for _ in root.rglob("*.md"))


@contextlib.contextmanager
def serving(root: Path, log: Path) -> Iterator[client.Client]:
    """Run a daemon for `root` while the block runs; its lines go to `log`."""
    started_s = time.monotonic()
    with log.open("wb") as lines:
        process = subprocess.Popen(  # noqa: S603  # our own program, our own arguments
            [sys.executable, "-m", "everosd", "serve", "--root", str(root), "--port", "0"],
            stdin=subprocess.DEVNULL,
            stdout=lines,
            stderr=lines,
            env=_environment(),
        )
    try:
        asked = _ready(root, process)
        _say(
            f"\n2. the daemon: {asked.url}, everything searchable {time.monotonic() - started_s:.2f} s after its start"
        )
        yield asked
        _stop(process)
    except (errors.EverosdError, subprocess.TimeoutExpired) as error:
        last = log.read_text(errors="replace").splitlines()[-LOG_LINES:]
        text = "\n".join((str(error), "the daemon's last lines:", *last))
        raise DemoFailed(text) from error
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def _environment() -> dict[str, str]:
    """Return the variables of the daemon: the person's own, but for the model."""
    kept = {name: value for name, value in os.environ.items() if not name.upper().startswith(MODEL_SETTINGS)}
    return kept | {"EVEROS_LOG__FORMAT": "console"}


def _stop(process: subprocess.Popen[bytes]) -> None:
    """Ask it to stop as systemd does."""
    process.send_signal(signal.SIGTERM)
    if (code := process.wait(STOP_TIMEOUT_S)) != 0:
        reason = f"the daemon ended with exit code {code}"
        raise DemoFailed(reason)


def _ready(root: Path, process: subprocess.Popen[bytes]) -> client.Client:
    """Wait until keyword search serves what is on disk."""
    give_up_s = time.monotonic() + READY_TIMEOUT_S
    while time.monotonic() < give_up_s:
        if process.poll() is not None:
            reason = f"the daemon ended at once with exit code {process.returncode}"
            raise DemoFailed(reason)
        holder = lock.holder(root)
        if holder is not None and holder.pid == process.pid and holder.port is not None:
            asked = client.Client("127.0.0.1", holder.port, pid=holder.pid)
            with contextlib.suppress(client.Silent):  # it listens before it answers; if it ends, the loop says so
                if asked.call("GET", "/health").body.get("ready"):
                    return asked
        time.sleep(0.01)
    reason = f"the daemon was not ready after {READY_TIMEOUT_S:.0f} s"
    raise DemoFailed(reason)


def _search(asked: client.Client) -> None:
    """Search as four people."""
    _say("\n4. searching by word")
    for user, query in QUERIES:
        started_s = time.monotonic()
        found = _hits(asked, user, query)
        took_ms = (time.monotonic() - started_s) * 1000
        if not found:
            reason = f"{user}: {query!r} found nothing"
            raise DemoFailed(reason)
        _say(f"   {user}: {query}  →  {found[0]['subject']}  (score {found[0]['score']:.2f}, {took_ms:.1f} ms)")


def _search_by_meaning(asked: client.Client) -> None:
    """Ask questions that share no word with their answers."""
    _say("\n5. searching by meaning, with the model that everosd brings")
    try:
        _say(f"   vectors of {_await_vectors(asked)}")
        for user, question in QUESTIONS:
            _say(f"   {user}: {question}  →  {_meant(asked, user, question)}")
    except _LeftOut as reason:
        _say(f"   left out: {reason}")


def _await_vectors(asked: client.Client) -> str:
    """Wait until every entry has its vectors; return how many those are and how long it took.

    Raises:
        _LeftOut: they are not coming, or not soon.
    """
    started_s = time.monotonic()
    n_owed, n_documents = 0, 0
    with progress.Progress("   vectors") as shown:
        while (took_s := time.monotonic() - started_s) < VECTORS_TIMEOUT_S:
            health = asked.call("GET", "/health").body
            model = show.section(health, "embedding")
            index = show.section(show.section(show.section(health, "cascade"), "projections"), "vectors")
            if model.get("error"):
                raise _LeftOut(model["error"])
            n_owed, n_documents = cast("int", model.get("owed") or 0), cast("int", index.get("documents") or 0)
            if n_documents and model.get("dim") and index.get("state") == "ok":
                return f"{show.count(n_documents, 'entry')}, made {took_s:.1f} s after that"
            shown.update(n_documents - n_owed, n_documents)
            time.sleep(LOOK_S)
    reason = f"the vectors of {n_owed} of {show.count(n_documents, 'entry')} took longer than {VECTORS_TIMEOUT_S:.0f} s"
    raise _LeftOut(reason)


def _meant(asked: client.Client, user: str, question: str) -> str:
    """Return what a hybrid search finds first, with the fact that answers the question, beside what the words find.

    Raises:
        _LeftOut: the model gave no vector of the question.
    """
    by_word = _hits(asked, user, question)
    started_s = time.monotonic()
    answered = _searched(asked, user, question, "hybrid")
    took_ms = (time.monotonic() - started_s) * 1000
    if degraded := answered.get("degraded"):
        raise _LeftOut("; ".join(cast("list[str]", degraded)))
    found = show.rows(show.section(answered, "data"), "episodes")
    if not found:
        reason = f"{user}: {question!r} found nothing by meaning"
        raise DemoFailed(reason)
    facts = show.rows(found[0], "atomic_facts")
    answer = f": {facts[0]['content']}" if facts else ""
    words = f"{len(by_word)} by word" if by_word else "nothing by word"
    return f"{found[0]['subject']}{answer}\n     (score {found[0]['score']:.2f}, {took_ms:.0f} ms; {words})"


def _edit(asked: client.Client, root: Path) -> None:
    """Change one sentence as an editor does: a new file beside the old one, renamed over it."""
    path = root / EDITED
    text = path.read_text(encoding="utf-8")
    beside = path.with_name(f".{path.name}.swp-demo.tmp")
    beside.write_text(text.replace(BEFORE, AFTER), encoding="utf-8")
    beside.chmod(0o600)
    started_s = time.monotonic()
    beside.replace(path)
    took_ms = _until_found(asked, "venison", started_s)
    _say(
        f"\n6. an edit, saved as an editor saves (temporary file, rename): {EDITED.name}\n   - … {BEFORE}\n   + … {AFTER}"
    )
    _say(f"   “venison” found {took_ms:.0f} ms after the save")
    if any("180 grams" in str(one["episode"]) for one in _hits(asked, "lena", "180 grams")):
        reason = "the text from before the edit is still served"
        raise DemoFailed(reason)


def _write_by_hand(asked: client.Client, root: Path) -> None:
    """Add a heading and a sentence at the end of a file, in place and without any markers."""
    path = root / APPENDED
    started_s = time.monotonic()
    with path.open("a", encoding="utf-8") as file:
        file.write(HAND_WRITTEN)
    took_ms = _until_found(asked, "thermos", started_s)
    quoted = HAND_WRITTEN.strip().replace("\n\n", "\n").replace("\n", "\n   + ")
    _say(f"\n7. a note written by hand at the end of {APPENDED.name}, no ids, no markers\n   + {quoted}")
    _say(f"   “thermos” found {took_ms:.0f} ms after the write")


def _reflect(asked: client.Client, root: Path) -> None:
    """Merge what belongs together; topics are found by the model."""
    health = asked.call("GET", "/health").body
    if error := show.section(health, "embedding").get("error"):
        _say(f"\n8. reflection\n   left out: {error}")
    else:
        fragments.reflect(asked, root, _say)


def _verify(asked: client.Client) -> None:
    """Compare what is served with what a rebuild from the Markdown would make."""
    answer = asked.call("POST", "/api/v1/admin/verify", {})
    result = show.section(answer.body, "result")
    if answer.status != client.OK or not result.get("is_clean"):
        reason = f"verify found differences: {answer.body}"
        raise DemoFailed(reason)
    _say("   verify: what is served equals what a rebuild from the Markdown makes")


def _until_found(asked: client.Client, word: str, started_s: float) -> float:
    """Return milliseconds from `started_s` until a search for `word` has a hit."""
    while not _hits(asked, "lena", word):
        if time.monotonic() - started_s > FOUND_TIMEOUT_S:
            reason = f"{word!r} was not found within {FOUND_TIMEOUT_S:.0f} s of the save"
            raise DemoFailed(reason)
        time.sleep(POLL_S)
    return (time.monotonic() - started_s) * 1000


def _hits(asked: client.Client, user: str, query: str) -> list[show.Body]:
    """Return the Episodes that a keyword search finds."""
    return show.rows(show.section(_searched(asked, user, query, "keyword"), "data"), "episodes")


def _searched(asked: client.Client, user: str, query: str, method: str) -> show.Body:
    """Return the whole answer to a search."""
    body = {"user_id": user, "query": query, "method": method, "top_k": 5}
    answer = asked.call("POST", "/api/v1/memory/search", body)
    if answer.status != client.OK:
        reason = f"search answered {answer.status}: {answer.body}"
        raise DemoFailed(reason)
    return answer.body


def _say(text: str) -> None:
    """Print at once, also into a pipe."""
    print(text, flush=True)
