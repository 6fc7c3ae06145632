"""What is said of whom: a text that swaps what it says of two people has all the words of its sources, and belies them.

People are the names that begin sentences, and those who speak. Theirs is what the sentences that name them say, those after
it until another is named, and what they say themselves. A clause of a narrative that names somebody, and gives them a place,
another name or a number that the sources give to others alone, is misplaced; so is one of two people whom no sentence brings
together, and one that has somebody move to where they only lived, or still live where they have left.

What cannot be told apart stays accepted: who `she` is where several were named before; what a sentence of the sources says
that names both, refers to both, or says `we` or `you` in a talk; what a clause says that names two people, or somebody's
relatives; what is of people who live together; days that change places; things without a name or a number; a state told in
the present that has ended, without `still`. German writes every noun large: there only what stands behind `in`, `nach` or
`bei` counts, and nobody is a stranger to another. Scripts without capitals, and names with cases, are not looked at.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from everosd.narrative import check, phrase, relation, words

_MAX_BETWEEN = 4
_LEAST_CLAUSE = 3
_MIN_NICKNAME = 3
_MONTHS = frozenset(words.MONTHS) | frozenset(words.WEEKDAYS)
_GERMAN_SHARE = 8


class _Reading(NamedTuple):
    """What one clause or sentence says that can be somebody's."""

    people: frozenset[str]
    names: frozenset[str]
    """Other names."""
    counts: frozenset[tuple[float, str]]
    """Numbers and the form of what they count; empty: nothing that is known."""


