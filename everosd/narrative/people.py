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

import functools
import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from everosd.index import token
from everosd.narrative import check, figure, words

_CLAUSE = re.compile(
    r"[;:]\s|,(?!\d)|\s[–—-]\s|\b(?:and|but|while|whereas|und|aber|während|et|mais|tandis que|y|e|pero|mientras|mas|ma)\b",  # noqa: RUF001
    re.IGNORECASE,
)
_SPEAKER = re.compile(r"^(?P<name>[^\s:][^:\n]{0,59}):\s")
_WORD = re.compile(r"[^\W\d_]+(?:['’-][^\W\d_]+)*")  # noqa: RUF001
_POSSESSIVE = re.compile(r"['’]s?$")  # noqa: RUF001
_ELIDED = re.compile(r"^(?:[dljmnst]|qu)['’](?=\w)", re.IGNORECASE)  # noqa: RUF001


def _set(text: str) -> frozenset[str]:
    return frozenset(words.fold(word) for word in text.split())


_INSIDE = _set("in into near nach aus en dans em im within")
"""Before a place."""
_GERMAN_LEADS = _INSIDE | _set("bei frau herr herrn namens")
_TOWARDS = _set("to a à from de at au em vers hacia desde for nach")
"""Before a place or a person."""
_PLACING = _INSIDE | _TOWARDS | words.LEADS_TO_NOUN
_HIS = _set("""
his her hers its their theirs sein seine seinen seinem seiner seines ihr ihre ihren ihrem ihrer ihres son sa ses leur leurs su sus
""")
"""Most are of the one who begins the sentence, where it is the only one named."""
_SELF = _set("he she er sie il elle él ella it")
"""So are these, behind a verb of saying."""
_REFERS = (
    _HIS
    | _SELF
    | _set("""
he she they it him them here there both same together we us our you your yours i me my former latter other others another
er sie ihn ihm dort dorthin selbe gleiche beide beiden zusammen wir uns unser unsere dich dir dein deine dieser diese
il elle ils elles lui aussi même deux ensemble nous notre vous votre vos tu ton ta tes
él ella ellos ellas allí ahí mismo misma ambos ambas juntos juntas nosotros nuestro nuestra
lei loro suo sua suoi stesso insieme ele ela eles elas mesmo zij hij hun haar daar
""")
)
"""What refers to somebody or something said before."""
_FIRST = _set("i me my mine ich mich mir mein je moi mon ma mes yo mi mis")
_YOU = _set("""
you your yours we us our let's du dich dir dein deine ihr euch euer wir uns unser unsere tu toi ton ta tes vous votre vos nous notre nos
tú ti tu tus vosotros usted ustedes nosotros nuestro nuestra
""")
"""With these somebody speaks of whom they speak to, or of both."""
_IT = _set("it that them there")
_THERE = _set("""
it there here both same together they we latter former other dort dorthin ihn selbe gleiche beide beiden zusammen wir aussi même ensemble nous
ils elles allí ahí mismo misma ambos ambas juntos juntas nosotros ellos ellas stesso insieme loro mesmo daar
too also auch ebenfalls también anche também ook
""")
"""What refers to what the sentence before says."""
_TOO = _set("too also auch ebenfalls también aussi anche também ook")
_ALL = _set("we they both all everyone everybody family couple wir beide beiden alle familie paar nous ils elles tous famille couple"
            " ambos ambas todos familia pareja ellos ellas nosotros loro tutti famiglia eles")  # fmt: skip
_PAIRED = _set("""
married marry marries wedding wife husband partner couple verheiratet heiratete heirateten geheiratet ehepaar épouse épousé mari marié mariés
compagne compagnon couple esposa marido casado casada casados casaron pareja
""")
_WITH = _set("with together mit zusammen avec ensemble con juntos juntas")
"""With a word of living or moving: these do so together."""
_RELATIVES = _set("""
sister brother sisters brothers mother father mom mum dad parents son daughter sons daughters child children wife husband partner friend
friends boss neighbour neighbor colleague colleagues cousin aunt uncle grandmother grandfather roommate flatmate team company dog cat
schwester bruder geschwister mutter vater eltern sohn tochter kinder kind frau mann partner partnerin freund freundin chef chefin nachbar nachbarin
kollege kollegin tante onkel oma opa hund katze soeur sœur frère mère père parents fils fille enfants enfant femme mari ami amie voisin voisine
collègue tante oncle chien chat hermana hermano madre padre padres hijo hija hijos esposa marido amigo amiga jefe jefa vecino vecina compañero
compañera tía tío perro gato
""")
_APART = _set("""
than like unlike as when after before because since so that once although though if until where who which whose whom
comme lorsque quand après avant parce car que qui où dont depuis cuando como porque desde después antes donde que quien
""")
"""Between two names that need have nothing to do with one another."""
_MAX_BETWEEN = 4
_MOVE = _set("""
move moves moved moving relocate relocates relocated relocating zog zieht gezogen umgezogen umzog ziehen déménage déménagé déménagea
déménager installé installée mudó muda mudarse mudado mudada trasladó traslada trasferito trasferita mudou
""")
_TO = _set("to nach à a au para")
_STILL = _set(
    "still nach-wie-vor noch weiterhin toujours encore todavía aún sigue continúa ancora ainda continua remains"
)
_LIVES = _set(
    "lives live living wohnt lebt habite vit réside vive reside viviendo viven vivent wohnen abita mora woont"
)
_PAST_LIVES = _set("lived wohnte wohnten lebte lebten habitait habitaient vivait vivaient vivía vivían abitava morava")
_PAST = _PAST_LIVES | _set("was were had hatte war était era estaba")
_LEAST_CLAUSE = 3
_MIN_NICKNAME = 3
_MONTHS = frozenset(words.MONTHS) | frozenset(words.WEEKDAYS)
_GERMAN_SHARE = 8
_LATIN_END = "\u0250"
"""Behind the letters of Latin alphabets."""


