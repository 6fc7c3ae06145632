"""`everosd set` and `everosd unset`: one line changes, or nothing does."""

from __future__ import annotations

import json
import os
import stat
import tomllib
from pathlib import Path
from typing import Any

import pytest
from typer import testing

from everosd import errors
from everosd.cli import app, line, setting
from everosd.cli import root as root_folder

OME = """\
# My strategies.
[strategies.extract_atomic_facts] # facts
enabled = true  # they are good

# Once a week is enough.
[strategies.reflect_episodes]
enabled = false   # not yet
"""


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give a memory root as `everosd init` makes it, the one of this process."""
    where = tmp_path / "root"
    root_folder.make(where)
    monkeypatch.setenv("EVEROS_ROOT", str(where))
    for name in ("EVEROS_EMBEDDING__MODEL", "EVEROS_LLM__MODEL"):
        monkeypatch.delenv(name, raising=False)
    return where


def typed(*arguments: str) -> str:
    """Run a command in this process and return what it prints; its errors come through."""
    done = testing.CliRunner().invoke(app.commands, arguments, catch_exceptions=False)
    assert 0 == done.exit_code, done.output
    return done.output


def refused(*arguments: str) -> errors.EverosdError:
    """Run a command that is refused and return why."""
    with pytest.raises(errors.EverosdError) as raised:
        typed(*arguments)
    return raised.value


def test_F05_a_good_edit_keeps_comments_order_and_mode(root: Path) -> None:
    """Only the value changes; what stands beside, above and below it stays, and so does the file's mode."""
    path = root / "ome.toml"
    path.write_text(OME)
    path.chmod(0o640)
    typed("set", "reflect_episodes.enabled", "true")
    assert OME.replace("enabled = false ", "enabled = true ") == path.read_text()
    typed("set", "reflect_episodes.cron", "0 3 * * 0")
    assert path.read_text().endswith('enabled = true   # not yet\ncron = "0 3 * * 0"\n')
    typed("set", "strategies.extract_atomic_facts.max_retries", "5")
    assert "enabled = true  # they are good\nmax_retries = 5\n\n# Once a week" in path.read_text()
    typed("unset", "reflect_episodes.cron")
    typed("unset", "extract_atomic_facts.max_retries")
    assert OME.replace("enabled = false ", "enabled = true ") == path.read_text()
    assert 0o640 == stat.S_IMODE(path.stat().st_mode)
    assert ["everos.toml", "ome.toml"] == sorted(one.name for one in root.iterdir())


def test_what_is_set_so_already_is_said(root: Path) -> None:
    """Nothing is written, and nobody is told that it will be in force."""
    typed("set", "clustering.time_window_days", "400")
    before = (root / "everos.toml").read_bytes()
    said = typed("set", "clustering.time_window_days", "400")
    assert "clustering.time_window_days = 400 already; nothing was changed" in said
    assert before == (root / "everos.toml").read_bytes()


@pytest.mark.parametrize(
    "broken", ["[strategies.reflect_episodes\n", "x = \n", "[strategies.reflect_episode]\n", "\udcff"]
)
def test_F05_a_broken_file_is_refused_and_stays_as_it_is(root: Path, broken: str) -> None:
    """Whatever is wrong with it, no command makes it worse, and the place is named."""
    path = root / "ome.toml"
    path.write_bytes((OME + broken).encode("utf-8", "surrogateescape"))
    before, inode = path.read_bytes(), path.stat().st_ino
    for arguments in (("set", "reflect_episodes.enabled", "true"), ("unset", "reflect_episodes.enabled")):
        why = refused(*arguments)
        assert isinstance(why, errors.ConfigError)
        assert why.line is not None
        assert str(path) == why.file
        assert (before, inode) == (path.read_bytes(), path.stat().st_ino)


