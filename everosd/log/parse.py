"""The file grammar: bytes of a file → entries, with where each stands and what is wrong.

Nothing that a file can hold makes `parse` raise. What cannot be read is named with its line, and everything else in
the file is still read. Structure is found by scanning for the few lines that can be structure, so that a file of
20,000 entries costs one pass and no single call holds the interpreter for long.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator
from typing import Literal

import msgspec

from everosd import types
from everosd.log import entry as entries
from everosd.log import entry_text, escape, frontmatter, layout, single, structure
from everosd.log import kind as kinds

_UNREADABLE = re.compile(r"[\ud800-\udfff]")
_DATE = re.compile(r"\d{4}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12]\d|3[01])")
_RULES = re.compile(r"[-*_=\s]*+")
_PARAGRAPH_END = re.compile(r"^ {0,3}(?P<fence>`{3,}|~{3,})[^\n]*$|^(?:[ \t]*+\r?\n)++", re.MULTILINE)
_MAX_WARNINGS = 200
"""Enough for a person to mend at once, and for a file of nothing but mistakes not to fill the status."""


class Warning(msgspec.Struct, frozen=True, kw_only=True):  # noqa: A001 - the word that people see in status
    """Something in a file that is not as it should be; the rest of the file is read."""

    line: int
    """1-based line of the file."""
    reason: str


class Span(msgspec.Struct, frozen=True, kw_only=True):
    """Where an entry stands in the text of its file."""

    start: int
    """First character, of the opening marker where there is one."""
    end: int
    """Behind the last character: of the closing marker's line with its newline, or of the entry's own text."""
    has_open: bool = True
    has_close: bool = True


class Parsed(msgspec.Struct, frozen=True, kw_only=True):
    """A file, read."""

    path: types.RelPath
    place: layout.Place
    """As passed in, with the owner's full id and the date completed from the frontmatter."""
    text: str = ""
    """Decoded, without BOM, newlines as found; bytes that are no UTF-8 as lone surrogates."""
    newline: Literal["\n", "\r\n"] = "\n"
    """The file's first one: what the daemon adds is written with it."""
    has_bom: bool = False
    digest: bytes = b""
    """16 bytes of BLAKE2b over the file's bytes."""
    frontmatter: frontmatter.Frontmatter = frontmatter.Frontmatter()
    entries: tuple[entries.Entry, ...] = ()
    spans: tuple[Span, ...] = ()
    """Parallel to `entries`, in file order."""
    deprecated: dict[str, str] = {}
    """`deprecated_entries`: entry id → successor. Never mutated."""
    stamp: str = ""
    """`last_appended_at` as written; empty where there is none."""
    entry_count: int = 0
    """As the frontmatter says: no smaller than the highest number ever given in this file."""
    ids: frozenset[str] = frozenset()
    """Every id that stands in a marker, those of quarantined entries and of text in fences included."""
    quarantined: tuple[str, ...] = ()
    """Ids of entries that are in the file and cannot be read; each has a warning."""
    warnings: tuple[Warning, ...] = ()
    error: Warning | None = None
    """Frontmatter or bytes do not parse: the file must not be rewritten. What can be read is in `entries`."""


IsKnown = Callable[[bytes, layout.Place], bool]
"""Says of an entry's digest, and of the place completed by the frontmatter, whether the caller has that entry already."""


def parse(path: types.RelPath, data: bytes, place: layout.Place, *, is_known: IsKnown | None = None) -> Parsed:
    """Read a file of the log. Never raises, whatever the bytes are.

    Args:
        path: where it stands, for `Parsed.path`.
        data: all of it.
        place: what `layout.place` says of the path.
        is_known: marked entries of which it says so are not taken apart: they have id, raw text and digest only.
    """
    return _Reader(path, data, place, is_known).read()


