"""How eight languages say when: the words and forms that `when` reads.

A form is a regular expression with places: `{n}` a number, `{unit}` days to years, `{day}` a weekday, `{month}` a
month, `{part}` of a day, which may be missing. Of forms that begin at the same place the first counts.
"""

# ruff: noqa: RUF001  # signs of other scripts are meant

from __future__ import annotations

import collections
import datetime as dt
import functools
import itertools
import re
from collections.abc import Mapping
from typing import Literal, NamedTuple

Unit = Literal["day", "week", "weekend", "month", "year"]

Means = Literal[
    "day", "week", "weekend", "month", "year", "ago", "ahead", "last day", "next day", "coming day", "this day",
    "day of week", "last month of year", "next month of year", "this month of year",
]  # fmt: skip
"""What a form says: a unit so many from the present one; so many units ago or ahead; a weekday or a month by its name."""


class Form(NamedTuple):
    """One way of saying when."""

    means: Means
    by: int
    """Units from the present one, where it is a unit or the week of a weekday; else 0."""
    form: str


class Tongue(NamedTuple):
    """One language."""

    code: str
    """ISO 639-1."""
    triggers: frozenset[str]
    """Lower case; a text without any of these words says nothing of when. Empty where words are not apart."""
    leads: frozenset[str]
    """Lower case: words that a phrase begins with, beside numbers and names. Empty where words are not apart."""
    forms: tuple[Form, ...]
    numbers: Mapping[str, int]
    units: Mapping[str, Unit]
    days: Mapping[str, int]
    """Weekdays, Monday 0."""
    months: Mapping[str, int] = {}
    part: str = "(?!)"
    """Part of a day that belongs to the phrase."""
    unless_before: str = "(?!)"
    """What stands right before something else that looks like a phrase."""
    unless_counted: str = "(?!)"
    """What stands right before a number that is not all of it."""
    unless_after: str = "(?!)"
    unless_past: str = "(?!)"
    """What in the words of its sentence before says that `in two weeks` is how long it took."""
    only_ahead: str = ""
    """What in the same words has to say that it is to come."""
    common: frozenset[str] = frozenset()
    """Words that show a text to be of this language."""
    date: str = "{day} {month} {year}"
    """How a date is written; `{month}` is a name, `{number}` that of the month."""
    joiner: str = " – "
    """Between a first and a last day."""
    brackets: tuple[str, str] = (" (", ")")
    ending: str = r"\b"
    """Of every form."""

    @property
    def is_apart(self) -> bool:
        """Whether words are written apart."""
        return bool(self.triggers)


def _numbered(words: str) -> dict[str, int]:
    """Return words for 1, 2, 3, …; several for one number stand between bars."""
    return {
        word: number
        for number, several in enumerate(words.split(), start=1)
        for word in several.replace("_", " ").split("|")
    }


def _named(words: str, first: int) -> dict[str, int]:
    return {name: number + first - 1 for name, number in _numbered(words).items()}


def _units(**words: str) -> dict[str, Unit]:
    kinds: dict[str, Unit] = {"days": "day", "weeks": "week", "weekends": "weekend", "months": "month", "years": "year"}
    return {word: kinds[kind] for kind, several in words.items() for word in several.split("|")}


def _forms(means: Means, by: int, *forms: str) -> list[Form]:
    return [Form(means, by, form) for form in forms]


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


def _each(before: Mapping[int, str], unit: Means, words: str, *, after: bool = False) -> list[Form]:
    """Return forms of a unit with each of the words that say which one."""
    return [
        Form(unit, by, rf"(?:{words})\s+(?:{which})" if after else rf"(?:{which})\s+(?:{words})")
        for by, which in before.items()
    ]


# -- English -----------------------------------------------------------------------------------------------------------

_EN_DAYS = "monday|mon tuesday|tues|tue wednesday|wed thursday|thurs|thu friday|fri saturday|sat sunday|sun"
_EN_MONTHS = (
    "january|jan february|feb march april|apr may june|jun july|jul august|aug september|sept|sep october|oct "
    "november|nov december|dec"
)
_EN_PAST = (
    r"\b(?:was|were|did|had|has|have|haven't|hasn't|'ve|been|went|got|made|took|came|saw|lost|won|read|wrote|ran|built|"
    r"grew|knew|met|said|told|found|gave|left|kept|felt|became|began|brought|bought|caught|done|ate|fell|flew|forgot|"
    r"can|could|would|usually|often|always|every|first|twice|once|times|there|many|much|"
    r"(?!need|exceed|succeed|feed|speed|schedul|plann|expect|suppos|excit|interest|marri|bas|ti?r|worri|thrill)\w+ed)\b|['’]ve\b"
)
_EN_AHEAD = (
    r"\b(?:will|won't|going|gonna|due|plan\w*|schedul\w+|is|are|am|be|see|back|moves?|leaves?|starts?|begins?|opens?|"
    r"arrives?|ends?|expires?|turns?|retires?|graduates?|returns?|fly|flies|comes?|launch\w*|happens?|expect\w*|hope|"
    r"hoping|want|supposed|need|exam|deadline|wedding)\b|['’](?:ll|re|m|s)\b"
)

