"""What goes in comes out: values, types, identities, in this process and by way of another."""

from __future__ import annotations

import datetime
import struct
import subprocess
import threading
import zipfile
from collections.abc import Callable, Iterator
from decimal import Decimal
from fractions import Fraction
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings

from checkpoints.graphs import graphs
from checkpoints.processes import command, environment
from checkpoints.same import difference
from rlm_memory.checkpoints import RLMCheckpoint, Unrestored, UnsavableValueError, dumps, loads


@pytest.fixture(scope="module")
def elsewhere() -> Iterator[Callable[[bytes], bytes]]:
    """A process with another hash seed that decodes and encodes again."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command("echo_process"), env=environment(), **pipes) as process:
        assert process.stdin is not None
        assert process.stdout is not None

        def ask(data: bytes) -> bytes:
            process.stdin.write(struct.pack(">Q", len(data)) + data)
            process.stdin.flush()
            return process.stdout.read(struct.unpack(">Q", process.stdout.read(8))[0])

        yield ask
        process.stdin.close()


def heap_of(data: bytes) -> bytes:
    return zipfile.ZipFile(BytesIO(data)).read("heap.json")


@settings(max_examples=150)
@given(graphs())
def test_any_graph_comes_back_as_it_was(graph: Any) -> None:
    assert difference(graph, loads(dumps(graph, strict=True), strict=True)) is None


@settings(max_examples=60)
@given(graph=graphs())
def test_any_graph_comes_back_by_way_of_another_process(graph: Any, elsewhere: Callable[[bytes], bytes]) -> None:
    assert difference(graph, loads(elsewhere(dumps(graph)), strict=True)) is None


@settings(max_examples=60)
@given(graphs())
@example({5, 13})  # one place in the table of a set is meant for both members: the first one gets it
@example(
    [{Fraction(-19), Fraction(-3)}, {Decimal(5), Decimal(13)}, {datetime.date(2026, 1, day) for day in range(1, 30)}]
)
def test_what_was_read_is_written_as_the_same_bytes(graph: Any) -> None:
    first = dumps(graph)
    assert heap_of(dumps(loads(first))) == heap_of(first)


def test_a_set_holds_numbers_of_any_length() -> None:
    members = {10**5000, Fraction(10**5000, 3), 1}
    assert loads(dumps(members, strict=True), strict=True) == members


def test_variables_that_share_an_object_share_it_again(tmp_path: Path) -> None:
    """Answers B118."""
    numbers = [1, 2, 3]
    state = {"numbers": numbers, "alias": numbers, "view": {"of": numbers}}
    path = RLMCheckpoint(session_id="s", repl_state=state, working_memory={"n": numbers}).save(tmp_path / "a.rlmc")
    loaded = RLMCheckpoint.load(path)
    loaded.repl_state["numbers"].append(4)
    assert loaded.repl_state["alias"] == loaded.repl_state["view"]["of"] == [1, 2, 3, 4]
    assert loaded.working_memory["n"] is loaded.repl_state["numbers"]


def test_views_of_an_array_see_each_others_changes() -> None:
    base = np.arange(12.0).reshape(3, 4)
    back, rows, mirrored = loads(dumps([base, base[1:], base[:, ::-1]]))
    back[2, 0] = 99
    assert rows[1, 0] == 99
    assert mirrored[2, 3] == 99


def test_a_part_that_cannot_be_saved_loses_only_itself() -> None:
    back = loads(dumps({"keep": [1, 2], "lost": [1, threading.Lock()]}))
    assert back["keep"] == [1, 2]
    assert back["lost"][0] == 1
    assert isinstance(back["lost"][1], Unrestored)


def test_a_part_that_cannot_be_saved_is_named_when_the_caller_is_strict() -> None:
    """Answers B108, B133."""
    with pytest.raises(UnsavableValueError, match=r"value\['a'\]\[1\] \(_thread.lock\)"):
        dumps({"a": [1, threading.Lock()]}, strict=True)


def test_an_object_that_breaks_when_it_is_looked_at_is_reported() -> None:
    class Hostile:
        def __getattribute__(self, name: str) -> Any:
            raise RuntimeError("no \ud83d")

        def __repr__(self) -> str:
            raise RuntimeError("no")

    back = loads(dumps([1, Hostile(), 2]))
    assert back[0] == 1
    assert back[2] == 2
    assert isinstance(back[1], Unrestored)


def test_nesting_of_any_depth_neither_overflows_nor_changes() -> None:
    nested: list[Any] = []
    for _ in range(100_000):
        nested = [nested]
    back = loads(dumps(nested))
    depth = 0
    while back:
        (back,) = back
        depth += 1
    assert depth == 100_000
