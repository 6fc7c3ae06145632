"""The file system that a root lies on: whether another machine can change it without this kernel hearing of it."""

from __future__ import annotations

import os
from pathlib import Path

MOUNTS = Path("/proc/self/mountinfo")

REMOTE_TYPES = frozenset(
    "9p afs ceph cifs drvfs glusterfs lustre ncpfs nfs nfs4 prl_fs smb3 smbfs vboxsf virtiofs fuse.ceph "  # noqa: SIM905
    "fuse.glusterfs fuse.gvfsd-fuse fuse.rclone fuse.s3fs fuse.sshfs fuse.vmhgfs-fuse".split()
)
"""File systems on which another machine can change a file without this kernel hearing of it."""


def remote_type(root: Path, mounts: Path = MOUNTS) -> str:
    """Return the type of the file system of the root where other machines can change it; else empty. Blocking."""
    where = os.path.realpath(root)
    try:
        lines = mounts.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return ""
    best, found = -1, ""
    for line in lines:
        before, _, after = line.partition(" - ")
        point = before.split()[4].encode("latin-1", "replace").decode("unicode_escape").rstrip("/")
        if (where == point or where.startswith(point + "/")) and len(point) >= best:
            best, found = len(point), after.split()[0]
    return found if found in REMOTE_TYPES else ""
