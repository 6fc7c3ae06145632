"""The entry that a client needs: shown, and written so that everything else in its file stays."""

from __future__ import annotations

import json
import os
import tomllib
from pathlib import Path
from typing import get_args

import pytest
from typer import testing

from everosd import errors
from everosd.cli import app, mcp_client

SETUP = mcp_client.Setup(command="/opt/everosd/bin/everosd", args=("mcp", "--root", "/home/mara/my memory"))
NAMES: tuple[mcp_client.Name, ...] = get_args(mcp_client.Name)
RUNNER = testing.CliRunner()


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give a home of our own."""
    folder = tmp_path / "home"
    folder.mkdir()
    monkeypatch.setenv("HOME", str(folder))
    for name in ("CODEX_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    return folder


def saved(name: mcp_client.Name, text: str) -> Path:
    """Write a client's file."""
    path = mcp_client.CLIENTS[name].path()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8", newline="")
    return path


def entry_in(name: mcp_client.Name, text: str) -> dict[str, object]:
    """Return our entry in the text of a client's file."""
    one = mcp_client.CLIENTS[name]
    tables = tomllib.loads(text) if one.is_toml else json.loads(text)
    found: dict[str, object] = tables[one.table]["everosd"]
    return found


def run(*arguments: str, typed: str | None = None) -> testing.Result:
    """Run `everosd mcp install`."""
    return RUNNER.invoke(app.commands, ["mcp", "install", *arguments], input=typed)


@pytest.mark.parametrize("name", NAMES)
def test_what_is_shown_is_what_is_written(name: mcp_client.Name) -> None:
    """The entry that a person sees is the one that gets into the file, with the command and the root."""
    one = mcp_client.CLIENTS[name]
    plan = one.plan(SETUP)
    mcp_client.write(plan)
    assert entry_in(name, one.shown(SETUP)) == entry_in(name, one.path().read_text())
    assert SETUP.command == entry_in(name, plan.text)["command"]
    assert list(SETUP.args) == entry_in(name, plan.text)["args"]
    assert 0o600 == one.path().stat().st_mode & 0o777
    assert plan.backup is None


@pytest.mark.parametrize("name", ["claude-code", "vscode", "cursor"])
def test_other_entries_of_json_stay(name: mcp_client.Name) -> None:
    """What else is in the file stays, in its order; a copy of the file as it was stands beside it."""
    table = mcp_client.CLIENTS[name].table
    before = json.dumps({"z": [1, 2.5, None], table: {"other": {"command": "x"}}, "a": "é"}, ensure_ascii=False)
    path = saved(name, before)
    path.chmod(0o640)
    plan = mcp_client.CLIENTS[name].plan(SETUP)
    mcp_client.write(plan)
    after = json.loads(path.read_text(encoding="utf-8"))
    assert ["z", table, "a"] == list(after)
    assert ["other", "everosd"] == list(after[table])
    assert [1, 2.5, None] == after["z"]
    assert plan.backup is not None
    assert before == plan.backup.read_text(encoding="utf-8")
    assert 0o640 == path.stat().st_mode & 0o777


def test_comments_and_order_of_toml_stay() -> None:
    """Codex's file is TOML that people write: what is added is added, and nothing else moves."""
    before = '# mine\nmodel = "x" # why\n\n[mcp_servers.other]\ncommand = "y"\n\n[profiles.z]\na = 1\n'
    path = saved("codex", before)
    mcp_client.write(mcp_client.CLIENTS["codex"].plan(SETUP))
    text = path.read_text()
    for line in before.splitlines():
        assert line in text
    assert "y" == tomllib.loads(text)["mcp_servers"]["other"]["command"]
    assert SETUP.command == entry_in("codex", text)["command"]


@pytest.mark.parametrize("name", NAMES)
def test_an_entry_that_is_there_is_replaced_once(name: mcp_client.Name) -> None:
    """Writing twice changes nothing the second time; an entry for another root is replaced."""
    one = mcp_client.CLIENTS[name]
    other = mcp_client.Setup(command="everosd", args=("mcp", "--root", "/elsewhere"))
    mcp_client.write(one.plan(other))
    plan = one.plan(SETUP)
    assert plan.replaces
    mcp_client.write(plan)
    assert list(SETUP.args) == entry_in(name, one.path().read_text())["args"]
    again = one.plan(SETUP)
    assert again.text == again.before


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("vscode", '{\n  // mine\n  "servers": {}\n}'),
        ("cursor", "[]"),
        ("cursor", '{"mcpServers": []}'),
        ("claude-code", '{"mcpServers": '),
        ("codex", "a = = 1"),
        ("codex", "mcp_servers = 3"),
        ("codex", "[[mcp_servers]]\na = 1"),
    ],
)
def test_a_file_that_is_not_understood_stays_as_it_is(name: mcp_client.Name, text: str) -> None:
    """Comments in JSON would be lost, and what is broken is for a person to mend: the entry can be pasted."""
    path = saved(name, text)
    with pytest.raises(errors.ConfigError, match=path.name) as refused:
        mcp_client.CLIENTS[name].plan(SETUP)
    assert "paste" in refused.value.hint
    assert text == path.read_text()


