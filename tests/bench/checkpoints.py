"""Measure checkpoints of a 10 MB session beside pickle, cloudpickle and LangGraph's serializer.

    python tests/bench/checkpoints.py

Times are the best of `--runs`, in milliseconds; sizes are megabytes (10^6 bytes). Exits with 1 when a gate is missed:
save in 1 s, load in 0.5 s, 10 MB on disk, and a second checkpoint with one changed variable in a quarter of the first.
"""

from __future__ import annotations

import argparse
import pickle
import random
import sys
import tempfile
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from rlm_memory.checkpoints import CheckpointStore, RLMCheckpoint

GATES = {"save ms": 1000.0, "load ms": 500.0, "MB on disk": 10.0, "second / first": 0.25}


def rlm_state() -> dict[str, Any]:
    """Return what an RLM has after some turns: a context and its chunks, records with tuples, vectors, documents."""
    rng = random.Random(1)
    words = [f"{rng.choice('bcdfglmnprst')}{rng.choice('aeiou')}{number}" for number in range(5_000)]
    context = " ".join(rng.choice(words) for _ in range(800_000))[:4_000_000]
    chunks = [context[start : start + 2_000] for start in range(0, len(context), 2_000)]
    records = [
        {
            "id": number,
            "name": f"record {number}",
            "score": rng.random(),
            "span": (number, number + 10),
            "tags": {number % 7},
        }
        for number in range(10_000)
    ]
    state: dict[str, Any] = {"context": context, "context_0": context, "chunks": chunks, "records": records, "turn": 5}
    state["vectors"] = np.random.default_rng(0).random((500, 384), dtype=np.float32)
    if find_spec("langchain_core"):
        from langchain_core.documents import Document

        state["documents"] = [
            Document(page_content=chunk[:200], metadata={"n": n}) for n, chunk in enumerate(chunks[:500])
        ]
    return state


def states() -> dict[str, dict[str, Any]]:
    """Return the states that are measured, about 10 MB each."""
    rows = [
        {"id": number, "user": {"name": f"u{number}", "age": number % 90}, "items": [number, {"k": f"v{number}"}]}
        for number in range(40_000)
    ]
    return {
        "RLM session": rlm_state(),
        "nested records": {"rows": rows},
        "array": {"a": np.random.default_rng(0).random(1_250_000)},
        "text": {"t": rlm_state()["context"] * 2 + "tail" * 500_000},
    }


def best(function: Callable[[], Any], runs: int) -> tuple[float, Any]:
    """Return the shortest time in milliseconds, and what the last run returned."""
    times, result = [], None
    for _ in range(runs):
        began = time.perf_counter()
        result = function()
        times.append((time.perf_counter() - began) * 1000)
    return min(times), result


def others() -> dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]]:
    """Return the other serializers that are installed: a function that writes, and one that reads."""
    found: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
        "pickle": (lambda state: pickle.dumps(state, 5), pickle.loads)
    }
    if find_spec("cloudpickle"):
        import cloudpickle

        found["cloudpickle"] = (cloudpickle.dumps, cloudpickle.loads)
    if find_spec("langgraph"):
        from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

        serializer = JsonPlusSerializer(allowed_msgpack_modules=None)
        found["JsonPlusSerializer"] = (serializer.dumps_typed, serializer.loads_typed)
    return found


def measure(state: dict[str, Any], runs: int) -> list[tuple[str, str, str, str]]:
    """Return a row each: name, milliseconds to save, milliseconds to load, megabytes."""
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.rlmc"
        saved, _ = best(lambda: RLMCheckpoint(session_id="s", repl_state=state).save(path), runs)
        loaded, _ = best(lambda: RLMCheckpoint.load(path), runs)
        rows.append(("checkpoint", f"{saved:.0f}", f"{loaded:.0f}", f"{path.stat().st_size / 1e6:.2f}"))
    for name, (write, read) in others().items():
        try:
            saved, content = best(lambda write=write: write(state), runs)
            loaded, back = best(lambda read=read, content=content: read(content), runs)
        except Exception as error:  # noqa: BLE001  # that it fails is what is to be shown
            rows.append((name, f"{type(error).__name__}: {error}"[:60], "", ""))
            continue
        size = len(content[1] if isinstance(content, tuple) else content)
        lossy = "" if _same_types(state, back) else " (types lost)"
        rows.append((name + lossy, f"{saved:.0f}", f"{loaded:.0f}", f"{size / 1e6:.2f}"))
    return rows


def _same_types(state: dict[str, Any], back: Any) -> bool:
    record = state.get("records", [None])[0]
    other = back.get("records", [None])[0]
    return record is None or all(type(record[key]) is type(other[key]) for key in record)


def gates(runs: int) -> dict[str, float]:
    """Return the figures that are promised for the session of an RLM."""
    state = rlm_state()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.rlmc"
        saved, _ = best(lambda: RLMCheckpoint(session_id="s", repl_state=state).save(path), runs)
        loaded, _ = best(lambda: RLMCheckpoint.load(path), runs)
        store = CheckpointStore(Path(folder) / "store")
        sizes = [0]
        for turn in (5, 10):
            store.put(RLMCheckpoint(session_id="s", repl_state={**state, "turn": turn}, turn=turn))
            sizes.append(sum(each.stat().st_size for each in store.root.rglob("*") if each.is_file()))
        return {
            "save ms": saved,
            "load ms": loaded,
            "MB on disk": path.stat().st_size / 1e6,
            "second / first": (sizes[2] - sizes[1]) / sizes[1],
        }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=3)
    runs = parser.parse_args().runs
    print("| state | serializer | save ms | load ms | MB |\n|---|---|---|---|---|")
    for name, state in states().items():
        pickled = len(pickle.dumps(state, 5)) / 1e6
        for row in measure(state, runs):
            print(f"| {name} ({pickled:.1f} MB pickled) | " + " | ".join(row) + " |")
    missed = 0
    for name, figure in gates(runs).items():
        missed += figure > GATES[name]
        print(f"{'ok  ' if figure <= GATES[name] else 'MISS'} {name}: {figure:.4g} (gate {GATES[name]:g})")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
