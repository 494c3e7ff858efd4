"""Kill a graph before and after each call of its checkpointer, and let it go on: `python saver_kills.py FOLDER`.

For each place, a child runs the graph and kills itself there; nothing but the file is left of it. This process goes on
from the file and holds what ran against what had been acknowledged. It prints one line of JSON with the calls.
"""

from __future__ import annotations

import asyncio
import json
import operator
import os
import signal
import sys
import tempfile
import threading
from pathlib import Path
from typing import Annotated, Any, TypedDict

from langgraph.graph import END, START, StateGraph

from langchain_rlm import RLMSaver
from processes import kill_each

THREAD: Any = {"configurable": {"thread_id": "thread"}}
LARGE = "x" * 20_000
"""With each entry of the state, so that values and writes are stored in pieces."""
NODES = ("a", "b", "c", "d")


class Killed(RLMSaver):
    """Notes each call that has returned, in a file that outlives the process, and kills it at a place.

    Calls are made one at a time, so that none is under way when another is the last, and counted from 0. The place "3-"
    is before call 3, when the graph has asked for it; "3+" is after it has returned and before the graph knows.
    """

    def __init__(self, path: Path, place: str) -> None:
        super().__init__(path)
        self.acknowledged = threading.Event()
        """That the writes of `b` are."""
        self._place = place
        self._notes = path.with_suffix(".calls")
        self._count = 0
        self._turn = threading.Lock()

    def put(self, *arguments: Any) -> Any:
        return self._call(lambda: super(Killed, self).put(*arguments), "put")

    def put_writes(self, config: Any, writes: Any, task_id: str, task_path: str = "") -> None:
        names = [value[0].removesuffix(LARGE) for channel, value in writes if channel == "trail"]
        self._call(lambda: super(Killed, self).put_writes(config, writes, task_id, task_path), f"writes of {names}")
        if names == ["b"]:
            self.acknowledged.set()

    def _call(self, call: Any, name: str) -> Any:
        with self._turn:
            self._kill_at(f"{self._count}-")
            result = call()
            note(self._notes, name)
            self._kill_at(f"{self._count}+")
            self._count += 1
            return result

    def _kill_at(self, place: str) -> None:
        if self._place == place:
            os.kill(os.getpid(), signal.SIGKILL)


class Trail(TypedDict):
    trail: Annotated[list[str], operator.add]


def note(path: Path, what: str) -> None:
    with path.open("a") as notes:
        print(what, file=notes, flush=True)


def noted(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def graph(saver: RLMSaver, path: Path, before_c: Any = None) -> Any:
    """Return a -> (b and c, in one step) -> d. Each notes that it ran; c once the writes of b are there."""

    def node(name: str) -> Any:
        def run(state: Trail) -> Any:
            if name == "c" and before_c is not None:
                before_c.wait(60)
            note(path.with_suffix(".runs"), name)
            return {"trail": [name + LARGE]}

        return run

    builder = StateGraph(Trail)
    for name in NODES:
        builder.add_node(name, node(name))
    for start, end in [(START, "a"), ("a", "b"), ("a", "c"), ("d", END)]:
        builder.add_edge(start, end)
    return builder.add_edge(["b", "c"], "d").compile(checkpointer=saver)


def run(path: str, colour: str, place: str) -> None:
    """Run the graph until the place."""
    file = Path(path + ".db")
    saver = Killed(file, place)
    built = graph(saver, file, saver.acknowledged)
    given = {"trail": ["input"]}
    if colour == "sync":
        built.invoke(given, THREAD, durability="sync")
    else:
        asyncio.run(built.ainvoke(given, THREAD, durability="sync"))


def go_on(path: Path, where: str) -> None:
    """Resume from what the killed process has left, and hold it against what it was told."""
    acknowledged, ran = noted(path.with_suffix(".calls")), noted(path.with_suffix(".runs"))
    with RLMSaver(path) as saver:
        left = list(saver.list(THREAD))
        assert len(left) == acknowledged.count("put"), f"{where}: {acknowledged}"
        written = [name for name in NODES if f"writes of {[name]}" in acknowledged]
        stored = {
            value[0].removesuffix(LARGE)
            for each in left
            for _, channel, value in each.pending_writes or ()
            if channel == "trail" and value != ["input"]
        }
        assert stored == set(written), f"{where}: {stored} is not {written}"
        assert not list(saver.memory.check()), where
        if not left:
            return
        trail = [each.removesuffix(LARGE) for each in graph(saver, path).invoke(None, THREAD)["trail"]]
        assert trail == ["input", *NODES], f"{where}: {trail}"
        again = noted(path.with_suffix(".runs"))[len(ran) :]
        assert sorted(again) == [name for name in NODES if name not in written], f"{where}: {again} ran again"
        assert not list(saver.memory.check()), where


def main(folder: str) -> None:
    calls = {}
    for colour in ("sync", "async"):
        whole = os.path.join(folder, colour)
        run(whole, colour, "nowhere")
        calls[colour] = noted(Path(whole + ".calls"))
        sides = "-+" if colour == "sync" else "+"
        places = [f"{number}{side}" for number in range(len(calls[colour])) for side in sides]
        kill_each(folder, [(place, colour) for place in places], run)
        for place in places:
            go_on(Path(folder) / f"{place} {colour}.db", f"{colour}, killed at {place}")
    print(json.dumps(calls))


if __name__ == "__main__":
    if sys.argv[1:]:
        main(sys.argv[1])
    else:
        with tempfile.TemporaryDirectory() as temporary:
            main(temporary)
