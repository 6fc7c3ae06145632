"""How far long work has come: a bar in a terminal, plain lines in a pipe, nothing for what is over at once."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Self, TextIO

if TYPE_CHECKING:
    from rich import progress as rich_progress

SHOWN_AFTER_S = 1.0
"""Work that takes less shows nothing."""
LINE_EVERY_S = 5.0
"""In a pipe: time between two lines, so that a log of an hour stays readable."""
TICK_S = 0.2


class Progress:
    """Shows the progress of one piece of work on standard error, so that standard output stays the answer."""

    def __init__(
        self, title: str, *, unit: str = "", stream: TextIO | None = None, shown_after_s: float = SHOWN_AFTER_S
    ) -> None:
        """Show nothing yet; `unit` is of what so many are done, `stream` standard error unless a test says otherwise."""
        self._title = title
        self._unit = f" {unit}" if unit else ""
        self._stream = sys.stderr if stream is None else stream
        self._shown_after_s = shown_after_s
        self._started_s = time.monotonic()
        self._line_s = 0.0
        self._bar: rich_progress.Progress | None = None
        self._last = (0, 0)
        self._written: tuple[int, int] | None = None

    def __enter__(self) -> Self:
        """Start the clock that decides whether anything is shown."""
        self._started_s = time.monotonic()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Take the bar away; in a pipe, finish with the last figure where lines were written."""
        if self._bar is not None:
            self._bar.stop()
        elif self._written not in (None, self._last) and kind is None:
            self._line(*self._last)

    def update(self, done: int, total: int, title: str = "") -> None:
        """Say that `done` of `total` are done; a total of 0 means that nobody knows yet. Cheap: call it often."""
        self._title = title or self._title
        self._last = (done, total)
        now_s = time.monotonic()
        if now_s - self._started_s < self._shown_after_s:
            return
        if self._stream.isatty():
            self._draw(done, total)
        elif now_s - self._line_s >= LINE_EVERY_S:
            self._line_s = now_s
            self._line(done, total)

    def _draw(self, done: int, total: int) -> None:
        """Draw the bar, made on first use: rich takes longer to import than most commands to run."""
        if self._bar is None:
            from rich import console
            from rich import progress as rich_progress

            self._bar = rich_progress.Progress(console=console.Console(file=self._stream), transient=True)
            self._bar.add_task(self._title, total=None)
            self._bar.start()
        task = self._bar.task_ids[0]
        self._bar.update(task, completed=done, total=total or None, description=self._title)

    def _line(self, done: int, total: int) -> None:
        """Write one plain line."""
        self._written = (done, total)
        of = f"{done:,} of {total:,}" if total else f"{done:,}"
        print(f"{self._title}: {of}{self._unit}", file=self._stream, flush=True)


@contextlib.contextmanager
def waiting(title: str) -> Iterator[None]:
    """Show how long something has been taking while the block runs: nobody knows how long it will."""
    began_s, over = time.monotonic(), threading.Event()
    with Progress(title, unit="s") as shown:

        def tick() -> None:
            while not over.wait(TICK_S):
                shown.update(int(time.monotonic() - began_s), 0)

        ticking = threading.Thread(target=tick, name="waiting", daemon=True)
        ticking.start()
        try:
            yield
        finally:
            over.set()
            ticking.join()
