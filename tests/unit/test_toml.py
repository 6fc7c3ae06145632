"""Settings files: whatever stands in one is its tables or one error that names the file."""

from __future__ import annotations

import os
import time
from pathlib import Path

import hypothesis
import pytest
from hypothesis import strategies as st

from everosd import config, errors, toml
from everosd.engine import settings
from tests import effort

DEEP = (
    "a=" + "[" * 500 + "]" * 500,
    "a=" + "{a=" * 400 + "1" + "}" * 400,
    "a=" + "[" * 33 + "]" * 33,
    "a=" + "[" * 100_000,
    ".".join("a" * 40) + "=1",
    ".".join("a" * 100_000) + "=1",
    "[" + ".".join("a" * 100_000) + "]",
    "x={" + " . ".join('"a"' for _ in range(20_000)) + "=1}",
    "[[" + ".".join("a" * 40) + "]]",
)


@pytest.mark.parametrize("text", DEEP, ids=range(len(DEEP)))
def test_what_is_nested_too_deeply_is_an_error_with_its_line_and_at_once(text: str) -> None:
    """Hundreds of brackets, tables in tables and dotted keys: said with file and line, in both files, fast."""
    before_s = time.monotonic()
    with pytest.raises(errors.ConfigError, match=r"^x.toml:2: is nested too deeply$") as raised:
        toml.read(f"# mine\n{text}", "x.toml")
    assert raised.value.hint
    (error,) = settings.read(text, "ome.toml").errors
    assert "ome.toml:1: is nested too deeply" == str(error)
    assert time.monotonic() - before_s < 5


def test_what_people_nest_is_taken() -> None:
    """Far more than any setting needs."""
    assert {"a": [[[[[]]]]], "b": {"c": {"d": 1}}} == toml.read("a=[[[[[]]]]]\nb.c.d=1", "x.toml")
    inside = "[" * (toml.MAX_DEPTH - 1) + "]" * (toml.MAX_DEPTH - 1)
    assert toml.read(f"a={inside}", "x.toml")


@pytest.mark.parametrize("text", ["a=" + "9" * 5000, "a=1\x00", "a=1979-99-99", "a", '"""'])
def test_what_is_no_toml_is_one_sort_of_error(text: str) -> None:
    """Also a number with more digits than Python reads."""
    with pytest.raises(errors.ConfigError, match=r"^x.toml(:1)?: is not TOML: "):
        toml.read(text, "x.toml")


@pytest.mark.parametrize("name", [config.FILE_NAME, settings.FILE_NAME])
def test_what_is_no_file_or_far_too_large_is_refused_unread(tmp_path: Path, name: str) -> None:
    """A pipe would have its reader wait for ever."""
    os.mkfifo(tmp_path / name)
    with pytest.raises(errors.ConfigError, match="is not a file"):
        config.read(tmp_path / name)
    (tmp_path / name).unlink()
    (tmp_path / name).write_text("#" * (toml.MAX_BYTES + 1))
    with pytest.raises(errors.ConfigError, match="is too large for settings"):
        config.read(tmp_path / name)
    with pytest.raises(errors.ConfigError, match="is too large for settings"):
        toml.read("#" * (toml.MAX_BYTES + 1), name)


PIECES = st.sampled_from((
    "[", "]", "{", "}", "=", ".", ",", "\n", '"', "'", '"""', "#", " ", "\\", "\\u12", "a", "9", "-", "inf", "nan", "true",
    "strategies", "reflect_episodes", "enabled", "cron", "gate", "memory", "timezone", "llm", "model", "api", "port",
    "2026-03-02T10:00:00", "1e999", "0x", "é", "[strategies.reflect_episodes]\n", "[memory]\n", "gate=", "cron=",
))  # fmt: skip


@hypothesis.settings(max_examples=effort.rounds(3000, 150), deadline=None)
@hypothesis.given(st.lists(PIECES, max_size=30).map("".join))
def test_nothing_that_stands_in_a_settings_file_is_a_traceback(text: str) -> None:
    """Either file: settings, or errors of the configuration."""
    settings.read(text, "ome.toml")
    try:
        config.load(Path("/nowhere"), {}, text=text)
    except errors.ConfigError as error:
        assert "everos.toml" in str(error)  # noqa: PT017  # both ways are right
