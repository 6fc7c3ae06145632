"""Files of conversations, as people have them, become messages: chats of OpenAI's shape, transcripts, LoCoMo."""

from __future__ import annotations

import datetime as dt
import hashlib
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import PurePath
from typing import Literal, cast

import msgspec

from everosd import errors
from everosd.cli import show

Format = Literal["auto", "chat", "transcript", "locomo"]

ASSISTANTS = frozenset(
    """assistant ai bot agent chatgpt gpt claude gemini copilot model assistent ki asistente assistente
    ассистент помощник 助手 アシスタント""".split()  # noqa: SIM905 - reads better than a list
)
"""Names in a transcript that are no person's, in small letters."""
SKIPPED_ROLES = frozenset(("system", "developer"))
"""Instructions of a program: nothing that anybody said."""
ROLES = {
    "user": "user",
    "human": "user",
    "assistant": "assistant",
    "ai": "assistant",
    "model": "assistant",
    "tool": "tool",
    "function": "tool",
}
"""Roles by what programs call them."""
MARKS = {"input_audio": "audio", "input_file": "file", "document": "file", "doc": "file"}
"""What stands in the place of a part that is no text, where its type does not say it."""

_DAY_AND_TIME = r"\d{1,2}[/.]\d{1,2}[/.]\d{2,4},?\s\d{1,2}:\d\d(?::\d\d)?(?:\s?[AaPp]\.?\s?[Mm]\.?)?"
_EXPORTED = re.compile(
    r"(?P<first>\d{1,2})[/.](?P<second>\d{1,2})[/.](?P<year>\d{4}|\d\d),?\s"
    r"(?P<hour>\d{1,2}):(?P<minute>\d\d)(?::(?P<sec>\d\d))?(?:\s?(?P<half>[AaPp])\.?\s?[Mm]\.?)?"
)
"""A moment as WhatsApp exports it."""
_NOTICE = re.compile(rf"^(?:\[{_DAY_AND_TIME}\]|{_DAY_AND_TIME}\s[-\u2013])\s")
"""Begins a line of WhatsApp; where nobody speaks in it, it is a notice of the program."""
_INVISIBLE = re.compile(r"^[\u200e\u200f\ufeff]+")
_TURN = re.compile(
    r"^\s{0,3}(?:\[(?P<bracketed>[^\]\n]{6,40})\]\s*|(?P<bare>\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d)?(?:Z|[+-]\d\d:?\d\d)?)\s+"
    rf"|(?P<exported>{_DAY_AND_TIME})\s[-\u2013]\s+)?"
    r"(?:\*\*)?(?P<name>[^\s:*\[\]{}\x22][^:\n*\[\]{}\x22]{0,58}?)(?:\*\*)?\s?:(?:\*\*)?(?:[ \t]+|$)(?P<text>.*)$"
)
_PLAIN_ID = re.compile(r"[a-zA-Z0-9_.@+-]{1,128}")
_ID = re.compile(r"[^a-z0-9_.@+-]+")
_LOCOMO_SESSION = re.compile(r"session_(\d+)")
_LOCOMO_MOMENT = "%I:%M %p on %d %B, %Y"
_MAX_NAME_WORDS = 4
_SECOND_MS = 1000
_CENTURY = 2000
_MONTHS = 12
_BYTE = re.compile(r"\(byte (\d+)\)")
_PART_TYPE = re.compile(r"[a-z][a-z_ -]{0,30}")

JsonObject = dict[str, object]


class Names(msgspec.Struct, frozen=True, kw_only=True):
    """Who is who where a file does not say so."""

    user: str = "me"
    """Sender id of messages with role `user` and no name."""
    agent: str = "assistant"
    """Sender id of messages with role `assistant`."""


class Session(msgspec.Struct, frozen=True, kw_only=True):
    """One conversation, as memory/add takes it."""

    id: str
    messages: tuple[JsonObject, ...]
    places: tuple[str, ...]
    """Where each message stands, as people are told."""
    n_left_out: int = 0
    """Parts that are no text; a mark stands in the place of each."""
    n_skipped: int = 0
    """Messages of a program, which are not among these."""


