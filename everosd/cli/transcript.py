"""Files of conversations, as people have them, become messages: chats of OpenAI's shape, transcripts, LoCoMo."""

from __future__ import annotations

import datetime as dt
import hashlib
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from typing import Literal, cast

import msgspec

from everosd import errors

Format = Literal["auto", "chat", "transcript", "locomo"]

ASSISTANTS = frozenset(("assistant", "ai", "bot", "agent", "chatgpt", "gpt", "claude", "gemini", "copilot", "model"))
"""Names in a transcript that are no person's."""
SKIPPED_ROLES = frozenset(("system", "developer"))
"""Instructions of a program: nothing that anybody said."""

_TURN = re.compile(
    r"^\s{0,3}(?:\[(?P<bracketed>[^\]\n]{6,40})\]\s*|(?P<bare>\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d)?(?:Z|[+-]\d\d:?\d\d)?)\s+)?"
    r"(?:\*\*)?(?P<name>[^\s:*\[\]{}\x22][^:\n*\[\]{}\x22]{0,58}?)(?:\*\*)?\s?:(?:\*\*)?(?:[ \t]+|$)(?P<text>.*)$"
)
_PLAIN_ID = re.compile(r"[a-zA-Z0-9_.@+-]{1,128}")
_ID = re.compile(r"[^a-z0-9_.@+-]+")
_LOCOMO_SESSION = re.compile(r"session_(\d+)")
_LOCOMO_MOMENT = "%I:%M %p on %d %B, %Y"
_MAX_NAME_WORDS = 4
_SECOND_MS = 1000

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


def read(data: bytes, name: str, *, form: Format, names: Names, start: dt.datetime, zone: dt.tzinfo) -> list[Session]:
    """Return the conversations of a file.

    Args:
        data: The file.
        name: What the file is called, without folder and suffix: names the session where nothing else does.
        form: What it is; `auto`: what it looks like.
        names: Who is who.
        start: Moment of the first message where the file tells none; each further one is a second later.
        zone: Of moments without an offset.

    Raises:
        errors.RequestError: the file is none of these; names the line.
    """
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise _refusal(name, line, "is not UTF-8", "save it as UTF-8") from error
    if not text.strip():
        raise _refusal(name, 1, "is empty", "give a file with a conversation in it")
    values = _json(text, name) if form != "transcript" and text.lstrip()[0] in "[{" else None
    if values is None:
        if form in ("chat", "locomo"):
            raise _refusal(name, 1, f"is no JSON, and {form} is", "leave --format out, or name another file")
        return [_session(name, _transcript(text, name, names, zone), start)]
    if form == "locomo" or (form == "auto" and all("conversation" in each for each in values)):
        return [one for each in values for one in _locomo(each, name, zone)]
    return [_session(key, messages, start) for key, messages in _chats(values, name, names, zone)]


# -- JSON ----------------------------------------------------------------------------------------------------------


def _json(text: str, name: str) -> list[JsonObject] | None:
    """Return the objects of a JSON document or of JSON lines; None where the text is neither and may be a transcript."""
    try:
        value = msgspec.json.decode(text)
    except msgspec.DecodeError as whole:
        lines = [(number, line) for number, line in enumerate(text.splitlines(), start=1) if line.strip()]
        values: list[object] = []
        for number, line in lines:
            try:
                values.append(msgspec.json.decode(line))
            except msgspec.DecodeError as error:
                if number == lines[0][0] and _TURN.match(line):
                    return None
                raise _refusal(name, number, f"is not JSON: {whole if number == lines[0][0] else error}", "") from error
        value = values
    objects = value if isinstance(value, list) else [value]
    if not all(isinstance(each, dict) for each in objects):
        raise _refusal(name, 1, "holds no messages", 'expected objects such as {"role": "user", "content": "…"}')
    return cast("list[JsonObject]", objects)


def _chats(
    values: Iterable[JsonObject], name: str, names: Names, zone: dt.tzinfo
) -> Iterator[tuple[str, list[JsonObject]]]:
    """Yield the chats: objects with `messages`, or messages side by side."""
    loose: list[JsonObject] = []
    n_chats = 0
    for each in values:
        messages = each.get("messages")
        if not isinstance(messages, list):
            loose.append(each)
            continue
        n_chats += 1
        key = next((str(each[field]) for field in ("session_id", "id", "conversation_id") if each.get(field)), "")
        yield key or f"{name}-{n_chats}", [*_chat_messages(cast("list[object]", messages), name, names, zone)]
    if loose:
        yield name, [*_chat_messages(cast("list[object]", loose), name, names, zone)]


def _chat_messages(values: list[object], name: str, names: Names, zone: dt.tzinfo) -> Iterator[JsonObject]:
    for number, each in enumerate(values, start=1):
        if not isinstance(each, dict) or not isinstance(each.get("role"), str):
            raise _refusal(name, number, "(message) has no role", 'expected {"role": "user", "content": "…"}')
        role = each["role"]
        if role in SKIPPED_ROLES:
            continue
        role = {"function": "tool", "human": "user", "ai": "assistant", "model": "assistant"}.get(role, role)
        sender = each.get("sender_id") or each.get("name") or (names.user if role == "user" else names.agent)
        made: JsonObject = {"sender_id": sender_id(str(sender)), "role": role, "content": _content(each.get("content"))}
        if str(sender) != made["sender_id"]:
            made["sender_name"] = str(sender)
        for field in ("sender_name", "tool_calls", "tool_call_id"):
            if each.get(field):
                made[field] = each[field]
        given = next((each[key] for key in ("timestamp", "created_at", "create_time", "time") if each.get(key)), None)
        if given is not None:
            made["timestamp"] = _moment_ms(given, zone, name, number)
        yield made


