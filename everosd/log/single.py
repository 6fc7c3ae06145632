"""The single-entry form: a file whose frontmatter holds the fields of its one entry, and whose `##` headings are sections."""

from __future__ import annotations

import json
import re

from everosd.log import escape, frontmatter
from everosd.log import kind as kinds

_HEADING = re.compile(r"(?:\A|(?<=\n)) {0,3}##[ \t]+([^ \t\n][^\n]*)(?:\n|\Z)")

_FILE_KEYS = frozenset(
    (
        "id",
        "type",
        "file_type",
        "schema_version",
        "user_id",
        "agent_id",
        "track",
        "date",
        "entry_count",
        "last_appended_at",
        "deprecated_entries",
    ),
)
"""Frontmatter keys that speak of the file; in the single-entry form the others are the entry's fields."""
_SIGNS = ("timestamp", "parent_type", "parent_id", "owner_id")


def is_claimed(head: frontmatter.Frontmatter) -> bool:
    """Tell whether a frontmatter speaks of an entry and not of a daily log."""
    return not head.error and "entry_count" not in head.values and any(head.text(key) for key in _SIGNS)


def fields(head: frontmatter.Frontmatter) -> dict[str, str]:
    """Return the frontmatter of a single-entry file as inline fields, but for what speaks of the file."""
    found: dict[str, str] = {}
    for key, value in head.values.items():
        if key not in _FILE_KEYS and key != "entry_id" and escape.FIELD_NAME.fullmatch(key):
            found[key] = value if isinstance(value, str) else _inline(value)
    return found


def _inline(value: object) -> str:
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return escape.write_list(value)
    return json.dumps(value, ensure_ascii=False)


def sections(kind: kinds.Kind, body: str) -> tuple[str, list[tuple[str, str]]] | None:
    r"""Split a body at the `##` headings that are sections of its kind; the last one takes everything to the end.

    Args:
        kind: What the file holds; one with sections.
        body: What follows the frontmatter, newlines as `\n`.

    Returns:
        The text before the first section, and `(title, text)` of each, escapes left in; None where the first heading is
        no section of the kind: the file is not of this form.
    """
    known, last = {title.casefold() for title in kind.sections}, kind.sections[-1].casefold()
    first = _HEADING.search(body)
    if first is None or first[1].strip().casefold() not in known:
        return None
    found: list[tuple[str, str]] = []
    preamble, title, begin = "", "", 0
    for at in _HEADING.finditer(body):
        if title.casefold() == last or at[1].strip().casefold() not in known:
            continue
        text = body[begin : at.start()]
        if title:
            found.append((title, text))
        else:
            preamble = text
        title, begin = at[1].strip(), at.end()
    found.append((title, body[begin:]))
    return preamble, found
