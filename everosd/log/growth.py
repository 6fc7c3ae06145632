"""What this process appended to the files that only machines write, state by state.

From one state to another the file has grown by our own rows and by nothing else: whoever has read the first need not read
it again to know the second. A change from outside in the very moment of an append (the same clock tick, the size
unchanged) cannot be seen in this; who relies on it compares the bytes from time to time.
"""

from __future__ import annotations

import collections
import threading

from everosd import types
from everosd.log import file

_MAX_FILES = 64
_MAX_STATES = 512
"""Per file: as far as a reader may be behind."""


class Growth:
    """The appends of one writer. Every method may be called from any thread."""

    def __init__(self) -> None:
        """Start knowing of none."""
        self._states: collections.OrderedDict[types.RelPath, collections.deque[file.Identity]] = (
            collections.OrderedDict()
        )
        self._lock = threading.Lock()

    def grew(self, path: types.RelPath, before: file.Identity, after: file.Identity, n_bytes: int) -> None:
        """Note an append: the file was in one state just before it, and is in another one just after it."""
        with self._lock:
            states = self._states.setdefault(path, collections.deque(maxlen=_MAX_STATES))
            if not states or states[-1] != before or before.size + n_bytes != after.size:
                states.clear()
                states.append(before)
            if before.size + n_bytes == after.size:
                states.append(after)
            self._states.move_to_end(path)
            if len(self._states) > _MAX_FILES:
                self._states.popitem(last=False)

    def reaches(self, path: types.RelPath, before: file.Identity, after: file.Identity) -> bool:
        """Tell whether the file came from one state to another by our own appends alone."""
        with self._lock:
            states = tuple(self._states.get(path, ()))
            return before in states and after in states[states.index(before) :]
