"""What is said and says nothing: greetings, thanks, reactions, and questions of which the answer alone would do."""

# ruff: noqa: RUF001  # signs of other scripts are meant

from __future__ import annotations

import re

from everosd.narrative import check, figure, words

_REACTIONS = frozenset(
    words.fold(word)
    for word in """
hi hello hey hiya howdy good bye goodbye cheers welcome thanks thank thx ty please pls sorry congrats congratulations yes yeah yep yup no
nope nah ok okay kay sure fine great nice cool wow awesome amazing perfect lovely wonderful fantastic excellent brilliant super sweet neat
right true exactly absolutely definitely indeed totally alright sounds sound haha hahaha hahahaha hehe lol lmao rofl oh ah aha ooh aww hmm
hm mhm uh um ugh yay oops really well so glad happy hear know see later soon much lot got that's it's you're i'm let's
danke dankeschön hallo tschüss tschüs servus moin bitte gern gerne super toll klasse prima genau stimmt richtig schön ach naja ja nein gut
alles klar vielen okay freut mich wirklich echt
merci bonjour bonsoir salut génial oui non d'accord bravo parfait revoir gracias hola genial vale claro perfecto adiós sí
grazie ciao buongiorno buonasera buonanotte bello perfetto prego obrigado obrigada olá ótimo tchau sim bedankt hoi goedemorgen leuk
спасибо привет здравствуйте
""".split()  # noqa: SIM905  # reads better
)
_LIGHT = _REACTIONS | check.STOP
_PHRASE = re.compile(
    r"\b(?:good (?:morning|evening|afternoon|night|day|idea|point|job|luck|one)|have a \w+ (?:day|evening|night|one|weekend|time)|of course"
    r"|no (?:problem|worries)|guten? (?:morgen|tag|abend|nacht)|grüß gott|vielen dank|schönen (?:tag|abend)|bonne (?:nuit|journée)"
    r"|merci beaucoup|buenos días|buenas (?:noches|tardes)|muchas gracias|por favor|bom dia|boa (?:tarde|noite)|va bene|dank je)\b",
    re.IGNORECASE,
)
_ANSWERS = frozenset(
    "yes yeah yep yup no nope nah sure ja nein doch oui non si sí sì sim não nee да нет exactly genau".split()  # noqa: SIM905  # reads better
)
_HAN_REACTION = re.compile(
    r"谢谢|謝謝|感谢|你好|您好|大家好|早上好|早安|晚安|晚上好|下午好|再见|再見|哈+|好的|好吧|好啊|嗯+|哦+|对啊|是的|太好了|不客气|没关系|真的|"
    r"ありがとう(?:ございます)?|こんにちは|こんばんは|おはよう(?:ございます)?|おやすみ(?:なさい)?|さようなら|すみません|はい|うん|そうです(?:ね|か)?|了解(?:です)?"
)
_HAN = re.compile(r"[\u0e00-\u0eff\u3041-\u30ff\u3400-\u9fff\uac00-\ud7a3]")
_MIN_SIGNS = 2
_WORD = re.compile(r"[^\W_]+(?:['’.&-][^\W_]+)*")
_QUESTION = re.compile(
    r"[?？؟][\"'”’」』)）]*$"
    r"|^(?:(?:please|can|could|would|will|you|just|bitte|kannst|könntest|du)\s+)*"
    r"(?:remind me|tell me again|erinnere? mich|sag mir noch ?mal)\b[\s,:]*(?:again|noch ?mal|bitte|please)?[\s,:]*"
    r"(?:what|when|where|who|why|how|which|was|wann|wo|wer|warum|wie|welche[rsnm]?)\b",
    re.IGNORECASE,
)
_SELF = re.compile(
    r"\b(?:i|i'm|i've|i'll|my|we|our|ich|mein\w*|wir|unser\w*|je|mon|ma|mes|nous|yo|mi|mis|nosotros|io|mio|mia|noi|eu|meu|minha)\b|[我私僕俺]",
    re.IGNORECASE,
)
_MIN_DENIAL = 3
"""Words of a denial: `No, thanks` is none."""


def is_empty(text: str, present: frozenset[str]) -> bool:
    """Return whether a sentence has no number, no name but those that are `present` (folded), and no word that says anything."""
    if figure.read(text):
        return False
    plain = _PHRASE.sub(" ", text)
    folded = [words.fold(word) for word in _WORD.findall(_HAN.sub(" ", plain))]
    says = [word for word in folded if len(word) > 1 and word not in _LIGHT and word not in present]
    signs = _HAN.findall(_HAN_REACTION.sub("", text))
    if says or len([sign for sign in signs if sign not in "吗呢吧啊呀ねよか"]) >= _MIN_SIGNS:
        return False
    return not (check.is_negated(text) and len(folded) >= _MIN_DENIAL and words.NEGATIONS.isdisjoint(folded[:1]))


def asks(text: str) -> bool:
    """Return whether a sentence is a question, or asks to be reminded."""
    return _QUESTION.search(text) is not None


def tells(text: str, present: frozenset[str]) -> bool:
    """Return whether a question tells something whatever the answer: it has a number, a name, or is of who asks."""
    if figure.read(text) or _SELF.search(text):
        return True
    inner = list(_WORD.finditer(text))[1:]
    return not check.reads_german(text) and any(
        match[0][0].isupper() and words.fold(match[0]) not in present | words.STARTERS for match in inner
    )


def is_answer(text: str, present: frozenset[str]) -> bool:
    """Return whether a sentence may answer a question, as `Yes.` does and `Thanks!` does not."""
    return not is_empty(text, present) or not _ANSWERS.isdisjoint(map(words.fold, _WORD.findall(text)))
