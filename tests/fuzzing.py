"""What is tried with filters, questions, import files and checkpoints that chance makes, whoever throws the dice.

Hypothesis throws them in the test suite, libFuzzer in `crash/fuzz.py`. A check raises AssertionError, or anything that
is no error of ours, when something does not hold.
"""

from __future__ import annotations

import base64
import contextlib
import copy
import hashlib
import json
import re
from array import array
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from random import Random
from typing import Any, Protocol, TypeVar
from uuid import UUID

import numpy as np

from rlm_memory import Memory, RLMError
from rlm_memory.checkpoints import Limits, dumps, loads
from rlm_memory.checkpoints.container import pack, unpack
from rlm_memory.checkpoints.heap import Heap
from rlm_memory.errors import CheckpointError, InvalidFilterError
from rlm_memory.filters import Operator, matches, parse_filter
from rlm_memory.records import Encoded, ThreadCheckpoint, ThreadWrite
from support import WordEmbedder

T = TypeVar("T")
OPERATORS = [operator.value for operator in Operator]


class Dice(Protocol):
    """Where chance comes from."""

    def whole(self, low: int, high: int) -> int:
        """Return a number from `low` to `high`, both included."""
        ...

    def text(self) -> str:
        """Return any text, lone surrogates included."""
        ...


def pick(dice: Dice, options: Sequence[T]) -> T:
    return options[dice.whole(0, len(options) - 1)]


# -- values and filters ---------------------------------------------------------------------------------------------

KEYS = ["a", "b", "a.b", "tags", "", "$x", 'a"b', "node.tier", "node.type", "node.confidence", "node.created_at",
        "node.id", "node.pinned", "node.unknown", "$and", "$or", "$not", "x') OR 1=1 --"]  # fmt: skip
SCALARS: list[Any] = [None, True, False, 0, 1, -1, 1.5, 2**53 + 1, 2**70, 10**400, float("inf"), float("nan"), "", "a",
                      "x' OR 1=1 --", "%", "_", "\\", "\0", "\ud800", "task", "fact", "2026-01-01", "9" * 300,
                      b"bytes", ("a",), {1, 2}, object()]  # fmt: skip


def value(dice: Dice, depth: int = 3) -> Any:
    """Return something that stands, or should not stand, in a filter or a line of JSON."""
    match dice.whole(0, 9 if depth else 6):
        case 0:
            return dice.text()
        case 1:
            return dice.whole(-(2**63), 2**63)
        case 7:
            return [value(dice, depth - 1) for _ in range(dice.whole(0, 3))]
        case 8 | 9:
            return {key(dice): value(dice, depth - 1) for _ in range(dice.whole(0, 3))}
        case _:
            return pick(dice, SCALARS)


def key(dice: Dice) -> str:
    match dice.whole(0, 3):
        case 0:
            return dice.text()
        case 1:
            return pick(dice, OPERATORS)
        case _:
            return pick(dice, KEYS)


def wild_filter(dice: Dice, depth: int = 4) -> Any:
    """Return a filter, most of which is one in the dialect of dicts, and now and then something else."""
    match dice.whole(0, 7 if depth else 4):
        case 0:
            return value(dice)
        case 1 | 2:
            return {pick(dice, KEYS): value(dice, 2)}
        case 3 | 4:
            return {pick(dice, KEYS): {pick(dice, OPERATORS): value(dice, 2) for _ in range(dice.whole(1, 2))}}
        case 5:
            return {"$not": wild_filter(dice, depth - 1)}
        case _:
            some = [wild_filter(dice, depth - 1) for _ in range(dice.whole(0, 3))]
            return {pick(dice, ["$and", "$or", "$not"]): some, key(dice): value(dice, 1)}


METADATA: list[dict[str, Any]] = [
    {}, {"a": 1}, {"a": True}, {"a": 1.0, "b": None}, {"a": "x' OR 1=1 --"}, {"a": {"b": "a"}}, {"a.b": 2**70},
    {"tags": ["a", 1, True, None]}, {"tags": "a"}, {"": "", "$x": 0}, {'a"b': "%"}, {"a": "\0", "b": [[1], {"b": 2}]},
    {"a": 2**53 + 1}, {"a": 10**400}, {"a": []}, {"a": {}}, {"x') OR 1=1 --": "y", "b": -1},
]  # fmt: skip


