"""Reading, replacing and appending files: nothing that anybody saved is lost."""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from everosd import errors, types
from everosd.log import displaced, exchange, file, growth, swap, tail
from tests import steps

OLD = b"---\nid: x\n---\nold\n"
NEW = b"---\nid: x\n---\nold\nnew\n"
SAVED = b"---\nid: x\n---\nmine\n"


@pytest.fixture
def day(tmp_path: Path) -> Path:
    """A settled file."""
    path = tmp_path / "episode-2026-03-02.md"
    path.write_bytes(OLD)
    steps.age(path)
    return path


def put(
    day: Path, *, expected: bytes | None = OLD, step: file.Step = file.no_step, can_exchange: bool = True
) -> object:
    """Replace `day` by NEW."""
    return exchange.replace(day, expected, NEW, day.parent / ".tmp", step=step, can_exchange=can_exchange)


def by_rename(path: Path, data: bytes) -> None:
    """Save as most editors do."""
    other = path.with_name("saving")
    other.write_bytes(data)
    other.replace(path)


def names(folder: Path) -> list[str]:
    """Return what is in a folder of memory, `.tmp/` left out."""
    return sorted(path.name for path in folder.iterdir() if path.name != ".tmp")


def temporary_files(folder: Path) -> list[str]:
    """Return what should not be left in a folder of memory."""
    return [name for name in names(folder) if ".tmp." in name]


def test_reading_tells_what_and_which_file(day: Path) -> None:
    """Bytes and identity belong together."""
    read = file.read(day)
    found = day.stat()
    assert read.data == OLD
    assert read.identity == (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)
    assert read.is_stable


def test_reading_while_somebody_writes_never_mixes_two_versions(tmp_path: Path) -> None:
    """Every read that calls itself stable is one version, however often it is rewritten in place."""
    path = tmp_path / "x.md"
    versions = [bytes([65 + nth]) * 100_000 for nth in range(3)]
    path.write_bytes(versions[0])
    is_over = threading.Event()

    def rewrite() -> None:
        while not is_over.is_set():
            for version in versions:
                path.write_bytes(version)

    thread = threading.Thread(target=rewrite)
    thread.start()
    try:
        reads = [file.read(path) for _ in range(50)]
    finally:
        is_over.set()
        thread.join()
    assert [] == [
        read.data[:20] for read in reads if read.is_stable and len(read.data) == 100_000 and len(set(read.data)) > 1
    ]


@pytest.mark.parametrize("make", [lambda path: path.mkdir(), os.mkfifo], ids=["folder", "pipe"])
def test_what_is_no_file_is_not_read_and_not_waited_for(tmp_path: Path, make: Callable[[Path], object]) -> None:
    """A folder or a named pipe called x.md raises at once."""
    make(tmp_path / "x.md")
    with pytest.raises(OSError, match=r"directory|Invalid"):
        file.read(tmp_path / "x.md")


def test_a_file_without_read_permission_is_not_read_even_by_root(day: Path) -> None:
    """Whoever takes all read bits away does not want it read."""
    day.chmod(0)
    with pytest.raises(PermissionError):
        file.read(day)


@pytest.mark.parametrize("can_exchange", [True, False])
def test_replacing_puts_the_new_bytes_in_place_and_leaves_nothing_behind(day: Path, *, can_exchange: bool) -> None:
    """The file has the new bytes, and its folder no other file."""
    assert isinstance(put(day, can_exchange=can_exchange), exchange.Replaced)
    assert day.read_bytes() == NEW
    assert names(day.parent) == [day.name]


@pytest.mark.parametrize("can_exchange", [True, False])
def test_a_file_that_is_not_as_expected_is_left_alone(day: Path, *, can_exchange: bool) -> None:
    """Compare fails: nothing happens."""
    assert isinstance(put(day, expected=b"something else", can_exchange=can_exchange), exchange.Changed)
    assert day.read_bytes() == OLD
    assert temporary_files(day.parent) == []


