"""Answers as text for people; programs ask for `--json` and get what the daemon said."""

from __future__ import annotations

import datetime as dt
import shutil
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from typing import cast

from everosd.cli import excerpt

Body = Mapping[str, object]

SHOWN = (
    ("episodes", "subject", "episode"),
    ("agent_cases", "task_intent", "approach"),
    ("agent_skills", "name", "content"),
)
"""Of an answer: array, and the fields that are title and text."""
MINUTE_S, HOUR_S, DAY_S = 60, 3600, 86_400
TAIL_SHARE = 1 / 3
"""Of the best score: by meaning everything is somewhat near, and what is nearer than the rest stands above this."""
MAX_PROBLEMS = 20
"""Of the files that are not read as they should be; `--json` has them all."""


def hits(data: Body, query: str = "", *, has_tail: bool = True) -> str:
    """Return what a search found, best first; without the tail only what comes near the best, and how many do not."""
    found = [(item, title, text) for name, title, text in SHOWN for item in rows(data, name)]
    found.sort(key=lambda hit: -_score(hit[0]))
    shown = found if has_tail or not found else [hit for hit in found if _is_near(hit[0], found[0][0])]
    parts = [_hit(*hit, query) for hit in shown] or ["nothing found"]
    if n_left_out := len(found) - len(shown):
        parts.append(
            f"{count(n_left_out, 'weaker hit')} left out: --min-score 0 shows {'it' if n_left_out == 1 else 'them'}"
        )
    return "\n\n".join(parts)


def status(data: Body, *, is_served: bool = True, strategies: Iterable[Body] = ()) -> Iterator[str]:
    """Yield the lines of `everosd status`; where no daemon serves the root, nobody watches it."""
    yield from _columns(
        (
            ("memory", _memory(data)),
            ("state", _state(data)),
            *((f"index {name}", _projection(cast("Body", one))) for name, one in section(data, "projections").items()),
            *((("model", _model(model)),) if (model := section(data, "embedding")) else ()),
            ("watching", _watching(data) if is_served else "nobody"),
        )
    )
    yield from clockwork(strategies)
    if data.get("alarm"):
        yield f"\nALARM: {data['alarm']}"
    yield from (f"\nNOTE: {notice}" for notice in cast("Iterable[object]", data.get("notices") or ()))
    yield from problems(data)


def clockwork(items: Iterable[Body]) -> Iterator[str]:
    """Yield a line for each strategy that the clock fires, and for those with something to do or to tell."""
    lines = [(str(one.get("name")), _strategy(one)) for one in items]
    yield from (
        f"{'strategies' if nth == 0 else '':<15}{name}: {text}" for nth, (name, text) in enumerate(_told(lines))
    )