@pytest.mark.parametrize(
    ("key", "value", "word"),
    [
        ("memory.timezon", "UTC", "did you mean timezone?"),
        ("memory.timezone", "Europe/Wien", "did you mean Europe/Vienna?"),
        ("reflect_episode.enabled", "true", "did you mean reflect_episodes?"),
        ("reflect_episodes.enabled", "yes", "true or false"),
        ("reflect_episodes.enabeld", "true", "did you mean enabled?"),
        ("reflect_episodes.cron", "every monday", "five fields"),
        ("reflect_episodes.cron", "61 2 * * 1", "names no moments"),
        ("clustering.threshold", "2", "<= 1"),
        ("api.host", "0.0.0.0", "no api.token"),  # noqa: S104  # it is refused
        ("api", "3", "not the name of a setting"),
        ("memorize.async_queue", "3", "not the name of a setting"),
    ],
)
def test_F05_what_the_daemon_would_refuse_is_not_written(root: Path, key: str, value: str, word: str) -> None:
    """The same check, the same words, before anything is on disk."""
    before = {path: path.read_bytes() for path in root.iterdir()}
    assert word in str(refused("set", key, value))
    assert before == {path: path.read_bytes() for path in root.iterdir()}


def test_what_is_typed_becomes_what_the_setting_takes(root: Path) -> None:
    """Numbers, truth values and texts need no quotes, and a text that looks like a number is one where texts are taken."""
    for key, value in (
        ("api.port", "8123"),
        ("clustering.time_window_days", "400"),
        ("intake.redact", "false"),
        ("llm.model", "4"),
        ("log.level", "debug"),
        ("memory.timezone", '"Asia/Tokyo"'),
        ("memorize.async_queue.max_concurrency", "2"),
    ):
        typed("set", key, value)
    assert {
        "api": {"port": 8123},
        "clustering": {"time_window_days": 400},
        "intake": {"redact": False},
        "llm": {"model": "4"},
        "log": {"level": "debug"},
        "memory": {"timezone": "Asia/Tokyo"},
        "memorize": {"async_queue": {"max_concurrency": 2}},
    } == tomllib.loads((root / "everos.toml").read_text())
    assert (root / "everos.toml").read_text().startswith(root_folder.EVEROS_TOML)


def test_the_lifecycle_is_set_like_everything_else(root: Path) -> None:
    """Tables three deep, an owner of any name, a list, a preset: as they would stand in the file."""
    typed("set", "lifecycle.decay.working.period_days", "2")
    typed("set", "owners.mara.timezone", "Asia/Tokyo")
    typed("set", "run_lifecycle.preset", "weekly")
    typed("set", "run_lifecycle.actions", '["decay", "archive"]')
    found = tomllib.loads((root / "everos.toml").read_text())
    assert ({"period_days": 2}, {"timezone": "Asia/Tokyo"}) == (
        found["lifecycle"]["decay"]["working"],
        found["owners"]["mara"],
    )
    strategies = tomllib.loads((root / "ome.toml").read_text())["strategies"]
    assert {"preset": "weekly", "actions": ["decay", "archive"]} == strategies["run_lifecycle"]
    assert "there are manual, daily, weekly" in str(refused("set", "run_lifecycle.preset", "hourly"))


@pytest.mark.parametrize("key", ["owners.mara.timezone", 'owners."mara".timezone', "owners.'mara'.timezone"])
def test_an_owner_may_stand_in_quotes(root: Path, key: str) -> None:
    """As in the file; the quotes are no part of the id, and one left open is named."""
    typed("set", key, "Asia/Tokyo")
    assert "live" == json.loads(typed("set", key, "Asia/Tokyo", "--json"))["in_force"]
    assert {"mara": {"timezone": "Asia/Tokyo"}} == tomllib.loads((root / "everos.toml").read_text())["owners"]
    typed("unset", key)
    assert "owners" not in tomllib.loads((root / "everos.toml").read_text())
    assert "quote is left open" in refused("set", 'owners."mara.timezone', "UTC").hint


@pytest.mark.parametrize("value", [["decay", "archive"], ["decay,archive"], ['["decay", "archive"]']])
def test_a_list_may_be_typed_as_words(root: Path, value: list[str]) -> None:
    """Where a setting takes a list, words are one; brackets and quotes, which a shell eats, need not be typed."""
    typed("set", "run_lifecycle.actions", *value)
    strategies = tomllib.loads((root / "ome.toml").read_text())["strategies"]
    assert ["decay", "archive"] == strategies["run_lifecycle"]["actions"]


