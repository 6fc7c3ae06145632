"""Where events come from: how much of each origin is still to be done, so that it can be told when nothing is."""

from __future__ import annotations

from collections.abc import Iterable

from everosd.engine import lane as lanes


class Origins:
    """Counts what is open and what was given up, per origin."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self._open: dict[str, int] = {}
        """Events that are queued, running or to be tried again, once for each strategy."""
        self._n_dead: dict[str, int] = {}
        self.touched: dict[str, None] = {}
        """Those of which something began or ended since `drained`."""

    def is_open(self, origin: str) -> bool:
        """Tell whether anything is queued, running or to be tried again."""
        return origin in self._open

    def touch(self, origins: Iterable[str]) -> None:
        """Have `drained` look at them."""
        self.touched |= dict.fromkeys(origins)

    def count(self, origins: lanes.Origins) -> None:
        """One more is to be done."""
        for origin in lanes.each(origins):
            self._open[origin] = self._open.get(origin, 0) + 1

    def discount(self, origins: lanes.Origins | Iterable[str]) -> None:
        """One is done, or will not be."""
        for origin in lanes.each(origins) if isinstance(origins, str) else origins:
            self._open[origin] -= 1
            if not self._open[origin]:
                del self._open[origin]
            self.touched[origin] = None

    def give_up(self, origins: lanes.Origins) -> None:
        """One was given up: until it is dug out, its origin is not drained."""
        for origin in lanes.each(origins):
            self._n_dead[origin] = self._n_dead.get(origin, 0) + 1

    def dig_out(self, origins: lanes.Origins) -> None:
        """What was given up counts as such no more."""
        for origin in lanes.each(origins):
            self._n_dead[origin] -= 1
            if not self._n_dead[origin]:
                del self._n_dead[origin]

    def drained(self) -> list[str]:
        """Return origins that were touched and of which nothing is left."""
        touched, self.touched = self.touched, {}
        return [origin for origin in touched if origin not in self._open and origin not in self._n_dead]
