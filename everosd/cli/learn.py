"""Commands that make memories: of conversations, of files copied in, of what strategies gave up on."""

from __future__ import annotations

import collections
import datetime as dt
import difflib
import re
import shlex
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, cast

import msgspec
import typer

from everosd import config, errors, lock, types
from everosd.cli import asking, client, node, progress, show, transcript, whose
from everosd.cli import root as root_folder
from everosd.engine import advice

commands = typer.Typer(rich_markup_mode=None)

BATCH = 100
"""Messages of one request: few enough that the bar moves."""
STDIN = "-"
ME = "me"
"""Whose messages are those of a user that nobody is named for."""
RETRIED = (429, 503)
ENVELOPE_BYTES = 1024
"""Of a request, around its messages; ids of a session and a scope are shorter."""

FIELD = re.compile(r"(?P<said>.*): messages\.(?P<nth>\d+)(?:\.(?P<field>[\w.]+))?", re.DOTALL)
"""What a daemon says of one message of a request."""
MAX_NAMED = 10
"""Entries that wait and are named; a list of hundreds would say no more."""
OF_CONVERSATIONS = "extract_agent_case"
"""A strategy that `extract` does not run: it has conversations to go by, not files."""
SUCCESS = "success"


class Batch(msgspec.Struct, frozen=True, kw_only=True):
    """Some messages of a session; none: the session is to be extracted."""

    of: transcript.Session
    first: int = 0
    end: int = 0


class Outcome(msgspec.Struct, kw_only=True):
    """What has become of a file so far."""

    sessions: int = 0
    messages: int = 0
    extracted: int = 0
    """Sessions of which something was extracted."""
    unchanged: int = 0
    """Sessions of which everything was there already."""
    left_out: int = 0
    """Parts of messages that are no text."""
    users: list[str] = []
    """Whose memory it became."""
    names: dict[str, str] = {}
    """By id of these: what the file calls them, where that is not the id."""
    waiting: list[str] = []
    """Sessions whose messages are kept and not extracted yet, each with its reason."""
    skipped: int = 0
    """Messages of a program, such as those of role system: none is taken."""
    alike: dict[str, str] = {}
    """Of these users those who are new: who was there before and is called the same but for capital letters."""


@commands.command()
def add(
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="A conversation, or - for standard input.", show_default=False)
    ],
    *,
    root: asking.Root = None,
    user: Annotated[
        str,
        typer.Option(
            "--user",
            metavar="ID",
            help="Whose messages are those with role `user` and no name, or with this name in other capital letters.",
        ),
    ] = ME,
    agent: Annotated[
        str, typer.Option("--agent", metavar="ID", help="Whose messages are those with role `assistant` and no name.")
    ] = "assistant",
    session: Annotated[
        str | None,
        typer.Option(
            "--session", metavar="ID", help="Session to add to. Default: the file's name.", show_default=False
        ),
    ] = None,
    form: Annotated[
        transcript.Format,
        typer.Option("--format", help="What the file is. auto: what it looks like."),
    ] = "auto",
    at: Annotated[
        str | None,
        typer.Option(
            "--at",
            metavar="TIME",
            help="When the first message was said, ISO, where the file does not say. Default: the last one, when it was saved.",
            show_default=False,
        ),
    ] = None,
    app: asking.App = "default",
    project: asking.Project = "default",
    flush: Annotated[
        bool, typer.Option("--flush/--no-flush", help="Extract it now, or leave it to the daemon.")
    ] = True,
    as_json: asking.Json = False,
) -> None:
    """Take a conversation in. The same file twice is taken once.

    A chat as JSON or JSON lines, a transcript, or LoCoMo.
    """
    where = config.root_path(root)
    root_folder.require(where)
    name, data, saved_at = _read(file)
    settings = config.load(where)
    zone = settings.memory.zone
    names = transcript.Names(user=asking.legible(user), agent=asking.legible(agent))
    time = transcript.Time(zone=zone, saved_at=saved_at, start=None if at is None else _moment(at, zone))
    sessions = transcript.read(data, name, form=form, names=names, time=time)
    sessions = [_called(one, names.user) for one in sessions]
    if session is not None:
        if len(sessions) > 1:
            asking.refuse(
                f"{file} holds {len(sessions)} conversations", "leave --session out: each has a name of its own"
            )
        sessions = [msgspec.structs.replace(one, id=asking.legible(session)) for one in sessions]
    scope = {"app_id": asking.legible(app), "project_id": asking.legible(project)}
    known = root_folder.owners(where, scope["app_id"], scope["project_id"], "user")
    outcome = _send(where, sessions, scope, max_body_bytes=settings.api.max_body_bytes, has_flush=flush)
    outcome.alike = _alike(outcome.users, known)
    place = whose.Whose(app=app, project=project).typed() + asking.root_option(where)
    for line in _notes(outcome, place):
        print(line, file=sys.stderr)
    if as_json:
        asking.print_json(outcome)
    else:
        print(_taken(outcome))
        for id_, called in outcome.names.items():
            print(f"{called} is {id_} here")
        print(_whose(outcome, place))
        if user != ME and outcome.users and asking.legible(user) not in outcome.users:
            print(f"note: --user {user} is not used: the file names who speaks", file=sys.stderr)
        for reason in outcome.waiting:
            print(f"kept, and extracted later: {reason}", file=sys.stderr)
    if outcome.waiting:
        raise typer.Exit(1)


