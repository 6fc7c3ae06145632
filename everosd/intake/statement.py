"""What a person says about themselves, picked from their own words: sentences, never rewritten.

A sentence is picked where it says who somebody is, where they live, what they do, whom they have, what they may not eat,
what they like. Which ones do shows in a few words of each language; what none of them fits is left out.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Sequence

import msgspec

MAX_SENTENCE_CHARS = 300
_MIN_SENTENCE_CHARS = 5

_TURN = re.compile(r"^(?P<name>[^\s:：][^:：\n]{0,79})[:：][ \t]+(?P<text>.*)$")  # noqa: RUF001 - Chinese writes it so
_SENTENCE_END = re.compile(r"(?<=[.!?…])[\"'”»)\]]*\s+(?=\S)|(?<=[。！？])|\n+")  # noqa: RUF001 - as above
_ABBREVIATED = re.compile(r"(?:\b(?:[A-Z]|Mr|Mrs|Ms|Dr|St|Prof|z\.B|d\.h|e\.g|i\.e|vs|approx|ca|bzw|usw)\.)$")
_LEAD = re.compile(
    r"^(?:(?:oh|hi|hey|hello|well|yes|yeah|yep|no|so|and|but|also|actually|btw|by the way|thanks|thank you|ah|haha|lol"
    r"|in fact|eigentlich|tatsächlich|en fait|en realidad|in realtà|na verdade|其实|其實|実は"
    r"|ja|nein|also|und|aber|hallo|oui|non|et|mais|salut|bonjour|sí|no|y|pero|hola|sì|e|ma|ciao|sim|mas|olá)(?:\b[,.!:;]*\s+|(?<=[实實は])[，、,]?\s*))+",  # noqa: RUF001
    re.IGNORECASE,
)

_RELATIVE = (
    "wife|husband|partner|girlfriend|boyfriend|fianc[ée]e?|son|daughter|kids?|children|child|baby|mother|mom|mum|father|dad"
    "|parents|brothers?|sisters?|siblings?|grandmother|grandfather|grandma|grandpa|aunt|uncle|cousin|nephew|niece|twins?"
    "|dogs?|cats?|pup(?:py)?|kittens?|pets?|horses?|parrot|rabbits?|hamster|turtle"
)

Rule = tuple[str, str, str]
"""Category, slot (of which a person has one at a time; may be empty), pattern."""

_RULES: tuple[Rule, ...] = (
    # English
    ("Identity", "name", r"\bmy name(?: is|'s)\b|\b(?:just |please )?call me [A-Z]"),
    ("Home", "home", r"\bI(?:'m| am)?(?: now| currently| still| no longer| don't| do not)? liv(?:e|ing) (?:in|near|at|on)\b"),
    ("Home", "home", r"\bI(?:'ve| have)?(?: just| recently| finally)? moved (?:back )?(?:to|into)\b"),
    ("Identity", "", r"\bI(?:'m| am)(?: originally)? from\b|\bI (?:was born|grew up)\b|\bmy birthday (?:is|'s)\b"),
    ("Identity", "age", r"\bI(?:'m| am) \d{1,3}(?: years old)?(?=[ .,!]|$)|\bI(?:'ve| have)? (?:just )?turned \d{1,3}\b"),
    ("Work", "work", r"\bI(?:'m| am)?(?: now| currently| no longer| don't| do not)? work(?:ing)? (?:as|at|for|in)\b"),
    ("Work", "", r"\bI (?:got|started|quit|lost|left) (?:a|an|my|the)(?: new| old)? job\b|\bI(?:'m| am) (?:retired|self-employed|unemployed)\b"),
    ("Work", "", r"\bI (?:teach|study|studied|graduated|major(?:ed)? in|run my own)\b|\bI(?:'m| am) studying\b|\bmy (?:job|boss|company|employer|major|degree|startup) (?:is|'s|are)\b"),
    ("Family", "", rf"\bI(?:'ve| have)?(?: got| have)? (?:a|an|one|two|three|four|five|\d+|twin|no)\s(?:\w+ ){{0,2}}(?:{_RELATIVE})\b"),
    ("Family", "", rf"\b[Mm]y (?:\w+ ){{0,2}}(?:{_RELATIVE})(?:'s name is| is| are| was| has| have| lives?| works?|,? (?:named|called))\b"),
    ("Family", "", r"\bI(?:'m| am) (?:married|engaged|divorced|widowed|single|pregnant|a (?:mom|mum|mother|dad|father|parent|single))\b|\bI got (?:married|engaged|divorced)\b"),
    ("Health", "", r"\bI(?:'m| am)(?: \w+)? (?:allergic|intolerant|intolerance|vegan|vegetarian|pescatarian|diabetic|asthmatic|colou?r-?blind|dyslexic|celiac|coeliac|left-handed|deaf|gluten|lactose)\b"),
    ("Health", "", r"\bI have (?:\w+ ){0,2}(?:allerg\w+|asthma|diabetes|migraines?|adhd|arthritis|celiac|coeliac|epilepsy|anxiety|insomnia)\b|\bI (?:can't|cannot|don't|do not|never|stopped|quit) (?:eat|drink|smok|tolerate)\w*\b"),
    ("Preference", "", r"(?<!ones )(?<!what )(?<!much )(?<!that )(?<!things )(?<!why )(?<!people )\bI(?: really| absolutely| just| also| always| truly| definitely| don't| do not| still)? (?:love|like|enjoy|prefer|hate|dislike|adore|can't stand)\b(?! (?:it|that|this|how|your|you|to hear|the (?:idea|sound)|those)\b)"),
    ("Preference", "", r"\b[Mm]y favou?rite\b|\bI(?:'m| am) (?:a (?:big|huge) fan of|passionate about|into|fond of|afraid of|scared of)\b"),
    ("Habit", "", r"\bI (?:usually|always|often|regularly) \w+|\bI never (?!said|got|was|had|knew|thought|saw|heard|meant|did)\w+\b(?<!ed)|\bI \w+(?: \w+){0,6} every (?:day|morning|evening|night|week|weekend|month|year|spring|summer|autumn|fall|winter|\w+day)\b"),
    ("Skill", "", r"\bI (?:speak|play|can speak|can play|know how to)\b|\bI(?:'m| am) (?:learning|fluent)\b"),
    ("Identity", "", r"\bI(?:'m| am) (?:a|an) (?!bit\b|little\b|big\b|huge\b|lot\b|few\b|while\b|great\b|good\b|firm\b)\w+"),
    ("Possession", "", r"\bI (?:own|drive|bought|got myself|adopted)\b"),
    ("Work", "", r"\bI(?:'ve| have)?(?: just| recently| also)? (?:volunteer|coach|mentor|founded|launched|opened (?:my|a|an|our)|started (?:my|a|an|our) (?:own )?\w+|run (?:my|a|an|our)) ?\b"),
    ("Goal", "", r"\b[Mm]y (?:\w+ ){0,2}(?:dream|goal|passion|hobb(?:y|ies)|ambition|plan|calling) (?:is|are|was|has been)\b|\bI(?:'ve| have)? (?:always |really )?(?:want|wanted|dream|dreamed) (?:to (?:be|become|work|learn|study|live|open|own|travel)|of)\b"),
    ("Identity", "", r"\b[Mm]y (?:home ?town|home country|roots|nationality|religion|faith|pronouns|heritage|ancestors) (?:is|are|was|were)\b|\bI(?:'ve| have) been (?:\w+ing|a|an|in|married|together|vegan|sober|clean) .*\b(?:for|since) (?:\w+ ){0,3}(?:\d{4}|\w* ?years?|months?|weeks?|childhood|school|college|I was)\b"),
    ("Family", "", r"\bI(?:'ve| have)? (?:just |recently )?(?:got|have|adopted|lost) (?:a|an|my|two|three|our) (?:\w+ ){0,2}(?:puppy|pup|kitten|dog|cat|pet|baby|mom|mum|dad|grandma|grandpa|mother|father)\b"),
    # German
    ("Identity", "name", r"\b[Ii]ch heiße\b|\b[Mm]ein Name ist\b"),
    ("Home", "home", r"\b[Ii]ch (?:wohne|lebe)(?: \w+){0,2} (?:in|bei|auf)\b|\b[Ii]ch bin (?:\w+ )?nach \w+ (?:um)?gezogen\b"),
    ("Identity", "", r"\b[Ii]ch komme (?:\w+ )?aus\b|\b[Ii]ch bin (?:in \w+ )?(?:geboren|aufgewachsen)\b|\b[Ii]ch bin \d{1,3}(?: Jahre)?\b|\b[Ii]ch bin (?:ein|eine|von Beruf)\b"),
    ("Work", "work", r"\b[Ii]ch arbeite (?:\w+ ){0,2}(?:als|bei|für|in)\b"),
    ("Work", "", r"\b[Ii]ch studiere\b|\b[Ii]ch bin (?:Rentner|selbst(?:st)?ändig|Lehrer|Ärzt|Student|Ingenieur)\w*"),
    ("Family", "", r"\b[Ii]ch habe (?:einen?|zwei|drei|vier|keine?n?|\d+) (?:\w+ )?(?:Kind\w*|Sohn|Söhne|Tochter|Töchter|Bruder|Brüder|Schwestern?|Hunde?|Katzen?|Kater)\b|\b[Mm]eine? (?:Frau|Mann|Freund(?:in)?|Partner(?:in)?|Sohn|Tochter|Kinder|Mutter|Vater|Eltern|Bruder|Schwester|Hund|Katze|Kater)\b(?: \w+)? (?:ist|sind|heißt|heißen|hat|haben|wohnt|arbeitet)\b|\b[Ii]ch bin (?:verheiratet|verlobt|geschieden|ledig|schwanger)\b"),
    ("Health", "", r"\b[Ii]ch bin (?:\w+ )?(?:allergisch|Vegetarier|Veganer|vegan|vegetarisch|Diabetiker)\w*|\b[Ii]ch (?:esse|trinke|vertrage|rauche) (?:\w+ )?(?:kein|nicht|nie)\w*|\b[Ii]ch habe (?:eine )?(?:Allergie|\w*allergie|Asthma|Diabetes|Migräne)\b"),
    ("Preference", "", r"\b[Ii]ch (?:mag|liebe|hasse|bevorzuge)\b(?! (?:es|das)\b)|\b[Mm]eine? Lieblings\w+|\b[Ii]ch \w+ (?:\w+ )?(?:sehr )?gern(?:e)?\b"),
    ("Habit", "", r"\b[Ii]ch \w+(?: \w+){0,5} (?:jeden|jede|immer|täglich)\b|\b[Ii]ch (?:spreche|spiele|lerne)\b"),
    # French
    ("Identity", "name", r"\b[Jj]e m'appelle\b|\b[Mm]on nom est\b"),
    ("Home", "home", r"\b[Jj]'habite\b|\b[Jj]e vis (?:à|en|au|dans)\b|\b[Jj]'ai déménagé\b|\b[Jj]e me suis installée? à\b"),
    ("Identity", "", r"\b[Jj]e viens d(?:e|u|')|\b[Jj]e suis née?\b|\b[Jj]'ai \d{1,3} ans\b|\b[Jj]e suis (?:une?|médecin|étudiante?|professeure?|ingénieure?|retraitée?)\b"),
    ("Work", "work", r"\b[Jj]e travaille (?:\w+ )?(?:comme|chez|pour|à|dans|en)\b"),
    ("Family", "", r"\b[Jj]'ai (?:une?|deux|trois|quatre|\d+) (?:enfants?|fils|filles?|frères?|sœurs?|chiens?|chats?)\b|\b(?:[Mm]on|[Mm]a|[Mm]es) (?:mari|femme|compagnon|compagne|fils|filles?|enfants|mère|père|parents|frères?|sœurs?|chien|chat)\b(?: \w+)? (?:est|sont|s'appellent?|a|ont|habite|travaille)\b|\b[Jj]e suis (?:mariée?|fiancée?|divorcée?|célibataire|enceinte)\b"),
    ("Health", "", r"\b[Jj]e suis (?:\w+ )?(?:allergique|végétarien(?:ne)?|végane?|diabétique|intolérante?)\b|\b[Jj]e ne (?:mange|bois|fume|supporte) (?:pas|plus|jamais)\b"),
    ("Preference", "", r"\b[Jj]'(?:aime|adore|déteste)\b(?! (?:ça|bien ça)\b)|\b[Jj]e (?:préfère|déteste|n'aime pas)\b|\bpréférée?s? est\b"),
    ("Habit", "", r"\b[Jj]e \w+(?: \w+){0,6} (?:tous les|toutes les|chaque|toujours)\b|\b[Jj]e (?:parle|joue|apprends)\b"),
    # Spanish
    ("Identity", "name", r"\b[Mm]e llamo\b|\b[Mm]i nombre es\b"),
    ("Home", "home", r"\b(?:[Vv]ivo|[Rr]esido) en\b|\b[Mm]e (?:mudé|he mudado) a\b"),
    ("Identity", "", r"\b[Ss]oy (?:de|una?|médic\w+|profesora?|estudiante|ingenier\w+)\b|\b[Nn]ací en\b|\b[Tt]engo \d{1,3} años\b"),
    ("Work", "work", r"\b[Tt]rabajo (?:de|como|en|para)\b"),
    ("Work", "", r"\b[Ee]studio \w+"),
    ("Family", "", r"\b[Tt]engo (?:una?|dos|tres|cuatro|\d+) (?:hij[oa]s?|herman[oa]s?|perr[oa]s?|gat[oa]s?)\b|\b[Mm]is? (?:marido|esposo|mujer|esposa|novi[oa]|pareja|hij[oa]s?|madre|padre|padres|herman[oa]s?|perr[oa]|gat[oa])\b(?: \w+)? (?:es|son|está|se llaman?|tiene|vive|trabaja)\b|\b(?:[Ee]stoy|[Ss]oy) (?:casad[oa]|divorciad[oa]|solter[oa]|embarazada)\b"),
    ("Health", "", r"\b[Ss]oy (?:\w+ )?(?:alérgic[oa]|vegetarian[oa]|vegan[oa]|diabétic[oa]|intolerante|celíac[oa])\b|\b[Nn]o (?:como|bebo|fumo|tolero)\b|\b[Tt]engo alergia\b"),
    ("Preference", "", r"\b(?:[Nn]o )?[Mm]e (?:gustan?|encantan?)\b(?! (?:eso|esto)\b)|\b(?:[Pp]refiero|[Oo]dio|[Aa]doro|[Aa]mo)\b|\bfavorit[oa] es\b"),
    ("Habit", "", r"\b(?:[Ss]iempre|[Nn]unca) \w+o\b|\b[Hh]ablo \w+|\b[Tt]oco (?:el|la)\b"),
    # Italian
    ("Identity", "name", r"\b[Mm]i chiamo\b|\b[Ii]l mio nome è\b"),
    ("Home", "home", r"\b(?:[Vv]ivo|[Aa]bito) (?:a|in|ad|nel|nella)\b|\b[Mm]i sono trasferit[oa] a\b"),
    ("Identity", "", r"\b[Ss]ono (?:di|un|una|un'\w+|nat[oa]|medico|student\w+|insegnante|ingegnere)\b|\b[Hh]o \d{1,3} anni\b|\b[Vv]engo da\w*\b"),
    ("Work", "work", r"\b[Ll]avoro (?:come|per|in|da|a|presso)\b"),
    ("Family", "", r"\b[Hh]o (?:una?|due|tre|quattro|\d+) (?:figl\w+|fratell[oi]|sorell[ae]|can[ei]|gatt\w+)\b|\b(?:[Mm]io|[Mm]ia|[Ii] miei) (?:marito|moglie|compagn[oa]|fidanzat[oa]|figli[oa]?|madre|padre|genitori|fratello|sorella|cane|gatt[oa])\b(?: \w+)? (?:è|sono|si chiama|ha|vive|lavora)\b|\b[Ss]ono (?:sposat[oa]|divorziat[oa]|single|incinta)\b"),
    ("Health", "", r"\b[Ss]ono (?:\w+ )?(?:allergic[oa]|vegetarian[oa]|vegan[oa]|diabetic[oa]|intollerante|celiac[oa])\b|\b[Nn]on (?:mangio|bevo|fumo|tollero)\b"),
    ("Preference", "", r"\b(?:[Nn]on )?[Mm]i (?:piace|piacciono)\b(?! (?:questo|quello)\b)|\b(?:[Aa]mo|[Aa]doro|[Oo]dio|[Pp]referisco)\b|\bpreferit[oa] è\b"),
    ("Habit", "", r"\b[Pp]arlo \w+|\b[Ss]uono (?:il|la|lo)\b|\b\w+o(?: \w+){0,5} ogni (?:giorno|mattina|sera|settimana|anno)\b"),
    # Portuguese
    ("Identity", "name", r"\b(?:[Mm]e chamo|[Cc]hamo-me)\b|\b[Oo]? ?[Mm]eu nome é\b"),
    ("Home", "home", r"\b(?:[Mm]oro|[Vv]ivo) (?:em|no|na|perto)\b|\b[Mm]udei-?(?:me)? (?:para|pra)\b"),
    ("Identity", "", r"\b[Ss]ou (?:de|do|da|uma?|médic[oa]|professora?|estudante|engenheir[oa])\b|\b[Nn]asci em\b|\b[Tt]enho \d{1,3} anos\b"),
    ("Work", "work", r"\b[Tt]rabalho (?:como|em|na|no|para|com)\b"),
    ("Family", "", r"\b[Tt]enho (?:uma?|dois|duas|três|quatro|\d+) (?:filh[oa]s?|irmãos?|irmãs?|cachorr[oa]s?|cães|cão|gat[oa]s?)\b|\b(?:[Mm]eu|[Mm]inha|[Mm]eus) (?:marido|esposa|mulher|namorad[oa]|filh[oa]s?|mãe|pai|pais|irmão|irmã|cachorr[oa]|cão|gat[oa])\b(?: \w+)? (?:é|são|se chama|chama-se|tem|mora|vive|trabalha)\b|\b[Ss]ou (?:casad[oa]|divorciad[oa]|solteir[oa])\b"),
    ("Health", "", r"\b[Ss]ou (?:\w+ )?(?:alérgic[oa]|vegetarian[oa]|vegan[oa]|diabétic[oa]|intolerante|celíac[oa])\b|\b[Nn]ão (?:como|bebo|fumo)\b|\b[Tt]enho alergia\b"),
    ("Preference", "", r"\b(?:[Nn]ão )?(?:[Gg]osto|[Aa]doro|[Oo]deio|[Pp]refiro|[Aa]mo)\b(?! (?:disso|disto)\b)|\bfavorit[oa] é\b"),
    # Russian
    ("Identity", "name", r"\b[Мм]еня зовут\b"),
    ("Home", "home", r"\b[Яя] (?:сейчас )?живу\b|\b[Яя] переехала?\b"),
    ("Work", "work", r"\b[Яя] работаю\b"),
    ("Family", "", r"\b[Уу] меня (?:есть|аллергия|двое|трое|одна?|два|две)\b|\b[Мм]о(?:й|я|и) (?:муж|жена|сын|дочь|дети|мама|папа|брат|сестра|собака|кот|кошка)\b"),  # noqa: RUF001
    ("Preference", "", r"\b[Яя] (?:очень )?(?:не )?(?:люблю|обожаю|ненавижу|предпочитаю)\b|\b[Мм]не (?:не )?нрав[ия]тся\b"),
    # Chinese
    ("Identity", "name", r"我叫|我的名字"),
    ("Home", "home", r"我(?:现在|目前)?(?:住在|家在|搬到了?|搬去)"),
    ("Identity", "", r"我(?:是|来自|出生于|今年\s*\d+\s*岁)(?!说|想|觉得|在想|不是)"),
    ("Work", "work", r"我(?:现在|目前|已经)?(?:不再|不)?在[^，。！？]{1,20}(?:工作|上班)|我的工作"),  # noqa: RUF001
    ("Family", "", r"我有(?:一|两|三|四|个|\d)[^，。！？]{0,6}(?:孩子|儿子|女儿|哥哥|弟弟|姐姐|妹妹|狗|猫)|我(?:的)?(?:妻子|老婆|丈夫|老公|儿子|女儿|妈妈|爸爸|父母|狗|猫)(?:是|叫|在|有)|我(?:结婚|离婚|单身|怀孕)"),  # noqa: RUF001
    ("Health", "", r"我对[^，。！？]{1,12}过敏|我(?:吃素|不吃|不喝|不能吃|有糖尿病|有哮喘)"),  # noqa: RUF001
    ("Preference", "", r"我(?:很|最|非常|特别|真的|也)?(?:不)?(?:喜欢|爱|讨厌|偏爱)|我最喜欢"),
    ("Habit", "", r"我(?:每天|每周|每年|总是|经常|从不)"),
    # Japanese
    ("Identity", "name", r"(?:私|僕|俺|わたし)の名前は|(?:と申します|といいます|と言います)"),
    ("Home", "home", r"(?:に|で)(?:住んで|暮らして)い(?:ます|る)|に引っ越し(?:ました|た)"),
    ("Work", "work", r"で働いてい(?:ます|る)|に勤めてい(?:ます|る)|(?:私|僕|俺)の仕事は"),
    ("Health", "", r"アレルギーが(?:あります|ある)|(?:が|は)食べられ(?:ません|ない)"),
    ("Preference", "", r"が(?:大)?(?:好き|嫌い)(?:です|だ|$|。)"),
    ("Identity", "", r"(?:私|僕|俺|わたし)は[^、。]{1,30}(?:です|だ|出身)"),
    ("Habit", "", r"(?:毎日|毎朝|毎晩|毎週|いつも)[^。]{1,40}(?:ます|いる|する)"),
)  # fmt: skip

_NOT = re.compile(
    r"\bI(?:'d| would| could| might| may| wish| hope| guess)\b"
    r"|\b(?:would|could|should) (?:love|like|prefer|hate) to\b|\bif I\b|\bI (?:usually )?have (?:a|an) (?:question|problem|idea|feeling|meeting)\b"
    r"|\bI(?:'m| am) a(?:n)? (?:idiot|mess)\b",
    re.IGNORECASE,
)
"""Wishes, plans and turns of speech that only look like it."""

CATEGORIES = ("Identity", "Home", "Work", "Family", "Health", "Preference", "Goal", "Habit", "Skill", "Possession")
"""In the order in which a summary names them."""


class Statement(msgspec.Struct, frozen=True, kw_only=True):
    """One sentence that somebody said about themselves."""

    category: str
    slot: str
    """What it replaces an earlier statement about; empty: it stands beside others."""
    text: str
    """As it was said, on one line."""
    is_alone: bool = True
    """Whether it says nothing else: then nothing is lost with it when a later one takes its place."""


@functools.cache
def _compiled() -> tuple[tuple[str, str, re.Pattern[str]], ...]:
    return tuple((category, slot, re.compile(pattern)) for category, slot, pattern in _RULES)


def said_by(names: Sequence[str], content: str) -> Iterator[str]:
    """Yield what one speaker says in a transcript of `Name: text` lines; further lines of a turn are indented.

    Args:
        names: what they may be called.
        content: of an Episode.
    """
    wanted = {" ".join(name.split()).casefold() for name in names if name.strip()}
    said: list[str] = []
    for line in content.split("\n"):
        turn = _TURN.match(line)
        if turn is not None:
            if said:
                yield "\n".join(said)
            said = [turn["text"]] if " ".join(turn["name"].split()).casefold() in wanted else []
        elif said and line.startswith("  "):
            # What they quote of somebody else is not said by them.
            said += [line.strip()] if _TURN.match(line.strip()) is None else []
        elif said:
            yield "\n".join(said)
            said = []
    if said:
        yield "\n".join(said)


def sentences(text: str) -> Iterator[str]:
    """Yield the sentences of a text, each on one line, its punctuation kept."""
    held = ""
    for piece in _SENTENCE_END.split(text):
        held = f"{held} {piece}".strip() if held else piece.strip()
        if _ABBREVIATED.search(held):
            continue
        if held:
            yield " ".join(held.split())
        held = ""
    if held:
        yield " ".join(held.split())


def statement(sentence: str) -> Statement | None:
    """Return what a sentence says about its speaker; None where it is not known to say anything."""
    text = _LEAD.sub("", sentence).strip()
    if not _MIN_SENTENCE_CHARS <= len(text) <= MAX_SENTENCE_CHARS or text.rstrip("\"'”» ").endswith(("?", "？")):  # noqa: RUF001
        return None
    plain = text.replace("\u2019", "'")
    if _NOT.search(plain):
        return None
    found = [(category, slot) for category, slot, pattern in _compiled() if pattern.search(plain)]
    if not found:
        return None
    category, slot = found[0]
    return Statement(category=category, slot=slot, text=text, is_alone=len({each for each, _ in found}) == 1)


def statements(names: Sequence[str], content: str) -> list[Statement]:
    """Return what one speaker says about themselves in an Episode's content, in order, none twice."""
    found: dict[str, Statement] = {}
    for text in said_by(names, content):
        for sentence in sentences(text):
            one = statement(sentence)
            if one is not None:
                found.setdefault(one.text.casefold(), one)
    return list(found.values())
