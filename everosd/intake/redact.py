"""Credentials in messages, made unreadable before anything is written.

Only what is obvious: texts whose shape says what they are, and values that are named as a password or key. A name, an
address or an order number stays; so does a word that somebody merely calls a secret.
"""

from __future__ import annotations

import json
import re

INLINE_CHARS = 100_000
"""More text than this is looked through beside the event loop."""

_CARD_DIGITS = (15, 16)
_SHORTEST_TOKEN = 8
"""Of what is only called a token or a secret."""

Texts = tuple[str, str, str, str, str]
"""Of a message: text, items, calls of tools, the call that it answers, its sender's name."""

_SHAPES = re.compile(
    r"""
    (?P<private_key>-----BEGIN[ ][A-Z0-9 ]{0,40}PRIVATE[ ]KEY(?:[ ]BLOCK)?-----
        (?:.*?-----END[ ][A-Z0-9 ]{0,40}PRIVATE[ ]KEY(?:[ ]BLOCK)?-----|.*\Z))
    | (?<![\w-])(?P<token>
        (?:sk|pk|rk)-(?:proj-|ant-|or-)?[A-Za-z0-9_-]{16,}   # OpenAI and those that follow it
        | (?:sk|rk|pk)_(?:live|test)_[A-Za-z0-9]{10,} | whsec_[A-Za-z0-9+/=]{16,}  # Stripe
        | gh[pousr]_[A-Za-z0-9]{20,} | github_pat_[A-Za-z0-9_]{20,} | glpat-[A-Za-z0-9_-]{16,}
        | xox[abeprs]-[A-Za-z0-9-]{10,} | xapp-\d-[A-Za-z0-9-]{10,}  # Slack
        | (?:AKIA|ASIA)[0-9A-Z]{16}(?![0-9A-Za-z])           # AWS
        | AIza[A-Za-z0-9_-]{30,} | ya29\.[A-Za-z0-9_-]{20,}  # Google
        | hf_[A-Za-z0-9]{20,} | npm_[A-Za-z0-9]{20,} | pypi-[A-Za-z0-9_-]{20,}
        | xai-[A-Za-z0-9]{20,} | gsk_[A-Za-z0-9]{20,}        # xAI, Groq
        | SG\.[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,}         # SendGrid
        | do[opr]_v1_[A-Za-z0-9]{20,}                        # DigitalOcean
        | (?:SK|AC)[0-9a-f]{32}(?![0-9A-Za-z])               # Twilio
        | (?:bot)?\d{8,10}:AA[A-Za-z0-9_-]{30,}              # a bot of Telegram
        | eyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}  # a JSON web token
      )
    | (?<=://)(?P<login>[^\s/:@"'<>]{1,100}:[^\s/@"'<>]{1,100})(?=@)
    | (?P<bearer>(?<=\bBearer\ )[A-Za-z0-9._~+/=-]{16,} | (?<=:\ Basic\ )[A-Za-z0-9+/=]{8,}(?=[\s"']|$))
    | (?<![\d.,-])(?P<card>[3-6]\d{3}(?:[ -]?\d{4}){2}[ -]?\d{3,4}|3[47]\d{2}[ -]?\d{6}[ -]?\d{5})(?![\d.,-]?\d)
    """,
    re.VERBOSE | re.DOTALL,
)
_NAMED = re.compile(
    r"""
    (?P<name>(?:(?<![^\W_])(?-i:(?=[aAbBcCeEhHiIkKmMpPrRsStTwWпП]))  # most words are passed over by their first letter
        (?:pass(?:word|phrase|wd|code)|pwd|(?P<short>pw)|contraseña|senha|(?P<polish>hasło)|wachtwoord|(?P<russian>пароль)
        |mot[ ]de[ ]passe|(?:api|auth|(?:shared[ _-]?)?access|account|secret|private|encryption|signing)[ _-]?key
        |secret[ _-]?access[ _-]?key|client[ _-]?secret|(?:access|auth|api|bearer|refresh|session|id)[ _-]?token
        |PIN(?:[ -]?(?:code|nummer))?|PUK|(?P<bare>token|secret))
        |(?-i:(?=[pPkKgGzZsStTeEaA]))  # German ones may end a longer word
        (?:(?:pass|kenn)wort|geheim(?:zahl|nummer|code)|(?:zugangs|zutritts|sicherheits|entsperr|tür|alarm)code|api[ -]?schlüssel))\b)
    (?P<between>(?:\s(?:of|for|to|at|on|de|del|du|para|en|pour|от|для|voor|van|vom|von|für|fürs|zum|zur|bei|beim|im|am|auf|des|der
            |(?:[mds]ein|ihr|unser|euer|eur|ein)e?[rs]|(?:in|an)(?=\s(?:de[rmn]|die|[mds]?eine?[mnr]?|unser\w{0,2})\b)
            |(?<=senha\s)(?:d[ao]s?|n[ao]s?)|(?<=hasło\s)(?:do|dla|na|od|w))
            (?:\s[\w'\u2019-]{1,40}){1,4}?)?
        ["'*`]{0,3}(?:\s{0,3}(?:[:=]|:=|[=-]>|\u2192)\*{0,2}\s{0,3}
            |\s{1,3}(?:is|was|ist|war|lautete?|heißt|heisst|es|est|é|era|était|(?(polish)(?:to|jest|brzmi)|(?!))|(?(russian)[\u2013\u2014]|(?!)))
                (?:\s(?:now|jetzt|nun|wie\sfolgt|ab\s(?:jetzt|sofort|heute)))?(?:\s{1,3}|:\s{0,3})
            |\s{1,3}(?P<to>to|as|auf|a|à)\s{1,3}|\s{1,3}(?=["'`\u201c\u201e]))["'`\u201c\u201e*]{0,3})
    (?P<value>[^\s"'`<>,;\u201c\u201d]{4,200})
    """,
    re.VERBOSE | re.IGNORECASE,
)
_FLAG = re.compile(
    r"""
    (?P<name>--?(?:password|passwd|pass|token|api-?key|secret|access-key)\b | (?<!\S)(?:-u|--user)\b)
    (?P<between>[ =]\s{0,2}["']?(?:(?<=\s)(?=\S*:)[^\s:"'@/]{1,64}:)?)
    (?P<value>[^\s"']{3,200})
    """,
    re.VERBOSE,
)
_ATTACHED = re.compile(
    r"""
    (?P<name>(?<![\w-])(?:(?:mysql|mariadb)[\w-]{0,10}|(?P<apart>sshpass))\b[^\n|;&]{0,120}?\s-p)(?!assw|ort\b|rotocol)
    (?P<between>(?(apart)\s?)["']?)
    (?P<value>(?!\d{2,5}:\d)[^\s"'-][^\s"']{0,200})
    """,
    re.VERBOSE,
)
"""What some programs take right behind their `-p`."""
_CHANGE = re.compile(
    r"(?i)\b(?:chang|reset|set|updat|switch|änder|änd|setz|stell|cambi|troqu|mud)\w*(?:\s[\w'\u2019-]{1,20}){0,4}\s\Z"
)
"""What stands before a password that is changed *to* something."""
_CHANGED = re.compile(r"(?i)\s{0,2}(?:ge|um|zurück)\w*(?:änder|setz|stell)")
"""What stands behind it in German."""
_CHANGE_CHARS = 60
_IN_CJK = re.compile(
    r"(?P<name>密码|密碼|口令|パスワード)(?P<between>\s{0,3}(?:[:\uff1a=]|是|为|為|は)\s{0,3})(?P<value>[!-~]{4,200})"
)
_ODD = re.compile(r"[0-9]|[^\w.?!)\]-]|_")
_ABOUT = re.compile(
    r"(?i)\d{1,3}-?(?:stellig|zeichen|digit|char)|100%"
    r"|\d{1,3}[-\u2013]\d{1,3}\s(?:zeichen|stellen|char|digits|letters)"
    r"|(?:19|20)\d\d\s(?:ab|aus|er|ge|ver|zurück)\w+(?:en|e?t)\b"
)
"""What is said of a password with a number in it: `12-stellig`, `8-12 characters`, `2023 abgelaufen`."""
_HAS_SHAPE = re.compile(
    r"-----begin|sk[-_]|pk[-_]|rk[-_]|gh[pousr]_|github_pat|glpat-|xox|xapp-|whsec_|akia|asia|aiza|ya29|hf_|npm_|pypi-|xai-|gsk_|sg\."
    r"|do[opr]_v1_|sk[0-9a-f]{8}|ac[0-9a-f]{8}|eyj|://|bearer |basic "
)
_HAS_NAME = re.compile(
    r"pass|pwd|pw|kennwort|contrase|senha|hasło|wachtwoord|пароль|mot de passe|key|secret|token|pin|puk|-u |--user|mysql|mariadb"
    r"|geheim|(?:gangs|tritts|heits|sperr|tür|alarm)code|schlüssel"
    r"|密|口令|パスワード"
)
"""In small letters, each way beginning with a letter of its own: the engine then looks for those letters only."""
_HAS_DIGITS = re.compile(r"\d{4}[ -]?\d{4}")
_HIDDEN = re.compile(r"(?<=[!-~])[\u00ad\u034f\u180e\u200b-\u200f\u202a-\u202e\u2060-\u2064\ufeff]+(?=[!-~])")
"""Characters that nobody sees, between two ASCII ones: no script needs them there."""