@pytest.mark.parametrize("moment", ["written", "ready"])
@pytest.mark.parametrize("save", [by_rename, Path.write_bytes], ids=["rename", "in place"])
@pytest.mark.parametrize("can_exchange", [True, False])
def test_C02_save_between_compare_and_rename_survives(
    day: Path, moment: str, save: Callable[[Path, bytes], object], *, can_exchange: bool
) -> None:
    """A save at the last moment before the exchange is in the file afterwards, and the caller is told."""
    outcome = put(day, step=steps.once(moment, lambda: save(day, SAVED)), can_exchange=can_exchange)
    assert isinstance(outcome, exchange.Changed)
    assert day.read_bytes() == SAVED
    assert temporary_files(day.parent) == []


def test_C02_two_saves_around_the_exchange_leave_the_newer(day: Path) -> None:
    """One save lands before the exchange, a second while the first is being put back: the second stays."""
    newest = SAVED + b"and more\n"
    seen: list[str] = []

    def step(name: str) -> None:
        seen.append(name)
        if name == "ready":
            by_rename(day, SAVED)
        if seen == ["opened", "written", "ready", "exchanged"]:
            by_rename(day, newest)

    assert isinstance(put(day, step=step), exchange.Changed)
    assert day.read_bytes() == newest
    assert temporary_files(day.parent) == []


def test_C02_a_save_made_on_what_stood_there_for_a_moment_does_not_cost_the_one_before(day: Path) -> None:
    """An editor loads our text in the middle of an exchange and saves on it: the save that was taken out is merged."""
    seen: list[str] = []

    def step(name: str) -> None:
        seen.append(name)
        if name == "ready":
            by_rename(day, SAVED)
        if seen == ["opened", "written", "ready", "exchanged"]:
            by_rename(day, day.read_bytes() + b"made on ours\n")

    outcome = put(day, step=step)
    assert isinstance(outcome, exchange.Changed)
    assert day.read_bytes() == NEW + b"made on ours\n"
    watch = displaced.Watch(time.monotonic)
    for each in outcome.displaced:
        watch.add(each)
    newest = NEW + b"made on ours\n"
    assert [(SAVED, OLD), (newest, OLD)] == [(save.data, save.base) for save in watch.late_saves(is_final=True)]


def test_C02_a_save_that_has_its_name_again_is_not_lost_to_one_that_comes_after_the_exchange(day: Path) -> None:
    """An editor loads our text in the middle of an exchange and saves on it when the exchange is over."""
    loaded: list[bytes] = []

    def step(name: str) -> None:
        if name == "ready":
            by_rename(day, SAVED)
        if name == "exchanged":
            loaded.append(day.read_bytes())

    outcome = put(day, step=step)
    assert isinstance(outcome, exchange.Changed)
    assert ([NEW], SAVED) == (loaded, day.read_bytes())
    by_rename(day, loaded[0] + b"made on ours\n")
    watch = displaced.Watch(time.monotonic)
    for each in outcome.displaced:
        watch.add(each)
    assert [(SAVED, OLD)] == [(save.data, save.base) for save in watch.late_saves(is_final=True)]


def test_O10_no_save_loses_its_name_on_a_full_disk(small_disk: Path) -> None:
    """Two saves around an exchange while the disk fills up: neither can be copied, and both stay where they are."""
    day = small_disk / "episode-2026-03-02.md"
    day.write_bytes(OLD)
    steps.age(day)
    seen: list[str] = []

    def step(name: str) -> None:
        seen.append(name)
        if name == "ready":
            by_rename(day, SAVED)
        if seen == ["opened", "written", "ready", "exchanged"]:
            by_rename(day, NEW + b"made on ours\n")
            fill(small_disk / "filler")

    outcome = put(day, step=step)
    assert isinstance(outcome, exchange.Changed)
    assert day.read_bytes() == SAVED
    watch = displaced.Watch(time.monotonic)
    for each in outcome.displaced:
        watch.add(each)
    assert [(NEW + b"made on ours\n", OLD)] == [(each.data, each.base) for each in watch.late_saves(is_final=True)]
    late = displaced.recover(small_disk, small_disk / ".tmp", displaced.Watch())
    assert [(day, NEW + b"made on ours\n")] == [(each.path, each.data) for each in late]