class Filters:
    """A store, held to what filters mean in plain Python."""

    def __init__(self, memory: Memory) -> None:
        self.memory = memory
        texts = [f"text {number}" for number in range(len(METADATA))]
        memory.add(texts, ids=[str(number) for number in range(len(METADATA))], metadatas=METADATA)
        memory.promote("3", "longterm", reason="a tier")
        self.nodes = memory.list(limit=100)

    def check(self, parse: Callable[[], Any]) -> None:
        """Check that a filter is refused, or lets through what it should."""
        try:
            tree = parse()
        except InvalidFilterError as error:
            str(error).encode()
            return
        expected = [node.id for node in self.nodes if matches(tree, node)]
        assert [node.id for node in self.memory.list(where=tree, limit=100)] == expected
        assert self.memory.count(where=tree) == len(expected)

    def throw(self, dice: Dice) -> None:
        where = wild_filter(dice)
        self.check(lambda: parse_filter(where))


# -- questions ------------------------------------------------------------------------------------------------------

PIECES = ['"', "'", "*", "^", "(", ")", "{", "}", ":", "+", "-", ".", ",", "NEAR", "NEAR(", "AND", "OR", "NOT", "text:",
          "text", "gpu", "issues", "3.12.1", "\0", "设备", "清单", "\ud800", "é", "\u202e", "%", ";", "--", "x" * 5000,
          "rank", "nodes_fts", "\u2028", "🙂"]  # fmt: skip
TEXTS = ["the gpu had two issues", "python 3.12.1 or 3.11", "设备清单测试", "near and or not", "text rank", "é AND e"]
SYNTAX = re.compile(r'["*^(){}:+]')


class Questions:
    """A store of texts, asked by words alone: whatever the question is, all texts come back, ranked by its words."""

    def __init__(self, memory: Memory) -> None:
        self.memory = memory
        memory.add(TEXTS)

    def check(self, question: str) -> None:
        found = self._asked(question)
        assert len(found) == len(TEXTS)
        for otherwise in (question.lower(), question.upper(), SYNTAX.sub(" ", question)):
            if tuple(words(otherwise)) == tuple(words(question)):
                assert self._asked(otherwise) == found, otherwise

    def _asked(self, question: str) -> list[tuple[str, float | None]]:
        return [(hit.id, hit.keyword) for hit in self.memory.search(question, alpha=0, k=len(TEXTS))]

    def throw(self, dice: Dice) -> None:
        pieces = [dice.text() if dice.whole(0, 3) == 0 else pick(dice, PIECES) for _ in range(dice.whole(0, 8))]
        self.check(pick(dice, ["", " "]).join(pieces))


def words(text: str) -> list[str]:
    return re.findall(r"\w+", text.lower())


# -- import files ---------------------------------------------------------------------------------------------------


def told(line: bytes) -> Any:
    """Return what a line says; of its vector, whose length is made 1 each time, what rounding leaves alone."""
    said = json.loads(line)
    if "vector" in said:
        said["vector"] = np.frombuffer(base64.b64decode(said["vector"]), "<f4").round(5).tolist()
    return said


FIELDS = ["text", "id", "type", "subtype", "tier", "provenance", "confidence", "metadata", "created_at", "updated_at",
          "last_accessed", "access_count", "pinned", "vector", "message", "namespace", "format", "version", "model",
          "dimensions", "log", "edge", "session", "access", "use", "outcome", "key_value", "thread", "chunk",
          "checkpoint", "write", "sweep", "end", "tier_since", "faded_at"]  # fmt: skip


