"""Whether a later statement contradicts an earlier one, told by their words alone: pure, and rather silent than wrong.

A statement is taken apart into claims: of whom or what something is said, what, and whether it is denied. Two claims of
one kind about the same contradict each other where the later one denies what the earlier one says, or gives another
value to what has only one at a time: where somebody lives or works, what a thing is called, a number, a favourite.
"""

# ruff: noqa: RUF001, SIM905  # signs of other scripts are meant; rows of words read better than lists

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from everosd.index import token

MAX_CHARS = 2_000
"""Of a statement; what follows is not looked at."""
MAX_CLAUSE_CHARS = 300
MAX_CLAIMS = 40
"""Of a statement."""

_ALIKE = 0.7
"""Share of the words of both that two statements have in common where one denies the other."""
_SAME_BUT_NUMBERS = 0.8
_CORRECTED = 0.5
"""The same where the later one says that it corrects something."""
_MIN_SHARED = 2


class _Claim(NamedTuple):
    kind: str
    about: frozenset[str]
    value: frozenset[str]
    is_denied: bool = False
    is_exclusive: bool = False
    """There is one such value at a time."""


class _Said(NamedTuple):
    """One clause as a whole."""

    words: frozenset[str]
    """What it says something with, negations left out."""
    speaker: str
    numbers: frozenset[str]
    is_denied: bool
    corrects: bool
    """It says so itself: `actually`, `instead`, …"""
    is_over: bool
    """It says that something holds no more, not only that it does not."""
    is_stative: bool
    """It says how something is, not what happened."""


class _Statement(NamedTuple):
    claims: tuple[_Claim, ...]
    clauses: tuple[_Said, ...]


def contradicts(later: str, earlier: str) -> bool:
    """Return whether `later` says that what `earlier` says does not hold, or no more.

    Both may begin with who said them, as `Mara: `; what people say of themselves is then about that name.
    """
    new, old = _read(later), _read(earlier)
    return any(_claims_clash(one, other) for one in new.claims for other in old.claims) or any(
        _clauses_clash(one, other) for one in new.clauses for other in old.clauses
    )


def topics(statement: str) -> tuple[str, ...]:
    """Return queries that find by words what a statement may contradict, where that need not share its words."""
    found = []
    for claim in _read(statement).claims:
        about = (*sorted(claim.about), *sorted(claim.value if not claim.is_exclusive or claim.is_denied else ()))
        found.append(" ".join((*about, _SYNONYMS.get(claim.kind, claim.kind.removeprefix("has ")))))
    return tuple(dict.fromkeys(found))


def words(statement: str) -> frozenset[str]:
    """Return the words that a statement says something with, in one form each."""
    return frozenset[str]().union(*(clause.words for clause in _read(statement).clauses))


def may_correct(statement: str) -> bool:
    """Return whether a statement says anything that another one may be held against: cheap, for many of them."""
    read = _read(statement)
    return bool(read.claims) or any(one.is_denied or one.corrects or one.numbers for one in read.clauses)


def clauses(statement: str) -> tuple[str, ...]:
    """Return the clauses of a statement, as it is taken apart here; who said it is not among them."""
    match = _SPEAKER.match(statement)
    text = match["text"] if match else statement
    return tuple(clause for sentence in _SENTENCES.split(text[:MAX_CHARS]) for clause in _parted(sentence))


def subjects(statement: str) -> frozenset[tuple[str, frozenset[str]]]:
    """Return what a statement claims something of, and in which respect: two without a common one say nothing of the same."""
    return frozenset((claim.kind, claim.about) for claim in _read(statement).claims)


# -- two of a kind -----------------------------------------------------------------------------------------------------


def _claims_clash(later: _Claim, earlier: _Claim) -> bool:
    if later.kind != earlier.kind or later.about != earlier.about:
        return False
    is_same = bool(later.value & earlier.value)
    if later.is_denied != earlier.is_denied:
        return is_same and _share(later.value, earlier.value) >= _CORRECTED
    return not later.is_denied and not is_same and later.is_exclusive and earlier.is_exclusive


