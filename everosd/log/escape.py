r"""Text that looks like structure: what the writer escapes with one backslash, and the reader takes away.

A line of the daemon's text that would open or close an entry, start a section or forge a field gets a backslash
before its first character; a line that already looks escaped gets one more. So reading is the exact inverse of
writing, whatever the text is.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterable, Mapping

from everosd.log import kind as kinds

MARKER = r"<!--[ \t]*+/?+[ \t]*+entry[ \t]*+:"
"""How every marker starts, in any case; possessive, so that a line of a million blanks costs a million steps."""
_LAST = MARKER
_SECTION = MARKER + r"|###[ \t]"
_PREAMBLE = _SECTION + r"|\*\*[a-z]"
_TO_WRITE = {
    name: re.compile(rf"^( {{0,3}})(?=\\*+(?:{what}))", re.IGNORECASE | re.MULTILINE)
    for name, what in (("last", _LAST), ("section", _SECTION), ("preamble", _PREAMBLE))
}
_TO_READ = {
    name: re.compile(rf"^( {{0,3}})\\(?=\\*+(?:{what}))", re.IGNORECASE | re.MULTILINE)
    for name, what in (("last", _LAST), ("section", _SECTION), ("preamble", _PREAMBLE))
}
BLANKS = re.compile(r"(?:[ \t]*+\n)*+")
_SURROGATE = re.compile(r"[\ud800-\udfff]")
FIELD_NAME = re.compile(r"[a-z][a-z0-9_]{0,63}")
_NEEDS_QUOTES = re.compile(r'^[ \t"]|[ \t]$|[\x00-\x1f\x7f\x85\u2028\u2029]|^$')
_ITEM = re.compile(r"""\s*+(?:"(?:[^"\\]|\\.)*+"|'(?:[^']|'')*+'|[^,]++)""")
_PLAIN_ITEM = re.compile(r"[^\s,\[\]{}\"'\\](?:[^,\[\]{}\"'\\\x00-\x1f]*[^\s,\[\]{}\"'\\])?")


def read_last(text: str) -> str:
    """Return the text of a kind's last section, in which headings are text."""
    return _read(text, "last")


def read_section(text: str) -> str:
    """Return the text of any other section."""
    return _read(text, "section")


def read_preamble(text: str) -> str:
    """Return what stands between the fields and the first section."""
    return _read(text, "preamble")


def _read(text: str, where: str) -> str:
    text = strip_blank_lines(text)
    return _TO_READ[where].sub(r"\1", text) if "\\" in text else text


def _write(text: str, where: str) -> str:
    return _TO_WRITE[where].sub(r"\1\\", clean(text))


def clean(text: str) -> str:
    """Return text as the log keeps it: newlines as LF, no NUL, nothing that UTF-8 lacks, no blank lines at its ends."""
    text = text.replace("\r\n", "\n").replace("\r", "\n").replace("\0", "")
    return strip_blank_lines(_SURROGATE.sub("\ufffd", text))


def one_line(text: str) -> str:
    """Return a heading or title as it is written: cleaned, on one line."""
    return clean(text).replace("\n", " ").strip(" \t")


def strip_blank_lines(text: str) -> str:
    """Take blank lines away at both ends; what else stands on the first and the last line of text stays."""
    body = text.rstrip(" \t\n")
    if not body:
        return ""
    start = BLANKS.match(text).end()  # type: ignore[union-attr]  # matches the empty text
    end = text.find("\n", len(body))
    return text[start:] if end < 0 else text[start:end]


def read_value(written: str) -> str:
    """Return the value of an inline field, JSON quoting taken away."""
    value = written.strip(" \t\r")
    if len(value) > 1 and value[0] == value[-1] == '"':
        try:
            decoded = json.loads(value)
        except (ValueError, RecursionError):
            return value
        if isinstance(decoded, str):
            return _sound(decoded)
    return value


def _sound(text: str) -> str:
    """Return what JSON said without halves of surrogate pairs, which can be neither written nor stored."""
    return _SURROGATE.sub("\ufffd", text)


def write_value(value: str) -> str:
    """Return a value as it stands behind `**name**: `: as it is, or as a JSON string where it would not read back."""
    value = _sound(value.replace("\0", ""))
    if not _NEEDS_QUOTES.search(value):
        return value
    return (
        json.dumps(value, ensure_ascii=False)
        .replace("\x85", "\\u0085")
        .replace("\u2028", "\\u2028")
        .replace("\u2029", "\\u2029")
    )


@functools.lru_cache(maxsize=4096)  # a file names the same few senders in each of its entries
def read_list(value: str) -> tuple[str, ...]:
    """Return the items of a list field: `[a, b]`, JSON, or a bare value."""
    text = value.strip()
    if text in ("", "[]", "null"):
        return ()
    if not (text.startswith("[") and text.endswith("]")):
        return (text,)
    try:
        decoded = json.loads(text)
    except (ValueError, RecursionError):
        decoded = ()
    # Numbers keep the digits they were written with: only strings and what is nested are JSON's to read.
    if decoded and all(isinstance(item, (str, list, dict)) for item in decoded):
        return tuple(
            _sound(item if isinstance(item, str) else json.dumps(item, ensure_ascii=False)) for item in decoded
        )
    return tuple(item for piece in _ITEM.findall(text[1:-1]) if (item := _read_item(piece)))


def _read_item(piece: str) -> str:
    text = piece.strip()
    if text.startswith('"'):
        value = read_value(text)
        return text.strip('"') if value == text else value
    return text.strip("'").replace("''", "'")


def write_list(items: Iterable[str]) -> str:
    """Return a list field that `read_list` reads back: `[a, b]`, or JSON where an item is not plain."""
    listed = tuple(items)
    joined = f"[{', '.join(listed)}]"
    if all(_PLAIN_ITEM.fullmatch(item) for item in listed) and read_list(joined) == listed:
        return joined
    return json.dumps(listed, ensure_ascii=False)


def raw_text(
    kind: kinds.Kind,
    entry_id: str,
    *,
    fields: Mapping[str, str],
    heading: str = "",
    preamble: str = "",
    sections: Iterable[tuple[str, str]] = (),
) -> str:
    """Return the text between the markers of an entry, as EverOS lays it out.

    Sections with the title of the kind's last one go to the end, because it takes everything to the close.

    Raises:
        ValueError: a field's name is not lower snake case, or a section has no title.
    """
    for name in fields:
        if FIELD_NAME.fullmatch(name) is None:
            reason = f"field name {name!r} is not lower snake case"
            raise ValueError(reason)
    last = kind.sections[-1].casefold() if kind.sections else ""
    blocks = [f"## {one_line(heading) or entry_id}"]
    if fields:
        blocks.append("\n".join(f"**{name}**: {write_value(value)}" for name, value in fields.items()))
    if clean(preamble):
        blocks.append(_write(preamble, "preamble"))
    titled = [(one_line(title), text) for title, text in sections]
    titled.sort(key=lambda section: section[0].casefold() == last)
    for title, text in titled:
        if not title:
            reason = "a section has no title"
            raise ValueError(reason)
        body = _write(text, "last" if title.casefold() == last else "section")
        blocks.append(f"### {title}\n{body}" if body else f"### {title}")
    return "\n\n".join(blocks)