class Time(msgspec.Struct, frozen=True, kw_only=True):
    """When messages were said that do not say so: a second apart."""

    zone: dt.tzinfo
    """Of moments without an offset."""
    saved_at: dt.datetime
    """The last one, for nothing was said after the file was saved."""
    start: dt.datetime | None = None
    """The first one; None: as `saved_at` has it."""


class _Chat(msgspec.Struct, kw_only=True):
    """Messages as they are found."""

    id: str
    messages: list[JsonObject] = []
    places: list[str] = []
    n_left_out: int = 0
    n_skipped: int = 0
    """Messages of a program."""

    def take(self, made: JsonObject, place: str) -> None:
        """Add a message."""
        self.messages.append(made)
        self.places.append(place)


def read(data: bytes, file: str, *, form: Format, names: Names, time: Time) -> list[Session]:
    """Return the conversations of a file, each with a message at least.

    Args:
        data: The file.
        file: What the file is called, without folder: names the session where nothing else does.
        form: What it is; `auto`: what it looks like.
        names: Who is who.
        time: When it was said.

    Raises:
        errors.RequestError: the file is none of these; names the place.
    """
    try:
        chats = _read(data, file, form, names, time)
    except RecursionError as error:
        raise _refusal(file, "holds values in values, too deep to be read", "") from error
    n_skipped = sum(chat.n_skipped for chat in chats)
    if not any(chat.messages for chat in chats):
        also = f" but {show.count(n_skipped, 'message')} of role system, and those are left out" if n_skipped else ""
        raise _refusal(file, f"holds no messages{also}", "give a file in which somebody says something")
    first, *others = (_session(chat, time) for chat in chats if chat.messages)
    # A chat of such messages alone is no session, and they are counted all the same.
    n_alone = n_skipped - sum(one.n_skipped for one in (first, *others))
    return [msgspec.structs.replace(first, n_skipped=first.n_skipped + n_alone), *others]


def _read(data: bytes, name: str, form: Format, names: Names, time: Time) -> list[_Chat]:
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise _refusal(_line(name, line), "is not UTF-8", "save it as UTF-8") from error
    if not text.strip():
        raise _refusal(name, "is empty", "give a file with a conversation in it")
    values = _json(text, name) if form != "transcript" and text.lstrip()[0] in "[{" else None
    if values is None:
        if form in ("chat", "locomo"):
            raise _refusal(name, f"is no JSON, and {form} is", "leave --format out, or name another file")
        return [_transcript(text, name, names, time.zone)]
    if values and (form == "locomo" or (form == "auto" and all("conversation" in each for each in values))):
        return [one for each in values for one in _locomo(each, name, time.zone)]
    return [*_chats(values, name, names, time.zone)]


# -- JSON ----------------------------------------------------------------------------------------------------------


def _json(text: str, name: str) -> list[JsonObject] | None:
    """Return the objects of a JSON document or of JSON lines; None where the text is neither and may be a transcript.

    Raises:
        RecursionError: values in values in values, too many.
    """
    try:
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError) as whole:
        lines = [(number, line) for number, line in enumerate(text.splitlines(), start=1) if line.strip()]
        values: list[object] = []
        for number, line in lines:
            try:
                values.append(msgspec.json.decode(line))
            except msgspec.DecodeError as error:
                if number != lines[0][0]:
                    raise _refusal(_line(name, number), f"is not JSON: {error}", "") from error
                if _TURN.match(line):
                    return None
                raise _refusal(_line(name, _line_of(whole, text)), f"is not JSON: {whole}", "") from error
        value = values
    objects = value if isinstance(value, list) else [value]
    if not all(isinstance(each, dict) for each in objects):
        raise _refusal(name, "holds no messages", 'expected objects such as {"role": "user", "content": "…"}')
    return cast("list[JsonObject]", objects)