ENGLISH = Tongue(
    code="en",
    triggers=_words(
        "yesterday today tonight tomorrow last next this past coming upcoming ago days weeks weekends months years day week month year"
    ),
    leads=_words(
        "the day week weekend month year yesterday last today tonight this tomorrow in on past coming upcoming next"
    ),
    forms=(
        *_forms("day", -2, r"(?:the )?day before yesterday{part}", "the night before last"),
        *_forms("day", 2, r"(?:the )?day after tomorrow{part}"),
        *_forms("week", -2, "(?:the )?week before last"),
        *_forms("weekend", -2, "(?:the )?weekend before last"),
        *_forms("month", -2, "(?:the )?month before last"),
        *_forms("year", -2, "(?:the )?year before last"),
        *_forms("week", 2, "(?:the )?week after next"),
        *_forms("month", 2, "(?:the )?month after next"),
        *_forms("year", 2, "(?:the )?year after next"),
        *_forms("day", -1, r"(?<!of\s)(?<!born\s)(?<!like\s)yesterday{part}", "last night"),
        *_forms("day", 0, r"(?<!of\s)today", "tonight", "this (?:morning|afternoon|evening)"),
        *_forms("day", 1, r"(?<!of\s)tomorrow{part}"),
        *_forms("ago", 0, "{n} {unit} ago"),
        *_forms("ahead", 0, "{n} {unit} from (?:now|today)", "in {n} {unit}(?:['’] time|['’]s time)?"),
        *_forms("day of week", -1, r"(?:on )?{day}{part} (?:of )?last week", r"last week(?: on|,)? {day}{part}"),
        *_forms("day of week", 0, r"(?:on )?{day}{part} (?:of )?this week", r"this week(?: on|,)? {day}{part}"),
        *_forms("day of week", 1, r"(?:on )?{day}{part} (?:of )?next week", r"next week(?: on|,)? {day}{part}"),
        *_forms("last day", 0, "(?:this (?:past|last)|last|past) {day}{part}"),
        *_forms("coming day", 0, "(?:this )?(?:up)?coming {day}{part}"),
        *_forms("next day", 0, "next {day}{part}"),
        *_forms("this day", 0, "this {day}{part}"),
        *_forms("last month of year", 0, "(?:this past|last) {month}"),
        *_forms("next month of year", 0, "next {month}"),
        *_forms("this month of year", 0, "this {month}"),
        *_forms("weekend", -1, "(?:this (?:past|last)|last|past) weekend"),
        *_forms("weekend", 0, "(?:this|this coming) weekend"),
        *_forms("weekend", 1, "next weekend"),
        *(form for unit in ("week", "month", "year") for form in _each({-1: r"(?<!['’]s\s)last", 0: "this", 1: "next"}, unit, unit)),
    ),
    numbers=_numbered(
        "a|an|one two|a_couple_of three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen "
        "sixteen seventeen eighteen nineteen twenty"
    ),
    units=_units(days="days|day", weeks="weeks|week", weekends="weekends|weekend", months="months|month", years="years|year"),
    days=_named(_EN_DAYS, 0),
    months=_named(_EN_MONTHS, 1),
    part="morning|afternoon|evening|night",
    unless_before=(
        r"\b(?:the|every|each|very|my|your|his|her|our|their|its|no|like(?:\s+(?:it|just|only|it['’]s|was))+)\s+$"
    ),
    unless_counted=(
        r"\b(?:over|more than|less than|at least|at most|almost|nearly|under|up to|or|to|and|half|within|every)\s+$|[-–.,/]$|[-–]\s*$"
    ),
    unless_after=r"\s+of\b|\s+or\s+(?:so|two|the|a)\b|['’]s\s+(?:world|society|youth|generation|age|standards|kids|market)\b",
    unless_past=_EN_PAST,
    only_ahead=_EN_AHEAD,
    common=_words(
        "i you he she it we they the a an and or but is are was were to of in on at for with my your not do did have has "
        "that this what how so just be me"
    ),
    joiner=" to ",
)  # fmt: skip