def _clauses_clash(later: _Said, earlier: _Said) -> bool:
    if later.speaker != earlier.speaker and later.speaker and earlier.speaker:
        return False
    own = {later.speaker, earlier.speaker}
    words, before = later.words - own, earlier.words - own
    shared = len(words & before)
    if later.is_over and not earlier.is_denied and words and words == before:
        return True
    if shared < _MIN_SHARED:
        return False
    share = _share(words, before)
    if later.is_denied != earlier.is_denied and (share >= _ALIKE or (later.is_over and words <= before)):
        return True
    if later.numbers and earlier.numbers and not later.numbers & earlier.numbers:
        is_stative = later.is_stative and earlier.is_stative
        return not later.is_denied and share >= (_SAME_BUT_NUMBERS if is_stative else 1.0) and is_stative
    is_other = bool(words - before) and bool(before - words)
    return later.corrects and share >= _CORRECTED and is_other and not words & before & _OPINIONS


def _share(one: frozenset[str], other: frozenset[str]) -> float:
    return len(one & other) / len(one | other) if one or other else 0.0


# -- one statement -----------------------------------------------------------------------------------------------------


@functools.lru_cache(maxsize=4096)
def _read(statement: str) -> _Statement:
    speaker, text = "", _IDIOMS.sub(" ", _SHOWN.sub(" ", _DATED.sub(" ", statement[:MAX_CHARS])))
    if match := _SPEAKER.match(text):
        speaker, text = _first(match["name"]), match["text"]
    claims: list[_Claim] = []
    clauses: list[_Said] = []
    for sentence in _SENTENCES.split(text):
        if sentence.rstrip("\"'”’»)").endswith(("?", "？", "؟")):
            continue
        about = frozenset((speaker,)) if speaker else frozenset[str]()
        corrects = False
        found: list[_Claim] = []
        for part in _parted(sentence):
            clause = _LEAD.sub("", part)
            corrects = corrects or clause != part
            if not clause:
                continue  # `Actually, …` is said of what follows
            before = found
            found = list(_claims(clause, speaker, about)) or list(_not_that(clause, before))
            claims += found
            about = found[-1].about if found else about or _named(clause)
            said = _said(clause, speaker)
            clauses.append(said._replace(corrects=said.corrects or corrects))
            corrects = False
        if len(claims) > MAX_CLAIMS:
            break
    return _Statement(tuple(claims[:MAX_CLAIMS]), tuple(clauses[:MAX_CLAIMS]))


def _not_that(clause: str, before: Sequence[_Claim]) -> Iterator[_Claim]:
    """Yield what a clause denies of what the one before it says: `I am a vegan, not a vegetarian`."""
    match = _NOT_THAT.match(clause.casefold())
    if match is not None and (value := _values(match["value"])):
        yield from (one._replace(value=value, is_denied=True) for one in before if not one.is_denied)


def _parted(sentence: str) -> Iterator[str]:
    return filter(None, (part.strip(_AROUND)[:MAX_CLAUSE_CHARS] for part in _CLAUSES.split(sentence)))


def _named(clause: str) -> frozenset[str]:
    """Return whom a clause of prose begins with: what follows it may be about them without saying so."""
    words = _words(clause)
    return (
        frozenset(map(_stem, words[:1]))
        if words and clause[:1].isupper() and words[0] not in _EMPTY | _OF_OTHERS
        else frozenset()
    )


def _claims(clause: str, speaker: str, about: frozenset[str]) -> Iterator[_Claim]:
    folded = clause.casefold().replace("’", "'")
    is_denied = _is_denied(folded)
    for kind, pattern, is_exclusive in _RELATIONS:
        match = pattern.search(folded)
        if match is None:
            continue
        subject = _subject(
            (match["about"] or "") if "about" in pattern.groupindex else folded[: match.start()], speaker
        )
        if subject is None:
            continue
        if kind == _WORKPLACE and not _is_place(match["value"], clause):
            continue
        if value := _values(match["value"]):
            denied = is_denied or ("denied" in pattern.groupindex and match["denied"] is not None)
            yield _Claim(kind, subject or about, value, denied, is_exclusive)
    if match := _COUNT.search(folded):
        subject = _subject(folded[: match.start()], speaker)
        if subject is not None:
            number = _NUMBER_WORDS.get(match["number"], match["number"])
            yield _Claim(
                kind=f"has {_stem(match['what'])}",
                about=subject or about,
                value=frozenset((number,)),
                is_denied=is_denied,
                is_exclusive=True,
            )