def _line_of(error: Exception, text: str) -> int:
    """Return the line where JSON is wrong; the last one where it only ends too early."""
    found = _BYTE.search(str(error))
    upto = text.encode("utf-8", "replace")[: int(found[1])] if found else text.rstrip().encode("utf-8", "replace")
    return upto.count(b"\n") + 1


def _chats(values: Sequence[JsonObject], name: str, names: Names, zone: dt.tzinfo) -> Iterator[_Chat]:
    """Yield the chats: objects with `messages`, or messages side by side."""
    stem = PurePath(name).stem
    n_all = sum(isinstance(each.get("messages"), list) for each in values)
    loose: list[object] = []
    n_chats = 0
    for each in values:
        messages = each.get("messages")
        if not isinstance(messages, list):
            loose.append(each)
            continue
        n_chats += 1
        key = next((str(each[field]) for field in ("session_id", "id", "conversation_id") if each.get(field)), "")
        place = f"{name}, conversation {n_chats}" if n_all > 1 else name
        yield _chat(_Chat(id=key or f"{stem}-{n_chats}"), messages, place, names, zone)
    if loose:
        yield _chat(_Chat(id=stem), loose, name, names, zone)


def _chat(chat: _Chat, values: list[object], file: str, names: Names, zone: dt.tzinfo) -> _Chat:
    """Take messages of OpenAI's shape."""
    for number, each in enumerate(values, start=1):
        place = f"{file}, message {number}"
        if not isinstance(each, dict) or not isinstance(each.get("role"), str):
            raise _refusal(place, "has no role", 'expected {"role": "user", "content": "…"}')
        if each["role"] in SKIPPED_ROLES:
            chat.n_skipped += 1
            continue
        if (role := ROLES.get(each["role"])) is None:
            there_are = ", ".join((*ROLES, *sorted(SKIPPED_ROLES)))
            raise _refusal(place, f"has a role that nobody knows: {each['role'][:40]!r}", f"there are {there_are}")
        sender = each.get("sender_id") or each.get("name") or (names.user if role == "user" else names.agent)
        content, n_left_out = _content(each.get("content"), place)
        chat.n_left_out += n_left_out
        made: JsonObject = {"sender_id": sender_id(str(sender)), "role": role, "content": content}
        if str(sender) != made["sender_id"]:
            made["sender_name"] = str(sender)
        for field in ("sender_name", "tool_calls", "tool_call_id"):
            if each.get(field):
                made[field] = each[field]
        given = next((each[key] for key in ("timestamp", "created_at", "create_time", "time") if each.get(key)), None)
        if given is not None:
            made["timestamp"] = _moment_ms(given, zone, place)
        chat.take(made, place)
    return chat


def _content(value: object, place: str) -> tuple[object, int]:
    """Return content as memory/add takes it, and how many parts of it are no text: each becomes a mark."""
    if value is None:
        return "", 0
    if isinstance(value, str):
        return value, 0
    if not isinstance(value, list):
        raise _refusal(place, "has content that is neither a text nor a list of parts", "")
    texts = [_part(each) for each in value]
    items = [{"type": "text", "text": text or _mark(each)} for text, each in zip(texts, value, strict=True)]
    return items, texts.count(None)


def _part(part: object) -> str | None:
    """Return the text of a part of a message; None where it is something else."""
    if isinstance(part, str):
        return part
    if not isinstance(part, dict):
        return None
    kind = str(part.get("type") or "text")
    said = part.get("refusal" if kind == "refusal" else "text")
    return said if isinstance(said, str) and (kind == "refusal" or "text" in kind) else None


def _mark(part: object) -> str:
    """Return what stands in the place of a part that is no text; nothing of an empty text."""
    if _part(part) is not None:
        return ""
    kind = str(part.get("type")) if isinstance(part, dict) else ""
    kind = MARKS.get(kind, kind.removeprefix("input_").removesuffix("_url"))
    return f"[{kind}]" if _PART_TYPE.fullmatch(kind) else "[part]"