class People:
    """Sources, read once: who is in them, and what is theirs."""

    def __init__(self, sources: Iterable[Sequence[str]]) -> None:
        """Take the lines of each source, in time order; those of a transcript begin with who speaks."""
        read = [[(phrase.speaker_of(line), phrase.of_line(line)) for line in lines] for lines in sources]
        clauses = [each for lines in read for _, said in lines for sentence in said for each in sentence]
        self._is_german = _is_german(clauses)
        speakers = [name for lines in read for name, _ in lines if name]
        talk = frozenset(
            one.said[0].folded
            for lines in read
            for name, said in lines
            if name
            for sentence in said
            for one in sentence
        )
        self._people = _people(clauses, speakers, talk)
        self._nicknames = {
            first[:end]: frozenset({first}) for first in self._all() for end in range(_MIN_NICKNAME, len(first))
        }
        self._names = self._known_names(clauses)
        self._owners: dict[str, set[str]] = {}
        self._counted: dict[tuple[float, str], set[str]] = {}
        self._terms: dict[str, set[str]] = {}
        self._companions: dict[str, set[str]] = {name: {name} for name in self._all()}
        self._together: dict[str, set[str]] = {name: {name} for name in self._all()}
        self._kin: dict[str, set[str]] = {name: {name} for name in self._all()}
        self._moves: dict[str, list[tuple[int, str]]] = {}
        self._seen_at: dict[tuple[str, str], int] = {}
        """Person and place → the source that said last where they live."""
        for at, lines in enumerate(read):
            self._take(lines, at)

    def misplaced(self, lines: Iterable[str]) -> frozenset[str]:
        """Return the sentences of a text that give somebody what the sources give to others alone."""
        if not self._companions:
            return frozenset()
        found: set[str] = set()
        before: frozenset[str] = frozenset()
        for line in lines:
            speaker = self._of_speaker(phrase.speaker_of(line))
            before |= speaker
            for sentence in check.sentences(line):
                clauses = tuple(phrase.of_sentence(phrase.SPEAKER.sub("", sentence, count=1) if speaker else sentence))
                if self._is_misplaced(clauses, before):
                    found.add(sentence)
                before |= frozenset[str]().union(*(self._read(one).people for one in clauses))
        return frozenset(found)

    # -- sources --------------------------------------------------------------------------------------------------------

    def _all(self) -> frozenset[str]:
        return frozenset[str]().union(*self._people.values())

    def _known_names(self, clauses: Iterable[phrase.Clause]) -> frozenset[str]:
        """Return the words that are names wherever they stand: never at the beginning alone, never written small."""
        within: set[str] = set()
        small: set[str] = set()
        for clause in clauses:
            for at, word in enumerate(clause.said):
                if not word.is_large:
                    small.add(word.folded)
                elif at > 0 and (not self._is_german or clause.said[at - 1].folded in relation.GERMAN_LEADS):
                    within.add(word.folded)
        return frozenset(
            name
            for name in within - small - words.STARTERS - _MONTHS - self._people.keys()
            if len(name) > 1 and not self._persons(name)
        )

    def _take(self, lines: Sequence[tuple[str, list[tuple[phrase.Clause, ...]]]], at: int) -> None:
        """Give what the lines of a source say to those of whom they say it."""
        speakers = frozenset[str]().union(*(self._of_speaker(name) for name, _ in lines))
        for name in speakers:
            self._companions[name] |= speakers
        here: frozenset[str] = frozenset()
        owners: frozenset[str] = frozenset()
        last: list[_Reading] = []
        for place, (speaker, said) in enumerate(lines):
            says = self._of_speaker(speaker)
            beside = frozenset[str]().union(
                *(
                    self._of_speaker(name)
                    for name, _ in (*lines[max(0, place - 1) : place], *lines[place + 1 : place + 2])
                )
            )
            for sentence in said:
                parts = self._parallel(sentence)
                whole = phrase.joined(sentence)
                named = self._people_of(whole) | says
                here |= named
                if says:
                    owners = self._meant(whole, named, beside, here if len(speakers) > 2 else here - speakers)  # noqa: PLR2004  # two
                else:
                    owners = named if parts else self._told(whole, named, here, owners)
                for one, whose in parts or [(whole, owners)]:
                    self._give(self._read(one), whose, one)
                    self._note_moves(one, whose, at)
                for earlier in last if not parts and phrase.takes_up(whole, is_talk=bool(says)) else ():
                    self._give(earlier, owners, None)
                self._relate(sentence, named or owners, says)
                last = [*last, self._read(whole)] if says else [self._read(whole)]
            last = last[-len(said) :] if said else last

    def _told(
        self, whole: phrase.Clause, named: frozenset[str], here: frozenset[str], before: frozenset[str]
    ) -> frozenset[str]:
        """Return those of whom a sentence is; `before`: of whom the one before it is."""
        if not here or (whole.folded & relation.ALL and not named):
            return self._all()
        goes_on = not named and len(before) == 1 and not whole.folded & (relation.REFERS - relation.HIS - relation.SELF)
        if not goes_on and (phrase.refers(whole, named) or whole.folded & relation.TOO):
            return here
        return named or before

    def _meant(
        self, whole: phrase.Clause, named: frozenset[str], beside: frozenset[str], others: frozenset[str]
    ) -> frozenset[str]:
        """Return those of whom a speaker says something; `beside`: those to whom it may be said."""
        found = named
        if whole.folded & relation.YOU:
            found |= beside
        if whole.folded & relation.REFERS - relation.FIRST - relation.YOU:
            found |= others
        return found

    def _relate(self, clauses: Sequence[phrase.Clause], named: frozenset[str], says: frozenset[str]) -> None:
        """Note who is of whom, and with whom."""
        whole = phrase.joined(clauses)
        for clause in () if says else (whole, *clauses):
            lives_with = (
                clause is not whole
                and clause.folded & relation.WITH
                and clause.folded & (relation.LIVES | relation.MOVE | relation.PAST_LIVES)
            )
            pair = (
                self._people_of(clause) if lives_with else named if whole.folded & relation.PAIRED else frozenset[str]()
            )
            for one in pair:
                self._together[one] |= pair
        for clause in clauses if says else (whole,):
            kin = self._people_of(clause) | says if says else named
            for one in kin if clause.folded & (relation.RELATIVES | relation.PAIRED) else ():
                self._kin[one] |= kin

    def _give(self, reading: _Reading, owners: frozenset[str], clause: phrase.Clause | None) -> None:
        for name in reading.names:
            self._owners.setdefault(name, set()).update(owners)
        for count in reading.counts:
            self._counted.setdefault(count, set()).update(owners)
        terms = set(map(phrase.form, clause.folded)) if clause else set()
        for one in owners:
            self._companions[one] |= owners | reading.people
            self._terms.setdefault(one, set()).update(terms)

    def _note_moves(self, clause: phrase.Clause, owners: frozenset[str], at: int) -> None:
        names = self._read(clause).names
        places = phrase.targets(clause, names)
        for one in owners:
            if clause.folded & relation.MOVE:
                self._moves.setdefault(one, []).extend((at, place) for place in places)
            for place in names:
                self._seen_at[one, place] = at

    def _parallel(self, clauses: Sequence[phrase.Clause]) -> list[tuple[phrase.Clause, frozenset[str]]]:
        """Return the clauses of a sentence that says one thing of one and another of another, each with whose it is."""
        found = []
        for clause in clauses:
            own = self._people_of(clause)
            opens = clause.said[0].folded if clause.said else ""
            if (
                len(own) != 1
                or len(clause.said) < _LEAST_CLAUSE
                or not self._persons(opens)
                or clause.said[1].folded in relation.INSIDE | relation.TOWARDS | relation.WITH
                or phrase.refers(clause, own)
            ):
                return []
            found.append((clause, own))
        return found if len({own for _, own in found}) > 1 else []

    # -- reading --------------------------------------------------------------------------------------------------------

    def _of_speaker(self, name: str) -> frozenset[str]:
        return (
            frozenset[str]().union(*(self._persons(words.fold(part)) for part in phrase.WORD.findall(name)[:1]))
            if name
            else frozenset()
        )

    def _persons(self, folded: str) -> frozenset[str]:
        found = self._people.get(folded)
        if found is None and folded.endswith("s"):
            found = self._people.get(folded[:-1])
        if found is None and len(folded) >= _MIN_NICKNAME:
            found = self._nicknames.get(folded)
        return found or frozenset()

    def _people_of(self, clause: phrase.Clause) -> frozenset[str]:
        return frozenset[str]().union(*(self._persons(word.folded) for word in clause.said if word.is_large))

    def _read(self, clause: phrase.Clause) -> _Reading:
        large = frozenset(word.folded for word in clause.said if word.is_large)
        return _Reading(self._people_of(clause), large & self._names, phrase.counts(clause.text))

    # -- narratives -----------------------------------------------------------------------------------------------------

    def _is_misplaced(self, clauses: Sequence[phrase.Clause], before: frozenset[str]) -> bool:
        so_far: frozenset[str] = frozenset()
        bare: frozenset[str] = frozenset()
        waiting: list[phrase.Clause] = []
        before |= self._people_of(phrase.joined(clauses))
        for clause in clauses:
            own = self._people_of(clause)
            refers = phrase.refers(clause, own)
            if not own and not so_far and not refers:
                waiting.append(clause)
                continue
            is_bare = bool(own) and all(self._persons(word.folded) for word in clause.said)
            whose = (own | bare) if own else so_far
            if refers:
                whose |= before | so_far
            bare = bare | own if is_bare else frozenset()
            so_far |= own
            if whose and any(self._is_others(one, whose) for one in (*waiting, clause)):
                return True
            waiting = []
            if self._are_strangers(clause) or self._is_past(clause, whose):
                return True
        return bool(before and waiting) and any(self._is_others(one, before) for one in waiting)

    def _is_others(self, clause: phrase.Clause, whose: frozenset[str]) -> bool:
        reading = self._read(clause)
        allowed = whose
        for one in whose:
            allowed |= self._together[one]
            if clause.folded & relation.RELATIVES or phrase.refers(clause, whose) or phrase.has_owner(clause):
                allowed |= self._kin[one]
        if any((owners := self._owners.get(name)) and not owners & allowed for name in reading.names):
            return True
        for number, counted in reading.counts:
            owners = self._counted.get((number, counted))
            if not owners or owners & allowed:
                continue
            if number > check.MAX_COUNT or not any(counted in self._terms.get(one, ()) for one in allowed):
                return True
        return False

    def _are_strangers(self, clause: phrase.Clause) -> bool:
        """Return whether two people stand together whom no source brings together."""
        if self._is_german:
            return False
        named = [
            (at, each) for at, word in enumerate(clause.said) if word.is_large and (each := self._persons(word.folded))
        ]
        for (left, one), (right, other) in itertools.pairwise(named):
            between = {word.folded for word in clause.said[left + 1 : right]}
            if not between or right - left - 1 > _MAX_BETWEEN or between & (relation.APART | relation.ALL):
                continue
            if not any(other & self._companions[each] for each in one):
                return True
        return False

    def _is_past(self, clause: phrase.Clause, whose: frozenset[str]) -> bool:
        """Return whether the one of whom a clause is moved elsewhere than it says, or from where it has them still be."""
        if len(whose) != 1:
            return False
        (one,) = whose
        moves = self._moves.get(one, [])
        if not moves:
            return False
        names = self._read(clause).names
        to = {place for _, place in moves}
        if clause.folded & relation.MOVE and (places := phrase.targets(clause, names)):
            return not places & to and any((one, place) in self._seen_at for place in places)
        if clause.folded & relation.STILL and clause.folded & relation.LIVES and not clause.folded & relation.PAST:
            newest = max(at for at, _ in moves)
            return any(
                name not in to and (seen := self._seen_at.get((one, name))) is not None and seen < newest
                for name in names
            )
        return False


