"""What the daemon says of itself: structlog to standard error, for a terminal, a program or journald.

Events are static names with fields. Equal complaints are written a few times and then counted, so that a cause that
lasts an hour is a line a minute; libraries that log through `logging` go the same way.
"""

from __future__ import annotations

import contextlib
import importlib
import logging
import os
import sys
import time
from collections.abc import Callable, Mapping, MutableMapping
from types import ModuleType
from typing import TYPE_CHECKING, Any, TextIO

import msgspec

from everosd import config


def _import_without(name: str, unwanted: str) -> ModuleType:
    """Import a module as if `unwanted`, which it would use but does not need, were not installed."""
    if name in sys.modules or unwanted in sys.modules:
        return importlib.import_module(name)
    sys.modules[unwanted] = None  # type: ignore[assignment]  # how Python is told that there is none
    try:
        return importlib.import_module(name)
    finally:
        del sys.modules[unwanted]


if TYPE_CHECKING:
    import structlog
else:
    # For coloured tracebacks, which nobody reads in a journal, rich and pygments cost 0.05 s of the start and 6 MB.
    structlog = _import_without("structlog", "rich")

LEVELS: dict[str, int] = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}
PRIORITIES: dict[str, int] = {"debug": 7, "info": 6, "warning": 4, "error": 3, "critical": 2}
"""Of syslog, which journald reads from `<n>` at the start of a line (`sd-daemon(3)`)."""
BURST = 3
"""Equal complaints that are written before counting begins."""
GONE = "ClientDisconnect"
"""Exception of Starlette, on which the SDK of MCP stands: who asked hung up before everything was sent. No fault of ours."""
MAX_CAUSES = 500
"""Causes that are counted at a time; more than that is itself the news, and they are written."""

Event = MutableMapping[str, Any]


class RepeatLimiter:
    """A structlog processor: equal warnings and errors are written `BURST` times a window, then summed up.

    Equal means: same level, event and cause (`reason`, `error` or the exception's class). The path or id at fault may
    differ: a thousand files on a full disk have one cause. `flush` gives the sums of windows that are over.
    """

    def __init__(self, window_s: float, *, now_s: Callable[[], float] = time.monotonic) -> None:
        """Count in windows of `window_s`."""
        self._window_s = window_s
        self._now_s = now_s
        self._seen: dict[tuple[str, str, str], tuple[float, int]] = {}

    def __call__(self, _logger: object, _name: str, event: Event) -> Event:
        """Pass an event on, or count it and raise `DropEvent`."""
        level = str(event.get("level", ""))
        if PRIORITIES.get(level, 7) > PRIORITIES["warning"]:
            return event
        key = (level, str(event.get("event", "")), _cause(event))
        began_s, count = self._seen.get(key, (self._now_s(), 0))
        if self._now_s() - began_s >= self._window_s:
            self._seen.pop(key, None)
            if count > BURST:
                event["repeats"] = count - BURST
            began_s, count = self._now_s(), 0
        if key in self._seen or len(self._seen) < MAX_CAUSES:
            self._seen[key] = (began_s, count + 1)
        if count >= BURST:
            raise structlog.DropEvent
        return event

    def flush(self) -> list[tuple[str, str, str, int]]:
        """Forget windows that are over and return `(level, event, cause, n_repeats)` of those with repeats."""
        now_s = self._now_s()
        over = [key for key, (began_s, _) in self._seen.items() if now_s - began_s >= self._window_s]
        counted = [(*key, self._seen.pop(key)[1] - BURST) for key in over]
        return [summary for summary in counted if summary[3] > 0]


class _Forward(logging.Handler):
    """Hands records of libraries on to structlog."""

    def emit(self, record: logging.LogRecord) -> None:
        """Log the record as one event; never raises into the library."""
        level = record.levelname.lower() if record.levelname.lower() in LEVELS else "error"
        trouble = record.exc_info
        if trouble and trouble[0] is not None and trouble[0].__name__ == GONE:
            level, trouble = "debug", None
        log = structlog.get_logger()
        with contextlib.suppress(Exception):
            getattr(log, level)("library_message", library=record.name, reason=record.getMessage(), exc_info=trouble)