@commands.command()
def extract(
    files: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[FILE…]", help="Files below the root. Default: all of the owner's.", show_default=False
        ),
    ] = None,
    *,
    root: asking.Root = None,
    user: Annotated[
        str | None, typer.Option("--user", metavar="ID", help="Whose Episodes. Default: everybody's.")
    ] = None,
    agent: Annotated[str | None, typer.Option("--agent", metavar="ID", help="Whose cases.")] = None,
    app: asking.App = "default",
    project: asking.Project = "default",
    as_json: asking.Json = False,
) -> None:
    """Make what follows from Episodes that were copied in.

    That is: facts, clusters, the profile. Also tries again what failed of conversations. What is there already is not made twice.
    """
    where = config.root_path(root)
    if user is None and agent is None and (app, project) != ("default", "default"):
        asking.refuse(
            "--app and --project say whose memory is meant", "add --user or --agent, or leave them out: all of it"
        )
    body = {
        "paths": [asking.legible(asking.below(where, one)) for one in files or ()],
        "user_id": None if user is None else asking.legible(user),
        "agent_id": None if agent is None else asking.legible(agent),
        "app_id": asking.legible(app),
        "project_id": asking.legible(project),
    }
    result, took_s = asking.work(where, "extract", "extracting", body)
    failed, n_failed = cast("list[str]", result.get("failed") or []), cast("int", result.get("n_failed") or 0)
    if as_json:
        asking.print_json(result)
    else:
        n_done, n_entries = cast("int", result.get("done") or 0), cast("int", result.get("entries") or 0)
        retried = cast("int", result.get("retried") or 0)
        also = f", and {show.count(retried, 'segment')} that had failed tried again" if retried else ""
        print(f"{n_done:,} of {show.count(n_entries, 'entry')} done in {show.span(took_s)}{also}")
        for reason in failed:
            print(f"failed: {reason}", file=sys.stderr)
        if n_failed > len(failed):
            print(f"and {n_failed - len(failed):,} more", file=sys.stderr)
        for line in _waits(result, is_served=lock.holder(where) is not None):
            print(line, file=sys.stderr)
    if n_failed or result.get("n_waiting") or result.get("done") != result.get("entries"):
        raise typer.Exit(1)


