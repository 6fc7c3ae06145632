"""How long a run that failed waits for its next attempt, and whose fault it was."""

from __future__ import annotations

import errno
import random

from everosd import errors

RETRY_S, MAX_RETRY_S = 2.0, 900.0
"""Wait before the second attempt, and at most; it doubles in between."""

MAX_AWAY_S = 60.0
"""How long one waits at most while a model, the network or the disk is away."""

MAX_DOUBLINGS = 12
JITTER = 0.25
"""Waits are longer or shorter by up to this share, so that what failed together is not tried together."""

LONG = 3
"""Attempts after which it is said that something is away: vectors, for one, are often only on their way."""

MAX_ERROR = 500
"""Characters of an error that are kept."""

_AWAY = (errors.LLMUnavailable, errors.StoreError, errors.WriteRefused, errors.IndexUnavailable)
_DISK = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.EMFILE, errno.ENFILE})


def is_away(error: BaseException) -> bool:
    """Tell whether something that was needed is away: that is no fault of the work, and does not count as an attempt."""
    return isinstance(error, _AWAY) or (isinstance(error, OSError) and error.errno in _DISK)


def retry_after_s(error: BaseException) -> float | None:
    """Return how long the provider wants to be left alone; None: it did not say."""
    return error.retry_after_s if isinstance(error, errors.LLMUnavailable) else None


def wait_s(attempt: int, at_least_s: float | None) -> float:
    """Return how long to wait after so many attempts; never shorter than the provider said."""
    plain_s: float = RETRY_S * 2.0 ** min(attempt - 1, MAX_DOUBLINGS)
    spread = 1 + JITTER * random.uniform(-1, 1)  # noqa: S311  # no secret
    if at_least_s is None:
        return min(MAX_RETRY_S, plain_s * spread)
    return max(at_least_s, min(plain_s, MAX_AWAY_S) * spread)
