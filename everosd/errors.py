"""The errors of everosd: one root, branches by what the caller can do about it.

Constructors take data and build the sentence; `hint` says what to type next; the cause stays in `__cause__`.
"""

from __future__ import annotations

from pathlib import Path


class EverosdError(Exception):
    """Root of all errors that everosd raises on purpose."""

    hint: str = ""
    """What the person can do, as an imperative sentence; empty where there is nothing to do."""


class ConfigError(EverosdError):
    """The TOML or an environment variable is wrong; the settings in force stay."""

    def __init__(self, file: str, key: str, reason: str, *, line: int | None = None, hint: str = "") -> None:
        """Name the file, the dotted key (may be empty) and what is wrong with it."""
        where = file if line is None else f"{file}:{line}"
        super().__init__(f"{where}: {key}: {reason}" if key else f"{where}: {reason}")
        self.file, self.key, self.reason, self.line = file, key, reason, line
        self.hint = hint or f"correct {file} and save it"


class RootError(EverosdError):
    """The memory root cannot be used: missing, unreadable, not a directory, on a vanished mount."""

    def __init__(self, root: str, reason: str, *, hint: str = "") -> None:
        """Name the root and what is wrong with it."""
        super().__init__(f"{root}: {reason}")
        self.root, self.reason, self.hint = root, reason, hint


class LockHeld(EverosdError):
    """Another daemon serves this root, or a command works on its files."""

    def __init__(self, root: str, *, pid: int | None, port: int | None) -> None:
        """Name the holder as far as its lock file tells; only a daemon has a port."""
        holder = "another process" if pid is None else f"everosd with pid {pid}"
        if port is None:
            super().__init__(f"{root} is in use by {holder}, which does not listen: a command, or a daemon that starts")
            self.hint = "wait until it has ended, then type the same again"
        else:
            super().__init__(f"{root} is already served by {holder} on port {port}")
            self.hint = "use that daemon, or stop it first" + ("" if pid is None else f" (kill {pid})")
        self.root, self.pid, self.port = root, pid, port


class PortTaken(EverosdError):
    """The address to listen on is in use or not allowed."""

    def __init__(self, host: str, port: int, reason: str) -> None:
        """Name the address and what the system said."""
        super().__init__(f"cannot listen on {host}:{port}: {reason}")
        self.host, self.port = host, port
        self.hint = f"stop what listens on port {port}, or choose another with --port or [api] port"


class LogError(EverosdError):
    """A file of the log cannot be read or written; other files go on."""

    def __init__(self, path: str, reason: str, *, line: int | None = None, hint: str = "") -> None:
        """Name the file, the 1-based line where one is known, and the reason."""
        super().__init__(f"{path}: {reason}" if line is None else f"{path}:{line}: {reason}")
        self.path, self.reason, self.line, self.hint = path, reason, line, hint


class WriteRefused(LogError):
    """The daemon will not touch this file: broken frontmatter, no permission, read-only or full disk."""


class StoreError(EverosdError):
    """The ledger cannot be read or written."""


class StoreRefused(StoreError):
    """The disk takes nothing of the ledger: it is full or read-only. Goes on by itself once it does."""


class SchemaTooNew(StoreError):
    """The ledger was made by a newer everosd; this one refuses to start."""

    def __init__(self, found: int, known: int) -> None:
        """Name both versions."""
        super().__init__(f"the ledger has schema {found}, this everosd knows up to {known}")
        self.found, self.known = found, known
        self.hint = "install the newer everosd, or move .index/ away to rebuild it from the Markdown"


class DerivedIndexError(EverosdError):
    """An index is damaged or out of step: rebuild that index, never touch the Markdown."""

    def __init__(self, index: str, reason: str) -> None:
        """Name the index and what is wrong."""
        super().__init__(f"index {index}: {reason}")
        self.index, self.reason = index, reason
        self.hint = "it is rebuilt from the ledger by itself; `everosd rebuild` does it at once"


class IndexUnavailable(EverosdError):
    """An index cannot be read or written now (permission, I/O, full disk): nothing was wiped, try again later."""

    def __init__(self, index: str, reason: str) -> None:
        """Name the index and what the system said."""
        super().__init__(f"index {index}: {reason}")
        self.index, self.reason = index, reason
        self.hint = "free space or mend the permissions of .index/; it is taken up again by itself"