# -- German ------------------------------------------------------------------------------------------------------------

_DE_LAST = "letzte[rnsm]?|vergangene[rnsm]?|vorige[rnsm]?"
_DE_NEXT = "nächste[rnsm]?|kommende[rnsm]?"
_DE_WHICH = {
    -2: "vorletzte[rnsm]?",
    -1: _DE_LAST,
    0: "diese[rnsm]?",
    1: _DE_NEXT,
    2: "übernächste[rnsm]?",
}

GERMAN = Tongue(
    code="de",
    triggers=_words(
        "vorgestern gestern heute morgen übermorgen woche wochen wochenende monat monaten monate jahr jahren jahre tag "
        "tagen tage letzten letzter vergangenen vorigen nächsten kommenden diesen letzte nacht"
    ),
    leads=_words(
        "vorgestern gestern heute übermorgen morgen vor in letzte letzter letztes letzten letztem vergangene "
        "vergangener vergangenes vergangenen vergangenem vorige voriger voriges vorigen vorigem diese dieser "
        "dieses diesen diesem nächste nächster nächstes nächsten nächstem kommende kommender kommendes "
        "kommenden kommendem vorletzte vorletzter vorletztes vorletzten vorletztem übernächste übernächster "
        "übernächstes übernächsten übernächstem"
    ),
    forms=(
        *_forms("day", -2, "vorgestern{part}"),
        *_forms("day", -1, "gestern{part}", "letzte nacht"),
        *_forms("day", 0, "heute{part}"),
        *_forms("day", 2, "übermorgen{part}"),
        *_forms("day", 1, r"(?-i:(?:(?<=[.!?]\s)|(?<![\s\S]))Morgen(?=,? [a-zäöü])(?! zusammen| allerseits| alle)|morgen){part}"),
        *_forms("ago", 0, "vor {n} {unit}"),
        *_forms("ahead", 0, "in {n} {unit}"),
        *_forms("day of week", -1, f"{{day}}{{part}} (?:{_DE_LAST}) woche", f"(?:{_DE_LAST}) woche(?: am)? {{day}}{{part}}"),
        *_forms("day of week", 0, "{day}{part} diese[r]? woche", "diese woche(?: am)? {day}{part}"),
        *_forms("day of week", 1, f"{{day}}{{part}} (?:{_DE_NEXT}) woche", f"(?:{_DE_NEXT}) woche(?: am)? {{day}}{{part}}"),
        *_forms("last day", 0, "(?:letzten|vergangenen|vorigen) {day}{part}"),
        *_forms("coming day", 0, "kommenden {day}{part}"),
        *_forms("next day", 0, "nächsten {day}{part}"),
        *_forms("this day", 0, "diesen {day}{part}"),
        *_forms("last month of year", 0, "(?:letzten|vergangenen|vorigen) {month}"),
        *_forms("next month of year", 0, "(?:nächsten|kommenden) {month}"),
        *_forms("this month of year", 0, "diesen {month}"),
        *_each(_DE_WHICH, "weekend", "wochenende"),
        *_each(_DE_WHICH, "week", "woche"),
        *_each(_DE_WHICH, "month", "monats?"),
        *_each(_DE_WHICH, "year", "jahre?s?"),
    ),
    numbers=_numbered("ein|eine|einer|einem|einen zwei drei vier fünf sechs sieben acht neun zehn elf zwölf"),
    units=_units(
        days="tagen|tage|tag", weeks="wochen|woche", weekends="wochenenden", months="monaten|monate|monat",
        years="jahren|jahre|jahr",
    ),
    days=_named("montag dienstag mittwoch donnerstag freitag samstag|sonnabend sonntag", 0),
    months=_named(
        "januar|jänner februar märz april mai juni juli august september oktober november dezember", 1
    ),
    part="früh|morgen|vormittag|mittag|nachmittag|abend|nacht",
    unless_before=(
        r"\b(?:gute[nr]?|god|goede|jeden|jedes|jede|jeder|mein\w*|dein\w*|sein\w*|ihr\w*|unser\w*|ganzen|(?-i:von))\s+$"
    ),
    unless_counted=r"\b(?:oder|bis|und|über|als|fast|knapp|mindestens)\s+$|[-–.,/]$|[-–]\s*$",
    common=_words(
        "ich du er sie es wir ihr der die das den dem ein eine einen und oder aber ist sind war bin hat habe nicht mit auf "
        "für zu im am noch auch schon was wie bitte mir mich dir von"
    ),
    date="{day}. {month} {year}",
    unless_after=r"\s+(?:der|des)\b",
    unless_past=(
        r"\b(?:habe?|hast|hat|haben|habt|hatten?|war|waren|wurden?|worden|kann|können|konnten?|ging|kam|"
        r"ge\w{3,}(?:t|en)|jedes|jeden|mal|erste\w*)\b"
    ),
    joiner=" bis ",
)  # fmt: skip

