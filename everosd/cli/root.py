"""Making a memory root: the folder and the two files for what a person wants otherwise."""

from __future__ import annotations

import os
from pathlib import Path

from everosd import errors, types

EVEROS_TOML = """\
# What this memory root wants otherwise than everosd's defaults: only the lines that differ. A running daemon reads it
# again within two seconds of a save; `everosd doctor` checks it. docs/OPERATIONS.md lists every setting. An example:
#
# [memory]
# timezone = "Europe/Vienna"
#
# [api]
# port = 8000
"""
OME_TOML = """\
# Strategies of this memory root that run otherwise than by default: only the lines that differ. A running daemon reads
# it again within two seconds of a save; `everosd doctor` checks it. An example, which folds scattered memories of one
# topic into one narrative every Monday at 02:00:
#
# [strategies.reflect_episodes]
# enabled = true
"""
FILES = {"everos.toml": EVEROS_TOML, "ome.toml": OME_TOML}


def make(root: Path) -> list[Path]:
    """Make what is missing of a root, readable by its owner alone; return what was made. Changes nothing that exists.

    Raises:
        RootError: the folder or a file cannot be made.
    """
    made = []
    try:
        if not root.exists():
            root.mkdir(mode=0o700, parents=True)
            made.append(root)
        for name, text in FILES.items():
            if _write_new(root / name, text):
                made.append(root / name)
    except OSError as error:
        reason = f"{error.strerror or error}" + (f" ({error.filename})" if error.filename else "")
        raise errors.RootError(str(root), reason, hint="name a folder that you may write with --root") from error
    return made


def require(root: Path) -> None:
    """Make sure that nothing but a folder stands at `root`; a missing one is the lock's to refuse.

    Raises:
        RootError: something else stands there.
    """
    if root.exists() and not root.is_dir():
        raise errors.RootError(str(root), "is not a folder", hint="name a folder with --root")


def owners(root: Path, app: str, project: str, kind: types.OwnerType) -> list[str]:
    """Return the ids of the users or agents that have a folder in a scope, sorted."""
    from everosd.log import layout

    anybody = types.Owner(app=app, project=project, type=kind, id="anybody")
    folder = (root / layout.Layout(root).owner_folder(anybody)).parent
    try:
        return sorted(layout.decode(one.name) for one in folder.iterdir() if one.is_dir() and one.name[0] != ".")
    except OSError:
        return []


def has_owner(root: Path, app: str, project: str, kind: types.OwnerType, id_: str) -> bool:
    """Tell whether a user or agent has a folder in a scope."""
    from everosd.log import layout

    if types.nfc(id_) in map(types.nfc, owners(root, app, project, kind)):
        return True
    owner = types.Owner(app=app, project=project, type=kind, id=types.nfc(id_))
    return any((root / layout.Layout(root, folds).owner_folder(owner)).is_dir() for folds in (False, True))


def _write_new(path: Path, text: str) -> bool:
    """Write a file of mode 0600 unless there is one; tell whether it was written."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return False
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
    return True