@pytest.mark.usefixtures("root")
def test_a_lifecycle_that_nothing_fires_is_told() -> None:
    """Switched on alone it never comes, and neither does a preset of what is switched off."""
    assert "it is switched off: everosd set run_lifecycle.enabled true" in typed("set", "run_lifecycle.preset", "daily")
    typed("unset", "run_lifecycle.preset")
    assert "note: run_lifecycle is switched on and nothing fires it" in typed("set", "run_lifecycle.enabled", "true")
    assert "note" not in typed("set", "run_lifecycle.preset", "weekly")


def test_a_secret_is_never_shown(root: Path) -> None:
    """Neither the old key nor the new one is printed."""
    said = typed("set", "llm.api_key", "sk-first") + typed("set", "llm.api_key", "sk-second", "--json")
    assert "sk-" not in said
    assert "sk-second" in (root / "everos.toml").read_text()
    assert {"before": "(secret)", "after": "(secret)"}.items() <= json.loads(said[said.index("{") :]).items()


LONG = ("a-long-secret-of-maras", "another-secret-of-maras")


@pytest.mark.usefixtures("root")
@pytest.mark.parametrize("key", ["owners.mara.token", 'owners."m.k@home".token', "api.token", "rerank.api_key"])
def test_a_secret_is_never_shown_whosever_it_is(key: str) -> None:
    """A user's own token, the daemon's, the key of a section that only EverOS reads: set, set again, taken out."""
    said = typed("set", key, LONG[0])
    assert f"{key.replace(chr(34), '')} = (secret)  (" in said
    said += typed("set", key, LONG[0])
    assert "= (secret) already" in said
    said += (changed := typed("set", key, LONG[1]))
    assert "= (secret), before: (secret)" in changed
    said += typed("set", key, LONG[0], "--json") + (gone := typed("unset", key))
    assert "before: (secret)" in gone
    assert not [one for one in LONG if one in said]


@pytest.mark.usefixtures("root")
def test_a_secret_is_not_shown_within_its_table() -> None:
    """A table that is taken out whole has its secret in it; what else it has is told."""
    typed("set", "owners.mara.timezone", "Asia/Tokyo")
    typed("set", "owners.mara.token", LONG[0])
    asked = json.loads(typed("set", "owners.mara", f'{{token = "{LONG[1]}"}}', "--json"))
    assert ({"timezone": "Asia/Tokyo", "token": "(secret)"}, {"token": "(secret)"}) == (asked["before"], asked["after"])
    assert 'before: {"token":"(secret)"}' in typed("unset", "owners.mara")


def test_a_token_of_a_users_own_that_can_be_guessed_is_refused(root: Path) -> None:
    """Too short: said with how to make one, without the token; one of digits alone is a text like any."""
    before = (root / "everos.toml").read_bytes()
    why = refused("set", "owners.mara.token", "short-and-known")
    assert "owners.mara.token: is shorter than 16 characters" in str(why)
    assert "secrets.token_urlsafe(32)" in why.hint
    assert why.hint.endswith("; nothing was written")
    assert "short-and-known" not in str(why) + why.hint
    assert before == (root / "everos.toml").read_bytes()
    typed("set", "owners.mara.token", "1234567890123456")


def test_a_file_is_made_where_there_is_none_and_never_left_empty(root: Path) -> None:
    """An empty ome.toml counts as the rest of a crash: what takes the last line out leaves the comments of a new one."""
    path = root / "ome.toml"
    path.unlink()
    typed("set", "reflect_episodes.enabled", "true")
    assert "[strategies.reflect_episodes]\nenabled = true\n" == path.read_text()
    assert 0o600 == stat.S_IMODE(path.stat().st_mode)
    typed("unset", "reflect_episodes.enabled")
    assert root_folder.OME_TOML == path.read_text()
    assert "nothing was changed" in typed("unset", "reflect_episodes.enabled")
    assert "unknown key" in str(refused("unset", "reflect_episodes.enabld"))


def test_a_link_stays_a_link_and_line_ends_stay(root: Path, tmp_path: Path) -> None:
    """The file that a link leads to is replaced, with its byte order mark and its line ends."""
    real = tmp_path / "dotfiles.toml"
    real.write_bytes(b"\xef\xbb\xbf# mine\r\n[api]\r\nport = 1\r\n")
    (root / "everos.toml").unlink()
    (root / "everos.toml").symlink_to(real)
    typed("set", "api.host", "localhost")
    assert (root / "everos.toml").is_symlink()
    assert b'\xef\xbb\xbf# mine\r\n[api]\r\nport = 1\r\nhost = "localhost"\r\n' == real.read_bytes()