def test_C02_a_superseded_save_is_on_disk_before_it_loses_its_name(day: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """File and folder of its copy are synced before the names are exchanged once more."""
    kept: list[str] = []
    sync = os.fsync

    def fsync(descriptor: int) -> None:
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        kept.append(path.suffix or path.name)
        sync(descriptor)

    def step(name: str) -> None:
        kept.append(name)
        if name == "ready":
            by_rename(day, SAVED)
        if name == "exchanged":
            by_rename(day, day.read_bytes() + b"made on ours\n")

    monkeypatch.setattr(os, "fsync", fsync)
    put(day, step=step)
    kept = [each for each in kept if each in ("exchanged", "put_back", ".origin", ".part", ".tmp")]
    copied = [".origin", ".part", ".tmp"]
    assert ["exchanged", "put_back", *copied, "put_back", *copied] == kept  # the last one stands, and is kept as well


def test_C04_half_a_copy_of_a_save_is_not_taken_for_a_save(day: Path) -> None:
    """The daemon dies while it copies a save: what it had written of it is deleted, its name too; the source is still there."""
    tmp = day.parent / ".tmp"
    pid = os.fork()
    if pid == 0:
        os.fsync = lambda _: os.kill(os.getpid(), 9) if any(tmp.glob("*.part")) else None  # type: ignore[assignment]
        displaced.keep(displaced.LateSave(path=day, data=SAVED, base=OLD), tmp)
        os._exit(0)
    os.waitpid(pid, 0)
    assert any(tmp.glob("*.part"))
    assert displaced.recover(day.parent, tmp, displaced.Watch()) == ()
    assert not any(tmp.iterdir())
    kept = displaced.keep(displaced.LateSave(path=day, data=SAVED, base=OLD), tmp)
    assert [day] == [one.path for one in displaced.recover(day.parent, tmp, displaced.Watch())]
    assert {kept, displaced.origin_of(kept)} == set(tmp.iterdir())


def test_C02_a_save_that_could_not_be_kept_is_found_again(day: Path) -> None:
    """It is handed out once more, and the only file that has it stays."""
    moment = Time()
    watch = displaced.Watch(moment)
    watch.add(displaced.keep_save(day, SAVED, day.parent / ".tmp", OLD))
    watch.late_saves()
    moment.now_s += 0.3
    (save,) = watch.late_saves()
    assert watch.give_back(save)
    moment.now_s += 1
    assert watch.late_saves() == ()
    moment.now_s += displaced.RETRY_S
    assert watch.late_saves() == (save,)
    moment.now_s += displaced.KEEP_S + 1
    assert watch.late_saves() == ()
    assert not watch.give_back(save)


def test_a_save_of_unknown_origin_is_not_thrown_away(day: Path) -> None:
    """Somebody saved into a displaced file whose name was not written down: nobody else has that text."""
    tmp = day.parent / ".tmp"
    kept = displaced.keep_save(day, SAVED, tmp, OLD).now_at
    displaced.origin_of(kept).unlink()
    displaced.recover(day.parent, tmp, displaced.Watch())
    assert kept.read_bytes() == SAVED


def test_C02_file_deleted_while_a_save_is_put_back_keeps_the_save(day: Path) -> None:
    """A save came out of the exchange and its name was deleted then: the save gets the name back."""
    seen: list[str] = []

    def step(name: str) -> None:
        seen.append(name)
        if name == "ready":
            by_rename(day, SAVED)
        if name == "exchanged":
            day.unlink()

    assert isinstance(put(day, step=step), exchange.Changed)
    assert day.read_bytes() == SAVED


@pytest.mark.parametrize("can_exchange", [True, False])
def test_a_file_deleted_meanwhile_is_not_created(day: Path, *, can_exchange: bool) -> None:
    """The caller decides what a deletion means."""
    assert isinstance(put(day, step=steps.once("ready", day.unlink), can_exchange=can_exchange), exchange.Changed)
    assert not day.exists()
    assert temporary_files(day.parent) == []


def test_a_new_file_never_takes_the_place_of_one_that_appeared(tmp_path: Path) -> None:
    """Creation fails when somebody was faster."""
    path = tmp_path / "x.md"
    outcome = put(path, expected=None, step=steps.once("written", lambda: path.write_bytes(SAVED)))
    assert isinstance(outcome, exchange.Changed)
    assert path.read_bytes() == SAVED
    assert isinstance(put(path, expected=None), exchange.Changed)
    assert temporary_files(tmp_path) == []


def test_a_file_that_changed_just_now_is_not_replaced(day: Path) -> None:
    """Within 200 ms of a save the file is left alone, unless that state is known to have settled."""
    day.write_bytes(OLD)
    outcome = put(day)
    assert isinstance(outcome, exchange.Busy)
    assert 0 < outcome.wait_s <= 0.2
    assert day.read_bytes() == OLD
    assert isinstance(exchange.replace(day, OLD, NEW, day.parent / ".tmp", settled=outcome.identity), exchange.Replaced)


def test_a_time_stamp_in_the_future_holds_nobody_up(day: Path) -> None:
    """A file from a machine whose clock is ahead counts as changed just now, not as changed for ever."""
    os.utime(day, (time.time() + 3600, time.time() + 3600))
    outcome = put(day)
    assert isinstance(outcome, exchange.Busy)
    assert isinstance(exchange.replace(day, OLD, NEW, day.parent / ".tmp", settled=outcome.identity), exchange.Replaced)


def test_a_file_open_for_writing_is_waited_for(day: Path) -> None:
    """An editor that has the file open for writing is about to save; `is_urgent` ends the patience."""
    with day.open("r+b"):
        outcome = put(day)
        assert isinstance(outcome, exchange.Busy)
        assert outcome.wait_s < exchange.QUIET_NS / 1e9
        assert isinstance(exchange.replace(day, OLD, NEW, day.parent / ".tmp", is_urgent=True), exchange.Replaced)


def test_asking_who_holds_a_file_does_no_harm_to_who_opens_it(day: Path) -> None:
    """A broken lease neither ends this process nor refuses the other."""
    is_over = threading.Event()
    failures: list[OSError] = []

    def open_all_the_time() -> None:
        while not is_over.is_set():
            try:
                with day.open("r+b"):
                    pass
            except OSError as error:
                failures.append(error)

    thread = threading.Thread(target=open_all_the_time)
    thread.start()
    descriptor = os.open(day, os.O_RDONLY)
    try:
        answers = {swap.is_held_for_writing(descriptor) for _ in range(3000)}
    finally:
        os.close(descriptor)
        is_over.set()
        thread.join()
    assert failures == []
    assert answers <= {True, False}


def test_the_lock_of_another_program_is_respected(day: Path) -> None:
    """`flock file command` keeps the daemon away."""
    code = "import fcntl,sys,os; f=open(sys.argv[1]); fcntl.flock(f, fcntl.LOCK_EX); print('locked', flush=True); sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", code, day], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"locked\n"
        outcome = put(day)
        holder.communicate()
    assert isinstance(outcome, exchange.Busy)
    assert isinstance(put(day), exchange.Replaced)