# -- French ------------------------------------------------------------------------------------------------------------

_FR_WHICH = {-1: "derni[eè]re?|pass[ée]e?", 1: "prochaine?|qui vient"}

FRENCH = Tongue(
    code="fr",
    triggers=_words(
        "hier demain aujourd semaine semaines mois an ans année années week weekend jour jours dernier dernière prochain "
        "prochaine passé passée soir matin midi lundi mardi mercredi jeudi vendredi samedi dimanche"
    ),
    leads=_words("avant après hier aujourd ce cet cette demain il dans le la week weekend semaine mois l année"),
    forms=(
        *_forms("day", -2, "avant-hier{part}"),
        *_forms("day", 2, "après-demain{part}"),
        *_forms("day", -1, r"(?<!-)hier{part}"),
        *_forms("day", 0, "aujourd['’]hui", "ce (?:soir|matin)", "cet après-midi"),
        *_forms("day", 1, r"(?<!-)demain{part}"),
        *_forms("ago", 0, "il y a (?:environ )?{n} {unit}"),
        *_forms("ahead", 0, "dans {n} {unit}"),
        *_forms("last day", 0, "{day} (?:dernier|passé)"),
        *_forms("next day", 0, "{day} prochain"),
        *_forms("coming day", 0, "{day} qui vient"),
        *_forms("last month of year", 0, "{month} dernier"),
        *_forms("next month of year", 0, "{month} prochain"),
        *_forms("this day", 0, "ce {day}{part}"),
        *_each(_FR_WHICH, "weekend", "(?:le )?week-?end", after=True),
        *_each(_FR_WHICH, "week", "(?:la )?semaine", after=True),
        *_each(_FR_WHICH, "month", "(?:le )?mois", after=True),
        *_each(_FR_WHICH, "year", "l['’]an|l['’]année|(?:l['’])?année", after=True),
        *_forms("weekend", 0, "ce week-?end"),
        *_forms("week", 0, "cette semaine"),
        *_forms("month", 0, "ce mois(?:-ci)?"),
        *_forms("year", 0, "cette année"),
    ),
    numbers=_numbered("un|une deux trois quatre cinq six sept huit neuf dix onze douze"),
    units=_units(
        days="jours|jour", weeks="semaines|semaine", weekends="week-ends|week-end", months="mois", years="ans|an|années|année"
    ),
    days=_named("lundi mardi mercredi jeudi vendredi samedi dimanche", 0),
    months=_named("janvier février mars avril mai juin juillet août septembre octobre novembre décembre", 1),
    part="matin|midi|après-midi|soir",
    unless_before=r"\b(?:chaque|mon|ma|notre|sa|son|toute)\s+$",
    unless_counted=r"\b(?:ou|à|et)\s+$|[-–.,/]$|[-–]\s*$",
    common=_words(
        "je j tu il elle on nous vous ils elles le la les l un une des du de d et ou mais est sont était ai as a avons à "
        "au aux avec pour dans pas ne n que qui mon ma mes c ce cette très"
    ),
    unless_after=r"\s+(?:de\b|du\b|des\b|d['’])",
    joiner=" au ",
)  # fmt: skip

# -- Spanish -----------------------------------------------------------------------------------------------------------

_ES_WHICH = {-1: "pasad[oa]", 1: "que viene|próxim[oa]"}
_ES_LED = {-1: "(?:el |la )?(?:pasad[oa])", 0: "(?:el |la )?(?:est[ea])", 1: "(?:el |la )?(?:próxim[oa])"}

