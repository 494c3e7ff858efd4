"""The state that golden files hold; a released version's file is written once and never again.

python -m checkpoints.golden_state tests/checkpoints/golden/1.0.rlmc
"""

from __future__ import annotations

import datetime as dt
import sys
from collections import Counter, OrderedDict, defaultdict, deque, namedtuple
from decimal import Decimal
from fractions import Fraction
from pathlib import PurePosixPath
from typing import Any
from uuid import UUID

import numpy as np

from rlm_memory.checkpoints import RLMCheckpoint
from rlm_memory.checkpoints.sources import Sources

KEY = "the key of the golden files"
CELL = """
import math
from dataclasses import dataclass

@dataclass
class Hit:
    doc: str
    score: float = 0.5

def best(hits, floor=0.1):
    return max((hit for hit in hits if hit.score > floor), key=lambda hit: hit.score)

hits = [Hit('a'), Hit('b', 0.9)]
top = best(hits)
"""


def state() -> tuple[dict[str, Any], Sources]:
    """Return variables of every kind that needs no other library, and the cell that made the code among them."""
    namespace: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(CELL, "<cell>", "exec", dont_inherit=True), namespace)
    sources = Sources()
    sources.add(CELL, namespace)
    point = namedtuple("Point", "x y", module="__main__")
    shared = [1, 2]
    cycle: list[Any] = ["me"]
    cycle.append(cycle)
    base = np.arange(12.0).reshape(3, 4)
    namespace.update(
        atoms=[None, True, -7, 10**400, 0.1, float("nan"), float("-inf"), -0.0, 1 + 2j, "é\x00\ud800", b"\x00\xff"],
        containers=[(1, (2,)), {3, "x"}, frozenset({4}), {1: "a", (2, 3): None}, deque([1], maxlen=3)],
        collections=[defaultdict(list, a=[1]), Counter("aab"), OrderedDict(b=1, a=2), point(1, [2])],
        times=[dt.datetime(2026, 12, 2, 3, 4, 5, 6, tzinfo=dt.UTC), dt.date(2026, 1, 1), dt.timedelta(-1, 2, 3)],
        numbers=[Decimal("1.10"), Fraction(1, 3), UUID(int=5), range(0, 9, 2), slice(1, None)],
        others=[PurePosixPath("/a/b"), ..., ValueError("x", 1), len, namespace["math"]],
        alias=shared,
        shared=shared,
        cycle=cycle,
        long_text="word " * 20_000,
        base=base,
        view=base[::2, 1:],
        objects=np.array([1, "a", None], dtype=object),
    )
    return namespace, sources


def main(path: str) -> None:
    namespace, sources = state()
    namespace["lost"] = (number for number in range(3))
    RLMCheckpoint(
        session_id="golden",
        repl_state=namespace,
        working_memory={"goal": ("compare", 1)},
        messages=[{"role": "user", "content": "hello"}],
        turn=5,
        cost_so_far=0.125,
        created_at=dt.datetime(2026, 12, 2, tzinfo=dt.UTC),
        checkpoint_id="0" * 32,
        sources=sources,
    ).save(path, trust=KEY)


if __name__ == "__main__":
    main(sys.argv[1])