def test_a_save_meanwhile_stays(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who saved between reading and writing has the word; the command says so."""
    path = root / "ome.toml"
    judged = setting._judge

    def late(*arguments: Any) -> tuple[str, ...]:
        path.write_text("# somebody else\n")
        return judged(*arguments)

    monkeypatch.setattr(setting, "_judge", late)
    assert "by somebody else" in str(refused("set", "reflect_episodes.enabled", "true"))
    assert "# somebody else\n" == path.read_text()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "# nothing but a comment",
        "[strategies.a]\nenabled = true\n\n# about b\n[strategies.b]\nenabled = false\n",
        "[strategies.a]\nenabled = true\n[x]\ny = 1\n[strategies.b]\nenabled = false\n",
        "[strategies]\na = {enabled = true}\n",
        "strategies = {a = {enabled = true}, b = {}}\n",
        "strategies.a.enabled = true\n",
        "[strategies]\n[strategies.a]\n# empty\n",
        '["strategies"."a"]\n"enabled" = true # ✓\n',
        "[strategies.a]\nenabled = true\n[strategies.a.gate]\nx = 1\n",
    ],
)
def test_every_way_of_writing_a_table_can_be_changed(text: str) -> None:
    """What is set is set, what is taken out is gone, and nothing else means anything else than before."""
    for name, new in ((("strategies", "a", "enabled"), False), (("strategies", "c d", "cron"), "0 2 * * 1")):
        made = line.put(text, name, new)
        assert new == line.value(made, name)
        assert [one for one in text.splitlines() if one.startswith("#")] == [
            one for one in made.splitlines() if one.startswith("#")
        ]
        assert line.value(line.take_out(made, name), name) is None
        assert line.value(text, ("x", "y")) == line.value(made, ("x", "y"))


@pytest.mark.parametrize("name", ["llm.model.x", "llm.model.x.y", "reflect_episodes.cron.hour", "memorize.mode.x.y"])
def test_nothing_is_set_within_a_value_that_is_no_table(root: Path, name: str) -> None:
    """Said as it is, and the file stays."""
    (root / "everos.toml").write_text('[llm]\nmodel = "m"\n[memorize]\nmode = "chat"\n')
    (root / "ome.toml").write_text('[strategies.reflect_episodes]\ncron = "0 2 * * 1"\n')
    before = [(root / file).read_text() for file in ("everos.toml", "ome.toml")]
    refusal = refused("set", name, "1")
    assert "is a value and no table: nothing can be set in it" in str(refusal)
    assert refusal.hint
    assert before == [(root / file).read_text() for file in ("everos.toml", "ome.toml")]


@pytest.mark.parametrize(("file", "name"), [("everos.toml", "memory.timezone"), ("ome.toml", "reflect_episodes.cron")])
def test_a_file_that_nests_too_deeply_or_is_none_is_refused_in_the_daemons_words(
    root: Path, file: str, name: str
) -> None:
    """Hundreds of brackets, and a pipe that nobody writes into: no traceback and no waiting; `unset` too."""
    path = root / file
    path.write_text("a=" + "[" * 500 + "]" * 500)
    assert f"{path}:1: is nested too deeply" == str(refused("set", name, "UTC"))
    assert f"{path}:1: is nested too deeply" == str(refused("unset", name))
    path.unlink()
    os.mkfifo(path)
    assert f"{path}: is not a file" == str(refused("set", name, "UTC"))
    assert f"{path}: is not a file" == str(refused("unset", name))


def test_what_is_typed_may_be_nested_as_deeply_as_it_likes(root: Path) -> None:
    """It is a text where one is wanted, and a wrong value where none is; a name of a hundred parts is none."""
    deep = "[" * 500 + "]" * 500
    typed("set", "llm.model", deep)
    assert deep == tomllib.loads((root / "everos.toml").read_text())["llm"]["model"]
    assert isinstance(refused("set", "api.port", deep), errors.ConfigError)
    for name in (".".join("a" * 5000), "strategies." + ".".join("a" * 5000), "llm." + ".".join("a" * 40)):
        assert "is not the name of a setting" in str(refused("set", name, "1"))