def _subject(text: str, speaker: str) -> frozenset[str] | None:
    """Return of whom or what is spoken; None where it takes more than the clause to know."""
    found: set[str] = set()
    words = _words(text)
    if speaker and _is_i(words):  # whatever else stands before: `you know what I …`
        return frozenset((speaker,))
    for word in words:
        if word in _OF_MYSELF:
            found.add(speaker or word)
        elif word in _OF_OTHERS:
            return None
        elif word not in _EMPTY and word not in _WHEN:
            found.add(_stem(word))
    return frozenset(found)


def _is_place(value: str, clause: str) -> bool:
    """Return whether a folded value is written as names of places are in its clause: not `in marketing`, `in IT`."""
    first = next(iter(_words(value)), "")
    match = re.search(rf"\b{re.escape(first)}\b", clause, re.IGNORECASE) if first else None
    return match is not None and match[0][:1].isupper() and not match[0].isupper() and first not in _MONTHS


def _is_i(words: list[str]) -> bool:
    """Return whether a clause says `I` right before its verb, but for words that say nothing."""
    for word in reversed(words):
        if word in _I:
            return True
        if word not in _EMPTY and word not in _WHEN:
            return False
    return False


def _values(text: str) -> frozenset[str]:
    words = _words(_ASIDE.split(text, maxsplit=1)[0])
    if _is_unspaced(text):
        return frozenset(text[at : at + 2] for at in range(max(1, len(text) - 1)) if text[at : at + 2].strip())
    return frozenset(_stem(word) for word in words if word not in _EMPTY and word not in _OF_MYSELF)


def _said(clause: str, speaker: str) -> _Said:
    folded = clause.casefold().replace("’", "'")
    rest = _DENIES.sub(" ", folded)
    if _is_unspaced(rest):
        signs = re.sub(r"[\W\d_]|[了是也都很再就我你]", "", rest)
        words = frozenset(signs[at : at + 2] for at in range(len(signs) - 1))
    else:
        words = frozenset(
            speaker if word in _OF_MYSELF and speaker else _stem(word)
            for word in _words(rest)
            if word not in _EMPTY and word not in _NUMBER_WORDS and not word.isdigit()
        )
    return _Said(
        words=words,
        speaker=speaker,
        numbers=frozenset(_NUMBER_WORDS.get(each, each) for each in _NUMBERS.findall(folded)),
        is_denied=_is_denied(folded),
        corrects=_CORRECTS.search(folded) is not None,
        is_over=_OVER.search(folded) is not None,
        is_stative=_STATIVE.search(folded) is not None,
    )


def _is_denied(folded: str) -> bool:
    return _DENIES.search(folded) is not None or _NE_PLUS.search(folded) is not None


def _words(text: str) -> list[str]:
    return [word.removesuffix("'s") for word in _WORD.findall(text.casefold().replace("’", "'"))]


@functools.lru_cache(maxsize=20_000)
def _stem(word: str) -> str:
    forms = token.lead_terms(word, "").split()
    stem = forms[-1] if forms else word
    return _ALIASES.get(stem, stem)


def _first(name: str) -> str:
    words = _words(name)
    return _stem(words[0]) if words else name


def _is_unspaced(text: str) -> bool:
    return _UNSPACED.search(text) is not None


# -- words -------------------------------------------------------------------------------------------------------------


def _any(words: str) -> str:
    """Return an expression for any of several words, `_` standing for a space within one."""
    return "|".join(re.escape(word).replace("_", r"\s+") for word in words.split())