def redacted(text: str) -> str:
    """Return `text` with every obvious credential replaced by what kind it was."""
    clean = seen = _seen(text)
    has_shape, has_name = _looks(seen)
    if has_shape:
        clean = _SHAPES.sub(_shape, seen)
        if clean != seen:
            clean = _SHAPES.sub(_shape, clean)  # what was glued to one that is gone now begins a word
    if has_name:
        clean = _IN_CJK.sub(_named, _NAMED.sub(_named, _FLAG.sub(_flagged, clean)))
        if " -p" in clean:
            clean = _ATTACHED.sub(_flagged, clean)
    return text if clean == seen else clean


def redacted_all(texts: Texts) -> Texts:
    """Return the texts of a message without credentials: what was said, its items and calls of tools (both JSON), the rest."""
    said, content, tool_calls, *others = texts
    tool_call_id, sender_name = map(redacted, others)
    return redacted(said), _in_json(content), _in_json(tool_calls), tool_call_id, sender_name


def _seen(text: str) -> str:
    """Return a text as a person sees it, as far as credentials go."""
    return text if text.isascii() else _HIDDEN.sub("", text)


def _looks(text: str) -> tuple[bool, bool]:
    """Return whether anything in a text may have the shape of a credential, and whether one may be named; cheap."""
    small = text.lower()
    has_shape = _HAS_SHAPE.search(small) is not None or _HAS_DIGITS.search(text) is not None
    return has_shape, _HAS_NAME.search(small) is not None


