"""One daemon per root."""

from __future__ import annotations

import os
import shutil
import stat
from pathlib import Path

import pytest

from everosd import errors, lock


def test_second_taker_is_refused_with_pid_and_port_of_the_first(tmp_path: Path) -> None:
    """The refusal says whom to ask, and writes nothing."""
    with lock.acquire(tmp_path) as held:
        held.announce(host="127.0.0.1", port=8123)
        before = (tmp_path / lock.FILE_NAME).read_bytes()
        with pytest.raises(errors.LockHeld) as refused:
            lock.acquire(tmp_path)
        assert os.getpid() == refused.value.pid
        assert refused.value.port == 8123
        assert before == (tmp_path / lock.FILE_NAME).read_bytes()


def test_symlink_to_the_root_meets_the_same_lock(tmp_path: Path) -> None:
    """The lock is on the inode, whatever path leads there."""
    root, other = tmp_path / "root", tmp_path / "link"
    root.mkdir()
    other.symlink_to(root)
    with lock.acquire(root), pytest.raises(errors.LockHeld):
        lock.acquire(other)


def test_closed_lock_can_be_taken_again(tmp_path: Path) -> None:
    """A stop leaves nothing that blocks the next start."""
    lock.acquire(tmp_path).close()
    lock.acquire(tmp_path).close()
    assert lock.holder(tmp_path) is None


def test_stale_text_without_a_holder_is_nobody(tmp_path: Path) -> None:
    """After kill -9 the text stays and the lock is free: the text does not count."""
    (tmp_path / lock.FILE_NAME).write_text('{"pid": 1, "port": 8000}')
    assert lock.holder(tmp_path) is None
    lock.acquire(tmp_path).close()


def test_holder_names_pid_and_port(tmp_path: Path) -> None:
    """Commands find the running daemon through the lock file."""
    assert lock.holder(tmp_path) is None
    with lock.acquire(tmp_path, started_at="2026-03-02T00:00:00Z") as held:
        held.announce(host="127.0.0.1", port=8123)
        found = lock.holder(tmp_path)
        assert lock.Holder(pid=os.getpid(), port=8123, host="127.0.0.1", started_at="2026-03-02T00:00:00Z") == found


def test_holder_with_unreadable_text_is_still_a_holder(tmp_path: Path) -> None:
    """Garbage in the file does not free the lock."""
    with lock.acquire(tmp_path):
        (tmp_path / lock.FILE_NAME).write_text("{")
        assert lock.Holder(pid=0) == lock.holder(tmp_path)


def test_lock_file_is_private(tmp_path: Path) -> None:
    """Mode 0600 under any umask."""
    before = os.umask(0)
    try:
        lock.acquire(tmp_path).close()
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / lock.FILE_NAME).stat().st_mode) == 0o600


def test_missing_root_is_refused_with_what_to_type(tmp_path: Path) -> None:
    """No folder is made on the quiet: it may be a mount that is not there yet."""
    with pytest.raises(errors.RootError, match="no such folder") as refused:
        lock.acquire(tmp_path / "gone")
    assert "everosd init" in refused.value.hint
    assert not (tmp_path / "gone").exists()


def test_root_that_is_a_file_is_refused(tmp_path: Path) -> None:
    """A file cannot be a root."""
    (tmp_path / "notes.md").write_text("x")
    with pytest.raises(errors.RootError, match="not a folder"):
        lock.acquire(tmp_path / "notes.md")


def test_deleted_lock_file_is_put_back_and_held(tmp_path: Path) -> None:
    """Someone tidied up: the daemon goes on, and a second one is still refused."""
    with lock.acquire(tmp_path) as held:
        held.announce(host="127.0.0.1", port=8123)
        (tmp_path / lock.FILE_NAME).unlink()
        assert held.is_intact()
        with pytest.raises(errors.LockHeld) as refused:
            lock.acquire(tmp_path)
        assert (os.getpid(), 8123) == (refused.value.pid, refused.value.port)


def test_lock_file_of_another_daemon_is_noticed(tmp_path: Path) -> None:
    """The file was deleted and another daemon was quicker: this one has to leave."""
    with lock.acquire(tmp_path) as first:
        (tmp_path / lock.FILE_NAME).unlink()
        with lock.acquire(tmp_path):
            assert not first.is_intact()


def test_replaced_root_is_noticed(tmp_path: Path) -> None:
    """A folder restored or mounted in place of the root is another root."""
    root = tmp_path / "root"
    root.mkdir()
    with lock.acquire(root) as held:
        root.rename(tmp_path / "moved")
        assert held.is_intact()
        shutil.copytree(tmp_path / "moved", root)
        assert not held.is_intact()
        shutil.rmtree(root)
        root.mkdir()
        assert not held.is_intact()
        assert [] == list(root.iterdir())


def test_a_lock_may_be_closed_twice(tmp_path: Path) -> None:
    """The second time it is nobody's descriptor any more, or somebody else's."""
    held = lock.acquire(tmp_path)
    held.close()
    with (tmp_path / "other").open("w") as other:
        held.close()
        other.write("still open")
    with lock.acquire(tmp_path, started_at="2026-03-02T00:00:00Z"):
        found = lock.holder(tmp_path)
        assert found is not None
        assert (os.getpid(), "2026-03-02T00:00:00Z") == (found.pid, found.started_at)