@commands.command()
def trigger(
    name: Annotated[str, typer.Argument(metavar="STRATEGY", help="As in ome.toml.", show_default=False)],
    *,
    root: asking.Root = None,
    timeout: Annotated[
        float, typer.Option("--timeout", metavar="SECONDS", help="How long to wait for the runs to end.", min=0)
    ] = 120.0,
    force: Annotated[bool, typer.Option("--force", help="Also where the strategy is switched off.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be run.")] = False,
    as_json: asking.Json = False,
) -> None:
    """Run a strategy now: what it gave up on, or is to try again. Exits with 0 only where every run succeeded."""
    where = config.root_path(root)
    body = {"name": asking.legible(name), "timeout": timeout, "force": force, "dry_run": dry_run}
    try:
        answer = asking.ask(where, "POST", f"{asking.API}/ome/trigger", body, waits_s=timeout)
    except asking.RequestRefused as error:
        error.hint = error.hint or _near(name)
        raise
    runs = show.rows(answer, "runs")
    if as_json:
        asking.print_json(answer)
    else:
        print(_dispatched(answer, len(runs), is_dry=dry_run, is_forced=force))
        for run in runs:
            said = run.get("error") or _result(run.get("result"))
            print(f"  {run.get('run_id')}  {run.get('status')}{f'  {said}' if said else ''}")
    is_good = answer.get("status") == "ok" and all(run.get("status") == SUCCESS for run in runs)
    if not (is_good or (dry_run and answer.get("status") == "ok")):
        raise typer.Exit(1)


def _waits(result: dict[str, object], *, is_served: bool) -> Iterator[str]:
    """Yield what of an extraction is not done yet, and why; a daemon that serves the root does it by itself."""
    waiting, n_waiting = cast("list[str]", result.get("waiting") or []), cast("int", result.get("n_waiting") or 0)
    reason = result.get("waits_for")
    what = "waits for the model" if reason else "waits"
    later = "done later by itself" if is_served else "type the same again later"
    for one in waiting[:MAX_NAMED]:
        yield f"{what}; {later}: {one}"
    if n_waiting > MAX_NAMED:
        yield f"and {n_waiting - MAX_NAMED:,} more"
    if reason:
        yield f"the model: {reason}"


def _result(result: object) -> object:
    """Return what a run did in words; a dry run of reflection finds more than fits in a line."""
    if not isinstance(result, Mapping):
        return result
    if "owners" in result:
        return _of_lifecycle(show.rows(result, "owners"))
    return f"{show.count(len(show.rows(result, 'clusters')), 'merge')}: `everosd reflect --dry-run` shows them"


def _of_lifecycle(owners: list[show.Body]) -> str:
    """Return what passes over the memories of some owners would do."""
    parts = []
    for one in owners:
        counts = {
            str(each.get("action")): show.section(each, "counts").get("apply") for each in show.rows(one, "actions")
        }
        done = ", ".join(f"{name} {n:,}" for name, n in counts.items() if isinstance(n, int) and n) or "nothing is due"
        parts.append(
            f"{one.get('owner_id')}: {done}" + (" (STOPPED as too much at once)" if one.get("stopped") else "")
        )
    shown = "; ".join(parts[:MAX_NAMED]) + (f"; and {len(parts) - MAX_NAMED:,} more" if len(parts) > MAX_NAMED else "")
    return f"{shown or 'nobody has any memory'}; each decision: `everosd lifecycle run --dry-run --user ID`"


def _near(name: str) -> str:
    """Return what to type instead of a strategy that there is not."""
    from everosd.engine import settings as strategy_settings

    known = list(strategy_settings.defaults())
    near = [one for one in known if name and name in one] or difflib.get_close_matches(name, known, n=1)
    return f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}"


def _dispatched(answer: dict[str, object], n_runs: int, *, is_dry: bool, is_forced: bool) -> str:
    """Say what became of a trigger."""
    name, dispatched = answer.get("name"), cast("int", answer.get("dispatched") or 0)
    if answer.get("status") == "not_dispatched":
        if n_runs:
            return f"{name} is running; nothing else was begun"
        if name == advice.REFLECTION and not is_forced:
            return f"{name} is switched off: --force runs it all the same, `everosd set {name}.enabled true` every week"
        if name == advice.LIFECYCLE and not is_forced:
            return (
                f"{name} is switched off: `everosd set {name}.enabled true` switches it on, `everosd lifecycle run` makes"
                " one pass all the same (--force: one over everybody's)"
            )
        off = "" if is_forced else ", or it is switched off (--force)"
        # Cases are made of conversations, of which nothing is told twice.
        late = "" if name == OF_CONVERSATIONS else "; what came while it was switched off is done by `everosd extract`"
        return f"{name}: nothing was begun: nothing of it failed{off}{late}"
    if is_dry:
        return f"{name}: would be run {show.count(n_runs, 'time')}"
    late = "" if answer.get("status") == "ok" else ", and not all of them have ended"
    return f"{name}: {show.count(dispatched, 'run')}{late}"


