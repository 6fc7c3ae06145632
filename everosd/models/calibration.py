"""What is done to the vectors of the built-in model so that a cosine means something.

All vectors of e5 lie in a narrow cone: cosines of unrelated texts are near 0.8. Without the mean of many unrelated
texts they are near 0, and 0.6 is the same topic again. Queries and passages have prefixes of their own and so a mean of
their own: taken away together, what is left differs by the text and not by which of the two it is.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from everosd.models.embed import Vectors

NAME = "mean-1"
"""Changes with the numbers in the file: vectors of another mean cannot be compared."""

FILE = Path(__file__).with_name("e5_mean.npy")
"""`(2, dim)` float32: the means for passages and for queries, made by `python -m bench.calibration`."""


@functools.cache
def means() -> tuple[Vectors, Vectors]:
    """Return the means for passages and for queries, `(dim,)` each. Reads one small file."""
    import numpy as np

    passages, queries = np.load(FILE, allow_pickle=False)
    return passages, queries


def applied(vectors: Vectors, mean: Vectors) -> Vectors:
    """Return vectors `(n, dim)` without their mean, rows of length 1; a row that has no direction is zero."""
    import numpy as np

    rest = vectors - mean
    lengths = np.linalg.norm(rest, axis=-1, keepdims=True)
    unit: Vectors = np.divide(rest, lengths, out=np.zeros_like(rest), where=lengths > 0)
    return unit