def _told(lines: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    return ((name, text) for name, text in lines if text)


def _strategy(one: Body) -> str:
    """Say when a strategy runs and how it did; nothing where there is nothing to say."""
    is_timed = bool(one.get("cron") or one.get("trigger") in ("cron", "idle"))
    parts = []
    if is_timed:
        parts.append(_next(one))
    for key, word in (("running", "running"), ("waiting", "waiting"), ("dead", "given up")):
        if one.get(key):
            parts.append(f"{cast('int', one[key]):,} {word}")
    last = section(one, "last_run")
    if last and (is_timed or last.get("status") not in ("success", "running")):
        parts.append(_last(last))
    return "; ".join(part for part in parts if part)


def _next(one: Body) -> str:
    if not one.get("enabled"):
        return "off"
    at, idle_s = one.get("next_fire_time"), one.get("idle_seconds")
    parts = [f"next {minute(str(at))}"] if at else []
    if isinstance(idle_s, (int, float)):
        parts.append(f"after {span(idle_s)} of silence")
    return ", ".join(parts) or "on, nothing fires it"


def _last(run: Body) -> str:
    said = run.get("error") or run.get("result")
    when = minute(str(run.get("finished_at") or run.get("started_at") or ""))
    return f"last {run.get('status')} {when}" + (f" ({said})" if said else "")


def minute(moment: str) -> str:
    """Return an ISO moment to the minute, as people read it."""
    return moment[:16].replace("T", " ")


def problems(data: Body) -> Iterator[str]:
    """Yield the files that are not read as they should be, worst first."""
    found = rows(data, "problems")
    n_problems = int(cast("int", data.get("n_problems") or len(found)))
    if not found:
        return
    yield f"\n{count(n_problems, 'thing')} {'needs' if n_problems == 1 else 'need'} a look:"
    for one in found[:MAX_PROBLEMS]:
        line = f":{one['line']}" if one.get("line") else ""
        yield f"  {one.get('kind', 'warning'):<10} {one.get('path')}{line}: {one.get('reason')}"
    if n_problems > MAX_PROBLEMS:
        yield f"  … and {n_problems - MAX_PROBLEMS:,} more (--json lists up to {len(found):,})"


def verdict(report: Body, took_s: float) -> Iterator[str]:
    """Yield what `everosd verify` found."""
    is_clean = bool(report.get("is_clean"))
    word = "clean" if is_clean else "NOT CLEAN"
    yield f"{word}: {how_much(report)} of {_n(report, 'files', 'file')} compared in {span(took_s)}"
    for one in rows(report, "differences"):
        where = " ".join(str(one[key]) for key in ("path", "entry_id") if one.get(key))
        yield f"  {one.get('what')}: {where}  {one.get('detail') or ''}".rstrip()
    unreadable = cast("list[object]", report.get("unreadable") or [])
    yield from (f"  not compared, cannot be read: {path}" for path in unreadable)
    if not is_clean:
        yield "\nmake the indexes anew from the Markdown: everosd rebuild"


def section(data: Body, name: str) -> Body:
    """Return an object inside an object, empty where there is none."""
    value = data.get(name)
    return cast("Body", value) if isinstance(value, Mapping) else {}


def rows(data: Body, name: str) -> list[Body]:
    """Return a list of objects inside an object, empty where there is none."""
    value = data.get(name)
    return [cast("Body", one) for one in value if isinstance(one, Mapping)] if isinstance(value, list) else []


def count(number: int, noun: str) -> str:
    """Return `1 file`, `1,204 entries`."""
    plural = noun if number == 1 else f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}s"
    return f"{number:,} {plural}"


def how_much(data: Body, of_whom: str = "") -> str:
    """Return how many memories there are and, apart from them, how many rows of everosd's own logs."""
    also = f" and {_n(data, 'rows', 'row')} of logs" if data.get("rows") else ""
    return f"{_n(data, 'entries', 'entry')}{of_whom}{also}"


def span(seconds: float) -> str:
    """Return a length of time in the two largest units that matter."""
    whole = int(seconds)
    if whole < MINUTE_S:
        return f"{seconds:.1f} s" if seconds < 10 else f"{whole} s"  # noqa: PLR2004  # tenths stop to matter there
    if whole < HOUR_S:
        return f"{whole // MINUTE_S} min {whole % MINUTE_S} s"
    if whole < DAY_S:
        return f"{whole // HOUR_S} h {whole % HOUR_S // MINUTE_S} min"
    return f"{whole // DAY_S} d {whole % DAY_S // HOUR_S} h"


def since(moment: str, now: dt.datetime) -> str:
    """Return how long ago an ISO moment was; empty where it says nothing."""
    try:
        return span((now - dt.datetime.fromisoformat(moment)).total_seconds())
    except (TypeError, ValueError):
        return ""


def _score(item: Body) -> float:
    """Return a hit's score; 0 where it has none."""
    return cast("float", item.get("score") or 0.0)


def _is_near(item: Body, best: Body) -> bool:
    """Return whether a hit is worth a look beside the best; one that would be shown as 0.00 is not."""
    return _score(item) >= max(_score(best) * TAIL_SHARE, 0.005)


def _hit(item: Body, title: str, text: str, query: str) -> str:
    """Return one hit: score, title and moment; what of its text answers; its id."""
    width = min(shutil.get_terminal_size().columns, 110)
    moment = str(item.get("timestamp") or "")[:16].replace("T", " ")
    score = item.get("score")
    head = f"{score:.2f}" if isinstance(score, (int, float)) else "    "
    flag = "" if item.get("status", "active") == "active" else f"  [{item['status']}]"
    lines = excerpt.lines(item, str(item.get(text) or ""), query, width - 6)
    return "\n".join(
        (
            f"{head}  {str(item.get(title) or '').strip() or _place(item)}  {moment}{flag}".rstrip(),
            *(f"      {line}" for line in lines),
            f"      {item.get('id')}",
            *(f"      {line}" for line in _why(section(item, "explain"), width - 6)),
        )
    )