_SPEAKER = re.compile(r"^(?P<name>[^\s:：][^:：\n]{0,59})(?:: |：)(?:said: )?(?P<text>.*)$", re.DOTALL)
_AROUND = " \t.!…。！｡\"'“”’‘»«()"
_SENTENCES = re.compile(r"(?<=[.!?…؟])[\"'”’»)]*\s+|(?<=[。！？｡])|\n+")
_CLAUSES = re.compile(
    r"[,;:，；：、—–]+\s+|[，；：、—–]+|\s+-\s+|(?<=[。！])|\s+(?:" + _any("and but because so although though und aber weil et mais car y pero porque"
    " ma perché mas e") + r")\s+"
)  # fmt: skip
_DATED = re.compile(r"\s*[(（]\d{4}-\d\d(?:-\d\d)?(?:[^()（）]*\d)?[)）]|\b\d{4}-\d\d-\d\d\b")
"""Dates in brackets are when something was said to be, as `intake.when` puts them there."""
_SHOWN = re.compile(
    r"[(（\[][^()（）\[\]:：\n]{0,40}?(?:\b(?:"
    + _any(
        "picture pictures photo photos photograph image images video gif screenshot drawing sketch attachment file bild bilder foto fotos"
        " datei anhang imagen imágenes vídeo archivo immagine immagini allegato imagem imagens anexo dessin fichier"
    )
    + r")\b|"
    + _any("图片 照片 截图 图像 视频 画像 写真 動画")
    + r")[^()（）\[\]:：\n]{0,20}[:：][^()（）\[\]]*[)）\]]",
    re.IGNORECASE,
)
"""`(picture: two cats on a sofa)` says what somebody shows: another picture with one cat contradicts nothing."""
_WORD = re.compile(r"[^\W_]+(?:['-][^\W_]+)*")
_UNSPACED = re.compile(r"[\u3041-\u30ff\u4e00-\u9fff]")
_NUMBER_WORDS = {
    word: str(number)
    for words in ("one two three four five six seven eight nine ten eleven twelve",
                  "_ zwei drei vier fünf sechs sieben acht neun zehn elf zwölf",
                  "_ deux trois quatre cinq six sept huit neuf dix onze douze",
                  "_ dos tres cuatro cinco seis siete ocho nueve diez once doce",
                  "_ due tre quattro cinque sei sette otto nove dieci undici dodici",
                  "_ dois três quatro cinco seis sete oito nove dez onze doze")
    for number, word in enumerate(words.split(), start=1) if word != "_"
}  # fmt: skip
_NUMBERS = re.compile(r"\d+(?:[.,:]\d+)*|\b(?:" + "|".join(_NUMBER_WORDS) + r")\b")

_COUNT = re.compile(
    r"\b(?:have|has|'ve\s+got|habe|hat|ai|a|tengo|tiene|ho|ha|tenho|tem)\s+(?P<number>" + _NUMBERS.pattern + r")\s+(?P<what>[^\W\d_]{3,})"
)  # fmt: skip

_IDIOMS = re.compile(
    r"\b(?:" + _any(
        "can't_wait can’t_wait no_problem no_worries don't_worry don’t_worry not_only not_just why_not no_doubt no_wonder of_course_not"
        " not_giving_up never_give_up can't_help can’t_help can't_believe can’t_believe don't_know don’t_know not_sure never_mind if_not no_matter"
        " nicht_nur kein_problem keine_ahnung pas_de_problème pas_seulement je_ne_sais_pas no_solo no_sé non_solo non_so"
    ) + r")\b",
    re.IGNORECASE,
)  # fmt: skip
"""What sounds like a denial and is none."""

