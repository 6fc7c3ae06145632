"""Which file systems report the changes of other machines."""

from __future__ import annotations

from pathlib import Path

import pytest

from everosd.watch import mount


@pytest.mark.parametrize(
    ("mounts", "expected"),
    [
        ("25 1 8:1 / / rw - ext4 /dev/sda rw\n30 25 0:50 / {root} rw - nfs4 srv:/x rw\n", "nfs4"),
        ("25 1 8:1 / / rw - ext4 /dev/sda rw\n30 25 0:50 / {root}/a rw - nfs4 srv:/x rw\n", ""),
        ("25 1 8:1 / / rw - cifs //srv/x rw\n30 25 0:50 / {root} rw - ext4 /dev/sdb rw\n", ""),
        ("25 1 8:1 / / rw shared:1 master:2 - fuse.sshfs me@srv: rw\n", "fuse.sshfs"),
    ],
)
def test_remote_file_system_is_recognised(tmp_path: Path, mounts: str, expected: str) -> None:
    """The mount that holds the root decides whether other machines may change it unheard."""
    root = tmp_path / "my notes"
    root.mkdir()
    table = tmp_path / "mountinfo"
    escaped = str(root).replace(" ", "\\040")
    table.write_text(mounts.format(root=escaped), encoding="utf-8")
    assert expected == mount.remote_type(root, table)
