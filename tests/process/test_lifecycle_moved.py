"""A person takes a memory to another file, or out of its file, while it is moved or removed for good."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Literal

import pytest

from everosd import errors, types
from everosd.cascade import verify
from everosd.intake import unsay
from everosd.lifecycle import desk, forget, memory, remember, update
from tests import open_root, steps

MARA = types.Owner(app="default", project="default", type="user", id="mara")
WORD = "Zanzibarquartz"


class Work:
    """What writes memories over an open root, with a person who acts at one moment of it."""

    def __init__(self, root: open_root.Root, moment: str = "", act: Callable[[], object] = bool) -> None:
        """Wire it as the daemon does."""
        self.root = root
        parts = desk.Desk(root.reader, root.node.cascade, root.node.clock, steps.once(moment, act))
        self.updates = update.Updates(parts)
        self.remembering = remember.Remembering(parts, self.updates)
        self.forgetting = forget.Forgetting(parts, lambda: unsay.Unsaying(parts.places, root.pen, root.node.clock))


def cut(path: Path, entry_id: str, to: Path | None) -> None:
    """Cut an entry out of a file, as an editor does; paste it into another one."""
    text = path.read_text()
    begin = text.index(f"<!-- entry:{entry_id} -->")
    end = text.index(f"<!-- /entry:{entry_id} -->") + len(f"<!-- /entry:{entry_id} -->\n")
    for target, new in ((to, text[begin:end]), (path, text[:begin] + text[end:])):
        if target is not None:
            target.parent.mkdir(exist_ok=True)
            target.write_text(new)
            steps.age(target)


async def remembered(root: open_root.Root) -> tuple[str, Path]:
    """Remember two things at one path; return id and file of the first."""
    one = Work(root)
    first, _ = [
        await one.remembering.remember(MARA, remember.Wanted(path="notes", change=memory.Change(content=content)))
        for content in (f"It is called {WORD}.", "Bread at noon.")
    ]
    path = root.path / first.row.path
    steps.age(path)
    return first.row.entry_id, path


@pytest.mark.parametrize("mode", ["redact", "hard_delete"])
async def test_what_is_taken_to_another_file_while_it_is_removed_for_good_is_removed_there(
    tmp_path: Path, mode: Literal["redact", "hard_delete"]
) -> None:
    """It was answered that it is gone: it is nowhere, wherever it stood when that was begun."""
    async with open_root.opened(tmp_path) as root:
        entry_id, path = await remembered(root)
        moved = path.parent.with_name("moved") / path.name
        work = Work(root, "buried", lambda: cut(path, entry_id, moved))
        done = await work.forgetting.remove(MARA, entry_id, mode)
        await root.settled()
        found = await root.reader.find(MARA, entry_id)
        assert (mode == "redact") == (found is not None)
        assert [] == steps.holders(tmp_path, WORD)
        assert () == done.left
        report = await verify.verify(root.node.cascade)
        assert report.is_clean, report.differences


@pytest.mark.parametrize("is_pasted", [True, False])
async def test_what_a_person_takes_out_of_its_file_while_it_is_moved_is_where_they_took_it(
    tmp_path: Path, *, is_pasted: bool
) -> None:
    """The move is refused, and leaves no second copy behind, nor brings back what they deleted."""
    async with open_root.opened(tmp_path) as root:
        entry_id, path = await remembered(root)
        moved = path.parent.with_name("moved") / path.name
        work = Work(root, "put_down", lambda: cut(path, entry_id, moved if is_pasted else None))
        with pytest.raises(errors.Conflict):
            await work.updates.update(MARA, entry_id, memory.Change(), path="elsewhere")
        await root.settled()
        holding = [
            each.relative_to(tmp_path).as_posix()
            for each in tmp_path.rglob("*.md")
            if WORD in each.read_text() and not {".lifecycle", ".tmp"} & set(each.parts)
        ]
        assert [moved.relative_to(tmp_path).as_posix()] * is_pasted == holding


async def test_a_second_copy_that_a_person_takes_out_again_is_no_end_of_a_move_to_its_place(tmp_path: Path) -> None:
    """It was found there, and is gone when it is to be written over: the memory moves there all the same."""
    async with open_root.opened(tmp_path) as root:
        entry_id, path = await remembered(root)
        before = path.read_text()
        await Work(root).updates.update(MARA, entry_id, memory.Change(), path="elsewhere")
        path.write_text(before.replace("is called", "was called"))
        steps.age(path)
        await root.settled()
        work = Work(root, "second_found", lambda: cut(path, entry_id, None))
        done = await work.updates.update(MARA, entry_id, memory.Change(), path="notes")
        await root.settled()
        assert "updated" == done.outcome
        assert [path.relative_to(tmp_path).as_posix()] == [
            each for each in steps.holders(tmp_path, WORD) if "memories/" in each
        ]
        report = await verify.verify(root.node.cascade)
        assert report.is_clean, report.differences
