"""The kill loop: a writer is killed at a random moment, and everything it had said to be safe is looked for.

Each writer restores the session that the one before left, so the session is resumed as often as it is killed.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from rlm_memory.checkpoints import CheckpointNotFoundError, CheckpointStore, RLMSession

LONGEST_LIFE = 0.12
"""Seconds: enough to restore, to save some times, and to prune."""


@dataclass(slots=True)
class Tally:
    """What a kill loop saw: kills, the half-written files that they left, the last turn and call that were safe."""

    kills: int = 0
    half_written: int = 0
    turn: int = 0
    call: int = -1


def kill_again_and_again(root: Path, kills: int, *, seed: int = 0) -> Tally:
    """Kill writers of one session, and return what was seen.

    Raises:
        AssertionError: something that was acknowledged is lost or was done twice, or the newest checkpoint is torn.
    """
    rng = random.Random(seed)
    store = CheckpointStore(root)
    tally = Tally()
    while tally.kills < kills:
        for line in _live_and_die(root, rng):
            what, _, number = line.partition(" ")
            if what == "saved":
                tally.turn = max(tally.turn, int(number))
            else:
                tally.call = max(tally.call, int(number))
        tally.kills += 1
        tally.half_written += sum(1 for _ in root.rglob(".tmp-*"))
        if tally.turn:
            _check(store, tally)
    return tally


def _live_and_die(root: Path, rng: random.Random) -> list[str]:
    """Fork a writer, kill it after a while, and return what it had acknowledged."""
    reading, writing = os.pipe()
    seed, life = rng.randrange(2**31), rng.uniform(0.005, LONGEST_LIFE)
    writer = os.fork()
    if writer == 0:
        _write_for_ever(root, seed, writing)
    os.close(writing)
    time.sleep(life)
    os.kill(writer, signal.SIGKILL)
    os.waitpid(writer, 0)
    with open(reading, encoding="ascii") as said:
        return said.read().splitlines()


def _write_for_ever(root: Path, seed: int, acknowledged: int) -> NoReturn:
    try:
        store, rng = CheckpointStore(root), random.Random(seed)
        try:
            session = RLMSession.restore("s", store=store, every=1, keep=3)
        except CheckpointNotFoundError:
            session = RLMSession("s", store=store, every=1, keep=3)
            session.checkpoint(reason="start")
        while True:
            big = np.random.default_rng(session.turn).random(rng.choice([10, 20_000, 60_000]))
            state: dict[str, Any] = {"turn": session.turn + 1, "big": big, "sum": float(big.sum())}
            session.namespace.update(state, small=["x" * rng.randint(0, 200)] * 50)
            if session.call("llm", session.turn, lambda: session.turn * 2) != session.turn * 2:
                os._exit(1)
            os.write(acknowledged, f"called {session.turn}\n".encode())
            session.end_turn()
            os.write(acknowledged, f"saved {session.turn}\n".encode())
    except BaseException as error:  # noqa: BLE001  # a forked child must never return into its parent's code
        os.write(2, repr(error).encode())
        os._exit(1)


def _check(store: CheckpointStore, tally: Tally) -> None:
    newest = store.latest("s", strict=True)
    assert newest.turn >= tally.turn, f"turn {tally.turn} was acknowledged; the newest is {newest.turn}"
    assert newest.repl_state["turn"] == newest.turn
    assert float(newest.repl_state["big"].sum()) == newest.repl_state["sum"]
    entries = store.journal("s").entries()
    turns = {entry["id"]: entry["turn"] for entry in entries if entry["event"] == "begin"}
    done = [turns[entry["id"]] for entry in entries if entry["event"] == "done"]
    assert len(done) == len(set(done)), "a call that had finished was made again"
    assert set(range(tally.call + 1)) <= set(done), "a call that was acknowledged is not in the journal"
    assert [finding for finding in store.verify("s") if finding.problem is not None] == []


if __name__ == "__main__":
    print(json.dumps(asdict(kill_again_and_again(Path(sys.argv[1]), int(sys.argv[2])))))
