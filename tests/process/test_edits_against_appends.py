"""A person edits a file while the daemon appends to it as fast as it can: neither loses anything."""

from __future__ import annotations

import asyncio
import functools
import random
import re
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Self

import pytest

from everosd import clock
from everosd.log import layout, parse, writer
from tests import effort, memory_journal
from tests.unit import test_writer as unit

CALLERS = 250
APPENDS_EACH = effort.rounds(40, 8)


def by_rename(path: Path, load: Callable[[], bytes], change: Callable[[bytes], bytes]) -> None:
    """Save a whole new file over the name."""
    other = path.with_name(".saving.tmp")
    other.write_bytes(change(load()))
    other.replace(path)


def by_truncating(path: Path, load: Callable[[], bytes], change: Callable[[bytes], bytes]) -> None:
    """Open the file anew, empty it, write."""
    data = change(load())
    with path.open("wb", buffering=0) as out:
        half = len(data) // 2
        out.write(data[:half])
        out.write(data[half:])


def by_handle(path: Path, load: Callable[[], bytes], change: Callable[[bytes], bytes]) -> None:
    """Keep the file open from loading to saving, and save into that."""
    with path.open("r+b", buffering=0) as handle:
        data = change(load())
        handle.truncate(0)
        handle.write(data)


def by_backup(path: Path, load: Callable[[], bytes], change: Callable[[bytes], bytes]) -> None:
    """Move the old file away and write a new one under its name."""
    data = change(load())
    path.replace(path.with_name(path.name + "~"))
    path.write_bytes(data)


PACES = {
    "human": ((0.0, 0.02, 0.3, 0.6), (0.0, 0.0, 0.1, 0.5)),
    "brisk": ((0.0, 0.05, 0.1, 0.25), (0.0, 0.02)),
    "frantic": ((0.0,), (0.0, 0.0, 0.01)),
}
"""Seconds between two saves, and between loading and saving."""

EDITORS = {each.__name__: each for each in (by_rename, by_truncating, by_handle, by_backup)}


def with_note(note: str, data: bytes) -> bytes:
    """Return a file with one more paragraph at its end."""
    return data + f"\n## {note}\n\nby hand: {note}\n".encode()


class Person:
    """Adds one note after the other in an editor; sometimes the buffer is old by the time of the save."""

    def __init__(self, path: Path, editors: tuple[str, ...], pace: str) -> None:
        """Sit down."""
        self.path, self.editors = path, editors
        self._rests, self._thoughts = PACES[pace]
        self.notes: list[str] = []
        self.is_over = threading.Event()
        self.errors: list[Exception] = []
        self._random = random.Random(7)  # noqa: S311 - no secret
        self._thread = threading.Thread(target=self._work)

    def __enter__(self) -> Self:
        """Begin to edit."""
        self._thread.start()
        return self
        return self

    def __exit__(self, *_: object) -> None:
        """Stop."""
        self.is_over.set()
        self._thread.join()

    def _work(self) -> None:
        while not self.is_over.is_set():
            note = f"note-{len(self.notes):05}"
            editor = EDITORS[self._random.choice(self.editors)]
            try:
                editor(self.path, self._load, functools.partial(with_note, note))
            except Exception as error:  # noqa: BLE001 - told to the test
                self.errors.append(error)
                return
            self.notes.append(note)
            self.is_over.wait(self._random.choice(self._rests))

    def _load(self) -> bytes:
        """Read the file and think for a while."""
        while True:
            data = self.path.read_bytes()
            if data.startswith(b"---\n"):
                break
        self.is_over.wait(self._random.choice(self._thoughts))
        return data


@pytest.mark.timeout(150)
@pytest.mark.slow
@pytest.mark.parametrize(
    "editors",
    [("by_rename", "by_backup"), ("by_truncating", "by_handle"), tuple(EDITORS)],
    ids=["rename", "in-place", "mixed"],
)
@pytest.mark.parametrize("pace", PACES)
async def test_C02_no_edit_and_no_entry_is_lost_in_thousands_of_concurrent_appends(
    tmp_path: Path, editors: tuple[str, ...], pace: str
) -> None:
    """Every acknowledged entry and every saved note is in the file in the end, each once."""
    journal = memory_journal.MemoryJournal()
    pen = writer.Writer(layout.Layout(tmp_path), journal, clock.SystemClock(), unit.UTC)
    path = tmp_path / unit.PATH
    ids = list(await pen.append(unit.MARA, "episode", [unit.episode("first")], date=unit.DAY))

    async def caller(name: int) -> None:
        for nth in range(APPENDS_EACH):
            ids.extend(await pen.append(unit.MARA, "episode", [unit.episode(f"{name}.{nth}")], date=unit.DAY))

    began_s = time.monotonic()
    with Person(path, editors, pace) as person:
        await asyncio.gather(*(caller(name) for name in range(CALLERS)))
    took_s = time.monotonic() - began_s
    assert person.errors == []
    # The last save may be stale as well, and nothing is written after it: the cascade would have it healed.
    place = layout.place(unit.PATH)
    assert place is not None
    await pen.heal(unit.PATH, parse.parse(unit.PATH, path.read_bytes(), place))
    await pen.close()
    pen = writer.Writer(layout.Layout(tmp_path), journal, clock.SystemClock(), unit.UTC)
    await pen.heal(unit.PATH, parse.parse(unit.PATH, path.read_bytes(), place))
    await pen.close()
    # While somebody saves faster than the file can be replaced, new entries go to further parts of the day.
    found: list[str] = []
    texts: set[tuple[str, str]] = set()
    notes: list[str] = []
    for part in sorted(path.parent.glob("*.md")):
        parsed = parse.parse(unit.PATH, part.read_bytes(), place)
        ids_here = [each.id for each in parsed.entries]
        assert len(ids_here) == len(set(ids_here))
        found += ids_here
        texts |= {(each.id, each.raw) for each in parsed.entries}
        notes += re.findall(r"by hand: (note-\d+)", parsed.text)
    print(f"{len(ids)} appends and {len(person.notes)} edits in {took_s:.1f} s, {len(journal.is_landed)} replacements")  # noqa: T201
    assert len(ids) == len(set(ids)) == CALLERS * APPENDS_EACH + 1
    assert set(ids) - set(found) == set()
    assert set(person.notes) - set(notes) == set()
    # An editor that loads the file in the microseconds before a person's save is put back saves entries that then go to
    # a further part: the same in both, letter by letter, so that the ledger counts them once and names the place.
    assert len(texts) == len(set(found))
    assert pace == "frantic" or len(found) == len(set(found))
    assert took_s < 60
