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

_SHAPES = re.compile(
    r"""
    (?P<private_key>-----BEGIN[ ][A-Z0-9 ]{0,40}PRIVATE[ ]KEY(?:[ ]BLOCK)?-----
        (?:.*?-----END[ ][A-Z0-9 ]{0,40}PRIVATE[ ]KEY(?:[ ]BLOCK)?-----|.*\Z))
    | (?<![\w-])(?P<token>
        (?:sk|pk|rk)-(?:proj-|ant-|or-)?[A-Za-z0-9_-]{16,}   # OpenAI and those that follow it
        | (?:sk|rk|pk)_(?:live|test)_[A-Za-z0-9]{10,}        # Stripe
        | gh[pousr]_[A-Za-z0-9]{20,} | github_pat_[A-Za-z0-9_]{20,} | glpat-[A-Za-z0-9_-]{16,}
        | xox[abeprs]-[A-Za-z0-9-]{10,}                      # Slack
        | (?:AKIA|ASIA)[0-9A-Z]{16}(?![0-9A-Za-z])           # AWS
        | AIza[A-Za-z0-9_-]{30,} | ya29\.[A-Za-z0-9_-]{20,}  # Google
        | hf_[A-Za-z0-9]{20,} | npm_[A-Za-z0-9]{20,} | pypi-[A-Za-z0-9_-]{20,}
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
    (?P<name>(?<![^\W_])(?:pass(?:word|phrase|wd|wort|code)|pwd|kennwort|contraseña|senha|hasło|wachtwoord|пароль|mot[ ]de[ ]passe
        |(?:api|auth|access|secret|private|encryption|signing)[ _-]?key|secret[ _-]?access[ _-]?key
        |client[ _-]?secret|(?:access|auth|api|bearer|refresh|session|id)[ _-]?token|PIN
        |(?P<bare>token|secret))\b)
    (?P<between>(?:\s(?:of|for|to|at|on|vom|von|für|zum|de|del|du|para|от|для)(?:\s[\w'\u2019-]{1,20}){1,4}?)?
        ["']?(?:\s{0,3}(?:[:=]|:=)\s{0,3}|\s{1,3}(?:is|was|ist|lautet|es|est|é)(?:\s{1,3}|:\s{0,3})|\s{1,3}(?=["'`\u201c]))["'`\u201c]?)
    (?P<value>[^\s"'`<>,;\u201d]{4,200})
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
_IN_CJK = re.compile(
    r"(?P<name>密码|密碼|口令|パスワード)(?P<between>\s{0,3}(?:[:\uff1a=]|是|は)\s{0,3})(?P<value>[!-~]{4,200})"
)
_ODD = re.compile(r"[0-9]|[^\w.?!)\]-]|_")
_QUICK = re.compile(
    r"(?i)-----BEGIN|sk[-_]|[pr]k[-_]|gh[pousr]_|github_pat|glpat-|xox|AKIA|ASIA|AIza|ya29|hf_|npm_|pypi-|eyJ|://|bearer |basic "
    r"|pass|pwd|kennwort|contrase|senha|hasło|wachtwoord|пароль|key|secret|token|\bpin\b|-u |--user|密|口令|パスワード"
    r"|\d{4}[ -]?\d{4,6}"
)


def redacted(text: str) -> str:
    """Return `text` with every obvious credential replaced by what kind it was."""
    if _QUICK.search(text) is None:
        return text
    text = _SHAPES.sub(_shape, text)
    return _IN_CJK.sub(_named, _NAMED.sub(_named, _FLAG.sub(_flagged, text)))


def redacted_all(texts: tuple[str, str, str]) -> tuple[str, str, str]:
    """Return the texts of a message without credentials: what was said, its items, its calls of tools (both JSON)."""
    said, content, tool_calls = texts
    return redacted(said), _in_json(content), _in_json(tool_calls)


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
    is_said = not re.search(r"[:\uff1a=]", between)
    is_plain = _ODD.search(value) is None
    is_vague = (
        found.re is _NAMED and found["bare"] is not None and (is_said or is_plain or len(value) < _SHORTEST_TOKEN)
    )
    if value.startswith("[redacted") or (is_said and is_plain) or is_vague:
        return found[0]
    return f"{found['name']}{between}[redacted]{found['value'][len(value) :]}"


def _is_card(text: str) -> bool:
    """Return whether a number passes the check digit of cards (ISO/IEC 7812-1, Luhn)."""
    digits = [int(char) for char in text if char.isdigit()]
    if len(digits) not in _CARD_DIGITS or len(set(digits)) == 1:
        return False
    doubled = [digit * 2 - 9 * (digit > 4) for digit in digits[-2::-2]]  # noqa: PLR2004  # two digits from 5 on
    return (sum(digits[::-2]) + sum(doubled)) % 10 == 0


def _in_json(text: str) -> str:
    """Return JSON with the texts in it redacted, each by itself, so that it stays JSON."""
    if _QUICK.search(text) is None:
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
