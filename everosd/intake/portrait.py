"""What a profile says: its items and its summary, and how a person's edits, everosd's last version and what is new go together.

Pure. An item is the person's unless it is, word for word, one that everosd wrote last: only such an item is ever taken out. What
a person took out is remembered and does not come back, nor does the same in other words.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence

import msgspec

from everosd import types
from everosd.index import token
from everosd.intake import correct, revision, statement
from everosd.log import escape, whole

EXPLICIT, TRAITS = "explicit_info", "implicit_traits"
MAX_ITEMS: Mapping[str, int] = {EXPLICIT: 60, TRAITS: 20}
"""Of everosd's own; beyond it the oldest of them go."""
MAX_SUMMARY_CHARS = 1000
MAX_ITEM_CHARS = 300
"""Of each text of an item."""
STAMP = "profile_timestamp_ms"

_MAX_GONE = 300
_N_IN_SUMMARY = 5
_LIKE = 0.8
"""Share of the words of the shorter text that the longer one has from which on they say the same."""
_MIN_SHARED = 2
_STRONG = 0.7
"""Terms of less weight are forms that a word may have, not the word."""
_NEGATED = re.compile(
    r"\b(?:not|never|no longer|n't|nicht|kein\w*|nie|pas|jamais|plus|nunca|não|non|mai|не|ни)\b|n't\b|[不没]|ない|ません",
    re.IGNORECASE,
)
_NUMBER = re.compile(r"\d+")
_SPEAKER = re.compile(r"^(?P<said>[^\s:：][^:：\n]{0,79}[:：]) (?P<text>.*)$", re.DOTALL)  # noqa: RUF001
_SAID = re.compile(r"^(?P<name>[^\s:：][^:：\n]{0,79}?) said(?P<mark>[:：] )")  # noqa: RUF001
"""As earlier versions put it, whatever the language."""


class Proposal(msgspec.Struct, frozen=True, kw_only=True):
    """What is new."""

    explicit: tuple[dict[str, str], ...] = ()
    traits: tuple[dict[str, str], ...] = ()
    outdated: tuple[object, ...] = ()
    """Items as they stand in the file that something new takes the place of."""
    summary: str = ""
    """Empty: it is made of the items."""

    def of(self, key: str) -> tuple[dict[str, str], ...]:
        """Return what is new for one of the two lists."""
        return self.explicit if key == EXPLICIT else self.traits


class Merged(msgspec.Struct, frozen=True, kw_only=True):
    """What a file is to say."""

    values: dict[str, whole.Value]
    """Keys to set."""
    body: str | None
    """None: as it is."""
    gone: tuple[tuple[str, ...], ...]
    """What people have taken out so far."""
    theirs: frozenset[str] = frozenset()
    """Marks of what in it is a person's."""


def main_text(item: object) -> str:
    """Return what an item says, whatever a person has made of it."""
    if isinstance(item, Mapping):
        parts = [str(item[key]) for key in ("trait", "description") if item.get(key)]
        return ": ".join(parts) or " ".join(str(value) for value in item.values())
    return str(item)


def _evidence(item: object) -> str:
    return str(item.get("evidence", "")) if isinstance(item, Mapping) else ""


@functools.lru_cache(maxsize=4096)
def _words(text: str) -> frozenset[str]:
    return frozenset(
        term.text for term in token.query_terms(text) if not term.is_pair and term.weight >= _STRONG
    ) or frozenset((text.casefold().strip(),))


def shared_words(one: str, other: str) -> frozenset[str]:
    """Return the words, in their plain forms, that two texts share."""
    return _words(one) & _words(other)


