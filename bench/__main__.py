"""`python -m bench`: measure, print one table, keep it beside the figures as JSON."""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

from bench import baseline, daemon, measure, roots, table
from bench.table import Figure

PARTS = ("baseline", "start", "roots", "large", "locomo")


def parts(folder: Path, chosen: list[str], sizes: list[int]) -> Iterator[tuple[str, Callable[[], Iterator[Figure]]]]:
    """Yield the chosen measurements in order."""
    if "baseline" in chosen:
        yield "baseline", lambda: baseline.measure(folder / "baseline")
    if "start" in chosen:
        yield "start", lambda: measure.cold_start(folder)
    if "roots" in chosen:
        for size in sizes:
            yield f"root of {size:,}", lambda size=size: measure.root_of(folder, size)  # type: ignore[misc]
    if "large" in chosen:
        yield "19 MB file", lambda: measure.large_file(folder)
    if "locomo" in chosen:
        source = roots.locomo_path()
        if source is None:
            print(f"LoCoMo left out: set {roots.LOCOMO_VARIABLE} to its JSON file to measure on it", file=sys.stderr)
        else:
            yield "LoCoMo", lambda: measure.locomo(folder, source)


def main() -> int:
    """Measure what was asked for; 1 when something could not be measured, 2 when a budget was missed with --strict."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--sizes", default="1000,10000,100000", help="entries of the roots, e.g. 1000,10000")
    parser.add_argument("--only", default=",".join(PARTS), help=f"parts, of {', '.join(PARTS)}")
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