def _taken(outcome: Outcome) -> str:
    """Say how much of a file was new."""
    if outcome.unchanged == outcome.sessions:
        return "nothing new: all of it is there already"
    also = f", {outcome.unchanged} there already" if outcome.unchanged else ""
    messages, sessions = show.count(outcome.messages, "message"), show.count(outcome.sessions, "session")
    return f"{messages} of {sessions} taken; {outcome.extracted} extracted{also}"


def _called(session: transcript.Session, user: str) -> transcript.Session:
    """Return a session in which a person whose name differs from a given id in capital letters alone has that id."""
    if user == ME:
        return session
    folded = types.nfc(user).casefold()
    messages = tuple(
        {**one, "sender_id": user, "sender_name": one.get("sender_name") or one["sender_id"]}
        if one["role"] == "user" and one["sender_id"] != user and str(one["sender_id"]).casefold() == folded
        else one
        for one in session.messages
    )
    return msgspec.structs.replace(session, messages=messages)


def _alike(users: list[str], known: list[str]) -> dict[str, str]:
    """Return which users are new, and differ from one of those known in capital letters alone."""
    there, folded = set(map(types.nfc, known)), {types.nfc(one).casefold(): one for one in known}
    new = [one for one in users if types.nfc(one) not in there]
    return {one: folded[key] for one in new if (key := types.nfc(one).casefold()) in folded}


def _notes(outcome: Outcome, place: str) -> Iterator[str]:
    """Yield what of a file was left out, and where there are two users now and one may have been meant."""
    if outcome.left_out:
        is_one = outcome.left_out == 1
        yield (
            f"{show.count(outcome.left_out, 'part')} of messages {'is' if is_one else 'are'} no text and"
            f" {'was' if is_one else 'were'} left out: a mark such as [image] stands there"
        )
    if outcome.skipped:
        was = "was" if outcome.skipped == 1 else "were"
        yield f"{show.count(outcome.skipped, 'message')} of role system or developer {was} left out: nobody said that"
    for new, old in outcome.alike.items():
        yield (
            f"note: {new} is a new user, not {old}, who was there before: capital letters count.\n"
            f"      If it is one person: everosd forget --owner {shlex.quote(new)}{place},"
            f" then add it again with --user {shlex.quote(old)}"
        )


def _whose(outcome: Outcome, place: str) -> str:
    """Say whose memory it became, and what to type next."""
    if not outcome.users:
        return "nobody with role user said anything: it is kept, and nobody's memory was made of it"
    user = shlex.quote(outcome.users[0])
    shown = ", ".join(outcome.users[: asking.MAX_NAMED]) + ("…" if len(outcome.users) > asking.MAX_NAMED else "")
    return f"memory of {shown}; next: everosd search --user {user}{place} WORDS"