def says_the_same(one: str, other: str) -> bool:
    """Tell whether two texts say the same, as far as their words tell: the numbers, and whether it is denied, have to agree."""
    one, other = (_SAID.sub(r"\g<name>\g<mark>", text) for text in (one, other))
    first, second = _words(one), _words(other)
    if set(_NUMBER.findall(one)) != set(_NUMBER.findall(other)) or bool(_NEGATED.search(one)) != bool(
        _NEGATED.search(other)
    ):
        return False
    n_shared = len(first & second)
    if first != second and (n_shared < _MIN_SHARED or n_shared < _LIKE * min(len(first), len(second))):
        return False
    return not correct.contradicts(one, other) and not correct.contradicts(other, one)


def is_gone(text: str, evidence: str, gone: Sequence[tuple[str, ...]]) -> bool:
    """Tell whether a person took this out, in these or other words."""
    return any(
        says_the_same(text, each[0]) or (bool(evidence) and len(each) > 1 and _is_quoted(text, evidence, each))
        for each in gone
        if each
    )


def _is_quoted(text: str, evidence: str, gone: tuple[str, ...]) -> bool:
    """Tell whether a text is about the same words as something that is gone, and shares what they are about."""
    if " ".join(evidence.split()).casefold() != " ".join(gone[1].split()).casefold():
        return False
    shared, former = _words(text) & _words(gone[0]), _words(gone[0])
    return 2 * len(shared) >= len(former)


def items(values: Mapping[str, object], key: str) -> list[object] | None:
    """Return one of the two lists; None where a person has made something else of it."""
    value = values.get(key, "")
    if isinstance(value, list):
        return value
    return [] if value in ("", "null", "~") else None


def lines_of(explicit: Sequence[object]) -> list[str]:
    """Return a summary made of items, one a line: who somebody is before what they like, the newest first.

    Each is in its own words. Who said them stands before the first of neighbours that one person said.
    """

    def place(at: int) -> tuple[int, int]:
        item = explicit[at]
        category = str(item.get("category", "")) if isinstance(item, Mapping) else ""
        known = statement.CATEGORIES
        return (known.index(category) if category in known else len(known), -at)

    said = ""
    lines: list[str] = []
    for at in sorted(range(len(explicit)), key=place)[:_N_IN_SUMMARY]:
        text = _SAID.sub(r"\g<name>\g<mark>", " ".join(main_text(explicit[at]).split()))
        found = _SPEAKER.match(text)
        is_quoted = found is not None and found["text"] == " ".join(_evidence(explicit[at]).split())
        if found is not None and is_quoted and found["said"] == said:
            text = found["text"]
        if text and sum(map(len, lines)) + len(text) < MAX_SUMMARY_CHARS // 2:
            said = found["said"] if found is not None and is_quoted else said
            lines.append(text if text.endswith((".", "!", "。", "！", "…")) else f"{text}.")  # noqa: RUF001
    return lines


def taken_out(values: Mapping[str, object], base: revision.Revision | None) -> list[tuple[str, str]]:
    """Return what a person took out of a profile since `base`: text and evidence of each item."""
    return [
        (main_text(each), _evidence(each))
        for key in (EXPLICIT, TRAITS)
        if base is not None and (there := items(values, key)) is not None
        for each in items(base.values, key) or []
        if each not in there
    ]


