"""What was said later and contradicts what was found: never ranked below it.

Whatever answers a question by an earlier statement is answered by the later one that corrects it. So an entry whose best
fact is corrected gives its score to the entry with the correcting fact, where that has less, and stands behind it. An
entry that was not found by itself comes in that way, within the bounds of the query. Facts nested under one entry
are treated the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from everosd import types
from everosd.index import contract
from everosd.search import fuse, look
from everosd.store import correction as corrections
from everosd.store import row

Rows = Mapping[types.EntryKey, row.EntryRow]
"""What the ledger says may be shown, by key."""
Given = Sequence[corrections.Correction]


def keys(ranking: look.Ranking) -> list[types.EntryKey]:
    """Return the keys of all that may be corrected: entries, their best facts, nested facts."""
    found = [one.own.key for one in ranking.ranked]
    found += [one.fact.key for one in ranking.ranked if one.fact is not None]
    found += [fact.key for facts in ranking.facts.values() for fact in facts]
    return list(dict.fromkeys(found))


def applied(
    ranking: look.Ranking,
    given: Given,
    rows: Rows,
    *,
    may_come_in: Callable[[row.EntryRow], bool],
    nests_facts: bool,
) -> look.Ranking:
    """Return the ranking with what corrects its entries in front of them.

    Args:
        ranking: As the indexes made it.
        given: What corrects what, as the ledger says.
        rows: Of all that is in either.
        may_come_in: Whether an entry that was not found may be among the answer.
        nests_facts: Whether facts are shown under their entries.
    """
    given = [one for one in given if one.by in rows and one.entry in rows]
    if not given:
        return ranking
    board = _Board(ranking, given, rows, may_come_in)
    ranked = board.settled()
    facts = _nested(ranked, ranking.facts, given, rows) if nests_facts else ranking.facts
    return look.Ranking(ranked=tuple(ranked), facts=facts, floor=ranking.floor)


class _Board:
    """Entries of one answer, and who gives way to whom."""

    def __init__(
        self, ranking: look.Ranking, given: Given, rows: Rows, may_come_in: Callable[[row.EntryRow], bool]
    ) -> None:
        self._by_target = _by_target(given)
        self._rows = rows
        self._may_come_in = may_come_in
        self._entries = {one.own.key: one for one in ranking.ranked if one.own.key in rows}
        self._corrected = {
            key: {key} | ({one.fact.key} if one.fact is not None else set()) for key, one in self._entries.items()
        }
        """What of an entry, when corrected, makes it give way: itself and the fact that speaks for it."""
        self._came_in: set[types.EntryKey] = set()

    def settled(self) -> list[fuse.Ranked]:
        """Return all entries, best first."""
        above: dict[types.EntryKey, list[types.EntryKey]] = {}
        waiting = list(self._entries)
        while waiting:
            lower = waiting.pop()
            above[lower] = []
            for target in sorted(self._corrected[lower]):
                for one in self._by_target.get(target, ()):
                    upper = one.by if self._rows[lower].kind in look.FACT_KINDS else one.entry
                    if upper != lower and self._is_there(upper):
                        above[lower].append(upper)
                        if self._raise(upper, lower, one):
                            waiting.append(upper)
        return _placed(self._entries, above)

    def _is_there(self, key: types.EntryKey) -> bool:
        if key in self._entries:
            return True
        if not self._may_come_in(self._rows[key]):
            return False
        self._entries[key] = fuse.Ranked(own=_unknown(self._rows[key]), score=0.0)
        self._corrected[key] = {key}
        self._came_in.add(key)
        return True

    def _raise(self, upper: types.EntryKey, lower: types.EntryKey, one: corrections.Correction) -> bool:
        """Let an entry have the score of one that it corrects; return whether that may concern what corrects it."""
        entry, score = self._entries[upper], self._entries[lower].score
        is_new = upper in self._came_in and one.by not in self._corrected[upper]
        if is_new:  # only its correcting facts speak for it
            self._corrected[upper].add(one.by)
        if entry.score < score or (is_new and entry.corrects is None):
            self._entries[upper] = msgspec.structs.replace(entry, score=score, corrects=one.target)
            return True
        return is_new


def _placed(
    entries: Mapping[types.EntryKey, fuse.Ranked], above: Mapping[types.EntryKey, Iterable[types.EntryKey]]
) -> list[fuse.Ranked]:
    """Sort best first; of equal ones what corrects stands before what it corrects, and a circle as it comes."""
    placed: dict[types.EntryKey, fuse.Ranked] = {}

    def place(one: fuse.Ranked) -> None:
        if one.own.key not in started:
            started.add(one.own.key)
            for key in above.get(one.own.key, ()):
                place(entries[key])
            placed[one.own.key] = one

    started: set[types.EntryKey] = set()
    for one in fuse.ordered(entries.values()):
        place(one)
    return list(placed.values())


def _nested(
    ranked: Iterable[fuse.Ranked], facts: Mapping[int, list[fuse.Evidence]], given: Given, rows: Rows
) -> dict[int, list[fuse.Evidence]]:
    """Return the facts of each entry, with those that correct another one of the same entry, or that raised it."""
    by_target = _by_target(given)
    scores = {fact.key: fact.score for nested in facts.values() for fact in nested}
    scores |= {one.fact.key: one.fact.score for one in ranked if one.fact is not None}
    found: dict[int, list[fuse.Evidence]] = {}
    for entry in ranked:
        own = {fact.key: fuse.Ranked(own=fact, score=fact.score) for fact in facts.get(entry.own.link, ())}
        above: dict[types.EntryKey, list[types.EntryKey]] = {}
        waiting = list(own if entry.corrects is None else scores)
        while waiting:
            lower = waiting.pop()
            score = own[lower].score if lower in own else scores[lower]
            for one in by_target.get(lower, ()):
                if one.entry == entry.own.key != one.by:
                    above.setdefault(lower, []).append(one.by)
                    before = own[one.by].own if one.by in own else _unknown(rows[one.by])
                    if one.by not in own or before.score < score:
                        raised = msgspec.structs.replace(before, score=score)
                        own[one.by] = fuse.Ranked(own=raised, score=score)
                        waiting.append(one.by)
        if own:
            n = max(look.FACTS_SHOWN, len(facts.get(entry.own.link, ())))
            found[entry.own.link] = [one.own for one in _placed(own, above)][:n]
    return found


def _by_target(given: Given) -> dict[types.EntryKey, list[corrections.Correction]]:
    found: dict[types.EntryKey, list[corrections.Correction]] = {}
    for one in given:
        found.setdefault(one.target, []).append(one)
    return found


def _unknown(entry: row.EntryRow) -> fuse.Evidence:
    """Return what speaks for an entry that no index was asked about."""
    return fuse.Evidence(
        key=entry.key,
        link=contract.link(entry.owner, entry.entry_id),
        parent_link=contract.link(entry.owner, entry.parent_id),
        timestamp_us=entry.timestamp_us,
        score=0.0,
    )
