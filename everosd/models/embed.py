"""What every embedder offers, whether it runs in a process of ours or at a provider's."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol, TypeAlias

from everosd import errors, types

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Vectors: TypeAlias = "NDArray[np.float32]"
"""`(n, dim)` float32, rows of length 1; or `(dim,)` for one text."""


class Embedder(Protocol):
    """Turns texts into vectors. All calls come from the event loop, any number at once.

    Every call raises:
        LLMUnavailable: not now; the same call may succeed later, not before `retry_after_s` where that is said.
        LLMRejected: not these texts: refused, or answered with something that is no vector.
        ConfigError: the endpoint gives another width than the settings ask for; both are named.
    """

    name: str
    """What people are shown, e.g. `builtin` or the endpoint's model and host."""
    batch_size: int
    """Texts that one call of `passages` may bring."""
    max_concurrent: int
    """Calls of `passages` that are worth having under way at once."""

    async def start(self) -> None:
        """Do what the first call would have to wait for; asks the model nothing, and need not be called."""

    def expect(self, space: types.Space) -> bool:
        """Take it that the vectors to come are of `space`, if that may be so; asks nobody.

        Where the model gives others after all, `passages` says so (LLMRejected).
        """

    async def probe(self) -> types.Space:
        """Return the space of the vectors to come; asks the model where only it can tell."""

    async def passages(self, texts: Sequence[str]) -> Vectors:
        """Return `(len(texts), dim)`: vectors of texts that are stored. Sent again where that may help."""

    async def query(self, text: str) -> Vectors:
        """Return `(dim,)`: the vector of a text that is looked for. Never waits behind `passages`, never sent again."""

    async def close(self) -> None:
        """Release connections and processes; calls under way fail with LLMUnavailable."""


def digest(text: str) -> bytes:
    """Return 16 bytes that stand for one text."""
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()


class Arrays:
    """NumPy for one embedder: imported with the first vector, since a root without entries needs none."""

    def __init__(self, provider: str, load: Callable[[], object] | None = None) -> None:
        """Import nothing yet; errors name `provider`. `load` is called in a thread and brings NumPy with what it does."""
        self._provider, self._load = provider, load or _numpy
        self._is_loaded = False

    async def load(self) -> None:
        """Import it beside the event loop; what imports it afterwards waits for nothing.

        Raises:
            LLMUnavailable: it cannot be imported.
        """
        if self._is_loaded:
            return
        try:
            await asyncio.to_thread(self._load)
        except (ImportError, RuntimeError) as error:  # the latter on a processor that it was not built for
            raise errors.LLMUnavailable(self._provider, str(error), hint="install everosd again") from error
        self._is_loaded = True


def _numpy() -> None:
    import numpy as np  # noqa: F401


def checked(provider: str, vectors: Vectors, n_texts: int, dim: int | None) -> Vectors:
    """Return vectors with rows of length 1, if they can be used.

    Raises:
        LLMRejected: wrong count, wrong width, not finite, or nothing but zeros.
    """
    import numpy as np

    given = np.asarray(vectors, dtype=np.float32)
    if given.ndim != 2 or given.shape[0] != n_texts:  # noqa: PLR2004  # rows and columns
        raise errors.LLMRejected(provider, f"gave {given.shape[0] if given.ndim else 0} vectors for {n_texts} texts")
    if dim is not None and given.shape[1] != dim:
        raise errors.LLMRejected(provider, f"gave vectors of {given.shape[1]} numbers, not of {dim}")
    with np.errstate(over="ignore", invalid="ignore"):
        lengths = np.linalg.norm(given, axis=1, keepdims=True)
    if not np.isfinite(lengths).all() or not lengths.all():
        raise errors.LLMRejected(provider, "gave a vector that is empty, zero or not finite")
    unit: Vectors = given / lengths
    return unit
