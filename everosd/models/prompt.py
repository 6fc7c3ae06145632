"""Prompts: files with a version, two parts and places for texts; the user's own stand in for ours."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from pathlib import Path

import msgspec
import structlog

from everosd import errors

log = structlog.get_logger(__name__)

MAX_BYTES = 1 << 20
"""A larger file is no prompt."""

_NO_PROMPTS = frozenset({"README.md"})
"""What people put beside them."""
_FENCE = re.compile(r"([=*])\1{7,}")
"""What encloses texts in prompts."""
_PLACE = re.compile(r"\{\{\s*([a-z][a-z0-9_]*)\s*\}\}")
_FILE = re.compile(
    r"\ufeff?---[ \t]*\n(?P<head>.*?)^---[ \t]*\n\s*^# System[ \t]*\n(?P<system>.*?)^# User[ \t]*\n(?P<user>.*)\Z",
    re.DOTALL | re.MULTILINE,
)
_VERSION = re.compile(r"^version:[ \t]*(\d{1,9})[ \t]*(?:#.*)?$", re.MULTILINE)
_PART = re.compile(r"^# (?:System|User)[ \t]*$", re.MULTILINE)


class Prompt(msgspec.Struct, frozen=True, kw_only=True):
    """What is sent to a model, with or without its texts filled in."""

    name: str
    """That of its file; also what the shape of the answer is called."""
    version: int
    system: str
    """May be empty."""
    user: str

    @property
    def places(self) -> frozenset[str]:
        """Names of the texts that it wants."""
        return frozenset(_PLACE.findall(self.system) + _PLACE.findall(self.user))

    def filled(self, **texts: str) -> Prompt:
        """Return it with `texts` in their places; what a text holds is taken neither for a place nor for its end.

        Texts that it has no place for are left out: a prompt of the user's need not want all that ours does.

        Raises:
            KeyError: it wants a text that is not given.
        """

        def text(found: re.Match[str]) -> str:
            return _FENCE.sub(lambda line: line[1] * 7, texts[found[1]])

        return msgspec.structs.replace(self, system=_PLACE.sub(text, self.system), user=_PLACE.sub(text, self.user))


def load(name: str, folders: Sequence[Path]) -> Prompt:
    """Read `<name>.md` from the first folder that has a usable one; the last folder is ours. Blocking.

    A user's file is usable if it wants no text that ours does not want, and all that the `# User` part of ours wants:
    a prompt that leaves the conversation out would have the model invent one. What is wrong with one is logged.

    Raises:
        ConfigError: ours is missing or broken.
    """
    *theirs, own = folders
    ours = _ours(name, own)
    for folder in theirs:
        path = folder / f"{name}.md"
        try:
            found = _read(path, name)
            _check(path, found, ours)
        except FileNotFoundError:
            continue
        except errors.ConfigError as error:
            log.warning("prompt_not_used", file=str(path), reason=error.reason, hint=error.hint)
            continue
        if found.version != ours.version:
            log.info("prompt_of_another_version", file=str(path), version=found.version, ours=ours.version)
        return found
    return ours


def problems(theirs: Sequence[Path], owns: Sequence[Path]) -> list[errors.ConfigError]:
    """Return what is wrong with the user's files that stand in for ours, for people who ask what is in force. Blocking.

    Files that have the name of none of ours are wrong, too: nobody would read them.
    """
    found: list[errors.ConfigError] = []
    places = {path.stem: own for own in owns for path in own.glob("*.md")}
    names = sorted(places)
    for name in names:
        ours = _ours(name, places[name])
        for folder in theirs:
            path = folder / f"{name}.md"
            try:
                _check(path, _read(path, name), ours)
            except FileNotFoundError:
                continue
            except errors.ConfigError as error:
                found.append(error)
    for folder in theirs:
        found += [_misnamed(path, names) for path in sorted(folder.glob("*.md")) if _is_misnamed(path, names)]
    return found


def _is_misnamed(path: Path, names: Sequence[str]) -> bool:
    return path.stem not in names and path.name not in _NO_PROMPTS and not path.name.startswith(".")


def _misnamed(path: Path, names: Sequence[str]) -> errors.ConfigError:
    near = difflib.get_close_matches(path.stem.lower(), names, n=1)
    also = f"did you mean {near[0]}.md?" if near else f"there are {', '.join(f'{each}.md' for each in names)}"
    hint = f"give {path} the name of the prompt that it is to stand in for, or put it elsewhere"
    return errors.ConfigError(str(path), "", f"is not used: no prompt is called so; {also}", hint=hint)


def _ours(name: str, folder: Path) -> Prompt:
    path = folder / f"{name}.md"
    try:
        return _read(path, name)
    except FileNotFoundError:
        raise errors.ConfigError(str(path), "", "is missing", hint="install everosd again") from None


def _read(path: Path, name: str) -> Prompt:
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
        text = raw.decode().replace("\r\n", "\n")
    except FileNotFoundError:
        raise
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else "is no UTF-8"
        raise errors.ConfigError(str(path), "", reason) from error
    if len(raw) > MAX_BYTES:
        raise errors.ConfigError(str(path), "", f"is larger than {MAX_BYTES} bytes")
    parts = _FILE.match(text)
    if parts is None or len(_PART.findall(text)) != 2:  # noqa: PLR2004  # one of each
        reason = "is no prompt: it needs `version: 1` between two `---` lines, then one `# System` and one `# User`"
        raise errors.ConfigError(str(path), "", reason)
    version = _VERSION.search(parts["head"])
    if version is None:
        raise errors.ConfigError(str(path), "version", "is missing, or no whole number")
    if not parts["user"].strip():
        raise errors.ConfigError(str(path), "", "asks nothing: its part `# User` is empty")
    return Prompt(name=name, version=int(version[1]), system=parts["system"].strip(), user=parts["user"].strip())


def _check(path: Path, found: Prompt, ours: Prompt) -> None:
    if unknown := sorted(found.places - ours.places):
        reason = f"wants a text that there is not: {', '.join(f'{{{{{each}}}}}' for each in unknown)}"
        hint = f"there are {', '.join(f'{{{{{each}}}}}' for each in sorted(ours.places))}"
        raise errors.ConfigError(str(path), "", reason, hint=hint)
    if missing := sorted(frozenset(_PLACE.findall(ours.user)) - found.places):
        reason = f"leaves out {', '.join(f'{{{{{each}}}}}' for each in missing)}"
        raise errors.ConfigError(str(path), "", reason)
