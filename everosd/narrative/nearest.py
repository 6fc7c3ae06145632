"""Which of many sets of words have most in common with one: found from its rarest words, without counting all of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


class Nearest:
    """Sets, read once."""

    def __init__(self, sets: Iterable[frozenset[str]]) -> None:
        """Take the sets; they are named by their place."""
        self.sets: Sequence[frozenset[str]] = list(sets)
        self._having: dict[str, list[int]] = {}
        for at, one in enumerate(self.sets):
            for term in one:
                self._having.setdefault(term, []).append(at)

    def find(self, asked: frozenset[str], spared_above: float = float("inf")) -> dict[int, int]:
        """Return the sets that share most words with `asked`, and how many; none where none shares any.

        Where that is more than `spared_above`, those that share one less are among them.
        """
        lists = sorted((found for term in asked if (found := self._having.get(term))), key=len)
        counts: dict[int, int] = {}
        best = 1
        for n_read, having in enumerate(lists):
            # What none of the lists before has can share no more words than there are lists left.
            if len(lists) - n_read < _least(best, spared_above):
                break
            for at in having:
                if at not in counts:
                    counts[at] = len(asked & self.sets[at])
                    best = max(best, counts[at])
        least = _least(best, spared_above)
        return {at: n for at, n in counts.items() if n >= least}


def _least(best: int, spared_above: float) -> int:
    return best - 1 if best > spared_above else best