def merged(
    owner: types.Owner,
    present: tuple[Mapping[str, object], str] | None,
    base: revision.Revision | None,
    gone: Sequence[tuple[str, ...]],
    proposal: Proposal,
) -> Merged | None:
    """Return what a profile is to say; None where there is no file and nothing to put into one.

    Args:
        owner: whose it is.
        present: keys and body of the file as it is; None: there is none.
        base: the version that the person's edits were made on; None: all that is there is theirs.
        gone: what people have taken out before.
        proposal: what is new.
    """
    values, body = present if present is not None else ({}, "")
    before = {} if base is None else base.values
    known = [*gone, *taken_out(values, base)]
    lists: dict[str, list[object]] = {}
    theirs: set[str] = set()
    for key in (EXPLICIT, TRAITS):
        there, former = items(values, key), items(before, key) or []
        if there is None:
            continue
        own = [each for each in there if each in former and not _is_theirs(base, key, each)]
        theirs.update(revision.mark(key, each) for each in there if each not in own)
        lists[key] = _list(key, there, own, known, proposal)
    explicit = lists.get(EXPLICIT, [])
    summary = proposal.summary if not _mentions(proposal.summary, known) else ""
    new = _Summary(
        lines=(summary[:MAX_SUMMARY_CHARS],) if summary else tuple(lines_of(explicit)), is_prose=bool(summary)
    )
    known = list(dict.fromkeys(known))[-_MAX_GONE:]
    if present is None:
        return _new(owner, lists, new, known)
    changed: dict[str, whole.Value] = {key: each for key, each in _head(owner).items() if key not in values}
    changed |= {key: each for key, each in lists.items() if each != items(values, key)}  # type: ignore[misc]
    text = _texts(values, body, base, new)
    if text.summary is not None and text.summary != values.get("summary", ""):
        changed["summary"] = text.summary
    return Merged(values=changed, body=text.body, gone=tuple(known), theirs=frozenset(theirs) | text.theirs)


def _is_theirs(base: revision.Revision | None, key: str, item: object) -> bool:
    return base is not None and revision.mark(key, item) in base.theirs


def _mentions(summary: str, gone: Sequence[tuple[str, ...]]) -> bool:
    return any(is_gone(sentence, "", gone) for sentence in statement.sentences(summary))


def _head(owner: types.Owner) -> dict[str, whole.Value]:
    return {
        "id": f"profile_{owner.id}",
        "type": "user_profile",
        "schema_version": 1,
        "user_id": owner.id,
        "track": "user",
    }


def _new(
    owner: types.Owner, lists: Mapping[str, list[object]], summary: _Summary, gone: Sequence[tuple[str, ...]]
) -> Merged | None:
    if not summary.lines and not any(lists.values()):
        return None
    values = {**_head(owner), "summary": summary.head, **lists}
    return Merged(values=values, body=summary.body, gone=tuple(gone))  # type: ignore[arg-type]


def _list(
    key: str, there: Sequence[object], own: Sequence[object], gone: Sequence[tuple[str, ...]], proposal: Proposal
) -> list[object]:
    """Return one of the lists: what stays in its order, then what is new."""
    stays = [each for each in there if not (each in own and each in proposal.outdated)]
    for new in proposal.of(key):
        text = main_text(new)
        is_known = any(says_the_same(text, main_text(each)) for each in stays)
        if text and not is_known and not is_gone(text, _evidence(new), gone):
            stays.append(whole.read_back(new))
    mine = [each for each in stays if each in own or each not in there]
    for oldest in mine[: max(0, len(stays) - MAX_ITEMS[key])]:
        stays.remove(oldest)
    return stays


_HEAD, _BODY, _AROUND = "summary", "body", "around"
"""Marks: the summary in the frontmatter is a person's; so is the body; so is what stands around the summary in the body."""
_LINE, _OUT = "line", "out"
"""Marks of lines of the body: a person wrote it; a person took it out or changed it."""


