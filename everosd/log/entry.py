"""One entry: what stands between two markers, what a person wrote without any, or what is to be written."""

from __future__ import annotations

from typing import Literal

import msgspec

Form = Literal["marked", "headed", "hand", "single", "whole"]
"""How the entry stands in its file: between markers; under `## <entry id>` alone; as a person's heading or
paragraph; as a file whose frontmatter holds the entry's fields; as a whole-file kind (profile, skill)."""


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One entry as read from a file or as it is to be written."""

    kind: str
    """Name of its kind (`kind.BY_NAME`)."""
    id: str
    """Entry id; for hand-written text the derived id `<prefix>_<date>_h<8 hex>`."""
    fields: dict[str, str] = {}
    """Inline fields in file order, as text (`[a, b]` for lists), quoting already taken away. Never mutated."""
    preamble: str = ""
    """Text after the inline fields and before the first section; for hand-written text all of it."""
    heading: str = ""
    """The `## heading` of hand-written text; empty where the heading is the entry id."""
    sections: tuple[tuple[str, str], ...] = ()
    """`(title, text)` in file order, escapes taken away, blank lines at both ends stripped."""
    form: Form = "marked"
    raw: str = ""
    """The entry's own text exactly as it stands (markers left out, newlines as `\\n`); empty before it is written."""
    line: int = 0
    """1-based line of the file where it starts."""
    digest: bytes = b""
    """16 bytes of BLAKE2b over kind, id and `raw`: equal digests mean the same entry."""
    nth: int = 0
    """0 for the first entry with this id in the file, 1 for a second one, …"""


class Draft(msgspec.Struct, frozen=True, kw_only=True):
    """An entry that is to be written and has no id yet."""

    fields: dict[str, str] = {}
    """Inline fields in the order in which they are written. Never mutated."""
    sections: tuple[tuple[str, str], ...] = ()
    """`(title, text)` in order, unescaped."""
    preamble: str = ""
    """Text before the first section."""