SPANISH = Tongue(
    code="es",
    triggers=_words(
        "ayer anteayer antier anoche hoy mañana semana semanas mes meses año años día días pasado pasada próximo próxima "
        "este esta viene hace"
    ),
    leads=_words(
        "anteayer antes antier pasado pasada ayer anoche hoy esta este mañana hace dentro próximo próxima el "
        "la fin semana mes año"
    ),
    forms=(
        *_forms("day", -2, "anteayer|antes de ayer|antier"),
        *_forms("day", 2, "pasado mañana"),
        *_forms("day", -1, "ayer{part}", "anoche"),
        *_forms("day", 0, "hoy(?! (?:en|por) (?:día|hoy))", "esta (?:mañana|tarde|noche)"),
        *_forms("day", 1, r"(?<!\bla\s)(?<!\buna\s)(?<!\bcada\s)(?<!\bde\s)mañana{part}"),
        *_forms("ago", 0, "hace {n} {unit}(?! que)"),
        *_forms("ahead", 0, "dentro de {n} {unit}"),
        *_forms("last day", 0, "{day} pasado", "pasado {day}"),
        *_forms("next day", 0, "{day} próximo", "próximo {day}"),
        *_forms("last month of year", 0, "{month} pasado"),
        *_forms("next month of year", 0, "{month} próximo", "próximo {month}"),
        *_forms("coming day", 0, "{day} que viene"),
        *_forms("this day", 0, "este {day}{part}"),
        *_each(_ES_WHICH, "weekend", "(?:el )?fin de semana", after=True),
        *_each(_ES_WHICH, "week", "(?:la )?semana", after=True),
        *_each(_ES_WHICH, "month", "(?:el )?mes", after=True),
        *_each(_ES_WHICH, "year", "(?:el )?año", after=True),
        *_each(_ES_LED, "weekend", "fin de semana"),
        *_each(_ES_LED, "week", "semana"),
        *_each(_ES_LED, "month", "mes"),
        *_each(_ES_LED, "year", "año"),
    ),
    numbers=_numbered("un|una dos tres cuatro cinco seis siete ocho nueve diez once doce"),
    units=_units(days="días|día", weeks="semanas|semana", months="meses|mes", years="años|año"),
    days=_named("lunes martes miércoles jueves viernes sábado domingo", 0),
    months=_named("enero febrero marzo abril mayo junio julio agosto septiembre|setiembre octubre noviembre diciembre", 1),
    part="por la (?:mañana|tarde|noche)|a mediodía",
    unless_before=r"\b(?:cada|mi|su|nuestr[ao])\s+$",
    unless_counted=r"\b(?:o|y|a)\s+$|[-–.,/]$|[-–]\s*$",
    unless_after=r"\s+(?:de|del)\b",
    common=_words(
        "yo tú él ella nosotros el la los las un una de del y o pero es son era fue he ha muy no que en con para por mi mis "
        "su se me te lo al qué cómo está estoy"
    ),
    date="{day} de {month} de {year}",
    joiner=" al ",
)  # fmt: skip

# -- Italian -----------------------------------------------------------------------------------------------------------

_IT_WHICH = {-1: "scors[oa]|passat[oa]", 1: "prossim[oa]"}
_IT_LED = {-1: "(?:il |lo |la )?(?:scors[oa])", 1: "(?:il |lo |la )?(?:prossim[oa])"}

ITALIAN = Tongue(
    code="it",
    triggers=_words(
        "ieri oggi domani dopodomani stamattina stasera altroieri avantieri settimana settimane mese mesi anno anni giorno "
        "giorni weekend scorso scorsa prossimo prossima passato passata questo questa fa"
    ),
    leads=_words(
        "l ieri altroieri avantieri dopodomani oggi stamattina stasera domani tra fra scorso scorsa prossimo "
        "prossima questo questa quest il lo la weekend fine settimana mese anno"
    ),
    forms=(
        *_forms("day", -2, "l['’]altro ieri|ieri l['’]altro|altroieri|avantieri"),
        *_forms("day", 2, "dopodomani"),
        *_forms("day", -1, "ieri{part}"),
        *_forms("day", 0, r"(?<!['’])oggi(?!giorno)", "stamattina|stasera"),
        *_forms("day", 1, "domani{part}"),
        *_forms("ago", 0, "{n} {unit} fa"),
        *_forms("ahead", 0, "[tf]ra {n} {unit}"),
        *_forms("last day", 0, "{day} (?:scors[oa]|passat[oa])", "scors[oa] {day}"),
        *_forms("next day", 0, "{day} prossim[oa]", "prossim[oa] {day}"),
        *_forms("last month of year", 0, "{month} scorso", "scorso {month}"),
        *_forms("next month of year", 0, "{month} prossimo", "prossimo {month}"),
        *_forms("this day", 0, "quest[oa] {day}{part}"),
        *_each(_IT_WHICH, "weekend", "(?:il )?weekend|(?:il )?fine settimana", after=True),
        *_each(_IT_WHICH, "week", "(?:la )?settimana", after=True),
        *_each(_IT_WHICH, "month", "(?:il )?mese", after=True),
        *_each(_IT_WHICH, "year", "(?:l['’])?anno", after=True),
        *_each(_IT_LED, "weekend", "weekend|fine settimana"),
        *_each(_IT_LED, "week", "settimana"),
        *_each(_IT_LED, "month", "mese"),
        *_each(_IT_LED, "year", "anno"),
        *_forms("weekend", 0, "questo (?:weekend|fine settimana)"),
        *_forms("week", 0, "questa settimana"),
        *_forms("month", 0, "questo mese"),
        *_forms("year", 0, "quest['’]anno"),
    ),
    numbers=_numbered("un|uno|una due tre quattro cinque sei sette otto nove dieci undici dodici"),
    units=_units(days="giorni|giorno", weeks="settimane|settimana", months="mesi|mese", years="anni|anno"),
    days=_named("lunedì martedì mercoledì giovedì venerdì sabato domenica", 0),
    months=_named("gennaio febbraio marzo aprile maggio giugno luglio agosto settembre ottobre novembre dicembre", 1),
    part="mattina|pomeriggio|sera|notte",
    unless_before=r"\b(?:ogni|mi[ao]|su[ao]|nostr[ao])\s+$",
    unless_counted=r"\b(?:o|e|a)\s+$|[-–.,/]$|[-–]\s*$",
    unless_after=r"\s+(?:di|del|della|dei|delle)\b",
    common=_words(
        "io tu lui lei noi il lo la i gli le un una di del della e o ma è sono era ho ha non che in con per mio mia si mi ti "
        "al alla anche molto come cosa perché"
    ),
    joiner=" al ",
)  # fmt: skip