def _content(value: object) -> object:
    """Return content as memory/add takes it: null is nothing, items that are plain texts are texts."""
    if value is None:
        return ""
    if isinstance(value, list):
        return [{"type": "text", "text": each} if isinstance(each, str) else each for each in value]
    return value


def _locomo(value: Mapping[str, object], name: str, zone: dt.tzinfo) -> Iterator[Session]:
    talk = value.get("conversation")
    if not isinstance(talk, dict):
        raise _refusal(name, 1, "has no `conversation`", "expected a file in LoCoMo's shape")
    prefix = str(value.get("sample_id") or name)
    for key in sorted(filter(_LOCOMO_SESSION.fullmatch, talk), key=lambda key: int(key.partition("_")[2])):
        turns = talk[key]
        if not isinstance(turns, list) or not turns:
            continue
        at = _locomo_moment(str(talk.get(f"{key}_date_time", "")), zone, name)
        messages: list[JsonObject] = []
        for turn in turns:
            speaker = str(turn.get("speaker", ""))
            said = str(turn.get("text", ""))
            if caption := turn.get("blip_caption"):
                said = f"{said} [shares a picture: {caption}]".lstrip()
            messages.append({"sender_id": sender_id(speaker), "sender_name": speaker, "role": "user", "content": said})
        yield _session(f"{prefix}-{key}", messages, at)


def _locomo_moment(text: str, zone: dt.tzinfo, name: str) -> dt.datetime:
    try:
        return dt.datetime.strptime(text.strip(), _LOCOMO_MOMENT).replace(tzinfo=zone)
    except ValueError as error:
        raise _refusal(name, 1, f"has a session at {text!r}", 'expected "1:56 pm on 8 May, 2023"') from error


# -- transcripts ---------------------------------------------------------------------------------------------------


def _transcript(text: str, name: str, names: Names, zone: dt.tzinfo) -> list[JsonObject]:
    """Return the turns of `Name: what they said` lines; lines without a name go on with what was said."""
    messages: list[JsonObject] = []
    for number, line in enumerate(text.splitlines(), start=1):
        turn = _TURN.match(line)
        if turn is None or len(turn["name"].split()) > _MAX_NAME_WORDS or turn["text"].startswith("//"):
            if not messages:
                if line.strip() and not line.startswith("#"):
                    raise _refusal(
                        name, number, "says nobody's name", 'expected lines such as "Mara: I moved to Porto."'
                    )
                continue
            messages[-1]["content"] = f"{messages[-1]['content']}\n{line}"
            continue
        speaker = turn["name"].strip()
        is_agent = speaker.casefold() in ASSISTANTS or sender_id(speaker) == sender_id(names.agent)
        made: JsonObject = {"sender_id": sender_id(speaker), "sender_name": speaker, "content": turn["text"]}
        made["role"] = "assistant" if is_agent else "user"
        if given := turn["bracketed"] or turn["bare"]:
            made["timestamp"] = _moment_ms(given, zone, name, number)
        messages.append(made)
    for each in messages:
        each["content"] = str(each["content"]).strip()
    return messages


# -- moments and names ---------------------------------------------------------------------------------------------


def _session(key: str, messages: Iterable[JsonObject], start: dt.datetime) -> Session:
    """Return a session in which each message has a moment of its own, so that each is known by it."""
    last_ms = int(start.timestamp() * 1000) - _SECOND_MS
    timed: list[JsonObject] = []
    for each in messages:
        given = each.get("timestamp")
        moment_ms = given if isinstance(given, int) else last_ms + _SECOND_MS
        last_ms = moment_ms if moment_ms > last_ms or not timed else last_ms + 1
        timed.append({**each, "timestamp": last_ms})
    return Session(id=key[:128], messages=tuple(timed))


def _moment_ms(value: object, zone: dt.tzinfo, name: str, number: int) -> int:
    """Return milliseconds since 1970 of a number (seconds up to ten digits) or an ISO moment."""
    try:
        if isinstance(value, int | float) or (isinstance(value, str) and value.strip().isdigit()):
            moment = float(value)
            return int(moment * 1000) if abs(moment) < 1e10 else int(moment)  # noqa: PLR2004  # as memory/add has it
        at = dt.datetime.fromisoformat(str(value).strip())
    except (ValueError, OverflowError) as error:
        raise _refusal(
            name, number, f"has no moment in {value!r}", "expected ISO, or milliseconds since 1970"
        ) from error
    return int((at if at.tzinfo is not None else at.replace(tzinfo=zone)).timestamp() * 1000)


def sender_id(name: str) -> str:
    """Return a sender id that stands for a name: itself where it can be one, in small ASCII letters, or `p_<8 hex>`."""
    if _PLAIN_ID.fullmatch(name):
        return name
    plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode() if not name.isascii() else name
    is_legible = sum(map(str.isalnum, plain)) * 2 > sum(map(str.isalnum, name))
    found = _ID.sub("_", plain.strip().lower()).strip("_.") if is_legible else ""
    return found[:128] or f"p_{hashlib.blake2b(name.encode('utf-8', 'replace'), digest_size=4).hexdigest()}"


def _refusal(name: str, line: int, reason: str, hint: str) -> errors.RequestError:
    refused = errors.RequestError(f"{name}:{line} {reason}")
    refused.hint = hint or "give a chat as JSON or JSON lines, a transcript, or a LoCoMo file; --format says which"
    return refused