def _batches(sessions: list[transcript.Session], max_body_bytes: int) -> Iterator[Batch]:
    """Yield what is sent in one request each.

    Raises:
        errors.RequestError: no request may be as large as a message is.
    """
    limit = max(max_body_bytes - ENVELOPE_BYTES, max_body_bytes // 2)
    for one in sessions:
        first, n_bytes = 0, 0
        for nth, each in enumerate(one.messages):
            size = _size(each, one.places[nth]) + 1
            if size > limit:
                allowed = f"[api] max_body_bytes allows ({max_body_bytes:,})"
                asking.refuse(
                    f"{one.places[nth]}: the message is larger than {allowed}; nothing was taken",
                    "split the message, or raise max_body_bytes in everosd.toml",
                )
            if nth - first == BATCH or n_bytes + size > limit:
                yield Batch(of=one, first=first, end=nth)
                first, n_bytes = nth, 0
            n_bytes += size
        yield Batch(of=one, first=first, end=len(one.messages))
        yield Batch(of=one)


def _size(message: transcript.JsonObject, place: str) -> int:
    try:
        return len(msgspec.json.encode(message))
    except RecursionError:
        asking.refuse(f"{place}: holds values in values, too deep to be sent", "leave them out")


def _send(
    root: Path, sessions: list[transcript.Session], scope: dict[str, str], *, max_body_bytes: int, has_flush: bool
) -> Outcome:
    """Send all messages, show how far it has come, and return what has become of them."""
    said = [each for one in sessions for each in one.messages if each["role"] == "user"]
    called = {str(each["sender_id"]): str(each.get("sender_name") or each["sender_id"]) for each in said}
    outcome = Outcome(
        sessions=len(sessions),
        left_out=sum(one.n_left_out for one in sessions),
        skipped=sum(one.n_skipped for one in sessions),
        users=[*dict.fromkeys(str(each["sender_id"]) for each in said)],
        names={id_: name for id_, name in called.items() if name != id_},
    )
    batches = [*_batches(sessions, max_body_bytes)]  # before anything is sent: all of a file is taken, or nothing
    asked: collections.deque[Batch] = collections.deque()
    total = sum(len(one.messages) for one in sessions)

    def requests() -> Iterator[node.Request]:
        for one in batches:
            key = {"session_id": one.of.id, **scope}
            if one.end:
                asked.append(one)
                # Deferred: a pause in the file is no reason to wait for the model between two requests.
                body = {**key, "messages": one.of.messages[one.first : one.end], "defer_extraction": has_flush}
                yield node.Request(method="POST", path=f"{asking.API}/memory/add", body=body)
            elif has_flush:
                asked.append(one)
                yield node.Request(method="POST", path=f"{asking.API}/memory/flush", body=key)

    with progress.Progress("adding") as shown:

        def take(answer: client.Answer) -> None:
            _take(outcome, asked.popleft(), answer)
            shown.update(outcome.messages, total)

        node.ask_all(root, requests(), take)
    return outcome


def _take(outcome: Outcome, batch: Batch, answer: client.Answer) -> None:
    """Note one answer; a flush that the model failed leaves messages that are extracted later.

    Raises:
        errors.EverosdError: the messages were not taken.
    """
    is_flush = not batch.end
    if is_flush and answer.status in RETRIED:
        outcome.waiting.append(f"session {batch.of.id}: {show.section(answer.body, 'error').get('message')}")
        return
    try:
        data = show.section(asking.checked(answer), "data")
    except errors.RequestError as error:
        raise _placed(error, batch) from error
    outcome.messages += batch.end - batch.first
    outcome.extracted += is_flush and data.get("status") in ("extracted", "queued")
    # What has a user in it and is new is extracted by a flush.
    has_user = any(each["role"] == "user" for each in batch.of.messages)
    outcome.unchanged += is_flush and has_user and data.get("status") == "no_extraction"


def _placed(error: errors.RequestError, batch: Batch) -> errors.RequestError:
    """Return what is wrong with a message with the place where it stands in the file."""
    found = FIELD.fullmatch(str(error))
    if found is None or batch.first + int(found["nth"]) >= batch.end:
        return error
    field = f" ({found['field']})" if found["field"] else ""
    placed = errors.RequestError(f"{batch.of.places[batch.first + int(found['nth'])]}: {found['said']}{field}")
    placed.hint = error.hint
    return placed


def _read(file: str) -> tuple[str, bytes, dt.datetime]:
    """Return name, content and time of a file, or of standard input."""
    if file == STDIN:
        return "stdin", sys.stdin.buffer.read(), dt.datetime.now(dt.UTC)
    path = Path(file)
    try:
        return path.name, path.read_bytes(), dt.datetime.fromtimestamp(path.stat().st_mtime, dt.UTC)
    except OSError as error:
        refused = errors.RequestError(f"{file}: {error.strerror or error}")
        refused.hint = "name a file that you can read, or - for standard input"
        raise refused from error


def _moment(text: str, zone: dt.tzinfo) -> dt.datetime:
    try:
        at = dt.datetime.fromisoformat(text)
    except ValueError:
        asking.refuse(f"--at {text} is no moment", "write it like 2026-03-02T09:00")
    return at if at.tzinfo is not None else at.replace(tzinfo=zone)