# -- Portuguese --------------------------------------------------------------------------------------------------------

_PT_WHICH = {-1: "passad[oa]", 1: "que vem|próxim[oa]"}
_PT_LED = {
    -1: "(?:[oa] )?(?:passad[oa])",
    0: "(?:[oa] )?(?:est[ea]|ess[ea]|nest[ea]|ness[ea])",
    1: "(?:[oa] )?(?:próxim[oa])",
}

PORTUGUESE = Tongue(
    code="pt",
    triggers=_words(
        "ontem anteontem hoje amanhã semana semanas mês meses ano anos dia dias passado passada próximo próxima este esta "
        "vem atrás há feira"
    ),
    leads=_words(
        "anteontem antes depois ontem hoje esta nesta essa nessa este neste esse nesse amanhã há daqui "
        "passado passada último última próximo próxima o a fim semana mês ano"
    ),
    forms=(
        *_forms("day", -2, "anteontem|antes de ontem"),
        *_forms("day", 2, "depois de amanhã"),
        *_forms("day", -1, "ontem{part}"),
        *_forms("day", 0, "hoje(?! em dia)", "(?:esta|nesta|essa) (?:manhã|tarde|noite)"),
        *_forms("day", 1, "amanhã{part}"),
        *_forms("ago", 0, "há {n} {unit}(?: atrás)?(?! que)", "{n} {unit} atrás"),
        *_forms("ahead", 0, "daqui a {n} {unit}"),
        *_forms("last day", 0, "{day} passad[oa]", "(?:passad[oa]|últim[oa]) {day}"),
        *_forms("next day", 0, "{day} próxim[oa]", "próxim[oa] {day}"),
        *_forms("coming day", 0, "{day} que vem"),
        *_forms("last month of year", 0, "{month} passado"),
        *_forms("next month of year", 0, "próximo {month}"),
        *_forms("this day", 0, "(?:n?est[ea]|n?ess[ea]) {day}{part}"),
        *_each(_PT_WHICH, "weekend", "(?:o )?fim de semana", after=True),
        *_each(_PT_WHICH, "week", "(?:a )?semana", after=True),
        *_each(_PT_WHICH, "month", "(?:o )?mês", after=True),
        *_each(_PT_WHICH, "year", "(?:o )?ano", after=True),
        *_each(_PT_LED, "weekend", "fim de semana"),
        *_each(_PT_LED, "week", "semana"),
        *_each(_PT_LED, "month", "mês"),
        *_each(_PT_LED, "year", "ano"),
    ),
    numbers=_numbered("um|uma dois|duas três quatro cinco seis sete oito nove dez onze doze"),
    units=_units(days="dias|dia", weeks="semanas|semana", months="meses|mês", years="anos|ano"),
    days=_named(
        "segunda-feira|segunda terça-feira|terça quarta-feira|quarta quinta-feira|quinta sexta-feira|sexta sábado domingo", 0
    ),
    months=_named("janeiro fevereiro março abril maio junho julho agosto setembro outubro novembro dezembro", 1),
    part="de manhã|à tarde|à noite",
    unless_before=r"\b(?:cada|toda|minha|meu|nossa|nosso|sua|seu)\s+$",
    unless_counted=r"\b(?:ou|e|a)\s+$|[-–.,/]$|[-–]\s*$",
    unless_after=r"\s+(?:de(?!\s+manhã)|do|da)\b",
    common=_words(
        "eu você ele ela nós o a os as um uma de do da dos das e ou mas é são era foi não que em no na com para por meu minha "
        "se me ao está estou muito como também"
    ),
    date="{day} de {month} de {year}",
    joiner=" a ",
)  # fmt: skip