_DENIES = re.compile(
    r"\b(?:" + _any(
        "no_longer not_anymore not anymore never no_more used_to stopped quit gave_up given_up cannot"
        " nicht_mehr nicht nie niemals kein keine keinen keiner keinem aufgehört"
        " ne_pas pas jamais ne_plus plus_de arrêté_de"
        " ya_no nunca jamás dejé_de dejó_de non non_più mai smesso_di não nunca_mais deixei_de deixou_de"
    ) + r")\b|(?<!moro )(?<!mora )(?<!vivo )(?<!vive )(?<!trabalho )(?<!trabalha )\bno\b|n't\b|\bn'|不再|不是|不|没有|沒有|没|沒|ない|ません|なくな|やめ|止め"
)  # fmt: skip
_CORRECTS = re.compile(
    r"\b(?:" + _any(
        "actually correction instead i_was_wrong i_meant i_misspoke changed switched rather in_fact scratch_that"
        " eigentlich doch_nicht stattdessen korrektur ich_meinte geändert gewechselt"
        " en_fait plutôt correction je_voulais_dire changé en_realidad corrección mejor_dicho cambié cambiado"
        " in_realtà anzi correzione cambiato na_verdade correção aliás mudei mudou"
    ) + r")\b|其实|其實|改成|改为|改為|更正|実は|訂正|変更"
)  # fmt: skip
_LEAD = re.compile(
    r"^(?:(?:" + _any(
        "actually in_fact correction eigentlich tatsächlich korrektur en_fait correction en_realidad corrección in_realtà"
        " correzione na_verdade correção aliás"
    ) + r")\b|其实|其實|更正|実は|訂正)[\s,:，、：]*",
    re.IGNORECASE,
)  # fmt: skip
"""What stands before a correction and is no part of what is said."""
_NOT_THAT = re.compile(
    r"^(?:(?:and|und|et|y|e)\s+)?(?:not|nicht|keine?|pas|no|non|não)\s+(?!(?:too|so|very|really|that|yet|sure|only|just|zu|sehr|trop|muy|troppo)\b)"
    r"(?P<value>(?:[\w'-]+\s*){1,4})$"
)
_NE_PLUS = re.compile(r"(?:\bne\s|\bn')[^.]{1,40}\bplus\b")
"""A denial with a verb in the middle, which is not to go with it."""
_OVER = re.compile(
    r"\b(?:" + _any(
        "no_longer not_anymore anymore any_more nicht_mehr ne_plus plus_de ya_no no_más non_più já_não não_mais"
    ) + r")\b|\bkein\w*\b.*\bmehr\b|不再|" + _NE_PLUS.pattern
)  # fmt: skip
_STATIVE = re.compile(
    r"\b(?:" + _any(
        "is are am i'm it's has have has_got costs cost weighs weigh earns earn pays pay starts opens closes begins"
        " ist sind bin hat habe haben kostet wiegt beginnt est sont suis a ai ont coûte pèse commence"
        " es son soy está tiene tengo cuesta pesa empieza è sono ha ho costa inizia é são tem tenho começa"
    ) + r")\b|'s\b|'re\b|是|有|です|だ"
)  # fmt: skip
_ASIDE = re.compile(
    r"[.!。！]|\b(?:" + _any(
        "since for with last next this when after before until where which who by because now anymore any_more again today"
        " yesterday tomorrow recently instead at_the_moment seit mit letzte letzten letztes jetzt gerade nicht_mehr mehr"
        " depuis avec maintenant desde con ahora da_quando con adesso desde com agora"
    ) + r")\b"
)  # fmt: skip
_I = frozenset("i i'm i've i'd i'll we we're we've ich wir je j j'ai nous yo nosotros io noi eu nós".split())
_WHEN = frozenset(
    "yesterday tomorrow week weekend month year day last next ago later monday tuesday wednesday thursday friday saturday"
    " sunday spring summer autumn fall winter gestern morgen woche monat jahr hier demain semaine mois année ayer mañana"
    " semana mes año ieri domani settimana mese anno ontem amanhã mês ano".split()
)
_MONTHS = frozenset(
    "january february march april may june july august september october november december januar februar märz mai juni juli"
    " oktober dezember janvier février mars avril juin juillet août septembre octobre novembre décembre".split()
)
_OF_MYSELF = frozenset(
    "i i'm i've i'd i'll we we're we've my our mine me us ich wir mein meine meinen meiner meinem unser unsere mich mir"
    " je j j'ai j'habite nous mon ma mes notre yo mi mis nosotros nuestra nuestro io mio mia miei noi nostro nostra"
    " eu meu minha meus minhas nós nosso nossa".split()
)
_OF_OTHERS = frozenset(
    "he she they it he's she's they're it's his her their you your er sie es ihr ihre sein seine du dein deine"
    " il elle ils elles tu vous él ella ellos tú usted lui lei loro ele ela eles elas você".split()
)
_EMPTY = frozenset(
    "a an the is are am was were be been being has have had having do does did will would just now currently recently still"
    " also really very so too already finally actually instead always usually quite that this these those there here to of"
    " in on at by for from with and or but as well yes no yeah oh well hey said says then today longer anymore any"
    " more not never used stopped quit don't doesn't didn't isn't aren't wasn't can't won't haven't hasn't got get go going"
    " der die das den dem des ein eine einen einem einer ist sind bin war waren hat habe haben auch jetzt nun schon noch sehr"
    " und oder aber doch ja nein im am zu zum zur von mit für nicht mehr kein keine keinen nie gerade eigentlich"
    " le la les un une des du de d l n est sont suis a ai ont au aux en et ou mais aussi maintenant très pas plus ne jamais"
    " el los las una uno unos unas es son soy está estoy ha he han y o pero también ahora muy no ya nunca del al que me se"
    " il lo gli i uno è sono ho hanno e ma anche adesso ora molto non più mai di del della che mi si"
    " os as um uma uns umas é são sou tem tenho mas também agora muito não do da dos das no na nos nas que meu".split()
)
_ALIASES = {
    "enjoy": "like", "love": "like", "ador": "like", "favourit": "favorit", "colour": "color", "flat": "apart",
    "apartment": "apart",
}  # fmt: skip

