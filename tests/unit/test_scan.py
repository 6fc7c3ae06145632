"""What is on disk, and what cannot be said about it."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from everosd.types import RelPath
from everosd.watch import scan

USER = "default_app/default_project/users/u_mara"
DAY = RelPath(f"{USER}/episodes/episode-2026-01-01.md")
NOBODY = 65534


def write(root: Path, path: str, text: str = "x") -> Path:
    file = root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")
    return file


@pytest.fixture
def powerless() -> Iterator[Path]:
    """A root of somebody whom permissions hold back (tests may run as root, whom they do not)."""
    root = Path(tempfile.mkdtemp(prefix="everosd-scan-"))
    if os.geteuid() == 0:
        os.chown(root, NOBODY, NOBODY)
        os.seteuid(NOBODY)
        try:
            yield root
        finally:
            os.seteuid(0)
            shutil.rmtree(root)
    else:
        yield root
        for folder, _, _ in os.walk(root):
            Path(folder).chmod(0o700)
        shutil.rmtree(root)


def test_W14_editor_leftovers_are_not_memory_and_conflicts_are_listed(tmp_path: Path) -> None:
    """Beside a real file, what editors and sync programs leave is not read; conflict copies are named."""
    write(tmp_path, DAY)
    folder = f"{USER}/episodes"
    for name in (".#e.md", "e.md~", ".e.md.swp", "e.md.tmp", "#e.md#", "4913", ".e.md.tmp.0f3a", ".e.md", "notes.txt"):
        write(tmp_path, f"{folder}/{name}")
    conflicts = {f"{folder}/e.sync-conflict-20260101-1-ABC.md", f"{folder}/e (Mara's conflicted copy).md"}
    for path in conflicts:
        write(tmp_path, path)
    (tmp_path / folder / ".#lock.md").symlink_to("mara@host.123:456")
    found = scan.scan(tmp_path)
    assert [DAY] == list(found.files)
    assert conflicts == set(found.conflicts)
    assert ((), (), ()) == (found.strays, found.unreadable, found.links)


def test_every_kind_of_memory_is_found(tmp_path: Path) -> None:
    """Files of users, agents and sessions are found in hidden and open folders alike."""
    paths = {
        DAY,
        f"{USER}/user.md",
        f"{USER}/episodes/2025/Rückblick März.md",
        f"{USER}/.atomic_facts/atomic_fact-2026-01-01.md",
        f"{USER}/.lifecycle/lifecycle-2026-01-01.md",
        f"{USER}/memories/work/plans/semantic-2026-01-01.md",
        "app/pro/agents/bot/skills/skill_cook/SKILL.md",
        "app/pro/sessions/s_1/messages-2026-01-01.md",
    }
    for path in paths:
        write(tmp_path, path)
    assert paths == set(scan.scan(tmp_path).files)


def test_file_is_judged_alone_and_among_others_alike(tmp_path: Path) -> None:
    """What a walk says of a file does not hang on which files it met before in that folder."""
    folders = (f"{USER}/episodes", USER, f"{USER}/memories/a", "app/pro/agents/bot/skills/skill_cook", "app/pro", "app")
    names = ("SKILL.md", "user.md", "any name.md", "x (conflicted copy).md", "a.md", "episode-2026-01-01.md")
    paths = [f"{folder}/{name}" for folder in folders for name in names]
    for path in paths:
        write(tmp_path, path)
    found = scan.scan(tmp_path)
    judged = dict.fromkeys(found.files, "memory") | dict.fromkeys(found.strays, "stray")
    assert {path: scan.sort(path) for path in paths} == judged | dict.fromkeys(found.conflicts, "conflict")


def test_scan_below_nothing_is_a_scan_of_the_root(tmp_path: Path) -> None:
    """The root is a folder like any other."""
    write(tmp_path, DAY)
    assert scan.scan(tmp_path) == scan.scan(tmp_path, below=RelPath(""))


def test_W15_folders_of_the_daemon_and_of_others_are_not_walked(tmp_path: Path) -> None:
    """Index, cache, temporary files, git and Obsidian are no part of the walk."""
    write(tmp_path, DAY)
    for folder in (".index/text", ".cache", ".tmp", ".git/refs", ".obsidian", f"{USER}/.trash", ".index.everos-1"):
        write(tmp_path, f"{folder}/episodes/x.md")
    found = scan.scan(tmp_path)
    assert [DAY] == list(found.files)
    assert found.strays == ()
    assert found.n_folders == 6


def test_prompts_of_the_persons_own_are_no_strays(tmp_path: Path) -> None:
    """`prompts/` is where they belong; an app of that name has its memory there all the same."""
    memory = DAY.replace("default_app", "prompts")
    for path in ("prompts/episode.md", "prompts/old/episode.md", "prompts.md", memory):
        write(tmp_path, path)
    found = scan.scan(tmp_path)
    assert ([memory], ("prompts.md",)) == (list(found.files), found.strays)
    assert ["leftover", "stray", "memory"] == [scan.sort(path) for path in ("prompts/a.md", "prompts.md", memory)]


def test_markdown_elsewhere_is_reported_as_stray(tmp_path: Path) -> None:
    """A note that lies where nothing is read is not silently ignored."""
    write(tmp_path, "README.md")
    write(tmp_path, "app/pro/users/note.md")
    assert ("README.md", "app/pro/users/note.md") == scan.scan(tmp_path).strays


def test_scan_describes_files_as_the_file_system_does(tmp_path: Path) -> None:
    """Inode, size and time of change are those of `stat`."""
    status = write(tmp_path, DAY, "zwölf").stat()
    expected = scan.DiskFile(path=DAY, inode=status.st_ino, size=6, mtime_ns=status.st_mtime_ns)
    assert {DAY: expected} == scan.scan(tmp_path).files
    assert expected == scan.look(tmp_path, DAY)


def test_scan_below_a_folder_sees_that_folder_only(tmp_path: Path) -> None:
    """A new folder is walked without the rest of the root."""
    write(tmp_path, DAY)
    other = write(tmp_path, "default_app/default_project/users/u_ben/episodes/episode-2026-01-01.md")
    below = RelPath("default_app/default_project/users/u_ben")
    assert [str(other.relative_to(tmp_path))] == list(scan.scan(tmp_path, below=below).files)


@pytest.mark.parametrize("below", ["gone", "gone/deeper", ".index", "a/../..", "file.md"])
def test_scan_below_what_is_no_folder_is_empty(tmp_path: Path, below: str) -> None:
    """A folder that vanished before it was walked is normal; one outside the root is not walked."""
    write(tmp_path, "file.md")
    assert scan.Scan() == scan.scan(tmp_path, below=RelPath(below))


def test_missing_root_is_unreadable_and_not_empty(tmp_path: Path) -> None:
    """A root that is not mounted says nothing about any file."""
    found = scan.scan(tmp_path / "gone")
    assert (("", "no such file or directory"),) == found.unreadable
    assert not found.knows(DAY)


def test_W18_unreadable_folder_is_never_absent(powerless: Path) -> None:
    """Below a folder that may not be read, and below such a root, files are not seen and not called gone."""
    write(powerless, DAY)
    near = write(powerless, "default_app/default_project/users/u_ben/user.md")
    before = scan.scan(powerless)
    folder = powerless / USER / "episodes"
    for closed, reason_at in ((folder, f"{USER}/episodes"), (powerless, "")):
        closed.chmod(0)
        try:
            found = scan.scan(powerless)
            assert isinstance(scan.look(powerless, DAY), scan.Unreadable)
        finally:
            closed.chmod(0o700)
        assert ((reason_at, "permission denied"),) == found.unreadable
        assert not found.knows(DAY)
        assert (bool(reason_at)) == found.knows(str(near.relative_to(powerless)))
        assert DAY not in scan.changed(before, found)[0]
    assert before == scan.scan(powerless)


def test_W18_folder_that_may_be_listed_but_not_entered_is_not_absent(powerless: Path) -> None:
    """Mode r-- lists names that cannot be stat'ed: nothing is known about them."""
    write(powerless, DAY)
    folder = powerless / USER / "episodes"
    folder.chmod(0o400)
    try:
        found = scan.scan(powerless)
        looked = scan.look(powerless, DAY)
    finally:
        folder.chmod(0o700)
    assert ((DAY, "permission denied"),) == found.unreadable
    assert not found.knows(DAY)
    assert scan.Unreadable(reason="permission denied") == looked


