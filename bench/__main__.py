"""`python -m bench`: measure, print one table, keep it beside the figures as JSON."""

from __future__ import annotations

import argparse
import importlib
import shutil
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from bench import baseline, daemon, intake, lifecycle, meaning, measure, owners, reflection, retrieval, roots, table
from bench.table import Figure

PARTS = (
    "baseline",
    "start",
    "roots",
    "large",
    "locomo",
    "meaning",
    "slow",
    "builtin",
    "intake",
    "owners",
    "lifecycle",
    "recall",
    "retrieval",
    "extraction",
    "reflection",
)
USUAL = tuple(part for part in PARTS if part not in ("recall", "retrieval", "extraction"))
"""What is measured unless told otherwise. The others take long: graphs of 100,000 vectors, a model that embeds whole
conversations several times. `reflection` embeds them once, and what is new in the narratives: about ten minutes on idle cores, an
hour and more where they are shared."""
SLOW_SIZES = (1_000, 10_000)

Part = tuple[str, Callable[[], Iterator[Figure]]]


def parts(folder: Path, chosen: list[str], sizes: list[int]) -> Iterator[Part]:
    """Yield the chosen measurements in order."""
    if "baseline" in chosen:
        yield "baseline", lambda: baseline.measure(folder / "baseline")
    if "start" in chosen:
        yield "start", lambda: measure.cold_start(folder)
    if "roots" in chosen:
        yield from _of_sizes("root of", measure.root_of, folder, sizes)
    if "large" in chosen:
        yield "19 MB file", lambda: measure.large_file(folder)
    if "meaning" in chosen:
        yield from _of_sizes("vectors of", meaning.root_of, folder, sizes)
    if "slow" in chosen:
        yield from _of_sizes("slow provider,", meaning.slow, folder, [size for size in SLOW_SIZES if size in sizes])
    if "builtin" in chosen:
        yield "built-in model", lambda: meaning.builtin(folder)
    if "recall" in chosen:
        # Imported when asked for: it runs the index in this process, and NumPy with it.
        yield "recall", lambda: importlib.import_module("bench.recall").figures(folder / "recall", sizes)
    yield from _memories(folder, chosen)
    yield from _conversations(folder, chosen)


def _memories(folder: Path, chosen: list[str]) -> Iterator[Part]:
    """Yield what is measured of making memories, and of reflecting on them."""
    if "intake" in chosen:
        yield "intake", lambda: intake.speed(folder)
    if "owners" in chosen:
        yield f"reflection over {owners.N_OWNERS:,} owners", lambda: owners.idle_run(folder)
    if "lifecycle" in chosen:
        yield f"passes over {lifecycle.N_MEMORIES:,} memories", lambda: lifecycle.passes(folder)


def _of_sizes(
    name: str, run: Callable[[Path, int], Iterator[Figure]], folder: Path, sizes: Sequence[int]
) -> Iterator[Part]:
    for size in sizes:
        yield f"{name} {size:,}", lambda size=size: run(folder, size)  # type: ignore[misc]


def _conversations(folder: Path, chosen: list[str]) -> Iterator[Part]:
    """Yield what is measured on LoCoMo, where there is one."""
    wanted = [name for name in ("locomo", "retrieval", "extraction", "reflection") if name in chosen]
    source = roots.locomo_path()
    if wanted and source is None:
        print(f"LoCoMo left out: set {roots.LOCOMO_VARIABLE} to its JSON file to measure on it", file=sys.stderr)
        return
    if "locomo" in wanted and source is not None:
        yield "LoCoMo", lambda: measure.locomo(folder, source)
    if "retrieval" in wanted and source is not None:
        yield "retrieval", lambda: retrieval.measure(folder / "retrieval", source)
    if "extraction" in wanted and source is not None:
        yield "extraction", lambda: intake.quality(folder / "extraction", source)
    if "reflection" in wanted and source is not None:
        yield "reflection", lambda: reflection.measure(folder / "reflection", source)


def main() -> int:
    """Measure what was asked for; 1 when something could not be measured, 2 when a budget was missed with --strict."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--sizes", default="1000,10000,100000", help="entries of the roots, e.g. 1000,10000")
    parser.add_argument("--only", default=",".join(USUAL), help=f"parts, of {', '.join(PARTS)}")
    parser.add_argument("--out", type=Path, help="folder for bench.md and bench.json")
    parser.add_argument("--keep", type=Path, help="folder for the roots and logs, kept afterwards")
    parser.add_argument("--strict", action="store_true", help="exit with 2 when a budget is missed")
    options = parser.parse_args()
    if not daemon.installed().exists():
        print(f"there is no {daemon.installed()}: `make dev` installs it", file=sys.stderr)
        return 1
    folder = options.keep or Path(tempfile.mkdtemp(prefix="everosd-bench-"))
    measure.make_way(folder)
    figures: list[Figure] = []
    failures: list[str] = []
    try:
        for name, run in parts(folder, options.only.split(","), [int(size) for size in options.sizes.split(",")]):
            print(f"measuring: {name} …", file=sys.stderr, flush=True)
            try:
                for figure in run():
                    print(f"  {figure.name}: {table.number(figure.value)} {figure.unit}", file=sys.stderr, flush=True)
                    figures.append(figure)
            except (daemon.Failed, OSError) as error:
                traceback.print_exception(error)
                failures.append(f"{name}: {error}")
    finally:
        if options.keep is None:
            shutil.rmtree(folder, ignore_errors=True)
    report = table.markdown(figures) + "".join(f"\nnot measured: {failure}\n" for failure in failures)
    print(report)
    if options.out is not None:
        options.out.mkdir(parents=True, exist_ok=True)
        (options.out / "bench.md").write_text(report, encoding="utf-8")
        (options.out / "bench.json").write_bytes(table.encoded(figures))
    if failures:
        return 1
    return 2 if options.strict and any(figure.is_met is False for figure in figures) else 0


if __name__ == "__main__":
    sys.exit(main())