class Imports:
    """A store that reads changed exports: it has what they say, or is as it was."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.number = 0
        self.embedder = WordEmbedder(4)
        with Memory.open(":memory:", embedder=self.embedder) as memory:
            memory.add(["a cat", "a dog"], ids=["cat", "dog"], metadatas=[{"n": 1}, {"deep": [{"x": None}]}])
            memory.add("pending", compute_embedding=False, ids=["pending"])
            memory.conversations.append("chat", [{"said": "hello"}, "bye"])
            memory.promote("cat", "longterm", reason="good")
            memory.pin("dog")
            with memory.session("run") as session:
                session.record_access(["cat", "dog"], run_id="r")
                session.outcome(True, run_id="r")
            memory.lifecycle.settle()
            memory.key_values("kept").put({"key": {"deep": [1, None]}})
            threads = memory.threads("graph")
            large = Encoded("bytes", bytes(number * number % 251 for number in range(9_000)))
            threads.put(
                ThreadCheckpoint(thread_id="t", id="1", head=Encoded("bytes", b"h"), values={"a": large, "b": large})
            )
            threads.put_writes("t", "", "1", [ThreadWrite(task_id="w", place=0, channel="a", value=large)])
            memory.export(folder / "seed.jsonl")
        self.seed = (folder / "seed.jsonl").read_bytes().splitlines()[:-1]
        self._open()

    def _open(self) -> None:
        self.memory = Memory.open(":memory:", embedder=self.embedder)
        self.memory.add(["here before", "there before"], ids=["before", "dog"])
        self.memory.conversations.append("chat", ["before"])
        self.before = self._state(self.folder / "before")

    def check(self, content: bytes) -> bool:
        """Check what becomes of a file; return whether it was imported."""
        self.number += 1
        path = self.folder / f"{self.number}.jsonl"
        path.write_bytes(content)
        try:
            self.memory.import_(path)
        except RLMError as error:
            str(error).encode("utf-8", "surrogatepass")
            assert self._state(self.folder / f"{self.number}.after") == self.before
            return False
        finally:
            path.unlink()
        assert list(self.memory.check()) == []
        state = self._state(self.folder / f"{self.number}.after")
        with Memory.open(":memory:", embedder=self.embedder) as again:
            again_path = self.folder / f"{self.number}.again"
            again_path.write_bytes(b"\n".join(state) + b"\n")
            again.import_(again_path)
            again_path.unlink()
            again.export(again_path)
            assert [*map(told, again_path.read_bytes().splitlines())] == [*map(told, state)]
            again_path.unlink()
        self.memory.close()
        self._open()
        return True

    def _state(self, path: Path) -> list[bytes]:
        self.memory.export(path)
        lines = path.read_bytes().splitlines()
        path.unlink()
        return lines

    def throw(self, dice: Dice) -> None:
        lines = list(self.seed)
        for _ in range(dice.whole(0, 3)):
            lines = self._changed(dice, lines)
        if dice.whole(0, 7):  # an end that fits, or nothing would be looked at but that
            lines = sealed(lines)
        self.check(b"\n".join(lines) + pick(dice, [b"\n", b""]))

    def _changed(self, dice: Dice, lines: list[bytes]) -> list[bytes]:
        place = dice.whole(0, len(lines) - 1)
        line = lines[place]
        match dice.whole(0, 6):
            case 0:
                at = dice.whole(0, max(0, len(line) - 1))
                return [*lines[:place], line[:at] + bytes([dice.whole(0, 255)]) + line[at + 1 :], *lines[place + 1 :]]
            case 1:
                return [*lines[:place], line[: dice.whole(0, len(line))], *lines[place + 1 :]]
            case 2:
                return [*lines, line]
            case 3:
                return [*lines[:place], *lines[place + 1 :]] or [b""]
            case 4:
                other = dice.whole(0, len(lines) - 1)
                lines = list(lines)
                lines[place], lines[other] = lines[other], lines[place]
                return lines
            case _:
                try:
                    told = json.loads(line)
                except ValueError:
                    return lines
                if not isinstance(told, dict):
                    return lines
                inner = told
                if dice.whole(0, 3) and len(told) == 1 and isinstance(*told.values(), dict):
                    (inner,) = told.values()
                name = pick(dice, [*inner]) if inner and dice.whole(0, 2) else pick(dice, FIELDS)
                inner[name] = pick(dice, LINE_VALUES) if dice.whole(0, 1) else json_value(dice)
                return [*lines[:place], json.dumps(told).encode(), *lines[place + 1 :]]


def sealed(lines: list[bytes]) -> list[bytes]:
    """Return the lines of an export with the end that belongs to them."""
    content = b"".join(line + b"\n" for line in lines)
    # a line that was changed may have become several
    end = {"lines": content.count(b"\n"), "sha256": hashlib.sha256(content).hexdigest()}
    return [*lines, json.dumps({"end": end}).encode()]


LINE_VALUES: list[Any] = [
    None, True, 0, 1, -1, 2**62, 2**63, 2**70, 0.5, 1.5, 1e308, "", "cat", "dog", "\0", "\ud800", "entity", "task",
    "archive", "active", "archived", "chat", "2026-01-01T00:00:00+00:00",
    "9999-12-31T23:59:59-23:59", "0001-01-01T00:00:00+23:59",
    "2026-01-01", base64.b64encode(np.ones(4, "<f4").tobytes()).decode(), base64.b64encode(b"\0" * 16).decode(),
    base64.b64encode(np.full(4, np.inf, "<f4").tobytes()).decode(), [], {}, [[]], {"a": {"b": [1]}}, {"": None},
]  # fmt: skip


def json_value(dice: Dice, *, constants: bool = True) -> Any:
    """Return a value that JSON has, or that Python's has besides."""
    text = json.dumps(value(dice, 3), default=repr, skipkeys=True)
    return json.loads(text, parse_constant=None if constants else str)


# -- checkpoints ----------------------------------------------------------------------------------------------------

