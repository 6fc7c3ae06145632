"""Memory roots to measure on: any number of entries in EverOS's shape, and the LoCoMo conversations as memory.

Written with plain string formatting on purpose: what reads these files is what is being measured.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import random
from collections.abc import Iterator
from pathlib import Path

import msgspec

from bench import text

FIRST_DAY = dt.date(2024, 1, 1)
LOCOMO_VARIABLE = "EVEROSD_LOCOMO"
LOCOMO_DEFAULT = Path(__file__).resolve().parents[2] / "shared" / "data" / "locomo7.json"


class Item(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of a root that was written, and how to find it again."""

    user: str
    entry_id: str
    path: str
    """Below the root, forward slashes."""
    word: str
    """A word that stands in this entry only; empty where there is none (LoCoMo)."""


class Made(msgspec.Struct, frozen=True, kw_only=True):
    """What a generator wrote."""

    items: tuple[Item, ...]
    n_files: int
    n_bytes: int


class LocomoItem(msgspec.Struct, frozen=True, kw_only=True):
    """A session (episode) or a turn (fact) of a LoCoMo conversation as it was written."""

    user: str
    entry_id: str
    parent_id: str
    """The session's entry id; empty on a session."""
    text: str
    dia_id: str = ""


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """One LoCoMo question with the entries that hold its evidence."""

    user: str
    question: str
    facts: tuple[str, ...]
    episodes: tuple[str, ...]


class Locomo(msgspec.Struct, frozen=True, kw_only=True):
    """The LoCoMo root: an episode per session, a fact per turn, one user per conversation."""

    sessions: tuple[LocomoItem, ...]
    turns: tuple[LocomoItem, ...]
    questions: tuple[Question, ...]
    n_files: int


def frontmatter(user: str, date: dt.date, n_entries: int, *, file_type: str = "episode_daily") -> str:
    """Return the YAML block of a daily log as EverOS 1.5 writes it."""
    stem = file_type.removesuffix("_daily")
    return (
        f"---\nid: {stem}_log_{user}_{date}\ntype: {file_type}\nfile_type: {file_type}\nschema_version: 1\n"
        f"user_id: {user}\ntrack: user\ndate: '{date}'\nentry_count: {n_entries}\n"
        f"last_appended_at: '{date}T21:00:00+00:00'\n---\n"
    )


def entry(
    entry_id: str,
    sections: tuple[tuple[str, str], ...],
    fields: tuple[tuple[str, str], ...],
) -> str:
    """Return one entry between its markers."""
    inline = "\n".join(f"**{name}**: {value}" for name, value in fields)
    body = "\n\n".join(f"### {title}\n{content}" for title, content in sections)
    return f"<!-- entry:{entry_id} -->\n## {entry_id}\n\n{inline}\n\n{body}\n<!-- /entry:{entry_id} -->\n"