def _locomo(value: Mapping[str, object], name: str, zone: dt.tzinfo) -> Iterator[_Chat]:
    talk = value.get("conversation")
    if not isinstance(talk, dict):
        raise _refusal(name, "has no `conversation`", "expected a file in LoCoMo's shape")
    prefix = str(value.get("sample_id") or PurePath(name).stem)
    for key in sorted(filter(_LOCOMO_SESSION.fullmatch, talk), key=lambda key: int(key.partition("_")[2])):
        turns = talk[key]
        if not isinstance(turns, list) or not turns:
            continue
        at = _locomo_moment(str(talk.get(f"{key}_date_time", "")), zone, name)
        chat = _Chat(id=f"{prefix}-{key}")
        for number, turn in enumerate(turns, start=1):
            place = f"{name}, {key}, turn {number}"
            if not isinstance(turn, dict):
                raise _refusal(place, "is no object", "expected a file in LoCoMo's shape")
            speaker = str(turn.get("speaker", ""))
            said = str(turn.get("text", ""))
            if caption := turn.get("blip_caption"):
                said = f"{said} [shares a picture: {caption}]".lstrip()
            made: JsonObject = {
                "sender_id": sender_id(speaker),
                "sender_name": speaker,
                "role": "user",
                "content": said,
            }
            if number == 1:
                made["timestamp"] = int(at.timestamp() * 1000)
            chat.take(made, place)
        yield chat


def _locomo_moment(text: str, zone: dt.tzinfo, name: str) -> dt.datetime:
    try:
        return dt.datetime.strptime(text.strip(), _LOCOMO_MOMENT).replace(tzinfo=zone)
    except ValueError as error:
        raise _refusal(name, f"has a session at {text[:40]!r}", 'expected "1:56 pm on 8 May, 2023"') from error


# -- transcripts ---------------------------------------------------------------------------------------------------


def _transcript(text: str, name: str, names: Names, zone: dt.tzinfo) -> _Chat:
    """Return the turns of `Name: what they said` lines; lines without a name go on with what was said."""
    chat = _Chat(id=PurePath(name).stem)
    lines = [_INVISIBLE.sub("", line) for line in text.splitlines()]
    is_month_first = _is_month_first(lines)
    for number, line in enumerate(lines, start=1):
        turn = _TURN.match(line)
        is_exported = _NOTICE.match(line) is not None
        if turn is None or not _is_name(turn["name"], is_exported=is_exported) or turn["text"].startswith("//"):
            if is_exported:
                continue
            if chat.messages:
                chat.messages[-1]["content"] = f"{chat.messages[-1]['content']}\n{line}"
            elif line.strip() and not line.startswith("#"):
                hint = 'expected lines such as "Mara: I moved to Porto."'
                raise _refusal(_line(name, number), "says nobody's name", hint)
            continue
        speaker = turn["name"].strip(" ~\u00a0\u202f\u200e\u200f")
        id_ = sender_id(speaker)
        is_user = id_ == sender_id(names.user)  # a person may be called Claude
        is_agent = id_ == sender_id(names.agent) or (speaker.casefold() in ASSISTANTS and not is_user)
        if is_agent and not speaker.isascii():
            id_ = sender_id(names.agent)
        made: JsonObject = {"sender_id": id_, "sender_name": speaker, "content": turn["text"]}
        made["role"] = "assistant" if is_agent else "user"
        if given := turn["bracketed"] or turn["bare"] or turn["exported"]:
            exported = _EXPORTED.fullmatch(given.strip())
            at = _exported(exported, is_month_first=is_month_first) if exported else given
            made["timestamp"] = _moment_ms(at, zone, _line(name, number))
        chat.take(made, _line(name, number))
    for each in chat.messages:
        each["content"] = str(each["content"]).strip()
    return chat


