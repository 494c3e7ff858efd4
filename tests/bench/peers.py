"""This project beside other stores: same documents, same questions, same run, each through what its users call.

    python tests/bench/peers.py [--count 10000] [--kind clustered] [--stores rlm,chroma,…] [--json OUT]

What is not installed is left out; `pip install -r tests/bench/requirements.txt` installs all of it. Each store runs in
processes of its own. Stores are measured in turns, in another order each time, so that whatever else the machine does
slows all of them, and what is printed are medians. Embedding is excluded: vectors are looked up.

dense, hybrid, filtered   p50 of a query for 10, in ms: by vector alone, by vector and words, by vector among 1 %
recall, filt. recall      of the ten nearest by exact cosines, the share found
full                      the share of filtered queries that found 10
docs/s                    filling it, indexes and saving and closing included
add                       one document more, acknowledged and durable, in ms
open                      opening and the first query in a new process, without imports, in ms
size                      of the files, over the bytes of the texts and vectors
MB                        most memory of a process that has only asked
deleted/s                 of a fifth of the documents, 500 at once
deleted, back             the size after deleting and compacting, and after adding them again, over what it was before

CPU time, a mean per query and document, hardly depends on what else the machine does; the work of other threads counts.

`--data FOLDER` measures with LoCoMo in place of made documents: see quality.py for the folder. The exit code is 1 if a
goal is missed that could be judged with the stores at hand.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Self, get_args

import numpy as np
import synthetic
from stores import QUERIES, STORES, Rlm
from synthetic import Data

OWN: Final = "rlm"
COLUMNS: Final = {
    "hybrid": "hybrid ms",
    "dense": "dense ms",
    "recall": "recall",
    "filtered": "filtered ms",
    "full": "full",
    "filtered_recall": "filt. recall",
    "docs_per_second": "docs/s",
    "add": "add ms",
    "open": "open ms",
    "size": "size",
    "megabytes": "MB",
    "deleted_per_second": "deleted/s",
    "deleted_size": "deleted",
    "put_back_size": "back",
}
PARTS: Final = ("fill", "open", "ask", "add", "delete")
CPU_COLUMNS: Final = {
    "hybrid_cpu": "hybrid ms",
    "dense_cpu": "dense ms",
    "filtered_cpu": "filtered ms",
    "document_cpu": "document ms",
    "deletion_cpu": "deletion ms",
}
_RATIOS: Final = ("hybrid", "dense", "filtered", "docs_per_second", "add", "open", "size", "megabytes")

Figures = dict[str, float]


class StoreProcess:
    """A process with one store in it; see store_process.py for what it can be told."""

    def __init__(self, name: str, folder: Path, data: Data) -> None:
        self.name = name
        command = [
            sys.executable,
            str(Path(__file__).with_name("store_process.py")),
            name,
            str(folder),
            str(data.folder),
        ]
        quiet = {**os.environ, "PYTHONWARNINGS": "ignore", "ANONYMIZED_TELEMETRY": "False"}
        quiet.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed package is compiled: no process should do it again
        self._log = (folder.parent / f"{name}.log").open("a")
        self._process = subprocess.Popen(
            command, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log, env=quiet
        )

    def tell(self, do: str, **arguments: Any) -> dict[str, Any]:
        """Return the answer.

        Raises:
            RuntimeError: The store has raised, or the process is gone.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):  # a process that is gone does not answer: told below
            print(json.dumps({"do": do, **arguments}), file=self._process.stdin, flush=True)
        line = self._process.stdout.readline()
        answer: dict[str, Any] = json.loads(line) if line else {"error": f"the process is gone, see {self._log.name}"}
        if "error" in answer:
            raise RuntimeError(f"{self.name}, {do}: {answer['error']}")
        return answer

    def end(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()
        self._log.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()


@dataclass(frozen=True, slots=True)
class Effort:
    """How often what is repeated: each `rounds` times, but no more once a store has taken `patience` seconds of it."""

    rounds: int
    patience: float
    adds: int = 60
    opens: int = 5


class Run:
    """Measures stores in turns; what one cannot do, or fails to, has no figure."""

    def __init__(self, data: Data, names: Sequence[str], folder: Path, effort: Effort) -> None:
        self.data, self.names, self.effort = data, list(names), effort
        self.figures: dict[str, Figures] = {name: {} for name in names}
        self.failures: dict[str, str] = {}
        self.loads: dict[str, float] = {}
        self._folder = folder
        self._order = random.Random(7)

    def measure(self, parts: Sequence[str] = PARTS) -> None:
        """Measure these parts, in this order; all but the first need a store that was filled."""
        for part in parts:
            getattr(self, f"_{part}")()
            self.loads[part] = os.getloadavg()[0]

    def _where(self, name: str) -> Path:
        return self._folder / name

    def _in_turns(self, times: int, of: Iterable[str]) -> Iterator[str]:
        """Yield the names of those that have not failed `times` times each, every time in another order."""
        of = list(of)
        for _ in range(times):
            for name in self._order.sample(of, len(of)):
                if name not in self.failures:
                    yield name

    def _failed(self, name: str, error: Exception) -> None:
        self.failures[name] = str(error)
        print(error, file=sys.stderr)

    def _that_can(self, what: str) -> list[str]:
        return [name for name in self.names if what in STORES[name].can]

    # -- parts ----------------------------------------------------------------------------------------------------

    def _fill(self) -> None:
        spent: dict[str, list[float]] = {name: [] for name in self.names}
        cpu: dict[str, list[float]] = {name: [] for name in self.names}
        small = min(10_000, self.data.count)
        rates_when_small: list[float] = []
        for name in self._in_turns(self.effort.rounds, self.names):
            if sum(spent[name]) > self.effort.patience:
                continue
            try:
                answer = self._filled(name, self.data.count, self._where(name))
                spent[name].append(answer["seconds"])
                cpu[name].append(answer["cpu"])
                if name == OWN and small < self.data.count:
                    rates_when_small.append(small / self._filled(name, small, self._folder / "small")["seconds"])
            except RuntimeError as error:
                self._failed(name, error)
        for name, seconds in spent.items():
            if seconds:
                self.figures[name] |= {
                    "docs_per_second": self.data.count / statistics.median(seconds),
                    "document_cpu": 1000 * statistics.median(cpu[name]) / self.data.count,
                    "size": used_bytes(self._where(name)) / self.data.raw_bytes,
                }
        if rates_when_small:
            self.figures[OWN]["docs_per_second_at_10000"] = statistics.median(rates_when_small)

    def _filled(self, name: str, count: int, where: Path) -> dict[str, float]:
        """Fill a new store and return the seconds it took, by the clock and of the CPU."""
        shutil.rmtree(where, ignore_errors=True)
        where.mkdir(parents=True)
        with StoreProcess(name, where, self.data) as process:
            return process.tell("fill", count=count)

    def _open(self) -> None:
        spent: dict[str, list[float]] = {name: [] for name in self.names}
        for name in self._in_turns(self.effort.opens, self.names):
            if sum(spent[name]) > self.effort.patience / 4:
                continue
            try:
                with StoreProcess(name, self._where(name), self.data) as process:
                    answer = process.tell("open")
                spent[name].append(answer["open"] + answer["first"])
            except RuntimeError as error:
                self._failed(name, error)
        for name, seconds in spent.items():
            if seconds:
                self.figures[name]["open"] = 1000 * statistics.median(seconds)

    def _ask(self) -> None:
        processes = {}
        try:
            for name in self._in_turns(1, self.names):
                processes[name] = StoreProcess(name, self._where(name), self.data)
                processes[name].tell("open")
            for query in QUERIES:
                self._ask_in_turns(
                    query, {name: processes[name] for name in self._that_can(query) if name in processes}
                )
            for name, process in processes.items():
                self.figures[name]["megabytes"] = process.tell("peak")["peak_bytes"] / 1e6
        finally:
            for process in processes.values():
                process.end()

    def _ask_in_turns(self, query: str, processes: Mapping[str, StoreProcess]) -> None:
        answers: dict[str, dict[str, list[float]]] = {
            name: {"seconds": [], "cpu": [], "recalls": [], "counts": []} for name in processes
        }
        for start in range(0, synthetic.QUESTIONS, 10):
            for name in self._in_turns(1, processes):
                so_far = answers[name]
                if sum(so_far["seconds"]) > self.effort.patience / 4:
                    continue
                try:
                    answer = processes[name].tell("ask", query=query, start=start, stop=start + 10)
                except RuntimeError as error:
                    self._failed(name, error)
                    continue
                for key, values in answer.items():
                    so_far[key] += values
        for name, got in answers.items():
            if not got["seconds"]:
                continue
            own = self.figures[name]
            own[query], own[f"{query}_p95"] = (1000 * float(np.percentile(got["seconds"], p)) for p in (50, 95))
            own[f"{query}_cpu"] = 1000 * float(np.mean(got["cpu"]))
            recall = float(np.mean(got["recalls"]))
            if query == "dense":
                own["recall"] = recall
            elif query == "filtered":
                own["filtered_recall"] = recall
                own["full"] = float(np.mean(np.asarray(got["counts"]) >= self._in_group()[: len(got["counts"])]))

    def _in_group(self) -> Any:
        return np.array([len(question.nearest_in_group) for question in self.data.questions()[0]])

    def _add(self) -> None:
        spent: dict[str, list[float]] = {name: [] for name in self._that_can("add")}
        processes = {}
        try:
            for name in self._in_turns(1, spent):
                processes[name] = StoreProcess(name, self._where(name), self.data)
                processes[name].tell("open")
            for start in range(0, self.effort.adds, 10):
                for name in self._in_turns(1, processes):
                    try:
                        spent[name] += processes[name].tell("add", start=start, stop=start + 10)["seconds"]
                    except RuntimeError as error:
                        self._failed(name, error)
            for name in self._in_turns(1, processes):
                processes[name].tell("save_and_close")
        finally:
            for process in processes.values():
                process.end()
        for name, seconds in spent.items():
            if seconds:
                self.figures[name]["add"] = 1000 * statistics.median(seconds)

    def _delete(self) -> None:
        count = self.data.count // 5
        for name in self._in_turns(1, self._that_can("delete")):
            before = used_bytes(self._where(name))
            try:
                with StoreProcess(name, self._where(name), self.data) as process:
                    process.tell("reopen")
                    answer = process.tell("delete", count=count)
                    self.figures[name]["deleted_per_second"] = count / answer["seconds"]
                    self.figures[name]["deletion_cpu"] = 1000 * answer["cpu"] / count
                    process.tell("compact")
                    process.tell("save_and_close")
                self.figures[name]["deleted_size"] = used_bytes(self._where(name)) / before
                if "add" in STORES[name].can:
                    with StoreProcess(name, self._where(name), self.data) as process:
                        process.tell("reopen")
                        process.tell("extend", start=0, stop=count)
                        process.tell("save_and_close")
                    self.figures[name]["put_back_size"] = used_bytes(self._where(name)) / before
            except RuntimeError as error:
                self._failed(name, error)


def used_bytes(folder: Path) -> int:
    """Return what the files of a folder take of the disk."""
    return sum(512 * path.stat().st_blocks for path in folder.rglob("*") if path.is_file())


# -- goals --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Goal:
    """What is asked for; `bound` and `met` are None where a store that it depends on was not measured."""

    figure: str
    asked: str
    value: float | None
    bound: float | None
    met: bool | None


class Judge:
    """Compares this project's figures with the goals for so many documents."""

    def __init__(self, count: int, figures: Mapping[str, Figures]) -> None:
        self._count, self._figures = count, figures
        self._own = figures.get(OWN, {})
        self.goals: list[Goal] = []

    def at_most(self, figure: str, asked: str, bound: float | None) -> None:
        value = self._own.get(figure)
        met = None if value is None or bound is None else value <= bound
        self.goals.append(Goal(figure, f"at most {asked}", value, bound, met))

    def at_least(self, figure: str, asked: str, bound: float | None) -> None:
        value = self._own.get(figure)
        met = None if value is None or bound is None else value >= bound
        self.goals.append(Goal(figure, f"at least {asked}", value, bound, met))

    def times(self, factor: float, peer: str, figure: str) -> float | None:
        value = self._figures.get(peer, {}).get(figure)
        return None if value is None else factor * value

    def fastest(self, factor: float, figure: str, peers: Iterable[str]) -> tuple[str, float | None]:
        known = {peer: self._figures[peer][figure] for peer in peers if figure in self._figures.get(peer, {})}
        if not known:
            return "the fastest", None
        best = min(known, key=lambda peer: known[peer])
        return best, factor * known[best]

    def judge(self) -> list[Goal]:
        """Return the goals, those for 100,000 documents from 50,000 on."""
        large = self._count >= 50_000
        self._queries(large)
        if large:
            self.at_least(
                "docs_per_second", "0.8 x its own rate at 10,000", self.times(0.8, OWN, "docs_per_second_at_10000")
            )
        else:
            for factor, peer in ((1.5, "lancedb"), (0.6, "sqlitestore"), (15.0, "chroma")):
                self.at_least("docs_per_second", f"{factor} x {peer}", self.times(factor, peer, "docs_per_second"))
        slowest = 6.0 if large else 5.0
        self.at_most("add", f"{slowest} ms", slowest)
        factor = 1.5 if large else 1.2
        self.at_most("open", f"{factor} x sqlitevec", self.times(factor, "sqlitevec", "open"))
        self.at_most("size", "1.35 x texts and vectors", 1.35)
        self.at_most("megabytes", "150 MB + 0.3 KB a document", 150 + 0.0003 * self._count)
        self.at_least("deleted_per_second", "10,000", 10_000.0)
        self.at_most("deleted_size", "0.82 of what it was, with a fifth gone", 0.82)
        self.at_most("put_back_size", "what it was, and 2 %", 1.02)
        return self.goals

    def _queries(self, large: bool) -> None:
        peers = [name for name in self._figures if not issubclass(STORES[name], Rlm)]
        if large:
            self.at_most("hybrid", "0.03 x lancedb", self.times(0.03, "lancedb", "hybrid"))
            self.at_most("hybrid", "3 x chroma's dense", self.times(3.0, "chroma", "dense"))
        else:
            exact = [name for name in peers if self._figures[name].get("recall", 0.0) >= 0.99]
            peer, bound = self.fastest(0.25, "hybrid", exact)
            self.at_most("hybrid", f"0.25 x {peer}, of those with recall .99", bound)
            self.at_most("hybrid", "lancedb_ivfpq", self.times(1.0, "lancedb_ivfpq", "hybrid"))
        self.at_least("recall", "0.99", 0.99)
        self.at_most("dense", "0.6 x chroma", self.times(0.6, "chroma", "dense"))
        if not large:
            self.at_most("dense", "2 x faiss_hnsw", self.times(2.0, "faiss_hnsw", "dense"))
        full = [name for name in peers if self._figures[name].get("full") == 1.0]
        peer, bound = self.fastest(0.1, "filtered", full)
        self.at_most("filtered", f"0.1 x {peer}, of those that find 10", bound)
        self.at_least("full", "always 10", 1.0)
        self.at_least("filtered_recall", "exact", 1.0)


# -- printing -----------------------------------------------------------------------------------------------------


def shown(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.1f}" if abs(value) >= 20 else f"{value:.2f}"


def show(figures: Mapping[str, Figures], goals: Sequence[Goal]) -> None:
    for title, columns in (("by the clock", COLUMNS), ("CPU time of the process, all its threads", CPU_COLUMNS)):
        print(f"\n{title}\n{'':14}" + "".join(f"{label:>13}" for label in columns.values()))
        for name, own in figures.items():
            print(f"{name:14}" + "".join(f"{shown(own.get(key)):>13}" for key in columns))
    if OWN in figures:
        print(f"\n{OWN} over each\n{'':14}" + "".join(f"{COLUMNS[key]:>13}" for key in _RATIOS))
        for name, other in figures.items():
            if name != OWN:
                ratios = [
                    figures[OWN][key] / other[key] if key in other and key in figures[OWN] else None for key in _RATIOS
                ]
                print(f"{name:14}" + "".join(f"{shown(ratio):>13}" for ratio in ratios))
        print("\ngoals")
        for goal in goals:
            met = {True: "met", False: "MISSED", None: "not judged"}[goal.met]
            print(f"{met:11}{goal.figure:20}{shown(goal.value):>9}  {goal.asked} ({shown(goal.bound)})")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=10_000, help="documents: 1000, 10000, 100000, 300000, …")
    parser.add_argument("--kind", choices=get_args(synthetic.Kind), default="clustered", help="of vectors")
    parser.add_argument("--data", type=Path, help="a folder with locomo/, in place of made documents")
    parser.add_argument("--stores", help=f"of {', '.join(STORES)}; all that fit unless given")
    parser.add_argument("--parts", default=",".join(PARTS), help="what to measure")
    parser.add_argument("--rounds", type=int, default=3, help="how often each is filled")
    parser.add_argument("--patience", type=float, default=60.0, help="seconds; then it is not done again")
    parser.add_argument(
        "--work", type=Path, help="where to keep made documents and files; a temporary folder otherwise"
    )
    parser.add_argument("--json", type=Path, help="write the figures here too")
    options = parser.parse_args()
    parts = options.parts.split(",")
    if parts[0] != "fill" or not set(parts) <= set(PARTS):
        parser.error(f"--parts takes some of {', '.join(PARTS)}, fill first")
    if options.stores:
        names = options.stores.split(",")
        missing = [name for name in names if name not in STORES or not STORES[name].is_installed()]
        if missing:
            parser.error(f"not known or not installed: {', '.join(missing)}")
    else:
        names = [name for name, store in STORES.items() if store.is_installed() and options.count <= store.most]
    with tempfile.TemporaryDirectory(dir=options.work) as folder:
        root = (options.work or Path(folder)) / "data"
        if options.data:
            data, kind = synthetic.real(root, options.data), "locomo"
        else:
            data, kind = synthetic.made(root, options.count, options.kind), options.kind
        run = Run(data, names, Path(folder) / "stores", Effort(rounds=options.rounds, patience=options.patience))
        for part in parts:
            run.measure([part])
            if options.json:  # after each part, since the whole may take an hour
                options.json.write_text(json.dumps(result(run, kind), indent=2), "utf-8")
    goals = Judge(data.count, run.figures).judge() if OWN in names else []
    print(f"{data.count:,} documents, {synthetic.DIMENSIONS} dimensions, {kind}")
    print("load average " + ", ".join(f"{load:.1f} after {part}" for part, load in run.loads.items()))
    show(run.figures, goals)
    return int(any(goal.met is False for goal in goals))


def result(run: Run, kind: str) -> dict[str, Any]:
    """Return all that is known so far, as it is written to a file."""
    return {
        "count": run.data.count,
        "kind": kind,
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}",
        "load": run.loads,
        "figures": run.figures,
        "failures": run.failures,
        "goals": [asdict(goal) for goal in Judge(run.data.count, run.figures).judge()],
    }


if __name__ == "__main__":
    sys.exit(main())
