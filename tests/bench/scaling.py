"""Cost as a store grows: queries, filling, adding, opening and memory at several sizes, printed and drawn.

    python tests/bench/scaling.py [--counts 1000,10000,100000,300000] [--stores rlm] [--plot OUT.svg] [--json OUT]

Measures as peers.py does, each size for itself; `--stores` adds others to the picture. matplotlib draws it, to a PNG,
an SVG or whatever else the ending of the file says.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Final, get_args

import synthetic
from peers import Effort, Figures, Run, shown
from stores import STORES

PARTS: Final = {
    "dense": "dense, p50 ms",
    "hybrid": "hybrid, p50 ms",
    "filtered": "filter of 1 %, p50 ms",
    "docs_per_second": "filling, documents/s",
    "open": "open and first query, ms",
    "add": "one added durably, ms",
    "recall": "recall of 10",
    "megabytes": "memory of a process that asks, MB",
}

Table = Mapping[int, Mapping[str, Figures]]


def show(table: Table) -> None:
    for name in next(iter(table.values())):
        print(f"\n{name:34}" + "".join(f"{count:>12,}" for count in table))
        for key, label in PARTS.items():
            print(f"{label:34}" + "".join(f"{shown(figures[name].get(key)):>12}" for figures in table.values()))


def draw(table: Table, path: Path) -> None:
    """Draw a panel for each figure, with logarithmic axes."""
    matplotlib: Any = import_module("matplotlib")
    matplotlib.use("agg")
    pyplot: Any = import_module("matplotlib.pyplot")
    figure, panels = pyplot.subplots(2, 4, figsize=(16, 7), layout="constrained")
    for panel, (key, label) in zip(panels.flat, PARTS.items(), strict=True):
        for name in next(iter(table.values())):
            points = [(count, figures[name][key]) for count, figures in table.items() if key in figures[name]]
            if points:
                panel.plot(*zip(*points, strict=True), marker="o", label=name)
        panel.set(title=label, xlabel="documents", xscale="log")
        if key == "recall":
            panel.set_ylim(0, 1.05)
        else:
            panel.set_yscale("log")
        panel.grid(which="both", alpha=0.25)
    panels.flat[0].legend()
    figure.savefig(path)


def measured(counts: Sequence[int], names: Sequence[str], kind: synthetic.Kind, work: Path | None) -> Table:
    table = {}
    for count in counts:
        with tempfile.TemporaryDirectory(dir=work) as folder:
            data = synthetic.made((work or Path(folder)) / "data", count, kind)
            run = Run(data, names, Path(folder) / "stores", Effort(rounds=3 if count <= 10_000 else 1, patience=60))
            run.measure(("fill", "open", "ask", "add"))
            table[count] = run.figures
            loads = ", ".join(f"{load:.1f} after {part}" for part, load in run.loads.items())
            print(f"{count:,} documents, load average {loads}", file=sys.stderr)
    return table


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--counts", default="1000,10000,100000,300000", help="documents")
    parser.add_argument("--kind", choices=get_args(synthetic.Kind), default="clustered", help="of vectors")
    parser.add_argument("--stores", default="rlm", help=f"of {', '.join(STORES)}")
    parser.add_argument("--work", type=Path, help="where to keep what is made; else a temporary folder")
    parser.add_argument("--plot", type=Path, help="draw it here")
    parser.add_argument("--json", type=Path, help="write the figures here too")
    parser.add_argument("--from", dest="earlier", type=Path, help="draw what --json has written, and measure nothing")
    options = parser.parse_args()
    if options.earlier:
        table: Table = {int(count): row for count, row in json.loads(options.earlier.read_text("utf-8")).items()}
    else:
        counts = sorted(int(count) for count in options.counts.split(","))
        table = measured(counts, options.stores.split(","), options.kind, options.work)
    show(table)
    if options.plot:
        draw(table, options.plot)
    if options.json:
        options.json.write_text(json.dumps(table, indent=2), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