def episode(user: str, entry_id: str, moment: dt.datetime, dice: random.Random, *, word: str, n_bytes: int) -> str:
    """Return one made-up Episode of about `n_bytes` that alone holds `word`."""
    subject = text.sentence(dice)
    summary = text.paragraph(dice, n_bytes // 5)
    content = f"{text.paragraph(dice, n_bytes - len(summary) - len(subject) - 380)} The key word is {word}."
    return entry(
        entry_id,
        (("Subject", subject), ("Summary", summary), ("Content", content)),
        (
            ("owner_id", user),
            ("session_id", f"s_{moment:%Y%m%d}_{entry_id[-4:]}"),
            ("timestamp", moment.isoformat()),
            ("parent_type", "memcell"),
            ("parent_id", f"mc_{dice.getrandbits(48):012x}"),
            ("sender_ids", f"[{user}, helper]"),
        ),
    )


def write(
    root: Path,
    n_entries: int,
    *,
    n_users: int = 4,
    per_file: int = 20,
    n_bytes: int = 700,
    seed: int = 7,
    first_user: int = 0,
) -> Made:
    """Write a root of `n_entries` Episodes of `n_users` users, `per_file` a day; deterministic by `seed`.

    Users are numbered from `first_user` on.
    """
    items: list[Item] = []
    n_files = size = 0
    for path, content, of_file in files(
        root, n_entries, n_users=n_users, per_file=per_file, n_bytes=n_bytes, seed=seed, first_user=first_user
    ):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8", newline="")
        items.extend(of_file)
        n_files += 1
        size += len(content.encode())
    return Made(items=tuple(items), n_files=n_files, n_bytes=size)


def files(
    root: Path,
    n_entries: int,
    *,
    n_users: int,
    per_file: int,
    n_bytes: int,
    seed: int,
    first_user: int = 0,
) -> Iterator[tuple[Path, str, list[Item]]]:
    """Yield (path, content, entries) of the files that `write` writes, users taking turns."""
    dice = random.Random(seed)
    done = 0
    n_file = 0
    while done < n_entries:
        user, date = f"user{first_user + n_file % n_users:03d}", FIRST_DAY + dt.timedelta(days=n_file // n_users)
        rel = f"default_app/default_project/users/{user}/episodes/episode-{date}.md"
        n_here = min(per_file, n_entries - done)
        blocks: list[str] = []
        items: list[Item] = []
        for seq in range(1, n_here + 1):
            entry_id, word = f"ep_{date:%Y%m%d}_{seq:08d}", text.word(done + seq)
            moment = dt.datetime.combine(date, dt.time(8), dt.UTC) + dt.timedelta(seconds=40 * seq)
            blocks.append(episode(user, entry_id, moment, dice, word=word, n_bytes=n_bytes))
            items.append(Item(user=user, entry_id=entry_id, path=rel, word=word))
        yield root / rel, frontmatter(user, date, n_here) + "".join(blocks), items
        done += n_here
        n_file += 1


def locomo_path() -> Path | None:
    """Return where the LoCoMo file is (`EVEROSD_LOCOMO`, else beside the checkout); None where it is not."""
    path = Path(os.environ.get(LOCOMO_VARIABLE, LOCOMO_DEFAULT))
    return path if path.is_file() else None


def write_locomo(root: Path, source: Path) -> Locomo:
    """Write the conversations of `source` as memory: an Episode per session, a fact per turn, a user each."""
    sessions: list[LocomoItem] = []
    turns: list[LocomoItem] = []
    questions: list[Question] = []
    n_files = 0
    for conversation in json.loads(source.read_text(encoding="utf-8")):
        user = f"locomo_{conversation['sample_id']}"
        own_sessions, own_turns, count = _write_conversation(root, user, conversation["conversation"])
        sessions += own_sessions
        turns += own_turns
        n_files += count
        questions += _questions(user, conversation["qa"], {turn.dia_id: turn for turn in own_turns})
    return Locomo(sessions=tuple(sessions), turns=tuple(turns), questions=tuple(questions), n_files=n_files)


def _write_conversation(
    root: Path, user: str, talk: dict[str, object]
) -> tuple[list[LocomoItem], list[LocomoItem], int]:
    """Write one conversation; return its sessions, its turns and how many files it became."""
    folder = root / "default_app" / "default_project" / "users" / user
    episodes: dict[dt.date, list[str]] = {}
    facts: dict[dt.date, list[str]] = {}
    sessions: list[LocomoItem] = []
    turns: list[LocomoItem] = []
    numbers = sorted(int(key.split("_")[1]) for key, value in talk.items() if isinstance(value, list))
    for number in numbers:
        moment = _moment(str(talk[f"session_{number}_date_time"]))
        blocks = episodes.setdefault(moment.date(), [])
        fact_blocks = facts.setdefault(moment.date(), [])
        episode_id = f"ep_{moment:%Y%m%d}_{len(blocks) + 1:08d}"
        said: list[str] = []
        for turn in msgspec.convert(talk[f"session_{number}"], list[dict[str, object]]):
            line = f"{turn['speaker']}: {turn['text']}" + _picture(turn)
            said.append(line)
            fact_id = f"af_{moment:%Y%m%d}_{len(fact_blocks) + 1:08d}"
            fact_blocks.append(_locomo_fact(user, fact_id, episode_id, number, moment, line))
            turns.append(
                LocomoItem(user=user, entry_id=fact_id, parent_id=episode_id, text=line, dia_id=str(turn["dia_id"]))
            )
        transcript = "\n".join(said)
        blocks.append(_locomo_episode(user, episode_id, number, moment, transcript))
        sessions.append(LocomoItem(user=user, entry_id=episode_id, parent_id="", text=transcript))
    for date, blocks in episodes.items():
        _put(folder / "episodes" / f"episode-{date}.md", frontmatter(user, date, len(blocks)) + "".join(blocks))
    for date, blocks in facts.items():
        head = frontmatter(user, date, len(blocks), file_type="atomic_fact_daily")
        _put(folder / ".atomic_facts" / f"atomic_fact-{date}.md", head + "".join(blocks))
    return sessions, turns, len(episodes) + len(facts)


def _locomo_episode(user: str, entry_id: str, number: int, moment: dt.datetime, transcript: str) -> str:
    return entry(
        entry_id,
        (("Subject", f"Conversation of {moment:%d %B %Y}"), ("Content", transcript)),
        (
            ("owner_id", user),
            ("session_id", f"session_{number}"),
            ("timestamp", moment.isoformat()),
            ("parent_type", "memcell"),
            ("parent_id", f"mc_{number:012x}"),
            ("sender_ids", f"[{user}]"),
        ),
    )


def _locomo_fact(user: str, entry_id: str, parent_id: str, number: int, moment: dt.datetime, line: str) -> str:
    return entry(
        entry_id,
        (("Fact", line),),
        (
            ("owner_id", user),
            ("timestamp", moment.isoformat()),
            ("parent_type", "episode"),
            ("parent_id", parent_id),
            ("session_id", f"session_{number}"),
        ),
    )


def _picture(turn: dict[str, object]) -> str:
    caption = turn.get("blip_caption")
    return f" (shows a picture: {caption})" if caption else ""


def _moment(text_: str) -> dt.datetime:
    """Read `1:56 pm on 8 May, 2023`."""
    return dt.datetime.strptime(text_, "%I:%M %p on %d %B, %Y").replace(tzinfo=dt.UTC)


def _questions(user: str, asked: list[dict[str, object]], turns: dict[str, LocomoItem]) -> list[Question]:
    """Return the answerable questions (categories 1 to 4) whose evidence was written."""
    found: list[Question] = []
    for item in asked:
        evidence = [turns[dia] for dia in msgspec.convert(item.get("evidence", []), list[str]) if dia in turns]
        if item["category"] == 5 or not evidence:
            continue
        found.append(
            Question(
                user=user,
                question=str(item["question"]),
                facts=tuple(dict.fromkeys(turn.entry_id for turn in evidence)),
                episodes=tuple(dict.fromkeys(turn.parent_id for turn in evidence)),
            )
        )
    return found


def _put(path: Path, content: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content, encoding="utf-8", newline="")