class _Stream:
    """Standard error that may be gone (`everosd serve 2>&1 | head`): what nobody reads is dropped."""

    def __init__(self, target: TextIO) -> None:
        """Write to `target`."""
        self._target = target

    def write(self, text: str) -> None:
        """Write, or not."""
        with contextlib.suppress(OSError, ValueError):
            self._target.write(text)

    def flush(self) -> None:
        """Flush, or not."""
        with contextlib.suppress(OSError, ValueError):
            self._target.flush()


def _fault(_logger: object, _name: str, event: Event) -> Event:
    """Let through what carries a traceback.

    Raises:
        DropEvent: it carries none.
    """
    if not event.get("exc_info"):
        raise structlog.DropEvent
    return event


def set_up(
    settings: config.Log,
    *,
    target: TextIO | None = None,
    environ: Mapping[str, str] = os.environ,
    only_faults: bool = False,
) -> RepeatLimiter:
    """Point structlog and `logging` at `target` (standard error); may be called again with other settings.

    With `only_faults` nothing is written but what carries a traceback.
    Returns the limiter, whose `flush` somebody has to call now and then (`sum_up`).
    """
    stream = target or sys.stderr
    form = settings.format if settings.format != "auto" else _form(stream, environ)
    limiter = RepeatLimiter(settings.repeat_window_s)
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            *([_fault] if only_faults else []),
            limiter,
            *_shape(form, stream),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(LEVELS[settings.level]),
        logger_factory=structlog.WriteLoggerFactory(_Stream(stream)),  # type: ignore[arg-type]  # write and flush are all it calls
        cache_logger_on_first_use=False,  # a reload changes the level of loggers that exist
    )
    root = logging.getLogger()
    root.handlers[:] = [_Forward()]
    root.setLevel(max(logging.WARNING, LEVELS[settings.level]))
    logging.captureWarnings(capture=True)
    return limiter


def logger(name: str) -> structlog.typing.FilteringBoundLogger:
    """Return the logger of a module; what `set_up` says later holds for it too."""
    found: structlog.typing.FilteringBoundLogger = structlog.get_logger(name)
    return found


def sum_up(limiter: RepeatLimiter) -> None:
    """Write one line for each cause whose repeats were held back and whose window is over."""
    for level, event, cause, n_repeats in limiter.flush():
        structlog.get_logger().info("repeats_held_back", of=event, level_of=level, cause=cause, repeats=n_repeats)


def _form(stream: TextIO, environ: Mapping[str, str]) -> str:
    """Choose by who reads: journald (it names our stream's device and inode), a person, a program."""
    with contextlib.suppress(OSError, ValueError):
        found = os.fstat(stream.fileno())
        if environ.get("JOURNAL_STREAM") == f"{found.st_dev}:{found.st_ino}":
            return "journald"
        if stream.isatty():
            return "console"
    return "json"


def _shape(form: str, stream: TextIO) -> list[Any]:
    """Return the last processors: time, traceback, text."""
    stamp = structlog.processors.TimeStamper(fmt="iso", utc=True)
    if form == "console":
        is_coloured = stream.isatty() and "NO_COLOR" not in os.environ
        plain = structlog.dev.plain_traceback
        return [stamp, structlog.dev.ConsoleRenderer(colors=is_coloured, exception_formatter=plain)]
    if form == "journald":
        fields = structlog.processors.LogfmtRenderer(key_order=["event"], bool_as_flag=False)
        return [structlog.processors.format_exc_info, _prioritised(fields)]
    return [stamp, structlog.processors.format_exc_info, structlog.processors.JSONRenderer(serializer=_json)]


def _prioritised(render: Callable[[Any, str, Event], str]) -> Callable[[object, str, Event], str]:
    """Put journald's priority before the line that `render` makes, which then needs no level of its own."""

    def line(logger: object, name: str, event: Event) -> str:
        priority = PRIORITIES.get(str(event.pop("level", "")), 6)
        return f"<{priority}>{render(logger, name, event)}"

    return line


def _json(event: object, **_: object) -> str:
    """Encode an event; what JSON does not know is shown as text."""
    return msgspec.json.encode(event, enc_hook=str).decode()


def _cause(event: Event) -> str:
    """Return what an event says about why."""
    for field in ("reason", "error"):
        if field in event:
            return str(event[field])
    failure = event.get("exc_info")
    if failure is True:
        failure = sys.exc_info()[1]
    if isinstance(failure, tuple):
        failure = failure[1]
    return type(failure).__name__ if failure else ""