class _Summary(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be told of somebody, in short."""

    lines: tuple[str, ...]
    is_prose: bool
    """A model's, one line that is another one each time; else statements, one a line."""

    @property
    def head(self) -> str:
        """As it stands in the frontmatter."""
        return " ".join(self.lines)

    @property
    def body(self) -> str:
        """As it stands in the body."""
        return "\n".join(self.lines)


class _Texts(msgspec.Struct, frozen=True, kw_only=True):
    """Summary and body, as they are to be; None: as they are."""

    summary: str | None = None
    body: str | None = None
    theirs: frozenset[str] = frozenset()


def _texts(values: Mapping[str, object], body: str, base: revision.Revision | None, new: _Summary) -> _Texts:
    """Bring together the summary in the frontmatter and the one in the body: they are one, and a person may edit either."""
    there = values.get("summary", "")
    former, former_body = ("", "") if base is None else (base.values.get("summary", ""), base.body)
    marks = frozenset[str]() if base is None else base.theirs
    is_own_body = body == former_body and not {each.partition(":")[0] for each in marks} & {_BODY, _AROUND, _LINE, _OUT}
    if there != former or _HEAD in marks:
        shown = str(there) if isinstance(there, str) and there and is_own_body else None
        return _Texts(body=shown, theirs=frozenset({_HEAD} if is_own_body else {_HEAD, _BODY}))
    if is_own_body:
        return _Texts(summary=new.head, body=new.body)
    summary = former if isinstance(former, str) else ""
    if _BODY not in marks and (merged := _Lines(body, former_body, summary, marks).merged(new)) is not None:
        return merged
    if _BODY not in marks and summary and body.count(summary) == 1:
        return _Texts(summary=new.head, body=body.replace(summary, new.head), theirs=frozenset({_AROUND}))
    return _Texts(summary=_collapsed(body), theirs=frozenset({_BODY}))


def _collapsed(body: str) -> str | None:
    """Return a body as the frontmatter's summary has it; None where that has no room for it."""
    line = escape.one_line(" ".join(body.split()))
    return line if 0 < len(line) <= MAX_SUMMARY_CHARS else None


class _Lines:
    """A body of which a person changed some lines: theirs stay as they are, the others are kept up to date."""

    def __init__(self, body: str, former_body: str, former: str, marks: frozenset[str]) -> None:
        """Compare what is there with the version that it was made of, and what was known of that."""
        self._marks = marks
        own = [line for line in former_body.split("\n") if line.strip() and revision.mark(_LINE, line) not in marks]
        # Of a version that knew of no lines: what stood around the summary in it was a person's.
        self._own = [line for line in own if line == former] if _AROUND in marks else own
        self._there = body.split("\n")
        self._lost = [line for line in self._own if line not in self._there]

    def merged(self, new: _Summary) -> _Texts | None:
        """Return the body and its summary; None where the person wrote a body of their own."""
        at = next((at for at, line in enumerate(self._there) if line in self._own or self._is_changed(line, new)), None)
        if at is None:
            return None
        is_out = {revision.mark(_OUT, _key(line)) for line in self._lost}
        is_out |= {mark for mark in self._marks if mark.startswith(f"{_OUT}:")}
        mine = " ".join(line for line in self._there if line not in self._own)
        wanted = {
            _key(line): line
            for line in new.lines
            if revision.mark(_OUT, _key(line)) not in is_out and _key(line) not in mine
        }
        lines: list[str] = []
        place = 0  # behind the last line that everosd wrote, there or gone: new ones come there
        theirs = set[str]()
        for number, line in enumerate(self._there):
            if line not in self._own:
                lines.append(line)
                theirs |= {revision.mark(_LINE, line)} if line.strip() else set()
                place = len(lines) if number == at else place
                continue
            if _key(line) in wanted:
                lines.append(wanted.pop(_key(line)))
            place = len(lines)
        lines[place:place] = wanted.values()
        body = "\n".join(lines)
        return _Texts(summary=_collapsed(body) or new.head, body=body, theirs=frozenset(theirs | is_out))

    def _is_changed(self, line: str, new: _Summary) -> bool:
        """Return whether a line of the person's is one of everosd's with changes; prose is another one anyway."""
        if new.is_prose or not line.strip():
            return False
        return any(2 * len(shared_words(line, one)) >= len(_words(one)) for one in self._lost) or (
            revision.mark(_LINE, line) in self._marks
        )


def _key(line: str) -> str:
    """Return a line without who said it, which stands before the first one only."""
    found = _SPEAKER.match(_SAID.sub(r"\g<name>\g<mark>", line))
    return found["text"] if found else line