def test_a_file_that_changes_meanwhile_is_not_overwritten() -> None:
    """Between showing and writing the client itself may have saved."""
    path = saved("cursor", "{}")
    plan = mcp_client.CLIENTS["cursor"].plan(SETUP)
    path.write_text('{"mcpServers": {"new": {}}}')
    with pytest.raises(errors.ConfigError, match="changed meanwhile"):
        mcp_client.write(plan)
    assert '{"mcpServers": {"new": {}}}' == path.read_text()


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    """Dotfiles are often links into a repository: the file behind it is written."""
    target = tmp_path / "dotfiles.json"
    target.write_text("{}")
    path = mcp_client.CLIENTS["cursor"].path()
    path.parent.mkdir(parents=True)
    path.symlink_to(target)
    mcp_client.write(mcp_client.CLIENTS["cursor"].plan(SETUP))
    assert path.is_symlink()
    assert "everosd" in target.read_text()


def test_nothing_is_written_without_being_asked_for(home: Path, tmp_path: Path) -> None:
    """`install` shows all clients; `--write` needs one of them, and somebody who agrees."""
    shown = run("--root", str(tmp_path))
    assert 0 == shown.exit_code
    for one in mcp_client.CLIENTS.values():
        assert one.title in shown.output
    assert "everosd mcp install --client NAME --write" in shown.output
    assert isinstance(run("--write", "--root", str(tmp_path)).exception, errors.RequestError | SystemExit)
    refused = run("--client", "cursor", "--write", "--root", str(tmp_path))
    assert 0 != refused.exit_code
    assert [] == list(home.iterdir())


def test_yes_writes_after_showing(tmp_path: Path) -> None:
    """With --yes nobody is asked, and it is shown all the same."""
    done = run("--client", "cursor", "--write", "--yes", "--root", str(tmp_path))
    assert 0 == done.exit_code, done.output
    path = mcp_client.CLIENTS["cursor"].path()
    assert '"mcpServers"' in done.output
    assert str(tmp_path) in path.read_text()
    again = run("--client", "cursor", "--write", "--yes", "--root", str(tmp_path))
    assert "has it already" in again.output


def test_options_of_install_go_with_install(tmp_path: Path) -> None:
    """`everosd mcp --write` speaks to nobody: it is refused."""
    result = RUNNER.invoke(app.commands, ["mcp", "--write", "--root", str(tmp_path)])
    assert result.exit_code != 0


def test_files_are_where_clients_look_for_them(monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    """The person's own settings, for all projects; variables that move them are heeded."""
    monkeypatch.setattr("sys.platform", "linux")
    found = {name: str(one.path().relative_to(home)) for name, one in mcp_client.CLIENTS.items()}
    assert {
        "claude-code": ".claude.json",
        "codex": ".codex/config.toml",
        "vscode": ".config/Code/User/mcp.json",
        "cursor": ".cursor/mcp.json",
    } == found
    monkeypatch.setenv("CODEX_HOME", os.fspath(home / "c"))
    assert home / "c/config.toml" == mcp_client.CLIENTS["codex"].path()


@pytest.mark.parametrize("name", NAMES)
def test_what_a_person_added_to_the_entry_stays(name: mcp_client.Name) -> None:
    """An `env` says whose memory it is: an entry for another root keeps it, and one with nothing new stays as it is."""
    one = mcp_client.CLIENTS[name]
    mcp_client.write(one.plan(mcp_client.Setup(command="everosd", args=("mcp", "--root", "/elsewhere"))))
    text = one.path().read_text()
    if one.is_toml:
        saved(name, f'{text}env = {{EVEROS_MCP__USER_ID = "ben"}}\n')
    else:
        saved(name, text.replace('"command"', '"env": {"EVEROS_MCP__USER_ID": "ben"}, "command"'))
    mcp_client.write(one.plan(SETUP))
    entry = entry_in(name, one.path().read_text())
    assert {"EVEROS_MCP__USER_ID": "ben"} == entry["env"]
    assert (SETUP.command, list(SETUP.args)) == (entry["command"], entry["args"])
    again = one.plan(SETUP)
    assert again.text == again.before


@pytest.mark.parametrize(
    "before",
    [
        'mcp_servers = {other = {command = "y"}} # mine\nx = 1\n',
        'mcp_servers.other.command = "y"\nx = 1\n[t]\na = 1\n',
        '[mcp_servers]\nother = {command = "y"}\n[t]\na = 1',
        'x = 1\n[mcp_servers.other]\ncommand = "y"\n[t]\na = 1\n[mcp_servers.third]\ncommand = "z"\n',
        "x = 1\n[t]\na = 1\n[[list]]\nb = 1\n",
        "x = 1\r\n[t]\r\na = 1",
    ],
)
def test_whatever_way_tables_are_written_the_entry_is_all_that_is_added(before: str) -> None:
    """No setting of Codex loses its table, and the entry is there once."""
    path = saved("codex", before)
    mcp_client.write(mcp_client.CLIENTS["codex"].plan(SETUP))
    after = tomllib.loads(path.read_text())
    entry = after["mcp_servers"].pop("everosd")
    assert SETUP.command == entry["command"]
    assert tomllib.loads(before) == {key: value for key, value in after.items() if value}
    again = mcp_client.CLIENTS["codex"].plan(SETUP)
    assert again.text == again.before


def test_tables_that_nothing_can_be_added_to_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the rest of the file would be another one afterwards, a person pastes the entry."""
    path = saved("codex", "x = 1\n")
    monkeypatch.setattr(mcp_client, "_texts_toml", lambda *_: iter(("x = 2\n[mcp_servers.everosd]\n", "x = ")))
    with pytest.raises(errors.ConfigError, match="nothing can be added"):
        mcp_client.CLIENTS["codex"].plan(SETUP)
    assert "x = 1\n" == path.read_text()