_OPINIONS = frozenset(
    map(_stem, "like think feel hope want need know guess wish believe try look glaube denke finde pense creo".split())
)
"""There may be two of them: `Actually, I love the sea` takes nothing back."""

_SYNONYMS = {
    "home": "live lives living moved moving home wohne wohnt lebe gezogen habite déménagé vivo vive mudé abito trasferito"
    " moro mora mudei 住 搬 引っ越",
    "work": "work works working job arbeite arbeitet travaille trabajo trabaja lavoro lavora trabalho trabalha 工作 働",
    "workplace": "works work working arbeite arbeitet travaille",
    "job": "works work working job arbeite arbeitet travaille trabajo trabaja lavoro lavora trabalho trabalha 当",
    "name": "called named name heißt appelle llama chiama",
    "age": "years old jahre alt",
    "family": "married single divorced engaged verheiratet geschieden marié casado casada sposato soltero",
    "like": "love like hate dislike",
    "prefer": "prefer",
    "is": "",
    "am": "",
}
"""What the same is said with otherwise."""

_V = r"\s+(?P<value>[^.!?]+)"
_WORKPLACE = "workplace"
_STILL = (
    r"(?:\s+(?:now|currently|mainly|remotely|ich|wir|jetzt|nun|nicht|mehr|maintenant|plus|pas|ahora|adesso|agora|più))*"
)
"""What may stand between a verb and the rest."""
_WORKS = r"\b(?:works?|working|arbeite|arbeitet|travaille|trabajo|trabaja|lavoro|lavora|trabalho|trabalha)\b" + _STILL
_AS = (
    r"\s+(?:as\s+(?:an?|the)(?=\s+(?!team|group|unit|result))|als|comme|como|come|(?<=trabajo\s)de|(?<=trabaja\s)de)\s+"
)
_JOB = (
    _WORKS + _AS + r"(?P<value>[^.!?]+?)(?=\s+(?:in|at|for|by|near|bei|für|chez|pour|à|en|para|da|presso|em|no|na)\b|$)"
)
_LIKES = _any(
    "like likes love loves enjoy enjoys adore adores mag liebe liebt aime adore adoro gosto_de gosto_da gosto_do gosta_de amo"
    " ama me_gusta me_encanta me_gustan mi_piace mi_piacciono"
)
_HATES = _any(
    "hate hates dislike dislikes loathe detest detests can't_stand cannot_stand hasse hasst hass déteste détestent odio odia"
    " detesto odeio odeia"
)
_ATTRIBUTES = _any(
    "name number phone address email e-mail age birthday password price rent salary deadline appointment meeting size height"
    " weight job boss doctor dentist teacher nickname username favorite favourite fav favorites capital color colour city"
    " nummer adresse geburtstag passwort preis miete gehalt termin größe gewicht beruf chef lieblingsfarbe lieblingsessen"
    " lieblingsbuch lieblingsfilm nom numéro adresse anniversaire prix loyer préféré préférée nombre número dirección"
    " cumpleaños precio alquiler favorito favorita nome numero indirizzo compleanno prezzo affitto preferito preferita"
    " telefone endereço aniversário preço aluguel"
)