def test_Z08_modes_of_new_and_replaced_files(tmp_path: Path) -> None:
    """New files are 0600 in folders of 0700 whatever the umask, and a rewrite keeps the mode that it finds."""
    before = os.umask(0o022)
    try:
        folder = tmp_path / "a" / "b"
        file.make_folder(folder)
        path = folder / "x.md"
        exchange.replace(path, None, OLD, tmp_path / ".tmp")
        assert [stat.S_IMODE(each.stat().st_mode) for each in (folder.parent, folder, path)] == [0o700, 0o700, 0o600]
        for mode in (0o600, 0o640, 0o664):
            path.chmod(mode)
            steps.age(path)
            exchange.replace(path, path.read_bytes(), OLD + str(mode).encode(), tmp_path / ".tmp")
            assert stat.S_IMODE(path.stat().st_mode) == mode
        assert stat.S_IMODE((tmp_path / ".tmp").stat().st_mode) == 0o700
    finally:
        os.umask(before)


def test_owner_and_attributes_are_kept(day: Path) -> None:
    """What a person has set on the file stays with it."""
    try:
        os.setxattr(day, "user.mood", b"good")
        os.chown(day, 1234, 4321)
    except OSError:
        pytest.skip("needs root and a file system with attributes")
    put(day)
    assert (day.stat().st_uid, day.stat().st_gid, os.getxattr(day, "user.mood")) == (1234, 4321, b"good")