# -- Chinese and Japanese ----------------------------------------------------------------------------------------------

_DIGITS = "一 二|两|兩|二 三 四 五 六 七 八 九"


def _han() -> dict[str, int]:
    """Return the numbers up to 99 as they are written in Chinese characters."""
    ones = _numbered(_DIGITS)
    tens = {"十": 10} | {f"{word}十": 10 * number for word, number in ones.items()}
    both = {f"{ten}{one}": a + b for (ten, a), (one, b) in itertools.product(tens.items(), ones.items())}
    return ones | tens | both


_ZH_WEEK = "(?:个|個)?(?:[周週]|星期|礼拜|禮拜)"
_ZH_BEFORE = r"[几幾数數半多余餘百千万億亿月第\d]$"

CHINESE = Tongue(
    code="zh",
    triggers=frozenset(),
    leads=frozenset(),
    forms=(
        *_forms("ago", 0, "{n}{unit}(?:之前|以前|前)"),
        *_forms("ahead", 0, "再[过過]{n}{unit}"),
        *_forms("day", -3, "大前天{part}"),
        *_forms("day", 3, "大[后後]天{part}"),
        *_forms("day", -2, "前天{part}"),
        *_forms("day", 2, "(?<![以之])[后後]天{part}"),
        *_forms("day", -1, "昨天{part}", "昨[晚夜]"),
        *_forms("day", 0, "今天{part}", "今[晚早]"),
        *_forms("day", 1, "(?<![证證声聲发發])明天{part}", "明[晚早]"),
        *(
            form
            for by, which in {-2: "上上", -1: "上", 0: "本|这|這", 1: "下", 2: "下下"}.items()
            for form in (
                Form("weekend", by, f"(?:{which})(?:{_ZH_WEEK})末"),
                Form("day of week", by, f"(?:{which})(?:{_ZH_WEEK}){{day}}{{part}}"),
                Form("week", by, f"(?:{which})(?:{_ZH_WEEK})(?![围圍边邊身期密刊])"),
                Form("month", by, f"(?:{which})(?:个|個)?月(?![经經光亮球票])"),
            )
        ),
        *_forms("year", -2, "(?<![以之])前年(?![度龄齡代])"),
        *_forms("year", -1, "去年(?![轻輕代龄齡])"),
        *_forms("year", 0, "今年"),
        *_forms("year", 1, "明年"),
        *_forms("year", 2, "(?<![以之])[后後]年(?![度龄齡代])"),
    ),
    numbers=_han(),
    units=_units(days="天", weeks="周|週|个星期|個星期|星期|个礼拜|個禮拜", months="个月|個月", years="年"),
    days=_named("一 二 三 四 五 六 日|天", 0),
    part="早上|上午|中午|下午|傍晚|晚上|夜里|夜裡|凌晨",
    unless_before=_ZH_BEFORE,
    date="{year}年{number}月{day}日",
    joiner="至",
    brackets=("（", "）"),
    ending="",
)  # fmt: skip

_JA_WEEKDAYS = "月 火 水 木 金 土 日"

JAPANESE = Tongue(
    code="ja",
    triggers=frozenset(),
    leads=frozenset(),
    forms=(
        *_forms("ago", 0, "{n}{unit}(?:まえ|前)"),
        *_forms("ahead", 0, "あと{n}{unit}で", "{n}{unit}後に(?=.{0,12}(?:予定|つもり|ます))"),
        *_forms("day", -2, "一昨日{part}|おととい{part}"),
        *_forms("day", 2, "明後日{part}|あさって{part}"),
        *_forms("day", -1, "昨日{part}|きのう{part}", "昨[夜晩]"),
        *_forms("day", 0, "今日{part}|きょう{part}", "今[朝夜晩]"),
        *_forms("day", 1, "明日{part}(?!香)|あした{part}"),
        *(
            form
            for by, which in {-2: "先々|先先", -1: "先", 0: "今", 1: "来", 2: "再来"}.items()
            for form in (
                Form("weekend", by, f"(?:{which})週末|(?:{which})週の週末"),
                Form("day of week", by, f"(?:{which})週の?{{day}}曜日?{{part}}"),
                Form("week", by, f"(?:{which})週"),
                Form("month", by, f"(?:{which})月"),
            )
        ),
        *_forms("year", -2, "一昨年|おととし"),
        *_forms("year", -1, "昨年|去年"),
        *_forms("year", 0, "今年"),
        *_forms("year", 1, "来年"),
        *_forms("year", 2, "再来年"),
    ),
    numbers=_han(),
    units=_units(days="日", weeks="週間", months="か月|ヶ月|カ月|ヵ月|ケ月|箇月", years="年"),
    days=_named(_JA_WEEKDAYS, 0),
    part="の(?:朝|昼|午前|午後|夕方|夜|晩)",
    unless_before=r"[数何半月第]$|\d$",
    date="{year}年{number}月{day}日",
    joiner="〜",
    brackets=("（", "）"),
    ending="",
)  # fmt: skip