LIMITS = Limits(file=8 << 20, manifest=1 << 20, heap=4 << 20, total=16 << 20)
SLOTS: list[Any] = [
    1, -1, 0, "x", None, True, [0], [1], [99], ["global", "os:system"], ["module", "os"], ["global", "builtins:eval"],
    {}, [], 10**30, 1.5, "../x", {"blob": "x"}, "import os", {"npy": "AAAA"}, {"objects": [10**9, 0], "order": "C"},
]  # fmt: skip


def sound_values() -> list[Any]:
    """Return values of the kinds that a file can have."""
    shared = [1, "two", b"three"]
    return [
        [shared, shared, {"a": (1, {2}), (1, 2): b"x"}, complex(1, 2), 2**200, frozenset({1})],
        [np.arange(3), np.arange(6)[::2], ValueError("no"), range(3), slice(1), ..., bytearray(b"x")],
        {"deep": [[[[[["x"]]]]]], "text": "y" * 3000},
        [datetime(2026, 1, 1, tzinfo=UTC), timedelta(1), Decimal("1.5"), Fraction(1, 3), UUID(int=5), Path("a/b")],
        [
            deque([1, 2], 3),
            OrderedDict(a=1),
            Counter("ab"),
            defaultdict(list, a=[1]),
            re.compile("a+"),
            array("d", [1]),
        ],
        [np.ma.masked_array([1, 2], [0, 1]), np.random.default_rng(0), np.float32(1), np.dtype("<f8"), Random(0)],
        [np.array([[1, None], ["a", 2]], dtype=object), np.array(["a", "b"]), np.zeros(3, "M8[s]")],
        *_frames(),
    ]


def _frames() -> list[Any]:
    """Return frames, where the libraries are installed."""
    found: list[Any] = []
    with contextlib.suppress(ImportError):
        import pandas as pd

        frame = pd.DataFrame({"n": [1, 2], "s": ["a", None], "t": pd.date_range("2026", periods=2, tz="UTC")})
        found += [[frame, frame.set_index("s"), frame["n"], frame.astype({"s": "category"})]]
        found += [[pd.MultiIndex.from_product([[1, 2], ["a"]]), pd.RangeIndex(5), pd.Interval(0, 1), pd.NaT]]
    with contextlib.suppress(ImportError):
        import polars as pl

        found += [[pl.DataFrame({"n": [1, 2], "s": ["a", None]}), pl.Series("x", [1.5])]]
    return found


class Checkpoints:
    """Sound files, changed: they are refused by a typed error or are data."""

    def __init__(self) -> None:
        self.files = [dumps(each) for each in sound_values()]
        self.heaps = [unpack(file).heap for file in self.files]
        self.documents = [copy.deepcopy(heap.segments) for heap in self.heaps]

    @staticmethod
    def check(data: bytes) -> bool:
        """Check what becomes of bytes; return whether they were read."""
        try:
            loads(data, limits=LIMITS)
        except CheckpointError as error:
            str(error).encode("utf-8", "surrogatepass")
            return False
        return True

    def throw(self, dice: Dice) -> None:
        number = dice.whole(0, len(self.files) - 1)
        if dice.whole(0, 2) == 0:
            data = bytearray(self.files[number])
            for _ in range(dice.whole(1, 4)):
                data[dice.whole(0, len(data) - 1)] = dice.whole(0, 255)
            end = dice.whole(0, len(data)) if dice.whole(0, 3) == 0 else len(data)
            if self.check(bytes(data[:end])):  # what is damaged is found out, whatever the damage
                assert bytes(data[:end]) == self.files[number]
            return
        segments = copy.deepcopy(self.documents[number])
        for _ in range(dice.whole(1, 3)):
            _change_node(dice, segments[dice.whole(0, len(segments) - 1)])
        self.check(pack({}, Heap(self.heaps[number].roots, segments)))


def _change_node(dice: Dice, segment: list[Any]) -> None:
    node = pick(dice, segment)
    place = dice.whole(0, len(node) - 1)
    if place == 0:
        node[0] = pick(dice, segment)[0]
        return
    there = node[place]
    if isinstance(there, list) and there and dice.whole(0, 3):
        there[dice.whole(0, len(there) - 1)] = _slot(dice)
    elif isinstance(there, dict) and there and dice.whole(0, 3):
        there[pick(dice, [*there])] = _slot(dice)
    else:
        node[place] = _slot(dice)


def _slot(dice: Dice) -> Any:
    return json_value(dice, constants=False) if dice.whole(0, 3) == 0 else copy.deepcopy(pick(dice, SLOTS))