def _relation(kind: str, pattern: str, *, is_exclusive: bool = True) -> tuple[str, re.Pattern[str], bool]:
    return kind, re.compile(pattern), is_exclusive


_RELATIONS = (
    _relation(
        "home",
        r"\b(?:(?P<denied>used\s+to\s+live|left|moved\s+(?:away\s+|out\s+)from)|lives?|living|moved|moving|relocated|relocating|resides?|"
        r"based|settled|wohne|wohnt|lebe|lebt|habite|vis|vit|vivo|vive|abito|abita|moro|mora)\b"
        r"(?:\s+(?:back|over|out|now|alone|together|ich|wir|jetzt|nun|nicht|mehr|seit\s+\w+|maintenant|plus|pas|ahora|adesso|agora|più))*"
        r"(?:\s+from\s+(?:\w+\s+){0,2}?\w+)?(?:(?(denied)(?:\s+in)?|\s+(?:in|to|at|near|nach|bei|à|a|au|aux|en|em|no|na)))" + _V,
    ),
    _relation(
        "home",
        r"\b(?:zog|ziehe|zieht|umgezogen|gezogen|déménagé|déménage|emménagé|mudé|mudó|mudado|mudei|mudou|trasferit[oa]|trasferisco)\b"
        r"\s+(?:nach|in|à|a|en|au|aux|para)" + _V,
    ),
    _relation("home", r"\bnach\s+(?P<value>[^.!?]+?)\s+(?:um)?gezogen\b"),
    _relation(
        "work",
        r"\b(?:(?P<denied>used\s+to\s+work)|works?|working|job|employed|arbeite|arbeitet|travaille|trabajo|trabaja|lavoro|lavora|"
        r"trabalho|trabalha)\b" + _STILL + r"\s+(?:at|for|by|bei|für|chez|pour|en|para|per|da|presso|na|no|em)" + _V,
    ),
    _relation("work", _WORKS + _AS + r"(?:[\w'-]+\s+){1,5}?(?:at|bei|chez|presso)" + _V),
    _relation(
        _WORKPLACE,
        r"\b(?:works?|working|arbeite|arbeitet|travaille|lavoro|lavora)\b" + _STILL + r"(?:" + _AS + r"(?:[\w'-]+\s+){1,8}?|\s+)(?:in|à|a)"
        r"\s+(?P<value>[^.!?]+?)(?=\s+(?:as|als|comme|come)\b|$)",
    ),
    _relation("job", r"\b(?:(?P<denied>left|lost)\s+(?:my|the|a)\s+(?:old\s+)?)?job\s+as\s+(?:an?|the)" + _V),
    _relation("job", _JOB),
    _relation("am", _JOB, is_exclusive=False),
    _relation(
        "name",
        r"\b(?:is|am|are)\s+(?:now\s+)?(?:called|named)" + _V,
    ),
    _relation("name", r"\b(?:heiße|heißt|heisse|heisst|m'appelle|s'appelle|me\s+llamo|se\s+llama|mi\s+chiamo|si\s+chiama|me\s+chamo)" + _V),
    _relation("age", r"\b(?:am|is|'m|bin|ist)\s+(?P<value>\d+)\s+(?:years\s+old|jahre\s+alt)"),
    _relation(
        "family",
        r"\b(?:am|is|are|'m|'re|got|bin|ist|suis|est|estoy|está|soy|sono|estou)\s+(?:\w+\s+){0,2}?"
        r"(?P<value>married|single|divorced|engaged|widowed|verheiratet|geschieden|ledig|verlobt|marié|mariée|divorcé|divorcée|"
        r"célibataire|casado|casada|soltero|soltera|divorciado|divorciada|sposato|sposata|divorziato|divorziata|solteiro|solteira)\b",
    ),
    _relation("like", r"\b(?:" + _LIKES + r")" + _V, is_exclusive=False),
    _relation("like", r"\b(?P<denied>" + _HATES + r")" + _V, is_exclusive=False),
    _relation(
        "like",
        r"\b(?P<denied>(?:gave|given)\s+up(?:\s+on)?|quit|(?:stopped|no\s+longer|don't|doesn't|do\s+not|does\s+not)"
        r"\s+(?:drink|eat|smoke|play|use)(?:s|ing)?)" + _V,
        is_exclusive=False,
    ),
    _relation("am", r"\b(?:am|i'm|is|are|bin|ist|suis|est|soy|es|estoy|está|sono|è|sou|é|estou)\b(?P<value>(?:\s+[\w'-]+){1,5})$", is_exclusive=False),
    _relation("prefer", r"\b(?:prefers?|bevorzuge|bevorzugt|préfère|prefiero|prefiere|preferisco|preferisce|prefiro|prefere)" + _V),
    _relation(
        "is",
        r"^(?P<about>.*\b(?:" + _ATTRIBUTES + r"|lieblings\w+)\b.*?)(?:\s+(?:is|are|ist|sind|est|sont|es|son|è|sono|é|são)|'s)"
        r"(?:\s+(?:now|jetzt|actually|maintenant|ahora|adesso|agora))?" + _V,
    ),
    _relation("home", r"^(?P<about>.*?)(?:现在|現在)?(?:住在|搬到|搬去|搬家到|定居在|生活在)(?P<value>[^，。！了]+)"),
    _relation("home", r"^(?:(?P<about>(?!今|現在).*?)[はが、])?(?:今は|現在は|今)?(?P<value>[^はが、。]+?)(?:に|へ)(?:住|引っ越|引越|移住)"),
    _relation(
        "work",
        r"^(?P<about>.*?)(?:已经|已經)?(?:不再|不)?(?:现在|現在|目前)?在(?!想|考虑|考慮)(?P<value>[^，。]+?)"
        r"(?:工作|上班|任职|任職|[当當](?![然时時中地天初年]))",
    ),
    _relation(
        "job",
        r"^(?P<about>[^不在]*?)(?:已经|已經)?(?:不再|不)?(?:现在|現在|目前)?(?:在[^，。]{1,12}?)?[当當](?![然时時中地天初年])(?P<value>[^，。！了]+)",
        is_exclusive=False,
    ),
    _relation(
        "is",
        r"^(?P<about>.*?(?:最喜[欢歡]的[^，。是]{1,6}?|名字|电话|電話|地址|生日|密码|密碼|工资|工資))(?:现在|現在)?是(?P<value>[^，。！了]+)",
    ),
    _relation("like", r"^(?P<about>[^不讨讨討恨]*?)(?:很|最|非常)?(?:喜欢|喜歡|爱|愛)(?P<value>[^，。！了]+)", is_exclusive=False),
    _relation("like", r"^(?P<about>.*?)(?P<denied>不喜欢|不喜歡|讨厌|討厭|恨)(?P<value>[^，。！了]+)", is_exclusive=False),
    _relation("like", r"^(?:(?P<about>.*?)は)?(?P<value>[^はが、。]+?)が(?:大)?好き", is_exclusive=False),
    _relation("like", r"^(?:(?P<about>.*?)は)?(?P<value>[^はが、。]+?)が(?:大)?(?P<denied>嫌い)", is_exclusive=False),
)  # fmt: skip