def test_a_link_stays_a_link(day: Path, tmp_path: Path) -> None:
    """The file that a link leads to is replaced, not the link."""
    link = tmp_path / "link.md"
    link.symlink_to(day)
    assert isinstance(put(link), exchange.Replaced)
    assert link.is_symlink()
    assert day.read_bytes() == NEW


@pytest.mark.parametrize("mode", [0, 0o444, 0o400])
def test_P10_protected_file_is_refused_unchanged(day: Path, mode: int) -> None:
    """A file without owner's read and write permission is not written, by root either, and the error says what to do."""
    day.chmod(mode)
    with pytest.raises(errors.WriteRefused, match=r"denied|protected") as caught:
        put(day)
    assert "chmod" in caught.value.hint
    day.chmod(0o600)
    assert day.read_bytes() == OLD
    assert temporary_files(day.parent) == []
    day.chmod(mode)
    with pytest.raises(errors.WriteRefused):
        tail.append(day, b"row\n")
    day.chmod(0o600)
    assert day.read_bytes() == OLD


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 256 KiB."""
    folder = tmp_path / "small"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(command, check=False, capture_output=True).returncode != 0:
        pytest.skip("cannot mount a small disk here")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(filler: Path) -> None:
    """Write until the disk is full."""
    with filler.open("wb", buffering=0) as out, contextlib.suppress(OSError):
        while True:
            out.write(b"x" * 4096)


def test_O10_full_disk_changes_nothing_and_space_heals_it(small_disk: Path) -> None:
    """Replacing and appending on a full disk are refused with a hint; the files keep their bytes; later it works."""
    day, rows, filler = small_disk / "x.md", small_disk / "rows.md", small_disk / "filler"
    day.write_bytes(OLD)
    rows.write_bytes(b"row 1\n")
    steps.age(day)
    fill(filler)
    new = NEW + b"y" * 100_000
    for write in (
        lambda: exchange.replace(day, OLD, new, small_disk / ".tmp"),
        lambda: tail.append(rows, b"z" * 100_000),
        lambda: exchange.replace(small_disk / "new.md", None, new, small_disk / ".tmp"),
    ):
        with pytest.raises(errors.WriteRefused) as caught:
            write()
        assert "free some disk space" in caught.value.hint
        assert isinstance(caught.value.__cause__, OSError)
        assert caught.value.__cause__.errno == errno.ENOSPC
    assert (day.read_bytes(), rows.read_bytes()) == (OLD, b"row 1\n")
    assert names(small_disk) == ["filler", "rows.md", "x.md"]
    filler.unlink()
    assert isinstance(exchange.replace(day, OLD, new, small_disk / ".tmp"), exchange.Replaced)
    before = file.identify(rows)
    assert tail.append(rows, b"row 2\n") == (before, file.identify(rows))
    assert rows.read_bytes() == b"row 1\nrow 2\n"


def test_O10_read_only_disk_is_refused_with_a_hint(small_disk: Path) -> None:
    """The same on a file system that was remounted read-only."""
    day = small_disk / "x.md"
    day.write_bytes(OLD)
    steps.age(day)
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    writes: tuple[Callable[[], object], ...] = (
        lambda: put(day),
        lambda: tail.append(day, b"row\n"),
        lambda: file.make_folder(small_disk / "a"),
    )
    for write in writes:
        with pytest.raises(errors.WriteRefused) as caught:
            write()
        assert caught.value.hint
    assert day.read_bytes() == OLD


def test_rows_are_appended_each_on_its_own_line(tmp_path: Path) -> None:
    """A last line without an end gets one before the next row; a missing or swapped file is reported."""
    path = tmp_path / "rows.md"
    assert tail.append(path, b"row\n") is None
    path.write_bytes(b"row 1")
    before = file.identify(path)
    assert tail.append(path, b"row 2\n") == (before, file.identify(path))
    assert path.read_bytes() == b"row 1\nrow 2\n"
    assert tail.append(path, b"row 3\n", step=steps.once("synced", lambda: by_rename(path, b"other\n"))) is None


def test_what_an_append_made_of_a_file_is_told_before_it_is_durable(tmp_path: Path) -> None:
    """Whoever sees the new bytes can know already whose they are; an append from outside breaks the chain."""
    path, name = tmp_path / "rows.md", types.RelPath("rows.md")
    path.write_bytes(b"row 1\n")
    first = file.identify(path)
    assert first is not None
    grown = growth.Growth()
    seen: list[bool] = []

    def add(data: bytes) -> file.Identity:
        def step(_: str) -> None:
            now = file.identify(path)
            seen.append(now is not None and grown.reaches(name, now, now))

        states = tail.append(path, data, step=step, grew=functools.partial(grown.grew, name))
        assert states is not None
        return states[1]

    second, third = add(b"row 2\n"), add(b"row 3\n")
    assert seen == [True] * 4
    assert grown.reaches(name, first, third)
    assert grown.reaches(name, second, third)
    assert not grown.reaches(name, third, second)
    with path.open("ab") as out:
        out.write(b"theirs\n")
    theirs = file.identify(path)
    assert theirs is not None
    assert not grown.reaches(name, first, theirs)
    fourth = add(b"row 4\n")
    assert not grown.reaches(name, third, fourth)
    assert grown.reaches(name, theirs, fourth)
    assert not grown.reaches(types.RelPath("other.md"), theirs, fourth)
    grown.grew(name, fourth, fourth._replace(size=fourth.size + 9), 5)
    assert not grown.reaches(name, theirs, fourth._replace(size=fourth.size + 9))


ROW = b"<!-- entry:ms_20260302_00000001 -->\n## ms_20260302_00000001\n\ntext\n<!-- /entry:ms_20260302_00000001 -->\n"


@pytest.mark.parametrize("n_bytes", range(1, len(ROW) - 1, 3))
def test_C04_torn_row_is_cut_and_kept(tmp_path: Path, n_bytes: int) -> None:
    """Whatever part of a row a crash left, whole rows stay and the part goes aside."""
    path, tmp = tmp_path / "rows.md", tmp_path / ".tmp"
    head = b"---\nid: x\n---\n"
    path.write_bytes(head + ROW + ROW[:n_bytes])
    cut = tail.cut_torn_tail(path, tmp)
    assert path.read_bytes() == head + ROW
    assert cut == ROW[:n_bytes]
    assert [kept.read_bytes() for kept in tmp.iterdir()] == [cut]


@pytest.mark.parametrize("rest", [b"", b"\n\n", b"a note by hand\n", b"<b>bold</b>", b"   "])
def test_what_is_not_torn_stays(tmp_path: Path, rest: bytes) -> None:
    """Whole rows and what a person put below them are left alone."""
    path = tmp_path / "rows.md"
    path.write_bytes(ROW * 3000 + rest)
    assert tail.cut_torn_tail(path, tmp_path / ".tmp") == b""
    assert path.read_bytes() == ROW * 3000 + rest


def test_C04_zeros_of_a_power_cut_are_cut(tmp_path: Path) -> None:
    """A file that was grown but not written before the power went ends in NULs."""
    path = tmp_path / "rows.md"
    path.write_bytes(ROW + b"\0" * 500)
    tail.cut_torn_tail(path, tmp_path / ".tmp")
    assert path.read_bytes() == ROW


def test_C04_long_torn_row_is_cut_from_its_beginning(tmp_path: Path) -> None:
    """A torn row of a megabyte is found as well."""
    path = tmp_path / "rows.md"
    path.write_bytes(ROW + ROW[:60] + b"long text\n" * 100_000)
    tail.cut_torn_tail(path, tmp_path / ".tmp")
    assert path.read_bytes() == ROW


class Time:
    """Monotonic time that a test moves."""

    def __init__(self) -> None:
        """Start somewhere."""
        self.now_s = 100.0

    def __call__(self) -> float:
        """Return it."""
        return self.now_s


def displaced_of(outcome: object) -> displaced.Displaced:
    """Return the one file that a replacement displaced."""
    assert isinstance(outcome, exchange.Replaced)
    (found,) = outcome.displaced
    return found


@pytest.mark.parametrize("can_exchange", [True, False])
def test_C02_in_place_editor_that_still_holds_the_old_file_is_heard(day: Path, *, can_exchange: bool) -> None:
    """What is written into the displaced file later comes out as a save, with the version that it was made on."""
    moment = Time()
    watch = displaced.Watch(moment)
    with day.open("r+b") as editor:
        outcome = exchange.replace(day, OLD, NEW, day.parent / ".tmp", is_urgent=True, can_exchange=can_exchange)
        found = displaced_of(outcome)
        assert not found.is_closed
        watch.add(found)
        assert watch.late_saves() == ()
        editor.truncate(0)
        editor.write(SAVED)
    assert watch.late_saves() == ()
    moment.now_s += 0.3
    assert watch.late_saves() == (displaced.LateSave(path=day, data=SAVED, base=OLD),)
    assert watch.late_saves() == ()
    moment.now_s += 61
    assert watch.late_saves() == ()
    assert len(watch) == 0
    assert list((day.parent / ".tmp").iterdir()) == []


def test_a_displaced_file_that_nobody_holds_is_kept_a_second(day: Path) -> None:
    """It would take up space for nothing."""
    moment = Time()
    watch = displaced.Watch(moment)
    found = displaced_of(put(day))
    watch.add(found)
    assert found.is_closed
    watch.late_saves()
    assert found.now_at.exists()
    moment.now_s += 1.1
    watch.late_saves()
    assert not found.now_at.exists()


def test_an_editor_that_only_truncated_has_not_saved(day: Path) -> None:
    """An empty file is half a save."""
    moment = Time()
    watch = displaced.Watch(moment)
    with day.open("r+b") as editor:
        watch.add(displaced_of(exchange.replace(day, OLD, NEW, day.parent / ".tmp", is_urgent=True)))
        editor.truncate(0)
        watch.late_saves()
        moment.now_s += 61
        assert watch.late_saves() == ()


def test_a_full_disk_gets_the_room_of_what_nobody_holds(day: Path) -> None:
    """What somebody may still write to stays."""
    watch = displaced.Watch()
    watch.add(displaced_of(put(day)))
    steps.age(day)
    with day.open("r+b"):
        held = displaced_of(exchange.replace(day, NEW, OLD, day.parent / ".tmp", is_urgent=True))
        watch.add(held)
        watch.make_room()
    assert [path for path in (day.parent / ".tmp").iterdir() if path.suffix == ".displaced"] == [held.now_at]


def test_a_save_was_lost_where_the_disk_got_full_before_it_was_taken_up(day: Path) -> None:
    """What was written into a displaced file that nobody has open any more is still a save."""
    watch = displaced.Watch()
    found = displaced_of(put(day))
    watch.add(found)
    found.now_at.write_bytes(SAVED)
    watch.make_room()
    watch.make_room()
    assert [SAVED] == [each.data for each in watch.late_saves(is_final=True)]


def crash(day: Path, moment: str, *, before: Callable[[], object] = lambda: None) -> None:
    """Replace `day` in a process that is killed at a moment; `before` happens just before the exchange."""
    pid = os.fork()
    if pid == 0:
        seen: list[str] = []

        def step(name: str) -> None:
            seen.append(name)
            if name == "ready":
                before()
            if name == moment:
                os.kill(os.getpid(), 9)

        put(day, step=step)
        os._exit(0)
    os.waitpid(pid, 0)


@pytest.mark.parametrize("moment", ["written", "ready", "exchanged", "synced"])
def test_C04_crash_at_any_moment_leaves_the_old_or_the_new_file(day: Path, moment: str) -> None:
    """After recovery the file is whole and its folder clean."""
    crash(day, moment)
    assert day.read_bytes() in (OLD, NEW)
    watch = displaced.Watch()
    assert displaced.recover(day.parent, day.parent / ".tmp", watch) == ()
    assert day.read_bytes() in (OLD, NEW)
    assert names(day.parent) == [day.name]


def test_C02_save_caught_by_a_crash_is_brought_back(day: Path) -> None:
    """The daemon dies between exchanging and putting a save back: the next start puts it back."""
    crash(day, "exchanged", before=lambda: by_rename(day, SAVED))
    assert day.read_bytes() == NEW
    assert displaced.recover(day.parent, day.parent / ".tmp", displaced.Watch()) == ()
    assert day.read_bytes() == SAVED
    assert names(day.parent) == [day.name]


def test_C02_save_caught_by_a_crash_is_not_put_over_a_later_one(day: Path) -> None:
    """When the name has moved on, the save is handed out instead."""
    crash(day, "exchanged", before=lambda: by_rename(day, SAVED))
    by_rename(day, b"later\n")
    (save,) = displaced.recover(day.parent, day.parent / ".tmp", displaced.Watch())
    assert (save.path, save.data) == (day, SAVED)
    assert day.read_bytes() == b"later\n"
    assert save.kept_at is not None
    assert save.kept_at.exists()


def test_C02_late_save_of_a_time_without_daemon_is_found_at_the_next_start(day: Path) -> None:
    """The daemon was killed while an editor held the displaced file, and the editor saved then."""
    tmp = day.parent / ".tmp"
    with day.open("r+b") as editor:
        exchange.replace(day, OLD, NEW, tmp, is_urgent=True)
        editor.truncate(0)
        editor.write(SAVED)
    (save,) = displaced.recover(day.parent, tmp, displaced.Watch())
    assert (save.path, save.data, save.base) == (day, SAVED, None)


def test_other_programs_temporary_files_are_none_of_ours(day: Path) -> None:
    """Only names that this writer makes are cleaned up."""
    other = day.with_name(".episode-2026-03-02.md.tmp.abcdef01")
    other.write_bytes(b"theirs")
    displaced.recover(day.parent, day.parent / ".tmp", displaced.Watch())
    assert other.exists()


def test_names_near_the_limit_can_be_replaced(tmp_path: Path) -> None:
    """Temporary names stay below 255 bytes."""
    path = tmp_path / ("ж" * 126 + ".md")
    path.write_bytes(OLD)
    steps.age(path)
    assert isinstance(put(path), exchange.Replaced)
    crash(path, "ready")
    displaced.recover(tmp_path, tmp_path / ".tmp", displaced.Watch())
    assert names(tmp_path) == [path.name]