@pytest.mark.parametrize(
    ("remove", "parent_lists"),
    [
        (lambda root: (root / DAY).unlink(), True),
        (lambda root: shutil.rmtree(root / USER), True),
        (lambda root: shutil.rmtree(root / "default_app"), True),
        (shutil.rmtree, False),
    ],
    ids=["file", "owner", "app", "root"],
)
def test_absence_counts_where_the_folder_above_lists(
    tmp_path: Path, remove: Callable[[Path], object], *, parent_lists: bool
) -> None:
    """A deleted file, or a deleted folder with it, is gone; with the root away nothing is said."""
    root = tmp_path / "root"
    write(root, DAY)
    remove(root)
    assert scan.Absent(parent_lists=parent_lists) == scan.look(root, DAY)


def test_folder_in_the_place_of_a_file_means_that_the_file_is_gone(tmp_path: Path) -> None:
    """A folder named like a note is no note."""
    (tmp_path / DAY).mkdir(parents=True)
    assert scan.Absent(parent_lists=True) == scan.look(tmp_path, DAY)
    assert scan.scan(tmp_path).files == {}


def test_pipe_is_named_and_never_opened(tmp_path: Path) -> None:
    """A pipe would block whoever reads it."""
    (tmp_path / DAY).parent.mkdir(parents=True)
    os.mkfifo(tmp_path / DAY)
    assert ((DAY, "is not a regular file"),) == scan.scan(tmp_path).unreadable
    assert scan.Unreadable(reason="is not a regular file") == scan.look(tmp_path, DAY)