def derived_id(place: layout.Place, heading: str, nth: int) -> str:
    """Return the id of hand-written text, from owner, file, date, heading and how often it had that heading before."""
    date = place.date or layout.UNKNOWN_DATE
    # Files of one day share a date, and so do all that tell none: without what tells them apart their first
    # paragraphs would share an id, and only one of them would be found.
    file = (place.memory_type, place.memory_path, place.name, "" if place.part == 1 else str(place.part))
    where = "\0".join((place.owner.type, place.owner.id, date, *file, heading, str(nth)))
    prefix = kinds.BY_NAME[place.kind].prefix
    return f"{prefix}_{date.replace('-', '')}_h{hashlib.blake2b(where.encode('utf-8', 'surrogatepass'), digest_size=4).hexdigest()}"


class _Reader:
    """One file being read: collects entries, spans and warnings in file order."""

    def __init__(self, path: types.RelPath, data: bytes, place: layout.Place, is_known: IsKnown | None) -> None:
        self.path, self.data, self.place, self.is_known = path, data, place, is_known
        self.kind = kinds.BY_NAME[place.kind]
        self.text = ""
        self.newline: Literal["\n", "\r\n"] = "\n"
        self.has_bom = False
        self.is_clean = True
        self.entries: list[entries.Entry] = []
        self.spans: list[Span] = []
        self.quarantined: list[str] = []
        self.warnings: list[Warning] = []
        self.error: Warning | None = None
        self.n_seen: dict[str, int] = {}
        self.headings: dict[str, int] = {}
        self.line_at, self.line_no = 0, 1
        self.lines = structure.Structure("", 0)
        self.ids: set[str] = set()

    def read(self) -> Parsed:
        head = frontmatter.Frontmatter()
        if self._decode():
            head = frontmatter.read(self.text)
            self._judge(head)
            if self.kind.is_whole_file:
                self._whole_file(head)
            else:
                self.lines = structure.Structure(self.text, head.end)
                self.ids.update(self.lines.tokens[at].text for at in self.lines.opens)
                if not self._single(head):
                    self._body(head)
        deprecated = head.values.get("deprecated_entries")
        return Parsed(
            path=self.path,
            place=self.place,
            text=self.text,
            newline=self.newline,
            has_bom=self.has_bom,
            digest=hashlib.blake2b(self.data, digest_size=16).digest(),
            frontmatter=head,
            entries=tuple(self.entries),
            spans=tuple(self.spans),
            deprecated={
                k: v.strip() for k, v in deprecated.items() if isinstance(v, str) and v.strip() not in ("", "null", "~")
            }
            if isinstance(deprecated, dict)
            else {},
            stamp=head.text("last_appended_at"),
            entry_count=frontmatter.number(head.values.get("entry_count")),
            ids=frozenset(self.ids),
            quarantined=tuple(self.quarantined),
            warnings=tuple(sorted(self.warnings, key=lambda warning: warning.line)),
            error=self.error,
        )

    def _decode(self) -> bool:
        """Fill `text`; False where the bytes are no text at all."""
        data = self.data
        if data.startswith((b"\xff\xfe", b"\xfe\xff")):
            self.error = Warning(line=1, reason="the file is UTF-16: save it as UTF-8")
            return False
        self.has_bom = data.startswith(b"\xef\xbb\xbf")
        start = 3 if self.has_bom else 0
        try:
            self.text = data[start:].decode()
        except UnicodeDecodeError:
            self.text = data[start:].decode(errors="surrogateescape")
            self.is_clean = False
        if "\0" in self.text:
            if self.text.count("\0", 0, 4096) * 3 > min(len(self.text), 4096):
                self.error = Warning(line=1, reason="the file looks like UTF-16 or binary data: save it as UTF-8")
                return False
            self.is_clean = False
        first = self.text.find("\n")
        self.newline = "\r\n" if first > 0 and self.text[first - 1] == "\r" else "\n"
        return True

    def _judge(self, head: frontmatter.Frontmatter) -> None:
        """Report what the frontmatter has wrong, and complete the place from it."""
        if head.error:
            self.error = Warning(line=head.error_line, reason=head.error)
        self._complete_owner(head)
        if self.kind.is_whole_file:
            return
        written = head.text("date").strip()[:10]
        if _DATE.fullmatch(written):
            if self.place.date not in (None, written):
                self._warn(0, f"the frontmatter says {written}, the file name {self.place.date}: the frontmatter holds")
            self.place = msgspec.structs.replace(self.place, date=written)
        elif self.place.date is None:
            self._warn(
                0, f"no date in name or frontmatter: {layout.UNKNOWN_DATE} is taken; name it like episode-2026-03-02.md"
            )
            self.place = msgspec.structs.replace(self.place, date=layout.UNKNOWN_DATE)
        value = head.values.get("deprecated_entries", "")
        if not isinstance(value, dict) and value not in ("", "null", "~"):
            self._warn(
                head.keys["deprecated_entries"].start, "deprecated_entries is not a list of `old id: new id` lines"
            )

    def _complete_owner(self, head: frontmatter.Frontmatter) -> None:
        owner = self.place.owner
        key = f"{owner.type}_id"
        written = types.nfc(head.text(key))
        if not written:
            return
        if self.place.is_shortened:
            segment = layout.segment_of(self.path)
            if segment in (layout.encode(written), layout.encode(written, fold_case=True)):
                self.place = msgspec.structs.replace(self.place, owner=msgspec.structs.replace(owner, id=written))
                return
        if written != owner.id:
            self._warn(
                head.keys[key].start,
                f"{key} is {written!r}, but the file lies in the folder of {owner.id!r}: the folder holds",
            )

    def _whole_file(self, head: frontmatter.Frontmatter) -> None:
        name = f"skill_{self.place.name}" if self.kind.folder else f"profile_{self.place.owner.id}"
        entry_id = head.text("id").strip() or name
        self._add(
            self.text,
            entry_id,
            Span(start=0, end=len(self.text), has_open=False, has_close=False),
            "whole",
            self.kind.name,
        )

    def _warn(self, at: int, reason: str) -> None:
        if len(self.warnings) > _MAX_WARNINGS:
            return
        if len(self.warnings) == _MAX_WARNINGS:
            reason = "there is more that is not as it should be in this file: mend what is named first"
        self.warnings.append(Warning(line=self._line(at), reason=reason))

    def _line(self, at: int) -> int:
        """Return the 1-based line of an offset; cheap when asked in file order."""
        if at < self.line_at:
            self.line_at, self.line_no = 0, 1
        self.line_no += self.text.count("\n", self.line_at, at)
        self.line_at = at
        return self.line_no

    def _add(self, inner: str, entry_id: str, span: Span, form: entries.Form, kind: str) -> None:
        """Take up one entry with the text `inner`, or quarantine it."""
        raw = inner.replace("\r\n", "\n") if "\r" in inner else inner
        if form != "whole":
            raw = escape.strip_blank_lines(raw)
        line = self._line(span.start)
        if not self.is_clean:
            bad = _UNREADABLE.search(self.text, span.start, span.end)
            if bad is not None:
                self._warn(
                    bad.start(), f"{entry_id} holds bytes that are no UTF-8: it is left out until they are mended"
                )
                self.quarantined.append(entry_id)
                return
            if "\0" in raw:
                self._warn(self.text.index("\0", span.start), f"{entry_id} holds NUL characters: they are left out")
                raw = raw.replace("\0", "")
        nth = self.n_seen.get(entry_id, 0)
        self.n_seen[entry_id] = nth + 1
        if nth:
            self._warn(span.start, f"{entry_id} is in this file more than once: the first one holds")
        self.entries.append(self._entry_of(kind, entry_id, raw, form, line, nth))
        self.spans.append(span)

    def _entry_of(self, kind: str, entry_id: str, raw: str, form: entries.Form, line: int, nth: int) -> entries.Entry:
        if self.is_known is not None and form == "marked" and nth == 0:
            digest = entry_text.digest(kind, entry_id, raw)
            if self.is_known(digest, self.place):
                return entries.Entry(kind=kind, id=entry_id, form=form, raw=raw, line=line, digest=digest, nth=nth)
        return entry_text.read(kind, entry_id, raw, form=form, line=line, nth=nth)

    def _body(self, head: frontmatter.Frontmatter) -> None:
        """Walk the tokens: text outside markers, an entry, and so on to the end."""
        at, gap_start = 0, head.end
        # What follows a frontmatter that is never closed is YAML, not somebody's paragraph.
        is_text = not (head.error and head.inner_end == head.inner_start)
        while True:
            upto, hidden = self.lines.gap_end(at)
            gap_end = self.lines.tokens[upto].start if upto < len(self.lines.tokens) else len(self.text)
            if gap_end > gap_start:
                self._gap(
                    gap_start,
                    gap_end,
                    [token for n, token in enumerate(self.lines.tokens[at:upto], at) if n not in hidden],
                    is_text=is_text,
                )
            if upto == len(self.lines.tokens):
                return
            at, gap_start = self._entry(upto)
            is_text = True

    def _entry(self, at: int) -> tuple[int, int]:
        """Take up the entry that opens at token `at`; return the next token and where the text goes on."""
        token = self.lines.tokens[at]
        end = self.lines.entry_end(at)
        stop = self.lines.tokens[end] if end < len(self.lines.tokens) else None
        is_closed = stop is not None and stop.what == "close"
        inner_end = len(self.text) if stop is None else stop.start
        span_end = stop.end if stop is not None and is_closed else inner_end
        if stop is None or not is_closed:
            self._warn(
                token.start,
                f"{token.text} has no closing marker: it ends where the next entry starts, or with the file",
            )
        elif stop.text != token.text:
            self._warn(stop.start, f"the closing marker of {token.text} says {stop.text}")
        known = types.ENTRY_ID.fullmatch(token.text)
        if known is None or known["prefix"] != self.kind.prefix:
            self._warn(token.start, f"{token.text} is not an id of this kind ({self.kind.prefix}_<date>_<number>)")
        self._add(
            self.text[token.end : inner_end],
            token.text,
            Span(start=token.start, end=span_end, has_close=is_closed),
            "marked",
            self.kind.name,
        )
        return (end + 1 if is_closed else end), span_end

    def _gap(self, start: int, end: int, tokens: list[structure.Token], *, is_text: bool) -> None:
        """Take up what stands outside markers: entries under `## <id>`, headings, paragraphs."""
        block = start
        heading: structure.Token | None = None
        for token in tokens:
            if token.what == "fence":
                continue
            is_id = self._is_own_id(token)
            own = heading if heading is not None and self._is_own_id(heading) else None
            if token.what == "heading" and own is not None and not is_id:
                continue  # a heading inside the entry's content
            is_own_close = token.what == "close" and own is not None and token.text == own.text
            self._block(block, token.start, heading, closed_at=token.end if is_own_close else None, is_text=is_text)
            if token.what == "close" and not is_own_close:
                self._warn(token.start, f"the closing marker of {token.text} has no opening one before it")
            block, heading = (token.start, token) if token.what == "heading" else (token.end, None)
        self._block(block, end, heading, closed_at=None, is_text=is_text)

    def _is_own_id(self, token: structure.Token) -> bool:
        """Whether the token is `## <entry id>` of this kind."""
        known = types.ENTRY_ID.fullmatch(token.text)
        return known is not None and known["prefix"] == self.kind.prefix and token.rest == "##"

    def _block(
        self, start: int, end: int, heading: structure.Token | None, *, closed_at: int | None, is_text: bool
    ) -> None:
        """Take up one block outside markers."""
        inner = self.text[start:end]
        body = inner if heading is None else self.text[heading.end : end]
        if heading is not None and self._is_own_id(heading):
            self._warn(start, f"{heading.text} has no opening marker")
            self.ids.add(heading.text)
            span = Span(
                start=start,
                end=self._text_end(start, end) if closed_at is None else closed_at,
                has_open=False,
                has_close=closed_at is not None,
            )
            self._add(inner, heading.text, span, "headed", self.kind.name)
            return
        if not inner.strip() or not is_text:
            return
        if not self.kind.takes_hand_text:
            self._warn(start, "text outside the entries of this file is not read")
            return
        if heading is not None:
            if heading.rest != "#" or not _RULES.fullmatch(body):
                self._hand(start, end, heading.text)
            return
        for begin, stop in self._paragraphs(start, end):
            if not _RULES.fullmatch(self.text[begin:stop]):
                self._hand(begin, stop, "")

    def _hand(self, start: int, end: int, title: str) -> None:
        """Take up one heading with its text, or one paragraph."""
        span = Span(start=start, end=self._text_end(start, end), has_open=False, has_close=False)
        self._add(self.text[span.start : span.end], self._hand_id(title), span, "hand", self.kind.name)

    def _paragraphs(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """Return where the paragraphs of text without a heading start and end; a fence is part of one."""
        begin = self._text_start(start)
        fence_end = begin
        unclosed: set[str] = set()  # so that a text of nothing but fences is not searched to its end for each
        for gap in _PARAGRAPH_END.finditer(self.text, begin, end):
            if gap["fence"] is not None:
                if gap.start() >= fence_end and gap["fence"] not in unclosed:
                    closer = re.compile(rf"^ {{0,3}}{gap['fence']}[`~]*[ \t]*\r?$", re.MULTILINE)
                    close = closer.search(self.text, gap.end(), end)
                    if close is None:
                        unclosed.add(gap["fence"])
                    else:
                        fence_end = close.end()
            elif gap.start() >= fence_end:
                if gap.start() > begin:
                    yield begin, gap.end()
                begin = gap.end()
        if begin < end:
            yield begin, end

    def _hand_id(self, title: str) -> str:
        """Return the id of the next block with this heading, leaving out those that adopted blocks have."""
        nth = self.headings.get(title, 0)
        while (entry_id := derived_id(self.place, title, nth)) in self.ids:
            nth += 1
        self.headings[title] = nth + 1
        return entry_id

    def _text_start(self, start: int) -> int:
        """Return the start of the first line from `start` on that is not blank."""
        begin = structure.BLANK.match(self.text, start).end()  # type: ignore[union-attr]  # matches the empty text
        return max(start, self.text.rfind("\n", start, begin) + 1)

    def _text_end(self, start: int, end: int) -> int:
        """Return the end, newline included, of the last line before `end` that is not blank."""
        last = start + len(self.text[start:end].rstrip(" \t\r\n"))
        after = self.text.find("\n", last, end)
        return end if after < 0 else after + 1

    def _single(self, head: frontmatter.Frontmatter) -> bool:
        """Take up a file whose frontmatter holds the fields of its one entry; False where it is none."""
        if not self.kind.sections or not single.is_claimed(head):
            return False
        if self.lines.opens or any(self._is_own_id(token) for token in self.lines.tokens):
            return False
        parts = single.sections(self.kind, self.text[head.end :].replace("\r\n", "\n"))
        if parts is None:
            return False
        preamble, sections = parts
        written = head.text("entry_id") or head.text("id")
        entry_id = (
            written
            if (match := types.ENTRY_ID.fullmatch(written)) and match["prefix"] == self.kind.prefix
            else self._hand_id("")
        )
        raw = escape.raw_text(self.kind, entry_id, fields=single.fields(head), preamble=preamble, sections=sections)
        self._add(
            raw,
            entry_id,
            Span(start=head.start, end=len(self.text), has_open=False, has_close=False),
            "single",
            self.kind.name,
        )
        return True
