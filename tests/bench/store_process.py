"""One store in one process, for peers.py and scaling.py: reads commands as lines of JSON, answers each with a line.

    python store_process.py NAME FOLDER DATA

A process that only asks has nothing in it but the store and the questions, so that its memory can be told.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import resource
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from stores import STORES, Known
from synthetic import SPARE, Asked, Data

BATCH = 500


def peak_bytes() -> int:
    """Return the most memory this process has had."""
    status = Path("/proc/self/status")
    if status.exists():  # getrusage may tell of the process that this one was started by
        return 1024 * next(int(line.split()[1]) for line in status.open() if line.startswith("VmHWM"))
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


class Watch:
    """Notes how long each of its blocks takes, and how much CPU time of the whole process."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self.cpu: list[float] = []

    def __enter__(self) -> None:
        self._began = time.perf_counter(), time.process_time()

    def __exit__(self, *_: object) -> None:
        self.seconds.append(time.perf_counter() - self._began[0])
        self.cpu.append(time.process_time() - self._began[1])


class Served:
    """The commands; each returns what is answered."""

    def __init__(self, name: str, folder: Path, data: Data) -> None:
        self._known = Known()
        self._data = data
        self._store = STORES[name](folder, self._known)
        self._questions: list[Asked] = []
        self._store.load()
        self._loaded_bytes = peak_bytes()

    def fill(self, count: int) -> dict[str, Any]:
        """Make the store of the first `count` documents; embedding and reading the data are not timed."""
        watch = Watch()
        with watch:
            self._store.create()
        for batch in self._data.batches(0, count, BATCH):
            self._known.replace(batch.texts, batch.vectors)
            with watch:
                self._store.add(batch.ids, batch.texts, batch.metadatas)
        with watch:
            self._store.finish()
        stored = self._store.count()
        if stored != count:
            raise RuntimeError(f"{count} documents were added, {stored} are there.")
        with watch:
            self._store.close()
        return {"seconds": sum(watch.seconds), "cpu": sum(watch.cpu)}

    def open(self) -> dict[str, Any]:
        """Open the store and ask it one question, which is what an agent waits for after its start."""
        self._questions, vectors = self._data.questions()
        self._known.replace([question.text for question in self._questions], vectors)
        gc.collect()  # after so many imports a collection of everything is due, 0.1 s, and would strike some by chance
        start = time.perf_counter()
        self._store.open()
        opened = time.perf_counter()
        self._store.dense(self._questions[0].text)
        return {"open": opened - start, "first": time.perf_counter() - opened}

    def ask(self, query: str, start: int, stop: int) -> dict[str, Any]:
        """Ask some of the questions; tell how long each took, how many came and what share of the nearest."""
        watch, recalls, counts = Watch(), [], []
        for question in self._questions[start:stop]:
            narrowed = query == "filtered"
            ask: Callable[..., list[str]] = getattr(self._store, query)
            arguments = (question.text, question.group) if narrowed else (question.text,)
            with watch:
                found = ask(*arguments)
            nearest = question.nearest_in_group if narrowed else question.nearest
            recalls.append(len(set(nearest) & set(found)) / len(nearest))
            counts.append(len(found))
        return {"seconds": watch.seconds, "cpu": watch.cpu, "recalls": recalls, "counts": counts}

    def peak(self) -> dict[str, Any]:
        return {"peak_bytes": peak_bytes(), "loaded_bytes": self._loaded_bytes}

    def reopen(self) -> dict[str, Any]:
        self._store.open()
        return {}

    def add(self, start: int, stop: int) -> dict[str, Any]:
        """Add documents one by one, of those the store was not filled with; tell how long each took."""
        assert stop <= SPARE
        watch = Watch()
        for batch in self._data.batches(self._data.count + start, self._data.count + stop, 1):
            self._known.replace(batch.texts, batch.vectors)
            with watch:
                self._store.add(batch.ids, batch.texts, batch.metadatas)
        return {"seconds": watch.seconds}

    def delete(self, count: int) -> dict[str, Any]:
        """Delete the first documents, 500 at once."""
        watch = Watch()
        ids = [f"n{i:07d}" for i in range(count)]
        for first in range(0, count, BATCH):
            with watch:
                self._store.delete(ids[first : first + BATCH])
        return {"seconds": sum(watch.seconds), "cpu": sum(watch.cpu)}

    def compact(self) -> dict[str, Any]:
        self._store.compact()
        return {}

    def extend(self, start: int, stop: int) -> dict[str, Any]:
        """Add these documents, 500 at once."""
        for batch in self._data.batches(start, stop, BATCH):
            self._known.replace(batch.texts, batch.vectors)
            self._store.add(batch.ids, batch.texts, batch.metadatas)
        return {}

    def save_and_close(self) -> dict[str, Any]:
        if "add" not in self._store.can:  # else all is saved already
            self._store.finish()
        self._store.close()
        return {}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=STORES)
    parser.add_argument("folder", type=Path)
    parser.add_argument("data", type=Path)
    options = parser.parse_args()
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a library prints must not get among the answers
    served = Served(options.name, options.folder, Data(options.data))
    for line in sys.stdin:
        command = json.loads(line)
        try:
            answer = getattr(served, command.pop("do"))(**command)
        except Exception as error:  # noqa: BLE001  # of any library: told to who asked
            traceback.print_exc()
            answer = {"error": f"{type(error).__name__}: {error}"[:300]}
        print(json.dumps(answer), file=answers, flush=True)
    os._exit(0)  # threads of some libraries never end


if __name__ == "__main__":
    main()