def test_name_that_is_not_utf8_is_named_and_skipped(tmp_path: Path) -> None:
    """A name that no database takes does not stop the walk."""
    write(tmp_path, DAY)
    folder = os.fsencode(tmp_path / USER / "episodes")
    with open(folder + b"/caf\xe9.md", "wb"):  # noqa: PTH123 - a name of bytes
        pass
    os.mkdir(folder + b"/b\xe9b\xe9")  # noqa: PTH102
    found = scan.scan(tmp_path)
    assert [DAY] == list(found.files)
    assert {"the name is not UTF-8"} == {reason for _, reason in found.unreadable}
    assert 2 == len(found.unreadable)
    assert all(path.encode("utf-8") for path, _ in found.unreadable)


def test_links_inside_the_root_are_followed_once(tmp_path: Path) -> None:
    """A linked folder and a linked file are read where they are linked; loops end."""
    write(tmp_path, DAY)
    ben = tmp_path / "default_app/default_project/users/u_ben"
    (ben / "episodes").mkdir(parents=True)
    (ben / "episodes" / "shared").symlink_to(tmp_path / USER / "episodes")
    (ben / "episodes" / "episode-2026-01-09.md").symlink_to(tmp_path / DAY)
    (tmp_path / USER / "episodes" / "loop").symlink_to(tmp_path / USER)
    (tmp_path / USER / "episodes" / "root").symlink_to(tmp_path)
    found = scan.scan(tmp_path)
    base = "default_app/default_project/users/u_ben/episodes"
    linked = f"{base}/episode-2026-01-09.md"
    shared = f"{base}/shared/episode-2026-01-01.md"
    assert {DAY, linked, shared} == set(found.files)
    assert found.files[DAY].inode == found.files[RelPath(linked)].inode
    assert isinstance(scan.look(tmp_path, RelPath(linked)), scan.DiskFile)
    assert isinstance(scan.look(tmp_path, RelPath(shared)), scan.DiskFile)
    assert {f"{USER}/episodes/loop", f"{USER}/episodes/root"} <= {path for path, _ in found.links}


def test_links_out_of_the_root_are_reported_and_not_followed(tmp_path: Path) -> None:
    """Neither a file nor a folder outside is read through a link, nor what lies in the daemon's own folders."""
    root, outside = tmp_path / "root", tmp_path / "root-outside"
    write(root, DAY)
    secret = write(outside, "secret.md")
    own = write(root, ".index/x.md")
    folder = root / USER / "episodes"
    (folder / "secret.md").symlink_to(secret)
    (folder / "away").symlink_to(outside)
    (folder / "own.md").symlink_to(own)
    (folder / "nowhere.md").symlink_to(folder / "gone.md")
    found = scan.scan(root)
    assert [DAY] == list(found.files)
    reasons = {path.rpartition("/")[2]: reason for path, reason in found.links}
    assert {
        "secret.md": "leaves the root",
        "away": "leaves the root",
        "own.md": "leads to a folder that is not read",
        "nowhere.md": "leads nowhere",
    } == reasons
    assert isinstance(scan.look(root, RelPath(f"{USER}/episodes/secret.md")), scan.Unreadable)
    assert isinstance(scan.look(root, RelPath(f"{USER}/episodes/away/secret.md")), scan.Unreadable)
    assert scan.scan(root, below=RelPath(f"{USER}/episodes/away")).files == {}


def test_link_that_leads_nowhere_is_not_called_gone(tmp_path: Path) -> None:
    """What a link leads to may come back (a mount): as long as the link is there, nothing is said of it."""
    target = write(tmp_path, f"{USER}/memories/a/semantic-2026-01-01.md")
    write(tmp_path, DAY).unlink()
    (tmp_path / DAY).symlink_to(target)
    assert isinstance(scan.look(tmp_path, DAY), scan.DiskFile)
    target.unlink()
    assert scan.Absent(parent_lists=False) == scan.look(tmp_path, DAY)
    assert not scan.scan(tmp_path).knows(DAY)


def test_root_that_is_a_link_is_walked(tmp_path: Path) -> None:
    """The root itself may be reached through a link."""
    write(tmp_path / "real", DAY)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    assert [DAY] == list(scan.scan(tmp_path / "link").files)
    assert isinstance(scan.look(tmp_path / "link", DAY), scan.DiskFile)


def test_two_scans_differ_by_what_changed(tmp_path: Path) -> None:
    """Added, modified, replaced and removed files are told, and other Markdown beside them; the rest is not."""
    names = [f"{USER}/episodes/{name}.md" for name in ("kept", "edited", "replaced", "removed")]
    files = [write(tmp_path, name) for name in names]
    before = scan.scan(tmp_path)
    files[1].write_text("longer", encoding="utf-8")
    temporary = write(tmp_path, f"{USER}/episodes/.t")
    os.utime(temporary, ns=(files[2].stat().st_mtime_ns,) * 2)
    temporary.rename(files[2])
    files[3].unlink()
    added = f"{USER}/episodes/added.md"
    write(tmp_path, added)
    write(tmp_path, "stray.md")
    assert ({*names[1:], added}, {"stray.md"}) == scan.changed(before, scan.scan(tmp_path))