def _is_name(text: str, *, is_exported: bool) -> bool:
    """Return whether what stands before a colon may be a name; one in an address book may be longer."""
    return len(text.split()) <= _MAX_NAME_WORDS + 2 * is_exported and not (is_exported and "\u201c" in text)


def _is_month_first(lines: Iterable[str]) -> bool:
    """Return whether the days of an exported chat can only be meant month first: `03/25/24`."""
    found = [_EXPORTED.match(line.lstrip("[")) for line in lines if _NOTICE.match(line)]
    return any(one is not None and int(one["second"]) > _MONTHS for one in found)


def _exported(found: re.Match[str], *, is_month_first: bool) -> str:
    """Return a moment of an exported chat in ISO; one that cannot be is no moment there, either."""
    day, month = int(found["first"]), int(found["second"])
    if is_month_first and day <= _MONTHS:
        day, month = month, day
    year, hour = int(found["year"]), int(found["hour"])
    if found["half"]:
        hour = hour % 12 + 12 * (found["half"] in "Pp")
    year += _CENTURY * (len(found["year"]) == 2)  # noqa: PLR2004  # two digits
    return f"{year:04}-{month:02}-{day:02}T{hour:02}:{found['minute']}:{found['sec'] or '00'}"


# -- moments and names ---------------------------------------------------------------------------------------------


def _session(chat: _Chat, time: Time) -> Session:
    """Return a session in which each message has a moment of its own, so that each is known by it."""
    moments = [cast("int | None", each.get("timestamp")) for each in chat.messages]
    n_before, known = next(((n, at) for n, at in enumerate(moments) if at is not None), (0, None))
    if known is None:
        known = int((time.start or time.saved_at).timestamp() * 1000)
        n_before = 0 if time.start else len(moments) - 1
    last_ms = known - (n_before + 1) * _SECOND_MS
    timed: list[JsonObject] = []
    for each, given in zip(chat.messages, moments, strict=True):
        moment_ms = given if given is not None else last_ms + _SECOND_MS
        last_ms = moment_ms if moment_ms > last_ms or not timed else last_ms + 1
        timed.append({**each, "timestamp": last_ms})
    return Session(
        id=chat.id[:128],
        messages=tuple(timed),
        places=tuple(chat.places),
        n_left_out=chat.n_left_out,
        n_skipped=chat.n_skipped,
    )


def _moment_ms(value: object, zone: dt.tzinfo, place: str) -> int:
    """Return milliseconds since 1970 of a number (seconds up to ten digits) or an ISO moment."""
    try:
        if isinstance(value, int | float) or (isinstance(value, str) and value.strip().isdigit()):
            moment = float(value)
            return int(moment * 1000) if abs(moment) < 1e10 else int(moment)  # noqa: PLR2004  # as memory/add has it
        at = dt.datetime.fromisoformat(str(value).strip())
        return int((at if at.tzinfo is not None else at.replace(tzinfo=zone)).timestamp() * 1000)
    except (ValueError, OverflowError) as error:
        said = str(value)[:40]
        raise _refusal(place, f"has no moment in {said!r}", "expected ISO, or milliseconds since 1970") from error


def sender_id(name: str) -> str:
    """Return a sender id that stands for a name: itself where it can be one, in small ASCII letters, or `p_<8 hex>`."""
    if _PLAIN_ID.fullmatch(name):
        return name
    plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode() if not name.isascii() else name
    is_legible = sum(map(str.isalnum, plain)) * 2 > sum(map(str.isalnum, name))
    found = _ID.sub("_", plain.strip().lower()).strip("_.") if is_legible else ""
    return found[:128] or f"p_{hashlib.blake2b(name.encode('utf-8', 'replace'), digest_size=4).hexdigest()}"


def _line(file: str, number: int) -> str:
    return f"{file}, line {number}"


def _refusal(place: str, reason: str, hint: str) -> errors.RequestError:
    refused = errors.RequestError(f"{place}: {reason}")
    refused.hint = hint or "give a chat as JSON or JSON lines, a transcript, or a LoCoMo file; --format says which"
    return refused
