"""Progress: a bar in a terminal, lines in a pipe, nothing for what is over at once."""

from __future__ import annotations

import functools
import io
from pathlib import Path

import pytest

from everosd.api import admin, schema
from everosd.cli import asking, client, node, progress


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        """Say so."""
        return True


def test_short_work_shows_nothing() -> None:
    """Work under a second leaves no trace, in a pipe or a terminal."""
    for stream in (io.StringIO(), Terminal()):
        with progress.Progress("reading", stream=stream) as shown:
            shown.update(1, 2)
        assert stream.getvalue() == ""


def test_a_pipe_gets_plain_lines() -> None:
    """In a pipe there is nothing but lines: no escape codes, no carriage returns; the last figure is among them."""
    stream = io.StringIO()
    with progress.Progress("reading", stream=stream, shown_after_s=0) as shown:
        shown.update(1, 2_000)
        shown.update(2_000, 2_000)
    assert stream.getvalue() == "reading: 1 of 2,000\nreading: 2,000 of 2,000\n"


def test_lines_do_not_flood_a_pipe() -> None:
    """A thousand updates within a moment are two lines."""
    stream = io.StringIO()
    with progress.Progress("reading", stream=stream, shown_after_s=0) as shown:
        for done in range(1_000):
            shown.update(done, 0)
    assert stream.getvalue() == "reading: 0\nreading: 999\n"


def test_a_failure_is_not_followed_by_a_last_figure() -> None:
    """Work that fails does not look finished."""
    stream = io.StringIO()
    shown = progress.Progress("reading", stream=stream, shown_after_s=0)
    shown.update(1, 2)
    shown.__exit__(RuntimeError, RuntimeError(), None)
    assert stream.getvalue() == "reading: 1 of 2\n"


def test_the_stage_of_long_work_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the daemon says is under way stands beside the figures."""

    def ask(_root: Path, _method: str, _path: str, _body: object, on_line: client.LineSink) -> client.Answer:
        on_line(client.decoded(schema.ENCODER.encode(admin.Step(stage="text", done=1, total=2))))
        return client.Answer(status=200, body={"result": {"files": 3}})

    stream = io.StringIO()
    monkeypatch.setattr(node, "ask", ask)
    monkeypatch.setattr(
        "everosd.cli.progress.Progress", functools.partial(progress.Progress, stream=stream, shown_after_s=0)
    )
    assert {"files": 3} == asking.work(Path("/r"), "rebuild", "rebuilding", {})[0]
    assert "rebuilding text: 1 of 2\n" == stream.getvalue()


def test_a_terminal_gets_a_bar_that_goes_away() -> None:
    """In a terminal there is a bar, and it is gone at the end."""
    stream = Terminal()
    with progress.Progress("reading", stream=stream, shown_after_s=0) as shown:
        shown.update(1, 2)
        assert "reading" in stream.getvalue()
    assert "\x1b[" in stream.getvalue()
