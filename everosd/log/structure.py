"""Which lines of a file are structure: markers, fences and headings, and what ends where.

Two rules meet here. Text inside an entry or a fence may look like a marker, and is text; and a fence that somebody
forgot to close never swallows the entries behind it.
"""

from __future__ import annotations

import bisect
import re
from typing import Literal, NamedTuple

_STRUCTURE = re.compile(
    r"\n {0,3}(?:"
    r"<!--[ \t]*+(?P<close>/?+)[ \t]*+entry[ \t]*+:[ \t]*+(?P<id>[^\s<>\0\ud800-\udfff]{1,200})[ \t]*+-->[ \t]*+(?=\r?\n|\r?\Z)"
    r"|(?P<fence>`{3,}|~{3,})(?P<info>[^\n]*)"
    r"|(?P<level>#{1,2})[ \t]+(?P<heading>[^\n]*)"
    r")",
    re.IGNORECASE,
)
_STRUCTURE_FIRST = re.compile(_STRUCTURE.pattern.removeprefix("\\n"), re.IGNORECASE)
BLANK = re.compile(r"[ \t\r\n]*+")
_WINDOW_CHARS = 1_000_000
"""Scanned in some milliseconds, for which the interpreter is held."""
_MAX_FENCES_TRIED = 64
"""Keeps a file of nothing but fences from costing the square of its size."""


class Token(NamedTuple):
    """A line that may be structure."""

    start: int
    """First character of the line."""
    end: int
    """Behind the line and its newline."""
    what: Literal["open", "close", "fence", "heading"]
    text: str
    """Id of a marker; the fence's run; the heading's text."""
    rest: str = ""
    """Info string of a fence; the `#`s of a heading."""


class Structure:
    """The lines of one file that may be structure, in order."""

    def __init__(self, text: str, start: int) -> None:
        """Scan `text` from `start`, the end of the frontmatter."""
        self.text = text
        self.tokens: list[Token] = []
        if start == 0:
            first = _STRUCTURE_FIRST.match(text)
            if first is not None:
                self._token(first, 0)
        at = max(0, start - 1)
        while at < len(text):
            # A window ends before a newline, so that no line is cut and other threads get their turn.
            end = text.find("\n", at + _WINDOW_CHARS)
            end = len(text) if end < 0 else end
            for match in _STRUCTURE.finditer(text, at, end):
                self._token(match, match.start() + 1)
            at = end
        tokens = self.tokens
        self.opens = [at for at, token in enumerate(tokens) if token.what == "open"]
        self.fences = [at for at, token in enumerate(tokens) if token.what == "fence"]
        self.closers = {
            char: [at for at in self.fences if tokens[at].text[0] == char and not tokens[at].rest] for char in "`~"
        }
        self.closes: dict[str, list[int]] = {}
        for at, token in enumerate(tokens):
            if token.what == "close":
                self.closes.setdefault(token.text, []).append(at)

    def _token(self, match: re.Match[str], start: int) -> None:
        after = self.text.find("\n", match.end())
        end = len(self.text) if after < 0 else after + 1
        if match["id"] is not None:
            self.tokens.append(Token(start, end, "close" if match["close"] else "open", match["id"]))
        elif match["fence"] is not None:
            info = match["info"].strip(" \t\r")
            if not (match["fence"][0] == "`" and "`" in info):  # inline code, not a fence
                self.tokens.append(Token(start, end, "fence", match["fence"], info))
        else:
            self.tokens.append(Token(start, end, "heading", match["heading"].strip(" \t\r"), match["level"]))

    def _fence_end(self, at: int) -> int | None:
        """Return the token that closes the fence at `at`."""
        run = self.tokens[at].text
        closers = self.closers[run[0]]
        first = bisect.bisect_right(closers, at)
        for closer in closers[first : first + _MAX_FENCES_TRIED]:
            if len(self.tokens[closer].text) >= len(run):
                return closer
        return None

    def _next(self, ordered: list[int], at: int) -> int | None:
        found = bisect.bisect_right(ordered, at)
        return ordered[found] if found < len(ordered) else None

    def gap_end(self, at: int) -> tuple[int, set[int]]:
        """Return the next opening marker from token `at` on, and the tokens before it that fences hide."""
        hidden: set[int] = set()
        while at < len(self.tokens) and self.tokens[at].what != "open":
            closer = self._fence_end(at) if self.tokens[at].what == "fence" else None
            if closer is not None and self._hides(at, closer):
                hidden.update(range(at, closer + 1))
                at = closer
            at += 1
        return at, hidden

    def _hides(self, at: int, closer: int) -> bool:
        """Return whether a fence outside entries ends at `closer`, and does not with an entry reaching over its end."""
        first = bisect.bisect_right(self.opens, at)
        last = bisect.bisect_left(self.opens, closer)
        for opened in self.opens[first:last]:
            close = self._next(self.closes.get(self.tokens[opened].text, []), opened)
            if close is not None and close > closer:
                return False
        return True

    def entry_end(self, at: int) -> int:
        """Return the token that ends the entry opened at `at`: its closing marker, an opening one, or none (the end)."""
        tokens, own = self.tokens, self.closes.get(self.tokens[at].text, [])
        close, following = self._next(own, at), self._next(self.opens, at)
        fence = self._next(self.fences, at)
        stop = len(tokens) if following is None else following
        first = stop if close is None else min(stop, close)
        if fence is None or fence > first:
            return first if close is not None and first == close else self._foreign_close(at, first)
        limit = self._limit(at, own, stop)
        n = at + 1
        while n < limit:
            token = tokens[n]
            if token.what == "fence":
                closer = self._fence_end(n)
                if closer is not None and closer < limit:
                    n = closer
            elif token.what == "close" and token.text == tokens[at].text:
                return n
            elif token.what == "open":
                return self._foreign_close(at, n)
            n += 1
        return limit if limit < len(tokens) and tokens[limit].what == "close" else self._foreign_close(at, limit)

    def _limit(self, at: int, own: list[int], stop: int) -> int:
        """Return the token that no fence of the entry can hide: a fence left open must not swallow what follows."""
        first = bisect.bisect_right(own, at)
        mine = own[first : first + _MAX_FENCES_TRIED]
        for close in mine:
            begin = BLANK.match(self.text, self.tokens[close].end).end()  # type: ignore[union-attr]  # matches the empty text
            following = close + 1
            if begin >= len(self.text) or (
                following < len(self.tokens)
                and self.tokens[following].what == "open"
                and self.tokens[following].start <= begin
            ):
                return close
        return mine[-1] if mine else stop

    def _foreign_close(self, at: int, end: int) -> int:
        """Take a closing marker with another id for the missing one where nothing but blanks follows it."""
        last = end - 1
        if last > at and self.tokens[last].what == "close":
            stop = self.tokens[end].start if end < len(self.tokens) else len(self.text)
            if not self.text[self.tokens[last].end : stop].strip():
                return last
        return end
