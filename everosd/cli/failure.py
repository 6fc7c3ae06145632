"""What a command says when it fails: one message, one hint, one exit code from the daemon's table."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from typing import NoReturn

from everosd import errors

INTERRUPTED = 130
"""Of a shell, for Ctrl-C."""


def ends(command: Callable[[], int | None]) -> NoReturn:
    """Run a command and end the process with its code, or with that of its error."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and stream.errors == "strict":
            stream.reconfigure(errors="backslashreplace")  # a terminal that lacks a letter is no reason to fail
    try:
        code = command()
    except errors.EverosdError as error:
        print(f"everosd: {error}", file=sys.stderr)
        if error.hint:
            print(f"         {error.hint}", file=sys.stderr)
        sys.exit(exit_code(error))
    except OSError as error:
        if (failed := exit_code(error)) == 1:
            raise  # not a matter of disks: a bug, and its traceback is wanted
        print(f"everosd: {error}", file=sys.stderr)
        sys.exit(failed)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    sys.exit(code or 0)


def exit_code(error: Exception) -> int:
    """Return the exit code of an error, from the daemon's table."""
    from everosd import daemon

    return daemon.exit_code(error)