def _shape(found: re.Match[str]) -> str:
    kind = str(found.lastgroup)
    if kind == "card" and not _is_card(found[0]):
        return found[0]
    return f"[redacted {kind.replace('_', ' ')}]"


def _flagged(found: re.Match[str]) -> str:
    """Take out what a command line gives behind an option; of `-u name` without a password nothing."""
    is_login = found["name"] in ("-u", "--user")
    if found["value"].startswith("[redacted") or (is_login and not found["between"].endswith(":")):
        return found[0]
    return f"{found['name']}{found['between']}[redacted]"


def _named(found: re.Match[str]) -> str:
    """Take the value out; a plain word behind "is" says something about the password and is none."""
    value, between = found["value"].rstrip(".!?)"), found["between"]
    is_said = not re.search(r"[:\uff1a]|=(?!>)", between)
    is_about = is_said and _ABOUT.match(found.string, found.start("value")) is not None
    is_plain = is_about or _ODD.search(value.lstrip("(")) is None
    if value.startswith("[redacted") or (is_said and is_plain):
        return found[0]
    if found.re is _NAMED and _is_vague(found, is_plain=is_plain, is_short=is_said or len(value) < _SHORTEST_TOKEN):
        return found[0]
    return f"{found['name']}{between}[redacted]{found['value'][len(value) :]}"


def _is_vague(found: re.Match[str], *, is_plain: bool, is_short: bool) -> bool:
    """Return whether what names a value may well be about something else."""
    if found["bare"]:
        return is_plain or is_short
    if found["short"]:
        return is_plain
    return found["to"] is not None and not _is_changed(found)


def _is_changed(found: re.Match[str]) -> bool:
    """Return whether somebody changes a password *to* a value; a password to something is another thing."""
    text, start, end = found.string, found.start(), found.end("value")
    if _CHANGE.search(text, max(0, start - _CHANGE_CHARS), start):
        return True
    return found["to"].lower() == "auf" and _CHANGED.match(text, end, end + _CHANGE_CHARS) is not None


def _is_card(text: str) -> bool:
    """Return whether a number passes the check digit of cards (ISO/IEC 7812-1, Luhn)."""
    digits = [int(char) for char in text if char.isdigit()]
    if len(digits) not in _CARD_DIGITS or len(set(digits)) == 1:
        return False
    doubled = [digit * 2 - 9 * (digit > 4) for digit in digits[-2::-2]]  # noqa: PLR2004  # two digits from 5 on
    return (sum(digits[::-2]) + sum(doubled)) % 10 == 0


def _in_json(text: str) -> str:
    """Return JSON with the texts in it redacted, each by itself, so that it stays JSON."""
    if not any(_looks(_seen(text))):
        return text
    try:
        return json.dumps(_within(json.loads(text)), ensure_ascii=False, separators=(",", ":"))
    except (ValueError, RecursionError):
        return redacted(text)


def _within(value: object) -> object:
    if isinstance(value, str):
        return redacted(value)
    if isinstance(value, list):
        return [_within(item) for item in value]
    if isinstance(value, dict):
        return {key: _value(key, item) for key, item in value.items()}
    return value


def _value(key: str, value: object) -> object:
    """Return a value of an object; one that its key names as a credential goes whatever it looks like."""
    if isinstance(value, str) and value and _NAMED.match(f"{key}: {'x' * 4}"):
        return "[redacted]"
    return _within(value)