BY_CODE = {tongue.code: tongue for tongue in (ENGLISH, GERMAN, FRENCH, SPANISH, ITALIAN, PORTUGUESE, JAPANESE, CHINESE)}
"""Where two know the same words, the first is right."""

MONTHS = frozenset(name for one in BY_CODE.values() for name in one.months)
"""Names of months as dates have them, in any of the languages."""


@functools.cache
def leads(code: str) -> frozenset[str]:
    """Return the words that phrases of a language begin with, in lower case; numbers in digits apart."""
    tongue = BY_CODE[code]
    names = (name.split("-")[0].split()[0] for named in (tongue.numbers, tongue.days, tongue.months) for name in named)
    return tongue.leads.union(names)


@functools.cache
def pattern(code: str) -> re.Pattern[str]:
    """Return all forms of a language as one expression.

    Group `form_<i>` is the i-th of `forms`; its places are the groups `n_<i>`, `unit_<i>`, `day_<i>` and `month_<i>`.
    """
    tongue = BY_CODE[code]
    gap = r"[^\S\n]+" if tongue.is_apart else r"[^\S\n]?"
    places = {
        "n": rf"(?P<n_@>{_any(tongue.numbers)}|\d{{1,3}})" + ("" if tongue.is_apart else gap),
        "unit": f"(?P<unit_@>{_any(tongue.units)})",
        "day": f"(?P<day_@>{_any(tongue.days)})",
        "month": f"(?P<month_@>{_any(tongue.months)})" if tongue.months else "(?!)",
        "part": rf"(?:{gap if tongue.is_apart else ''}(?:{tongue.part}))?",
    }
    forms = []
    for at, (_, _, form) in enumerate(tongue.forms):
        filled = form.replace(" ", gap)
        for name, place in places.items():
            filled = filled.replace(f"{{{name}}}", place.replace("@", str(at)))
        forms.append(rf"(?P<form_{at}>{filled})")
    start = r"(?<![\w@#/\\.={-])" if tongue.is_apart else ""
    return re.compile(rf"{start}(?:{'|'.join(forms)}){tongue.ending}", re.IGNORECASE)


def _any(words: Mapping[str, object]) -> str:
    """Return the words as alternatives, the longest first."""
    gap = r"[^\S\n]+"
    return "|".join(re.escape(word).replace(r"\ ", gap) for word in sorted(words, key=len, reverse=True))


_WORD = re.compile(r"[^\W\d_]+")
_KANA = re.compile(r"[\u3041-\u30ff]")
_HAN = re.compile(r"[\u4e00-\u9fff]")
_LATIN = re.compile(r"[A-Za-z]{2,}")
_SAMPLE_CHARS = 4_000


def of(text: str) -> str:
    """Return the code of the language that a text is mostly in; empty: none of these, or too short to tell."""
    text = text[:_SAMPLE_CHARS]
    n_latin = len(_LATIN.findall(text))
    n_kana, n_han = len(_KANA.findall(text)), len(_HAN.findall(text))
    if n_kana + n_han > n_latin:
        return "ja" if n_kana * 10 > n_han else "zh"
    words = collections.Counter(_WORD.findall(text.lower()))
    counts = {
        code: sum(words[word] for word in one.common & words.keys()) for code, one in BY_CODE.items() if one.common
    }
    first, second = sorted(counts, key=lambda code: -counts[code])[:2]
    return first if counts[first] > counts[second] else ""


def date(day: dt.date, code: str) -> str:
    """Return a date as people write it in a language; in ISO 8601 where it is none of these."""
    spoken = BY_CODE.get(code)
    if spoken is None:
        return day.isoformat()
    name = next((name for name, number in spoken.months.items() if number == day.month), "")
    name = name.capitalize() if code in ("en", "de") else name
    return spoken.date.format(day=day.day, month=name, number=day.month, year=day.year)