def _is_german(clauses: Iterable[phrase.Clause]) -> bool:
    found = [word.folded for clause in clauses for word in clause.said]
    return sum(word in words.GERMAN for word in found) * _GERMAN_SHARE > len(found)


def _people(
    clauses: Sequence[phrase.Clause], speakers: Iterable[str], talk: frozenset[str]
) -> dict[str, frozenset[str]]:
    """Return the parts of the names of people, each with the first names of those who have it.

    What begins sentences of a talk (`talk`) is no name before it stands large within one: there any word begins some.
    """
    score, after = _scores(clauses)
    small = {word.folded for clause in clauses for word in clause.said if not word.is_large}
    within = {word.folded for clause in clauses for word in clause.said[1:] if word.is_large}
    common = small | words.STARTERS | _MONTHS | check.LIGHT
    firsts = {
        name
        for name, n in score.items()
        if n > 0
        and name not in common
        and (name in within or name not in talk)
        and not name.endswith(words.COMMON_ENDINGS)
        and "'" not in name
    }
    for name in speakers:
        parts = [words.fold(part) for part in phrase.WORD.findall(name)]
        if parts and parts[0] not in words.STARTERS:
            firsts.add(parts[0])
            after.setdefault(parts[0], set()).update(parts[1:])
    found: dict[str, set[str]] = {first: {first} for first in firsts}
    for first in firsts:
        for part in after.get(first, set()) - firsts - small:
            if score.get(part, 0) >= 0:
                found.setdefault(part, set()).add(first)
    return {part: frozenset(whose) for part, whose in found.items()}


def _scores(clauses: Iterable[phrase.Clause]) -> tuple[dict[str, int], dict[str, set[str]]]:
    """Return how much more often a name begins clauses than it is a place, and what names follow it there."""
    score: dict[str, int] = {}
    after: dict[str, set[str]] = {}
    for clause in clauses:
        said = clause.said
        for lead, word in itertools.pairwise(said):
            if word.is_large and lead.folded in relation.PLACING:
                score[word.folded] = score.get(word.folded, 0) - (3 if lead.folded in relation.INSIDE else 1)
        end = next((at for at, word in enumerate(said) if not word.is_large), len(said))
        first = said[0].folded
        if 0 < end < len(said) and end <= _LEAST_CLAUSE and len(first) > 1:
            score[first] = score.get(first, 0) + 1
            after.setdefault(first, set()).update(word.folded for word in said[1:end])
    return score, after
