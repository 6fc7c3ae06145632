"""The commands of typed memories and of their lifecycle over answers that are given."""

from __future__ import annotations

import io
import json
import urllib.parse
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from typer import core, main, testing

from everosd import errors
from everosd.cli import app, asking, client, forget, memories, node
from everosd.cli import root as root_folder

Answer = Callable[[node.Request], tuple[int, dict[str, Any]]]
MEMORY = "mara_mem_20260302_00000001"


class Terminal(io.StringIO):
    """Standard input with somebody at it."""

    def isatty(self) -> bool:
        """Say that there is."""
        return True


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give a memory root with one person, the one of this process."""
    root_folder.make(tmp_path / "root")
    (tmp_path / "root" / "default_app" / "default_project" / "users" / "mara").mkdir(parents=True)
    monkeypatch.setenv("EVEROS_ROOT", str(tmp_path / "root"))
    return tmp_path / "root"


@pytest.fixture
def asked(root: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Answer], list[node.Request]]:
    """Have requests answered by a function, and noted."""
    del root
    seen: list[node.Request] = []

    def by(function: Answer) -> list[node.Request]:
        def one(request: node.Request) -> client.Answer:
            seen.append(request)
            status, body = function(request)
            return client.Answer(status=status, body=body)

        def ask(_root: Path, method: str, path: str, body: object = None, *_: Any, **__: Any) -> client.Answer:
            return one(node.Request(method=method, path=path, body=body))

        def ask_all(_root: Path, requests: Iterable[node.Request], take: Callable[..., None], **_: Any) -> None:
            for each in requests:
                take(one(each))

        monkeypatch.setattr(node, "ask", ask)
        monkeypatch.setattr(node, "ask_all", ask_all)
        return seen

    return by


def run(*arguments: str, stdin: str | None = None) -> testing.Result:
    """Run a command in this process."""
    return testing.CliRunner().invoke(app.commands, arguments, input=stdin)


def good(**data: Any) -> Answer:
    """Return a good answer to anything."""
    return lambda _: (200, {"data": data})


def wrong(code: str, message: str) -> tuple[int, dict[str, Any]]:
    """Return an error as the daemon gives it."""
    return 409, {"error": {"code": code, "message": message}}


def sent(one: node.Request) -> dict[str, Any]:
    """Return the body of a request."""
    assert isinstance(one.body, dict)
    return one.body


WRITTEN = {"id": MEMORY, "outcome": "created", "version": 1, "memory_type": "semantic", "path": "a", "status": "active"}


def test_a_memory_comes_from_standard_input(asked: Callable[[Answer], list[node.Request]]) -> None:
    """Without a text, and with a dash, it is what comes in; a text is taken as it was typed, and nothing else is asked for."""
    seen = asked(good(**WRITTEN))
    for typed, text in (([], "a\nlong one\n"), (["-"], "\ufeffä\n"), (["two", "words"], "")):
        assert 0 == run("remember", "notes", *typed, stdin=text).exit_code
    assert ["a\nlong one\n", "ä\n", "two words"] == [sent(one)["content"] for one in seen]
    assert {"path": "notes", "memory_type": "auto"}.items() <= sent(seen[0]).items()
    assert isinstance(run("remember", "notes", stdin=" \n").exception, errors.RequestError)
    assert isinstance(run("remember", "notes", stdin="x" * (5 << 20)).exception, errors.RequestError)
    assert 3 == len(seen)


def test_a_list_of_a_hundred_thousand_is_told_page_by_page(asked: Callable[[Answer], list[node.Request]]) -> None:
    """A full page says what shows the next; beyond the end, and of a status that nothing has, that is said."""
    items = [{"id": f"mara_mem_20260302_{nth:08}", "status": "active", "importance": 0.5} for nth in range(50)]
    seen = asked(good(items=items, total_count=100_000, counts={"active": 100_000}))
    said = run("memory", "list", "--offset", "100", "--path", "projects/%").output
    assert "… and 99,850 more: --offset 150\n" in said
    query = urllib.parse.parse_qs(urllib.parse.urlparse(seen[0].path).query)
    assert {
        "kind": ["memory"],
        "status": ["active"],
        "offset": ["100"],
        "path_filter": ["projects/%"],
    }.items() <= query.items()
    asked(good(items=[], total_count=0, counts={"archived": 3}))
    said = run("memory", "list").output
    assert "no such memory\n" in said
    assert "note: 3 archived: --all lists what is put away" in said
    assert "nothing was put away: 0 memories active" in run("lifecycle", "list").output


@pytest.mark.parametrize("command", ["memory", "lifecycle"])
def test_a_list_of_nobody_says_that_there_is_nobody_of_that_name(
    command: str, asked: Callable[[Answer], list[node.Request]]
) -> None:
    """A name that is misspelt is told as search tells it; one that is there is not."""
    asked(good(items=[], total_count=0, counts={}))
    said = run(command, "list", "--user", "marah")
    assert "note: no user marah in app default, project default; there is mara\n" in said.output
    assert 0 == said.exit_code
    assert "note:" not in run(command, "list", "--user", "mara").output


def test_a_search_that_finds_nothing_names_the_list_of_what_was_forgotten(
    asked: Callable[[Answer], list[node.Request]],
) -> None:
    """`--all` looks at nothing that was forgotten: with it and without it the list is named."""
    asked(good(episodes=[]))
    named = "everosd lifecycle list --user mara names what was forgotten"
    assert named in run("search", "--user", "mara", "dogs").output
    said = run("search", "--all", "--user", "mara", "dogs").output
    assert named in said
    assert "--all looks" not in said


def decision(nth: int, *, is_applied: bool = True) -> dict[str, Any]:
    """Return a decision of an archive."""
    after = {"status": "archived"} if is_applied else {}
    return {
        "id": f"mara_mem_20260302_{nth:08}",
        "decision": "apply" if is_applied else "skip",
        "reason": "working, not used for 40 days, kept 7",
        "before": {"status": "active"},
        "after": after,
    }


def passed(**more: Any) -> dict[str, Any]:
    """Return the answer to a pass that archives forty memories."""
    counts = {"candidates": 45, "apply": 40, "skip": 0, "left": 5}
    actions = [{"action": "archive", "candidates": [decision(nth) for nth in range(40)], "counts": counts}]
    return {"run_id": "f" * 32, "dry_run": False, "actions": actions, "audit_ids": [], "stopped": None, **more}


def test_a_pass_lists_ten_decisions_of_an_action_and_all_if_asked(
    asked: Callable[[Answer], list[node.Request]],
) -> None:
    """With what they are about, which is asked for of those that are listed, and with what to type next."""

    def answer(one: node.Request) -> tuple[int, dict[str, Any]]:
        return 200, {"data": passed()} if one.method == "POST" else {"data": {"subject": "The plant"}}

    seen = asked(answer)
    done = run("lifecycle", "run", "--action", "archive", "--force", "--team", "red")
    assert 0 == done.exit_code
    assert 10 == done.output.count("The plant")
    assert "archive    40 archived, 5 more due\n" in done.output
    assert "  … and 30 more changed\n" in done.output
    assert "undo one: everosd memory restore ID" in done.output
    assert "the rest is due, too" in done.output
    assert 11 == len(seen)
    body = sent(seen[0])
    assert {"actions": ["archive"], "force": True, "dry_run": False, "team_id": "red"}.items() <= body.items()
    assert 40 == run("lifecycle", "run", "--full").output.count("The plant")
    del seen[:]
    assert '"run_id"' in run("lifecycle", "run", "--json").output
    assert 1 == len(seen)


def test_a_pass_that_stopped_says_so_and_fails(asked: Callable[[Answer], list[node.Request]]) -> None:
    """What would have changed is shown, with how to go on; looking at it is no failure."""
    stopped = {"reason": "18 of 20 memories would be archived", "affected": 18, "total": 20, "share": 0.9}
    held = [
        {
            "action": "archive",
            "candidates": [decision(1, is_applied=False)],
            "counts": {"apply": 0, "skip": 1, "left": 0},
        }
    ]
    asked(good(**passed(stopped=stopped, actions=held)))
    done = run("lifecycle", "run")
    assert 1 == done.exit_code
    assert "STOPPED: 18 of 20" in done.output
    assert "everosd lifecycle run --force" in done.output
    asked(good(**passed(stopped=stopped, actions=held, dry_run=True)))
    assert 0 == run("lifecycle", "run", "--dry-run").exit_code


@pytest.mark.parametrize(("typed", "removed"), [(MEMORY, True), ("mara_mem_20260302_00000002", False), ("", False)])
def test_a_removal_for_good_says_what_would_go_and_asks_for_the_id(
    asked: Callable[[Answer], list[node.Request]],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    typed: str,
    *,
    removed: bool,
) -> None:
    """Another id, or none, removes nothing; only with the right one it is asked for with `confirm`."""

    def answer(one: node.Request) -> tuple[int, dict[str, Any]]:
        if not sent(one).get("confirm", False):
            said = "hard_delete would remove for good the entry in a.md, 2 facts taken from it; it cannot be undone: send …"
            return wrong("CONFIRMATION_REQUIRED", said)
        return 200, {"data": {"id": MEMORY, "mode": "hard_delete", "removed": [], "out_of_reach": ["git"]}}

    seen = asked(answer)
    monkeypatch.setattr("sys.stdin", Terminal(f"{typed}\n"))
    if removed:
        forget.forget(MEMORY, hard=True)
    else:
        with pytest.raises(errors.RequestError, match="another id"):
            forget.forget(MEMORY, hard=True)
    said = capsys.readouterr()
    assert "would remove for good the entry in a.md, 2 facts taken from it; it cannot be undone\n" in said.err
    assert [False, *([True] if removed else [])] == [sent(one).get("confirm", False) for one in seen]


@pytest.mark.parametrize(
    ("arguments", "would"),
    [
        ((MEMORY, "--hard"), "hard_delete would remove for good the entry in a.md"),
        ((MEMORY, "--redact"), "redact would remove for good the entry in a.md"),
        (("--everything", "--user", "mara"), "everything of user mara in app default, project default"),
        (("--owner", "mara"), "everything of user mara in app default, project default"),
    ],
)
@pytest.mark.parametrize("stdin", ["", f"{MEMORY}\n", "mara\n"])
def test_what_would_go_is_said_where_nobody_can_confirm_it(
    asked: Callable[[Answer], list[node.Request]], arguments: tuple[str, ...], would: str, stdin: str
) -> None:
    """A look before `--yes` is typed: nothing is removed, whatever comes in, and the command is refused."""

    def answer(one: node.Request) -> tuple[int, dict[str, Any]]:
        assert not sent(one).get("confirm")
        said = f"{sent(one)['mode']} would remove for good the entry in a.md; it cannot be undone: send …"
        return wrong("CONFIRMATION_REQUIRED", said)

    asked(answer)
    done = run("forget", *arguments, stdin=stdin)
    assert done.stderr.startswith(would)
    assert "" == done.stdout
    assert isinstance(done.exception, errors.RequestError)
    assert "nobody is there to confirm it; nothing was removed" == str(done.exception)


def test_nobody_at_the_terminal_confirms_nothing(asked: Callable[[Answer], list[node.Request]]) -> None:
    """A script has to say --yes; hiding asks for nothing, and what was left makes the command fail."""
    seen = asked(good(id=MEMORY, mode="soft_delete", was="active", left=["a.md cannot be written"]))
    assert 1 == run("forget", MEMORY).exit_code
    assert {"mode": "soft_delete", "confirm": False}.items() <= sent(seen[-1]).items()
    run("forget", "bot_mem_20260302_00000001", "--agent", "bot", "--redact", "--replacement", "gone", "--yes")
    expected = {"mode": "redact", "confirm": True, "agent_id": "bot", "replacement_content": "gone"}
    assert expected.items() <= sent(seen[-1]).items()


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("--owner", "mara"), {"user_id": "mara"}),
        (("--everything", "--user", "mara"), {"user_id": "mara"}),
        (("--everything", "--agent", "bot", "--app", "work"), {"agent_id": "bot"}),
        (("--everything",), "told of whom"),
        (("--owner", "mara", "--agent", "bot"), "names a person"),
        (("--owner", "mara", "--everything"), "say what is to be forgotten"),
        (("--agent", "bot"), "say what is to be forgotten"),
        ((MEMORY, "--everything", "--user", "mara"), "say what is to be forgotten"),
        (("--everything", "--user", "mara", "--agent", "bot"), "exclude each other"),
        (("--everything", "--agent", "bot", "--hard"), "go with the id of a memory"),
    ],
)
def test_whose_memory_is_forgotten_is_said_as_everywhere(
    root: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], expected: dict[str, str] | str
) -> None:
    """`--user ID` and `--agent ID`, of one memory or of all there is; nobody is forgotten whom nobody has named."""
    seen: list[dict[str, str]] = []

    def work(_root: Path, _name: str, _title: str, body: dict[str, str]) -> tuple[dict[str, object], float]:
        seen.append(body)
        return {}, 0.0

    monkeypatch.setattr(asking, "work", work)
    done = run("forget", *arguments, "--yes")
    if isinstance(expected, str):
        assert isinstance(done.exception, errors.RequestError)
        assert expected in str(done.exception)
        assert [] == seen
        return
    (body,) = seen
    assert root.is_dir()
    assert expected == {name: body[name] for name in ("user_id", "agent_id") if name in body}
    assert [body["confirm"]] == list(expected.values())


@pytest.mark.parametrize(
    ("answer", "hint"),
    [
        (wrong("NOT_FOUND", "there is no such entry in this scope"), "everosd memory list has the ids"),
        (wrong("CONFLICT", "mem_1 is at version 3, not 2"), "everosd memory show ID"),
        (wrong("CONFLICT", "the text of mem_1 was redacted: it is not changed any more"), "everosd remember"),
        (wrong("CONFLICT", "ep_2 has taken its place in a consolidation"), "everosd rollback"),
    ],
)
def test_a_refusal_says_what_to_do(
    asked: Callable[[Answer], list[node.Request]], answer: tuple[int, dict[str, Any]], hint: str
) -> None:
    """An id that is not known, another version, a text that is gone, a consolidation."""
    asked(lambda _: answer)
    done = run("memory", "restore", MEMORY)
    assert isinstance(done.exception, asking.RequestRefused)
    assert hint in done.exception.hint


@pytest.mark.parametrize("arguments", [("memory", "list"), ("remember", "notes", "text"), ("status",)])
def test_the_root_may_stand_before_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...]
) -> None:
    """For every command as behind it, which counts where both are given; alone it is no command."""
    roots: list[Path] = []

    def ask(root: Path, *_: Any, **__: Any) -> client.Answer:
        roots.append(root)
        return client.Answer(status=200, body={"data": WRITTEN})

    monkeypatch.setattr(node, "ask", ask)
    wanted, other = tmp_path / "wanted", tmp_path / "other"
    for root in (wanted, other):
        (root / "default_app" / "default_project" / "users" / "mara").mkdir(parents=True)
    for typed in (
        ("--root", str(wanted), *arguments),
        (*arguments, "--root", str(wanted)),
        ("--root", str(other), *arguments, "--root", str(wanted)),
    ):
        done = run(*typed)
        assert 0 == done.exit_code, done.output
    assert [wanted] * 3 == roots
    alone = run("--root", str(wanted))
    assert (2, True) == (alone.exit_code, "Missing command" in alone.stderr)


def test_every_command_that_takes_a_root_takes_it_from_before() -> None:
    """The option of all commands is called as that of each of them; else one would go past it in silence."""

    def roots(group: core.TyperGroup) -> Iterator[tuple[str, list[str]]]:
        for name, one in group.commands.items():
            if isinstance(one, core.TyperGroup):
                yield from roots(one)
            else:
                yield name, [str(option.name) for option in one.params if "--root" in option.opts]

    group = main.get_command(app.commands)
    assert isinstance(group, core.TyperGroup)
    assert [] == [name for name, found in roots(group) if found != ["root"]]


def test_an_entry_id_alone_is_asked_of_the_only_user(root: Path, asked: Callable[[Answer], list[node.Request]]) -> None:
    """Where there are several, whose is asked, and nothing is shown."""
    seen = asked(good(id=MEMORY, content="x"))
    assert 0 == run("memory", "show", "mem_20260302_00000001").exit_code
    assert "user_id=mara" in seen[0].path
    (root / "default_app" / "default_project" / "users" / "theo").mkdir()
    done = run("memory", "show", "mem_20260302_00000001")
    assert isinstance(done.exception, errors.RequestError)
    assert "add --user mara|theo" in done.exception.hint
    assert 1 == len(seen)


def test_a_history_of_a_thousand_versions_is_cut_and_in_full_if_asked() -> None:
    """Twenty of them, how many more there are, and of a text that was removed that it was."""
    ended = [
        {"version": nth, "at": "2026-03-02T10:00:00Z", "action": "update", "before": None} for nth in range(1000, 0, -1)
    ]
    data = {"id": MEMORY, "status": "active", "version": 1001, "versions": ended, "changes": []}
    cut, whole = [*memories.history(data, full=False)], [*memories.history(data, full=True)]
    assert "    … and 980 more versions" == cut[-1]
    assert 1000 == sum("removed for good" in line for line in whole)
    assert "    it is as it was written" == [*memories.history({**data, "versions": []}, full=False)][-1]


def test_a_recall_that_fits_nothing_is_not_taken_for_nothing_known(
    asked: Callable[[Answer], list[node.Request]],
) -> None:
    """What was left out is counted; where nothing was found, that is said."""
    asked(good(text="", items=[], tokens=0, left_out=3))
    said = run("recall", "atlas").output
    assert "nothing fits in so few tokens" in said
    assert "3 more hits left out" in said
    asked(good(text="", items=[], tokens=0, left_out=0))
    assert "nothing is known of that\n" == run("recall", "atlas").output


def test_a_type_that_there_is_not_is_refused_and_named() -> None:
    """A misspelt type would let nothing through, and "nothing found" would be no answer."""
    with pytest.raises(errors.RequestError, match="there is no type 'semantics'") as refused:
        memories.filters(type_="semantics")
    assert "working, episodic, semantic, procedural, identity" in refused.value.hint
    assert {"memory_type": "s%"} == memories.filters(type_="s%")


def test_the_log_is_told_in_words_that_mean_one_thing(asked: Callable[[Answer], list[node.Request]]) -> None:
    """A pass is not called as `everosd reflect` is, an unpin is none of pin; `--json` has the words of the log."""
    row = {"id": "lc_1", "target": MEMORY, "action": "pin"}
    log = [
        {"action": "audit", "tool": "reflect", "run_id": "r", "timestamp": "2026-03-04T00:00:00Z"},
        {"action": "audit", "tool": "run_lifecycle", "run_id": "s", "timestamp": "2026-03-04T00:00:00Z"},
        row | {"timestamp": "2026-03-03T00:00:00Z", "field": "pinned", "was": "true", "value": "false"},
        row | {"timestamp": "2026-03-02T00:00:00Z", "field": "pinned", "was": "false", "value": "true"},
        row | {"timestamp": "2026-03-01T00:00:00Z"},
    ]
    seen = asked(lambda _: (200, {"data": {"items": log, "has_more": False}}))
    lines = run("lifecycle", "audit").output.splitlines()
    assert [["pass:"], ["run_lifecycle:"], ["unpin"], ["pin"], ["pin/unpin"]] == [
        line.split()[2:3] for line in lines if line[:1].isdigit()
    ]
    assert 1 == len(seen)
    assert log == json.loads(run("lifecycle", "audit", "--json").output)["data"]["items"]
    run("lifecycle", "audit", "--action", "pass")
    assert "action_type=reflect" in seen[2].path
