"""Settings from three sources, checked."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest

from everosd import config, errors

PEER_EVEROS = """
[memory]
timezone = "UTC"
[api]
host = "127.0.0.1"
port = 8000
[sqlite]
journal_mode = "WAL"
synchronous = "NORMAL"
foreign_keys = true
temp_store = "MEMORY"
busy_timeout_ms = 5000
journal_size_limit_bytes = 67108864
cache_size_kb = 2048
[lancedb]
read_consistency_seconds = 5.0
[index]
backend = "lancedb"
[llm]
model = "openai/gpt-4.1-mini"
api_key = "sk-very-secret"
[memorize]
mode = "agent"
[memorize.async_queue]
enabled = true
[knowledge.search]
lambda = 0.1
[clustering]
threshold = 0.65
[cascade]
scan_interval_seconds = 30.0
"""


def write(root: Path, text: str) -> None:
    (root / config.FILE_NAME).write_text(text, encoding="utf-8")


def test_defaults_are_complete_without_any_file(tmp_path: Path) -> None:
    """An empty root has settings, and nothing is written into it."""
    loaded = config.load(tmp_path, {})
    assert loaded.api.host == "127.0.0.1"
    assert loaded.api.port == 8000
    assert loaded.root == tmp_path
    assert list(tmp_path.iterdir()) == []


def test_every_default_has_a_setting_and_a_comment() -> None:
    """`default.toml` documents each line that it ships."""
    previous = ""
    for line in config.defaults().splitlines():
        if " = " in line and not line.startswith("#"):
            assert previous.startswith("#"), line
        previous = line


def test_live_marks_in_the_shipped_file_are_the_reloadable_keys() -> None:
    """What the file promises to take over at once is what is taken over."""
    section, comment, live = "", "", set()
    for line in config.defaults().splitlines():
        if line.startswith("["):
            section = line.strip("[]")
        elif line.startswith("#"):
            comment += line
        elif " = " in line:
            if "(live)" in comment:
                live.add(f"{section}.{line.split(' = ', maxsplit=1)[0]}")
            comment = ""
        else:
            comment = ""
    assert live == config.RELOADABLE


def test_environment_is_above_file_and_command_line_above_both(tmp_path: Path) -> None:
    """Three sources, one order."""
    write(tmp_path, "[api]\nport = 9001\n[watch]\nsettle_ms = 7\n")
    environ = {"EVEROS_API__PORT": "9002", "EVEROS_ROOT": "/elsewhere", "HOME": "/root"}
    assert config.load(tmp_path, {}).api.port == 9001
    assert config.load(tmp_path, environ).api.port == 9002
    assert config.load(tmp_path, environ, given={"api.port": 0}).api.port == 0
    assert config.load(tmp_path, environ).watch.settle_ms == 7


def test_configuration_of_everos_is_taken_and_what_is_not_needed_is_listed(tmp_path: Path) -> None:
    """A person points everosd at an EverOS root and it starts."""
    write(tmp_path, PEER_EVEROS)
    loaded = config.load(tmp_path, {"EVEROS_LLM__API_KEY": "sk-other"})
    assert "memorize.async_queue.enabled" in loaded.ignored
    assert "index.backend" in loaded.ignored
    assert "sk-other" == loaded.llm.api_key.reveal()
    assert "sk-" not in repr(loaded)


@pytest.mark.parametrize(
    ("text", "key", "line", "said"),
    [
        ("[api]\n# port\nprot = 1\n", "api.prot", 3, "did you mean port?"),
        ("\n[wacth]\nmode = 'auto'\n", "wacth.mode", 3, "did you mean [watch]?"),
        ("port = 1\n", "port", 1, "stands outside any section"),
        ("[api]\nport = 70000\n", "api.port", 2, "<= 65535"),
        ("[api]\nport = '8000'\n", "api.port", 2, "Expected a whole number"),
        ("[watch]\nmode = 'magic'\n", "watch.mode", 2, "'magic'; there are auto, inotify, polling"),
        ("[watch]\nscan_interval_s = nan\n", "watch.scan_interval_s", 2, "Expected a number"),
        ("[memory]\ntimezone = 'Europe/Berlni'\n", "memory.timezone", 2, "did you mean Europe/Berlin?"),
        ("[memory]\ntimezone = '../../etc/passwd'\n", "memory.timezone", 2, "no such time zone"),
        ("[api]\nhost = '0.0.0.0'\n", "api.host", 2, "is not loopback"),
        ("[api]\nport = 1\nport = 2\n", "", 3, "is not TOML"),
        ("[api\n", "", 1, "is not TOML"),
        ("[api]\ntoken = 5\n", "api.token", 2, "Expected a text"),
    ],
)
def test_wrong_settings_name_file_key_line_and_what_to_do(
    tmp_path: Path, text: str, key: str, line: int, said: str
) -> None:
    """Whoever made the mistake finds it without a manual."""
    write(tmp_path, text)
    with pytest.raises(errors.ConfigError) as refused:
        config.load(tmp_path, {})
    assert said in str(refused.value)
    assert key == refused.value.key
    assert line == refused.value.line
    assert str(tmp_path / config.FILE_NAME) == refused.value.file
    assert refused.value.hint


@pytest.mark.parametrize(
    "url", ["http://[::1/v1", "http://127.0.0.1:eleven/v1", "127.0.0.1:11434", "http:///v1", "http://a b"]
)
def test_what_is_no_address_of_an_endpoint_is_refused(tmp_path: Path, url: str) -> None:
    """A slip in `base_url` is named with its line, whatever it is, before anything is asked there."""
    write(tmp_path, f'[embedding]\nmodel = "m"\nbase_url = "{url}"\n')
    with pytest.raises(errors.ConfigError, match="expected an address such as") as refused:
        config.load(tmp_path, {})
    assert ("embedding.base_url", 3) == (refused.value.key, refused.value.line)


def test_file_that_is_not_utf8_is_named_with_its_line(tmp_path: Path) -> None:
    """A file saved in another encoding is a mistake with a place."""
    (tmp_path / config.FILE_NAME).write_bytes(b"[api]\n# caf\xe9\nport = 1\n")
    with pytest.raises(errors.ConfigError, match="not UTF-8") as refused:
        config.load(tmp_path, {})
    assert refused.value.line == 2


def test_byte_order_mark_is_no_mistake(tmp_path: Path) -> None:
    """Some editors write one."""
    (tmp_path / config.FILE_NAME).write_bytes(b"\xef\xbb\xbf[api]\nport = 9001\n")
    assert config.load(tmp_path, {}).api.port == 9001


def test_folder_in_place_of_the_file_is_a_message(tmp_path: Path) -> None:
    """What cannot be read is an error of configuration, not a traceback."""
    (tmp_path / config.FILE_NAME).mkdir()
    with pytest.raises(errors.ConfigError):
        config.load(tmp_path, {})


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("EVEROS_API__PROT", "1", "did you mean port?"),
        ("EVEROS_API__PORT", "http", "Expected a whole number"),
        ("EVEROS_API__PORT", "-1", ">= 0"),
        ("EVEROS_LOG__LEVEL", "loud", "there are debug, info, warning, error"),
        ("EVEROS_NOPE__PORT", "1", "unknown section"),
        ("EVEROS_WATCH__POLL_INTERVAL_S", "nan", "Expected a number"),
    ],
)
def test_wrong_variable_is_named(tmp_path: Path, name: str, text: str, said: str) -> None:
    """The variable is named as the person wrote it."""
    with pytest.raises(errors.ConfigError) as refused:
        config.load(tmp_path, {name: text})
    assert name == refused.value.key
    assert said in str(refused.value)
    assert f"correct or unset {name}" == refused.value.hint


def test_listening_to_others_says_how_to(tmp_path: Path) -> None:
    """Who opens the address is told to set a token, not to take the address back."""
    with pytest.raises(errors.ConfigError, match="is not loopback") as refused:
        config.load(tmp_path, {}, given={"api.host": "192.0.2.1"})
    assert "[api] token" in refused.value.hint


def test_an_empty_root_is_no_folder() -> None:
    """`--root "$UNSET"` does not make an index in the folder that one happens to be in."""
    with pytest.raises(errors.RootError, match="names no folder"):
        config.root_path("")


def test_secret_is_in_no_text_of_it(tmp_path: Path) -> None:
    """Neither repr nor an error shows it, and it cannot be encoded."""
    write(tmp_path, "[api]\nhost = '0.0.0.0'\ntoken = 'tr0ub4dor'\n")
    loaded = config.load(tmp_path, {})
    assert loaded.api.token.reveal() == "tr0ub4dor"
    assert "tr0ub4dor" not in repr(loaded)
    with pytest.raises(TypeError):
        msgspec.json.encode(loaded)


def test_reload_takes_what_it_can_and_names_what_waits(tmp_path: Path) -> None:
    """A changed port waits for a restart, a changed level does not."""
    current = config.load(tmp_path, {})
    write(tmp_path, "[api]\nport = 9001\n[log]\nlevel = 'debug'\n")
    reload = config.merge(current, config.load(tmp_path, {}))
    assert reload.applied == ("log.level",)
    assert reload.waits_for_restart == ("api.port",)
    assert reload.config.log.level == "debug"
    assert reload.config.api.port == 8000


def test_root_comes_from_argument_then_variable_then_home(tmp_path: Path) -> None:
    """In that order, resolved through symlinks."""
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    environ = {"EVEROS_ROOT": str(tmp_path / "link")}
    assert config.root_path(tmp_path, environ) == tmp_path.resolve()
    assert config.root_path(None, environ) == (tmp_path / "real").resolve()
    assert config.root_path(None, {}) == Path("~/.everos").expanduser().resolve()


def test_policies_of_the_lifecycle_are_tables_and_a_wrong_one_is_named(tmp_path: Path) -> None:
    """A table three deep is read like any other, from the file and from the environment, and refused like any other."""
    write(tmp_path, "[lifecycle.decay.working]\nperiod_days = 2\n[lifecycle.retention]\nworking = 9\n")
    loaded = config.load(tmp_path, {"EVEROS_LIFECYCLE__DECAY__SEMANTIC__STEP": "0.04"})
    assert (2.0, 0.2, 9.0) == (
        loaded.lifecycle_decay_working.period_days,
        loaded.lifecycle_decay_working.step,
        loaded.lifecycle_retention.working,
    )
    assert 0.04 == loaded.lifecycle_decay_semantic.step
    for text, key, line, said in (
        ("[lifecycle.decay.workng]\nstep = 1\n", "lifecycle.decay.workng.step", 2, "[lifecycle.decay.working]"),
        ("[lifecycle.decay.working]\nperiod = 1\n", "lifecycle.decay.working.period", 2, "did you mean period_days?"),
        ("[lifecycle.decay.working]\nstep = 1.5\n", "lifecycle.decay.working.step", 2, "<= 1"),
        ("[lifecycle.retention]\nworking = 0\n", "lifecycle.retention.working", 2, "> 0"),
        ("[lifecycle]\nsummarize = 'maybe'\n", "lifecycle.summarize", 2, "llm, extractive, off"),
        ("[lifecycle.decay]\nstep = 1\n", "lifecycle.decay.step", 2, "unknown section"),
    ):
        write(tmp_path, text)
        with pytest.raises(errors.ConfigError) as refused:
            config.load(tmp_path, {})
        assert (key, line) == (refused.value.key, refused.value.line)
        assert said in str(refused.value)


def test_an_owner_may_have_a_zone_of_their_own(tmp_path: Path) -> None:
    """It holds for whoever is named, is taken over without a restart, and a zone that does not exist is refused."""
    write(tmp_path, '[memory]\ntimezone = "Europe/Berlin"\n[owners."mara.k@home"]\ntimezone = "Asia/Tokyo"\n')
    loaded = config.load(tmp_path, {})
    assert ("Asia/Tokyo", "Europe/Berlin") == (loaded.zone_of("mara.k@home").key, loaded.zone_of("jon").key)
    taken = config.merge(config.load(tmp_path / "none", {}), loaded)
    assert (("owners",), "Asia/Tokyo") == (taken.applied, taken.config.zone_of("mara.k@home").key)
    for text, key, said in (
        ('[owners."mara"]\ntimezone = "Asia/Tokio"\n', "owners.mara.timezone", "did you mean Asia/Tokyo?"),
        ('[owners."mara"]\nzone = "Asia/Tokyo"\n', "owners.mara.zone", "did you mean timezone?"),
        ('[owners]\ntimezone = "Asia/Tokyo"\n', "owners.timezone", "stands below no owner"),
    ):
        write(tmp_path, text)
        with pytest.raises(errors.ConfigError, match=re.escape(said)) as refused:
            config.load(tmp_path, {})
        assert key == refused.value.key


def test_an_owner_may_have_a_token_of_their_own(tmp_path: Path) -> None:
    """It is seen nowhere, a table of it alone needs no zone, and what would be two people's is refused."""
    hers = "hers-of-sixteen!"
    write(tmp_path, f'[owners."mara"]\ntoken = "{hers}"\n[owners."jon"]\ntimezone = "Asia/Tokyo"\n')
    loaded = config.load(tmp_path, {})
    assert ["", hers] == [one.token.reveal() for _, one in loaded.owners]
    assert hers not in repr(loaded)
    assert loaded.memory.zone == loaded.zone_of("mara")
    for text, key, said in (
        (f'[owners.a]\ntoken = "{hers}"\n[owners.b]\ntoken = "{hers}"\n', "owners.b.token", "is that of owners.a, too"),
        (f'[api]\ntoken = "{hers}"\n[owners.a]\ntoken = "{hers}"\n', "owners.a.token", "is that of api.token, too"),
        (f'[owners.a]\ntoken = "{hers[:-1]}"\n', "owners.a.token", "is shorter than 16 characters"),
        ("[owners.a]\ntoken = 7\n", "owners.a.token", "Expected a text"),
    ):
        write(tmp_path, text)
        with pytest.raises(errors.ConfigError, match=re.escape(said)) as refused:
            config.load(tmp_path, {})
        assert key == refused.value.key
        assert hers[:-1] not in str(refused.value) + refused.value.hint