class WrongWidth(EverosdError):
    """Vectors of one width met an index of another: the model of queries is not the one that the index was made with."""

    def __init__(self, given: int, known: int, space: str) -> None:
        """Name both widths, and the space of the index."""
        super().__init__(f"the vector is {given} wide, the vectors of the index are {known} wide: {space}")
        self.given, self.known, self.space = given, known, space
        self.hint = "set [embedding] model and dim to what the index was made with, or wait until it is made anew"


class NoVectors(EverosdError):
    """Vectors were asked for, and no model is set up that makes them."""

    def __init__(self) -> None:
        """Say so."""
        super().__init__("no model turns texts into vectors")
        self.hint = 'set [embedding] model = "builtin", or the name of an endpoint\'s model'


class LLMError(EverosdError):
    """A model did not give what was asked of it; what was asked is kept and asked again."""


class LLMUnavailable(LLMError):
    """The provider cannot be reached, is overloaded, refuses the key, or hangs: the same request may succeed later."""

    def __init__(self, provider: str, reason: str, *, retry_after_s: float | None = None, hint: str = "") -> None:
        """Name the provider, what went wrong, and when it said that it may be asked again."""
        super().__init__(f"{provider}: {reason}")
        self.provider, self.reason, self.retry_after_s = provider, reason, retry_after_s
        self.hint = hint or "it is asked again by itself; `everosd doctor` tries it now"


class LLMRejected(LLMError):
    """The provider refuses this very request, or its answer is unusable: another request may succeed."""

    def __init__(self, provider: str, reason: str, *, is_final: bool = False) -> None:
        """Name the provider and what is wrong; `is_final`: it will say no more about this text than it did."""
        super().__init__(f"{provider}: {reason}")
        self.provider, self.reason, self.is_final = provider, reason, is_final
        self.hint = "another text may be taken; `everosd doctor` asks the model for one"


class QueueSaturated(EverosdError):
    """More work waits than may: nothing of the request was taken."""

    def __init__(self, what: str, n_waiting: int, limit: int) -> None:
        """Name what waits, and how much of it may."""
        super().__init__(f"{n_waiting} requests of {what} wait, {limit} may")
        self.hint = "send the same again in a while, or raise [memorize.async_queue] max_pending_*"


class PayloadTooLarge(EverosdError):
    """A request is larger than its route takes."""

    def __init__(self, n_bytes: int, limit: int, key: str) -> None:
        """Name both sizes and the setting."""
        super().__init__(f"the body has {n_bytes} bytes, {key} allows {limit}")
        self.hint = f"send it in parts, or raise {key}"


class CapabilityMissing(EverosdError):
    """What is asked for needs a part that is not there."""


MAX_SAID = 1000
"""Characters of a request that a refusal repeats: nobody who sends 200 KB needs to have them back."""


class RequestError(EverosdError):
    """A request cannot be answered as asked: the caller must change it."""

    def __init__(self, message: str, *, field: str = "") -> None:
        """Say what is wrong; `field` is the dotted name of the field at fault, put at the end of the message.

        What was sent may stand in both, however long it is: they are cut.
        """
        message, field = (f"{one[:MAX_SAID]}…" if len(one) > MAX_SAID else one for one in (message, field))
        super().__init__(f"{message}: {field}" if field else message)
        self.field = field


class Conflict(EverosdError):
    """What was asked for is at odds with what has happened since; nothing was changed."""

    def __init__(self, message: str, *, hint: str = "") -> None:
        """Say what stands in the way, and what can be done about it."""
        super().__init__(message)
        self.hint = hint


class ConfirmationRequired(EverosdError):
    """What was asked for cannot be undone, and was not confirmed; nothing was changed."""

    def __init__(self, what: str, hint: str) -> None:
        """Say what would be done, and how it is confirmed."""
        super().__init__(f"{what}; {hint}")
        self.hint = hint


class NotFound(EverosdError):
    """What was named does not exist in that scope."""


def describe(error: BaseException) -> str:
    """Return what an error says, or only where it arose: a stranger's words may hold what was being worked on."""
    if isinstance(error, EverosdError):
        return str(error)
    name = type(error).__name__
    if isinstance(error, OSError) and error.strerror:
        name = f"{name}: {error.strerror}"
    place = error.__traceback__
    if place is None:
        return name
    while place.tb_next is not None:
        place = place.tb_next
    return f"{name} in {Path(place.tb_frame.f_code.co_filename).name}:{place.tb_lineno}"