class _Word(NamedTuple):
    text: str
    folded: str
    is_large: bool


class _Clause(NamedTuple):
    said: tuple[_Word, ...]
    text: str
    folded: frozenset[str]

    @classmethod
    def of(cls, said: tuple[_Word, ...], text: str) -> _Clause:
        return cls(said, text, frozenset([word.folded for word in said]))


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
        read = [[(_speaker(line), _sentences(line)) for line in lines] for lines in sources]
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
            speaker = self._of_speaker(_speaker(line))
            before |= speaker
            for sentence in check.sentences(line):
                clauses = tuple(_clauses(_SPEAKER.sub("", sentence, count=1) if speaker else sentence))
                if self._is_misplaced(clauses, before):
                    found.add(sentence)
                before |= frozenset[str]().union(*(self._read(one).people for one in clauses))
        return frozenset(found)

    # -- sources --------------------------------------------------------------------------------------------------------

    def _all(self) -> frozenset[str]:
        return frozenset[str]().union(*self._people.values())

    def _known_names(self, clauses: Iterable[_Clause]) -> frozenset[str]:
        """Return the words that are names wherever they stand: never at the beginning alone, never written small."""
        within: set[str] = set()
        small: set[str] = set()
        for clause in clauses:
            for at, word in enumerate(clause.said):
                if not word.is_large:
                    small.add(word.folded)
                elif at > 0 and (not self._is_german or clause.said[at - 1].folded in _GERMAN_LEADS):
                    within.add(word.folded)
        return frozenset(
            name
            for name in within - small - words.STARTERS - _MONTHS - self._people.keys()
            if len(name) > 1 and not self._persons(name)
        )

    def _take(self, lines: Sequence[tuple[str, list[tuple[_Clause, ...]]]], at: int) -> None:
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
                whole = _joined(sentence)
                named = self._people_of(whole) | says
                here |= named
                if says:
                    owners = self._meant(whole, named, beside, here if len(speakers) > 2 else here - speakers)  # noqa: PLR2004  # two
                else:
                    owners = named if parts else self._told(whole, named, here, owners)
                for one, whose in parts or [(whole, owners)]:
                    self._give(self._read(one), whose, one)
                    self._note_moves(one, whose, at)
                for earlier in last if not parts and _takes_up(whole, is_talk=bool(says)) else ():
                    self._give(earlier, owners, None)
                self._relate(sentence, named or owners, says)
                last = [*last, self._read(whole)] if says else [self._read(whole)]
            last = last[-len(said) :] if said else last

    def _told(
        self, whole: _Clause, named: frozenset[str], here: frozenset[str], before: frozenset[str]
    ) -> frozenset[str]:
        """Return those of whom a sentence is; `before`: of whom the one before it is."""
        if not here or (whole.folded & _ALL and not named):
            return self._all()
        goes_on = not named and len(before) == 1 and not whole.folded & (_REFERS - _HIS - _SELF)
        if not goes_on and (_refers(whole, named) or whole.folded & _TOO):
            return here
        return named or before

    def _meant(
        self, whole: _Clause, named: frozenset[str], beside: frozenset[str], others: frozenset[str]
    ) -> frozenset[str]:
        """Return those of whom a speaker says something; `beside`: those to whom it may be said."""
        found = named
        if whole.folded & _YOU:
            found |= beside
        if whole.folded & _REFERS - _FIRST - _YOU:
            found |= others
        return found

    def _relate(self, clauses: Sequence[_Clause], named: frozenset[str], says: frozenset[str]) -> None:
        """Note who is of whom, and with whom."""
        whole = _joined(clauses)
        for clause in () if says else (whole, *clauses):
            lives_with = (
                clause is not whole and clause.folded & _WITH and clause.folded & (_LIVES | _MOVE | _PAST_LIVES)
            )
            pair = self._people_of(clause) if lives_with else named if whole.folded & _PAIRED else frozenset[str]()
            for one in pair:
                self._together[one] |= pair
        for clause in clauses if says else (whole,):
            kin = self._people_of(clause) | says if says else named
            for one in kin if clause.folded & (_RELATIVES | _PAIRED) else ():
                self._kin[one] |= kin

    def _give(self, reading: _Reading, owners: frozenset[str], clause: _Clause | None) -> None:
        for name in reading.names:
            self._owners.setdefault(name, set()).update(owners)
        for count in reading.counts:
            self._counted.setdefault(count, set()).update(owners)
        terms = set(map(_form, clause.folded)) if clause else set()
        for one in owners:
            self._companions[one] |= owners | reading.people
            self._terms.setdefault(one, set()).update(terms)

    def _note_moves(self, clause: _Clause, owners: frozenset[str], at: int) -> None:
        names = self._read(clause).names
        places = _targets(clause, names)
        for one in owners:
            if clause.folded & _MOVE:
                self._moves.setdefault(one, []).extend((at, place) for place in places)
            for place in names:
                self._seen_at[one, place] = at

    def _parallel(self, clauses: Sequence[_Clause]) -> list[tuple[_Clause, frozenset[str]]]:
        """Return the clauses of a sentence that says one thing of one and another of another, each with whose it is."""
        found = []
        for clause in clauses:
            own = self._people_of(clause)
            opens = clause.said[0].folded if clause.said else ""
            if (
                len(own) != 1
                or len(clause.said) < _LEAST_CLAUSE
                or not self._persons(opens)
                or clause.said[1].folded in _INSIDE | _TOWARDS | _WITH
                or _refers(clause, own)
            ):
                return []
            found.append((clause, own))
        return found if len({own for _, own in found}) > 1 else []

    # -- reading --------------------------------------------------------------------------------------------------------

    def _of_speaker(self, name: str) -> frozenset[str]:
        return (
            frozenset[str]().union(*(self._persons(words.fold(part)) for part in _WORD.findall(name)[:1]))
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

    def _people_of(self, clause: _Clause) -> frozenset[str]:
        return frozenset[str]().union(*(self._persons(word.folded) for word in clause.said if word.is_large))

    def _read(self, clause: _Clause) -> _Reading:
        large = frozenset(word.folded for word in clause.said if word.is_large)
        return _Reading(self._people_of(clause), large & self._names, _counts(clause.text))

    # -- narratives -----------------------------------------------------------------------------------------------------

    def _is_misplaced(self, clauses: Sequence[_Clause], before: frozenset[str]) -> bool:
        so_far: frozenset[str] = frozenset()
        bare: frozenset[str] = frozenset()
        waiting: list[_Clause] = []
        before |= self._people_of(_joined(clauses))
        for clause in clauses:
            own = self._people_of(clause)
            refers = _refers(clause, own)
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

    def _is_others(self, clause: _Clause, whose: frozenset[str]) -> bool:
        reading = self._read(clause)
        allowed = whose
        for one in whose:
            allowed |= self._together[one]
            if clause.folded & _RELATIVES or _refers(clause, whose) or _has_owner(clause):
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

    def _are_strangers(self, clause: _Clause) -> bool:
        """Return whether two people stand together whom no source brings together."""
        if self._is_german:
            return False
        named = [
            (at, each) for at, word in enumerate(clause.said) if word.is_large and (each := self._persons(word.folded))
        ]
        for (left, one), (right, other) in itertools.pairwise(named):
            between = {word.folded for word in clause.said[left + 1 : right]}
            if not between or right - left - 1 > _MAX_BETWEEN or between & (_APART | _ALL):
                continue
            if not any(other & self._companions[each] for each in one):
                return True
        return False

    def _is_past(self, clause: _Clause, whose: frozenset[str]) -> bool:
        """Return whether the one of whom a clause is moved elsewhere than it says, or from where it has them still be."""
        if len(whose) != 1:
            return False
        (one,) = whose
        moves = self._moves.get(one, [])
        if not moves:
            return False
        names = self._read(clause).names
        to = {place for _, place in moves}
        if clause.folded & _MOVE and (places := _targets(clause, names)):
            return not places & to and any((one, place) in self._seen_at for place in places)
        if clause.folded & _STILL and clause.folded & _LIVES and not clause.folded & _PAST:
            newest = max(at for at, _ in moves)
            return any(
                name not in to and (seen := self._seen_at.get((one, name))) is not None and seen < newest
                for name in names
            )
        return False


def _is_german(clauses: Iterable[_Clause]) -> bool:
    found = [word.folded for clause in clauses for word in clause.said]
    return sum(word in words.GERMAN for word in found) * _GERMAN_SHARE > len(found)


def _people(clauses: Sequence[_Clause], speakers: Iterable[str], talk: frozenset[str]) -> dict[str, frozenset[str]]:
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
        parts = [words.fold(part) for part in _WORD.findall(name)]
        if parts and parts[0] not in words.STARTERS:
            firsts.add(parts[0])
            after.setdefault(parts[0], set()).update(parts[1:])
    found: dict[str, set[str]] = {first: {first} for first in firsts}
    for first in firsts:
        for part in after.get(first, set()) - firsts - small:
            if score.get(part, 0) >= 0:
                found.setdefault(part, set()).add(first)
    return {part: frozenset(whose) for part, whose in found.items()}


def _scores(clauses: Iterable[_Clause]) -> tuple[dict[str, int], dict[str, set[str]]]:
    """Return how much more often a name begins clauses than it is a place, and what names follow it there."""
    score: dict[str, int] = {}
    after: dict[str, set[str]] = {}
    for clause in clauses:
        said = clause.said
        for lead, word in itertools.pairwise(said):
            if word.is_large and lead.folded in _PLACING:
                score[word.folded] = score.get(word.folded, 0) - (3 if lead.folded in _INSIDE else 1)
        end = next((at for at, word in enumerate(said) if not word.is_large), len(said))
        first = said[0].folded
        if 0 < end < len(said) and end <= _LEAST_CLAUSE and len(first) > 1:
            score[first] = score.get(first, 0) + 1
            after.setdefault(first, set()).update(word.folded for word in said[1:end])
    return score, after


def _sentences(line: str) -> list[tuple[_Clause, ...]]:
    said = _SPEAKER.sub("", line, count=1)
    return [tuple(_clauses(one)) for one in check.sentences(said)]


def _clauses(sentence: str) -> Iterator[_Clause]:
    for text in _CLAUSE.split(sentence):
        said = tuple(_word(match[0]) for match in _WORD.finditer(text))
        if said:
            yield _Clause.of(said, text)


@functools.lru_cache(maxsize=20_000)
def _word(text: str) -> _Word:
    plain = _POSSESSIVE.sub("", _ELIDED.sub("", text))
    folded = words.fold(plain)
    return _Word(text, folded, plain[:1].isupper() and plain[:1] < _LATIN_END and folded not in words.STARTERS)


def _joined(clauses: Sequence[_Clause]) -> _Clause:
    return _Clause.of(tuple(word for one in clauses for word in one.said), " , ".join(one.text for one in clauses))


def _speaker(line: str) -> str:
    match = _SPEAKER.match(line)
    return match["name"] if match else ""


def _refers(clause: _Clause, people: frozenset[str]) -> bool:
    """Return whether a clause refers to somebody or something said before, other than the one whom it begins with."""
    found = clause.folded & _REFERS
    if not found or len(people) != 1 or clause.said[0].folded not in people:
        return bool(found)
    left = found - _HIS - _SELF
    return bool(left) or any(
        word.folded == "her" and (follows is None or follows.folded in words.STARTERS)
        for word, follows in zip(clause.said, [*clause.said[1:], None], strict=True)
    )


def _takes_up(clause: _Clause, *, is_talk: bool) -> bool:
    """Return whether a sentence says something with the words of the one before it; of a talk, of the line before."""
    if not is_talk:
        return bool(clause.folded & (_THERE | _TOO))
    return bool(clause.folded & _TOO or (clause.folded & _FIRST and clause.folded & _IT))


def _has_owner(clause: _Clause) -> bool:
    """Return whether something of somebody is spoken of, which may be another."""
    return any(word.is_large and _POSSESSIVE.search(word.text) for word in clause.said)


def _targets(clause: _Clause, names: frozenset[str]) -> frozenset[str]:
    """Return the places that a clause leads to."""
    return frozenset(
        word.folded
        for lead, word in zip(clause.said, clause.said[1:], strict=False)
        if word.folded in names and lead.folded in _TO
    )


def _counts(text: str) -> frozenset[tuple[float, str]]:
    found: set[tuple[float, str]] = set()
    for one in figure.read(text):
        if one.dates or one.minutes:
            continue
        after = [
            word for word in _WORD.findall(text[one.end : one.end + 40])[:2] if words.fold(word) not in check.LIGHT
        ]
        found |= {(number, _form(words.fold(after[0])) if after else "") for number in one.numbers if number > 1}
    return frozenset(each for each in found if each[1] or each[0] > check.MAX_COUNT)


def _form(folded: str) -> str:
    return (token.lead_terms(folded, "").split() or [folded])[-1]