def _place(item: Body) -> str:
    """Return where a hit without a title stands: type and path of a typed memory."""
    found = [str(item[name]) for name in ("memory_type", "path") if item.get(name)]
    return ", ".join(found) if item.get("path") else "(no title)"


def _why(why: Body, width: int) -> Iterator[str]:
    """Say what a score is made of; nothing where that was not asked for."""
    if not why:
        return
    words = ", ".join(str(word) for word in cast("Iterable[object]", why.get("words") or ()))
    matched = f" ({words})" if words else ""
    by_words, by_meaning = _share(why, "keyword"), _share(why, "similarity")
    yield f"= {_share(why, 'own')} by itself: words {by_words}{matched}, meaning {by_meaning}"
    fact = section(why, "fact")
    if fact:
        head = f"+ a fact of {_share(fact, 'score')} (words {_share(fact, 'keyword')}, meaning {_share(fact, 'similarity')}): "
        yield textwrap.shorten(head + str(fact.get("content") or ""), width, placeholder=" …")
    if why.get("dated"):
        yield f"+ its moment fits when it was by {_share(why, 'dated')}"
    if why.get("corrects"):
        yield f"+ as much as what it corrects has: {why['corrects']}"


def _share(data: Body, key: str) -> str:
    """Return a score to two digits; a dash where there is none."""
    value = data.get(key)
    return f"{value:.2f}" if isinstance(value, (int, float)) else "-"


def _memory(data: Body) -> str:
    """Say how much there is."""
    owners = f" of {_n(data, 'owners', 'owner')}" if data.get("owners") else ""
    on_disk = data.get("files_on_disk")
    also = f" ({on_disk:,} on disk)" if isinstance(on_disk, int) and on_disk != data.get("files_indexed") else ""
    return f"{how_much(data, owners)} in {_n(data, 'files_indexed', 'file')}{also}"


def _state(data: Body) -> str:
    """Say what the daemon is doing."""
    phase = str(data.get("phase") or "unknown")
    done, total = data.get("done"), data.get("total")
    parts = [
        phase if phase == "ready" or not total else f"{phase}, {done:,} of {count(cast('int', total), 'file')} compared"
    ]
    owed = cast("int", section(data, "embedding").get("owed") or 0)
    pending = int(cast("int", data.get("pending") or 0)) - owed
    if phase == "ready" and pending <= 0:
        by_what = f" by keyword, {_n({'n': owed}, 'n', 'entry')} without a vector yet" if owed else ""
        parts.append(f"everything on disk is searchable{by_what}")
    else:
        parts.append(f"{count(pending, 'change')} pending")
    parts += [
        f"{_n(data, key, 'file')} {name}"
        for key, name in (("failed_retryable", "failed, tried again"), ("failed_permanent", "not read as it should be"))
        if data.get(key)
    ]
    return "; ".join(parts)


def _projection(one: Body) -> str:
    """Say how far an index has come."""
    text = f"{_n(one, 'documents', 'document')}, {one.get('state', 'ok')}"
    if progress := one.get("progress"):
        done, total = cast("tuple[int, int]", progress)
        text += f", {done:,} of {total:,}"
    if one.get("behind"):
        text += f", {_n(one, 'behind', 'change')} behind"
    return text + (f": {one['error']}" if one.get("error") else "")


def _model(model: Body) -> str:
    """Say which model makes the vectors, and how it does."""
    name = str(model.get("model") or "not asked yet")
    width = f", {model['dim']} wide" if model.get("dim") else ""
    refused = f"; it refuses {_n(model, 'refused', 'entry')}" if model.get("refused") else ""
    error = f"; DEGRADED: {model['error']}" if model.get("error") else ""
    return f"{name}{width}{refused}{error}"


def _watching(data: Body) -> str:
    """Say how edits are noticed."""
    text = str(data.get("watch_mode") or "unknown")
    age_s = data.get("scan_age_s")
    if isinstance(age_s, (int, float)):
        text += f", disk compared {span(age_s)} ago"
    return text if data.get("watch_healthy", True) else f"{text}; DEGRADED: {data.get('watch_reason')}"


def _columns(pairs: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Yield `name  text` lines."""
    for name, text in pairs:
        yield f"{name:<15}{text}"


def _n(data: Body, key: str, noun: str) -> str:
    """Return a count with its noun."""
    value = data.get(key)
    return count(value if isinstance(value, int) else 0, noun)
