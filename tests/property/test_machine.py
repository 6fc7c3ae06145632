"""Whatever people, the daemon and crashes do to the files: every index equals a rebuild from the Markdown."""

from __future__ import annotations

import asyncio
import contextlib
import os
import pathlib
import re
import shutil
import tempfile
from collections.abc import Awaitable, Callable
from typing import TypeVar

import hypothesis
import pytest
from hypothesis import stateful
from hypothesis import strategies as st

from everosd import config, daemon, types
from everosd.cascade import rebuild, verify
from everosd.log import entry
from everosd.search import query
from tests import fast_clock

T = TypeVar("T")

OWNERS = ("mara", "ben")
DAYS = ("2026-03-01", "2026-03-02", "2026-03-03")
TOKEN = re.compile(r"tok[a-z]{8}")


def episode(entry_id: str, token: str) -> str:
    """One entry as EverOS writes it."""
    return (
        f"<!-- entry:{entry_id} -->\n## {entry_id}\n\n**owner_id**: mara\n**timestamp**: 2026-03-02T10:00:00+00:00\n\n"
        f"### Subject\nabout {token}\n\n### Content\nIt was {token}.\n<!-- /entry:{entry_id} -->\n"
    )


class Machine(stateful.RuleBasedStateMachine):
    """A root, a node over it, and everything that happens to both."""

    def __init__(self) -> None:
        """Make an empty root and open it."""
        super().__init__()
        self.root = pathlib.Path(tempfile.mkdtemp(prefix="everosd-machine-"))
        self.runner = asyncio.Runner()
        self.stack: contextlib.AsyncExitStack | None = None
        self.n = 0
        self.lsn = 0
        self.run(self.open)

    def run(self, job: Callable[[], Awaitable[T]]) -> T:
        """Run a coroutine on the node's loop."""

        async def main() -> T:
            return await job()

        return self.runner.run(main())

    async def open(self) -> None:
        """Open the node; its loops run whenever the loop does."""
        self.stack = contextlib.AsyncExitStack()
        settings = config.load(self.root)
        self.node = await self.stack.enter_async_context(daemon.open_node(settings, fast_clock.FastClock()))

    def token(self) -> str:
        """Return a word that was never used."""
        self.n += 1
        return "tok" + "".join(chr(97 + int(digit)) for digit in f"{self.n:08d}")

    def file(self, owner: str, day: str) -> pathlib.Path:
        """Return the path of a day's episodes."""
        path = self.root / "default_app" / "default_project" / "users" / owner / "episodes" / f"episode-{day}.md"
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def files(self) -> list[pathlib.Path]:
        """Return the files that are there."""
        return sorted(self.root.glob("default_app/default_project/users/*/episodes/*.md"))

    # -- what people do --------------------------------------------------------------------------------------------

    @stateful.rule(owner=st.sampled_from(OWNERS), day=st.sampled_from(DAYS), count=st.integers(1, 4))
    def write(self, owner: str, day: str, count: int) -> None:
        """Save a file with new entries in it, by rename."""
        date = day.replace("-", "")
        body = "".join(episode(f"ep_{date}_{self.n + k + 1:08d}", self.token()) for k in range(count))
        path = self.file(owner, day)
        temporary = path.with_name(f".{path.name}.tmp.1")
        temporary.write_text(f"---\ndate: '{day}'\n---\n{body}", encoding="utf-8", errors="surrogateescape")
        temporary.rename(path)

    @stateful.rule(pick=st.integers(0, 99), hand=st.booleans())
    def edit(self, pick: int, hand: bool) -> None:  # noqa: FBT001  # drawn
        """Change one word in place, or write a paragraph by hand at the end."""
        for path in self.files()[pick % 7 : pick % 7 + 1]:
            text = path.read_text("utf-8", "surrogateescape")
            words = TOKEN.findall(text)
            if hand or not words:
                path.write_text(
                    text + f"\n## Note {self.n}\nby hand {self.token()}\n", encoding="utf-8", errors="surrogateescape"
                )
            else:
                path.write_text(
                    text.replace(words[pick % len(words)], self.token(), 1), encoding="utf-8", errors="surrogateescape"
                )

    @stateful.rule(pick=st.integers(0, 99))
    def delete(self, pick: int) -> None:
        """Delete one of at least two files."""
        files = self.files()
        if len(files) > 1:
            files[pick % len(files)].unlink()

    @stateful.rule(pick=st.integers(0, 99), share=st.floats(0.0, 1.0))
    def truncate(self, pick: int, share: float) -> None:
        """Cut a file anywhere."""
        files = self.files()
        if files:
            path = files[pick % len(files)]
            os.truncate(path, int(path.stat().st_size * share))

    @stateful.rule(pick=st.integers(0, 99), name=st.sampled_from(("copy.md", "episode-2026-03-04.md", "old notes.md")))
    def rename_or_copy(self, pick: int, name: str) -> None:
        """Rename a file, or leave a copy of it beside it."""
        files = self.files()
        if files:
            path = files[pick % len(files)]
            if path.name != name:
                (shutil.copy if pick % 2 else shutil.move)(path, path.with_name(name))

    @stateful.rule(pick=st.integers(0, 99), other=st.integers(0, 99))
    def move_entry(self, pick: int, other: int) -> None:
        """Cut an entry out of one file and paste it at the end of another."""
        files = self.files()
        if not files:
            return
        source, target = files[pick % len(files)], files[other % len(files)]
        found = re.search(
            r"<!-- entry:(\S+) -->\n.*?<!-- /entry:\1 -->\n", source.read_text("utf-8", "surrogateescape"), re.DOTALL
        )
        if found and source != target:
            source.write_text(
                source.read_text("utf-8", "surrogateescape").replace(found[0], "", 1),
                encoding="utf-8",
                errors="surrogateescape",
            )
            target.write_text(
                target.read_text("utf-8", "surrogateescape") + found[0], encoding="utf-8", errors="surrogateescape"
            )

    @stateful.rule(pick=st.integers(0, 99), junk=st.binary(max_size=40))
    def damage(self, pick: int, junk: bytes) -> None:
        """Write junk over the head of a file."""
        files = self.files()
        if files:
            path = files[pick % len(files)]
            path.write_bytes(junk + path.read_bytes()[len(junk) :])

    @stateful.rule(pick=st.integers(0, 99), other=st.integers(0, 99))
    def deprecate(self, pick: int, other: int) -> None:
        """Name a successor in the frontmatter by hand."""
        for path in self.files()[pick % 5 : pick % 5 + 1]:
            ids = re.findall(r"<!-- entry:(\S+) -->", path.read_text("utf-8", "surrogateescape"))
            if ids:
                line = f"deprecated_entries:\n  {ids[pick % len(ids)]}: {ids[other % len(ids)]}\n"
                path.write_text(
                    path.read_text("utf-8", "surrogateescape").replace("---\n", f"---\n{line}", 1),
                    encoding="utf-8",
                    errors="surrogateescape",
                )

    # -- what the daemon does --------------------------------------------------------------------------------------

    @stateful.rule(owner=st.sampled_from(OWNERS), day=st.sampled_from(DAYS), count=st.integers(1, 3))
    def append(self, owner: str, day: str, count: int) -> None:
        """Have the daemon append entries; each that is acknowledged is on disk."""
        whose = types.Owner(app="default", project="default", type="user", id=owner)
        tokens = [self.token() for _ in range(count)]
        drafts = [entry.Draft(fields={}, sections=(("Subject", word), ("Content", f"said {word}"))) for word in tokens]
        self.run(lambda: self.node.cascade.writer.append(whose, "episode", drafts, date=day))
        on_disk = "".join(path.read_bytes().decode("utf-8", "replace") for path in self.files())
        assert [word for word in tokens if word not in on_disk] == []

    @stateful.rule(
        owner=st.sampled_from(OWNERS),
        day=st.sampled_from(DAYS),
        events=st.lists(st.sampled_from(("joined", "completed", "rolled_back", "restored")), min_size=1, max_size=3),
        report=st.sampled_from(("1" * 32, "2" * 32)),
        picks=st.tuples(st.integers(1, 4), st.integers(1, 4)),
    )
    def tell(self, owner: str, day: str, events: list[str], report: str, picks: tuple[int, int]) -> None:
        """Have the daemon say that an Episode joined a cluster, or that a consolidation was done, undone, restored."""
        whose = types.Owner(app="default", project="default", type="user", id=owner)
        member, narrative = (f"ep_{day.replace('-', '')}_{n:08d}" for n in picks)
        fields = {
            "cluster_id": f"cl_{report[0]}",
            "member_id": member,
            "member_type": "episode",
            "report_id": report,
            "source_members": f'[{{"member_id": "{member}", "member_type": "episode"}}]',
            "merged_entry_id": narrative,
        }
        drafts = [entry.Draft(fields={"event": event, **fields}) for event in events]
        self.run(lambda: self.node.cascade.writer.append(whose, "cluster", drafts, date=day))

    @stateful.rule(pick=st.integers(0, 99), whole=st.booleans())
    def untell(self, pick: int, whole: bool) -> None:  # noqa: FBT001  # drawn
        """Cut a row out of a log of clusters by hand, or delete the log."""
        logs = sorted(self.root.glob("default_app/default_project/users/*/.clusters/*.md"))
        if not logs:
            return
        path = logs[pick % len(logs)]
        text = path.read_text("utf-8")
        found = re.findall(r"<!-- entry:\S+ -->\n.*?<!-- /entry:\S+ -->\n", text, re.DOTALL)
        if whole or not found:
            path.unlink()
        else:
            path.write_text(text.replace(found[pick % len(found)], "", 1), "utf-8")

    @stateful.rule()
    def rebuild(self) -> None:
        """Rebuild everything while it is in use."""
        self.run(lambda: rebuild.rebuild(self.node.cascade))

    @stateful.rule(clean=st.booleans())
    def restart(self, clean: bool) -> None:  # noqa: FBT001  # drawn
        """Stop and start; where not clean, with the changes of this moment noticed and not yet applied."""
        if not clean:
            self.run(lambda: self.node.cascade.reconcile("crash"))
        self.close()
        self.run(self.open)

    @stateful.rule()
    def lose_index(self) -> None:
        """Delete .index/ while the daemon is down: nothing but time is lost."""
        self.close()
        shutil.rmtree(self.root / ".index")
        self.lsn = 0
        self.run(self.open)

    # -- what must hold --------------------------------------------------------------------------------------------

    @stateful.invariant()
    def live_equals_rebuild(self) -> None:
        """Live rows and documents equal a fresh reading; every word on disk is found; LSNs only grew."""
        self.run(self._check)

    async def _check(self) -> None:
        cascade = self.node.cascade
        with cascade.accepting_deletions():
            await cascade.reconcile("check")
            await cascade.settled(timeout_s=20)
        report = await verify.verify(cascade)
        assert () == report.differences, report.differences
        assert report.digest_live == report.digest_disk
        status = cascade.status()
        assert status.lsn >= self.lsn
        self.lsn = status.lsn
        for path in self.files()[:2]:
            words = TOKEN.findall(path.read_bytes().decode("utf-8", "replace"))
            for word in words[:1]:
                assert await self._is_found_or_hidden(path, word), (path, word)

    async def _is_found_or_hidden(self, path: pathlib.Path, word: str) -> bool:
        owner = types.Owner(app="default", project="default", type="user", id=path.parent.parent.name)
        asked = query.Query(owner=owner, text=word, method="keyword", top_k=10, statuses=("active", "deprecated"))
        answer = await self.node.search.run(asked)
        rows = await self.node.database.write(
            lambda connection: connection.execute(
                "SELECT 1 FROM entries WHERE owner_id = ? AND raw LIKE ? AND is_shadowed = 0", (owner.id, f"%{word}%")
            ).fetchall()
        )
        return bool(answer.episodes) == bool(rows)

    def close(self) -> None:
        """Close the node."""
        if self.stack is not None:
            self.run(self.stack.aclose)
            self.stack = None

    def teardown(self) -> None:
        """Remove the root."""
        self.close()
        self.runner.close()
        shutil.rmtree(self.root, ignore_errors=True)


TestMachine = pytest.mark.timeout(120)(Machine.TestCase)
TestMachine.settings = hypothesis.settings(
    max_examples=max(12, hypothesis.settings().max_examples // 50),
    stateful_step_count=14,
    deadline=None,
    suppress_health_check=list(hypothesis.HealthCheck),
)
