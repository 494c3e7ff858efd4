"""Kill processes that search in a session and report outcomes, at random moments, and look for every report.

    python tests/crash/accesses.py --kills 200 [--seed 0]

Each process opens the store and searches with `session=`, tells the outcomes of its runs, and now and then ends the
session or reads what it has accessed, while the accesses are written down in the background. It says on a pipe what it
has reported once the call has returned, and only then goes on, until it is killed. Then the next one goes on, with the
same sessions and the same file. Beside them lives a process that now and then writes down what it finds reported, also
in the middle of their lines. In the end the store is opened again: every access and every outcome that was acknowledged
is there exactly once, no report is there twice, and `check` is clean. Exits with a traceback when that is not so. Needs
fork().
"""

from __future__ import annotations

import argparse
import contextlib
import json
import multiprocessing
import random
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

import apsw
from store import live_and_die

from rlm_memory import Memory

TOPICS: Final = ("tea", "rivers", "music", "trains", "bread")
NODES: Final = 40
SESSIONS: Final = ("morning", "noon", "evening")
FOUND: Final = 3
LIVES: Final = (0.02, 0.6)
"""Seconds after which a process is dead at the latest: before anything is written down, or after several times."""
TAKEN_IN_EVERY: Final = 0.05


class Use(NamedTuple):
    """An access: what was handed out in which run. Each run is one search of one process, so none comes twice."""

    session: str
    run: str
    node: str


class Verdict(NamedTuple):
    """The outcome of a run for one node."""

    session: str
    run: str
    node: str
    success: bool


def fill(path: Path) -> None:
    with Memory.open(path, embedder=None) as memory:
        memory.add(
            [f"note {number} on {TOPICS[number % len(TOPICS)]}" for number in range(NODES)],
            ids=[f"n{number}" for number in range(NODES)],
        )


# -- a process that is killed ---------------------------------------------------------------------------------------


def report(path: Path, process: str, seed: int, say: Callable[[Any], None]) -> None:
    """Search and report until killed; say each report that has returned."""
    chance = random.Random(seed)
    memory = Memory.open(path, embedder=None)
    say(["up"])
    number = 0
    while True:
        name, run = chance.choice(SESSIONS), f"{process}-{number}"
        session = memory.session(name)
        for _ in range(chance.randint(1, 6)):
            number += 1
            run = f"{process}-{number}"
            match chance.randrange(3):
                case 0:  # accesses of a search have no run, and are told apart by their turn
                    hits = memory.search(chance.choice(TOPICS), k=FOUND, session=session)
                    say(["search", name, None, [hit.id for hit in hits]])
                    continue
                case 1:
                    hits = memory.search(chance.choice(TOPICS), k=FOUND)
                    session.record(hits, run_id=run)
                    used = [hit.id for hit in hits]
                case _:
                    used = [f"n{each}" for each in chance.sample(range(NODES), FOUND)]
                    session.record_access(used, run_id=run)
            say(["access", name, run, used])
            success = chance.random() < 0.5
            match chance.randrange(3):
                case 0:
                    session.record_outcome(success, run_id=run)
                    say(["outcome", name, run, success])
                case 1:
                    session.outcome(success, run_id=run)  # at once, in a transaction
                    say(["outcome", name, run, success])
        match chance.randrange(4):
            case 0:
                session.end()
            case 1:
                memory.accesses("n1")


def take_in(path: Path) -> None:
    """Write down what others report, until killed."""
    memory = Memory.open(path, embedder=None)
    while True:
        memory.sessions()
        time.sleep(TAKEN_IN_EVERY)


@contextlib.contextmanager
def beside(work: Callable[[Path], None], path: Path) -> Iterator[None]:
    """Have a process do this work meanwhile."""
    process = multiprocessing.get_context("fork").Process(target=work, args=(path,), daemon=True)
    process.start()
    try:
        yield
        assert process.is_alive(), "the process beside failed; its error is above"
    finally:
        process.kill()
        process.join()


# -- the process that kills -----------------------------------------------------------------------------------------


def expect_every_report(path: Path, said: list[Any]) -> tuple[int, int]:
    """Fail if a report that was acknowledged is not there exactly once; return how many accesses and outcomes were."""
    uses = {Use(session, run, id) for kind, session, run, ids in said if kind == "access" for id in ids}
    verdicts = {(session, run): success for kind, session, run, success in said if kind == "outcome"}
    nodes_of: dict[tuple[str, str], list[str]] = {}
    for use in uses:
        nodes_of.setdefault((use.session, use.run), []).append(use.node)
    judged = {
        Verdict(session, run, node, success)
        for (session, run), success in verdicts.items()
        for node in nodes_of[session, run]
    }
    searched = Counter((session, id) for kind, session, _, ids in said if kind == "search" for id in ids)

    with Memory.open(path, embedder=None) as memory:
        problems = list(memory.check())
        assert not problems, problems
        stored = [access for number in range(NODES) for access in memory.accesses(f"n{number}")]
        for node in memory.list(limit=NODES, include_archived=True):
            counted = sum(access.node_id == node.id for access in stored)
            assert node.access_count == counted, f"{node.id} counts {node.access_count}, {counted} are listed"
    turns = Counter((access.session_id, access.writer, access.turn, access.node_id) for access in stored)
    assert max(turns.values()) == 1, f"there twice: {turns.most_common(3)}"
    found = Counter(
        Use(access.session_id, access.run_id, access.node_id) for access in stored if access.run_id is not None
    )
    assert found.keys() >= uses, f"lost: {sorted(uses - found.keys())[:5]}"
    assert max(found.values()) == 1, f"there twice: {found.most_common(3)}"
    without_run = Counter((access.session_id, access.node_id) for access in stored if access.run_id is None)
    assert without_run >= searched, f"lost: {searched - without_run}"

    with contextlib.closing(apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)) as connection:
        outcomes = Counter(
            Verdict(session, run, node, bool(success))
            for session, run, node, success in connection.execute(
                "SELECT s.id, o.run_id, n.id, o.success FROM outcomes o JOIN nodes n USING (node) "
                "JOIN sessions s USING (session)"
            )
        )
    assert outcomes.keys() >= judged, f"lost: {sorted(judged - outcomes.keys())[:5]}"
    assert max(outcomes.values(), default=1) == 1, f"there twice: {outcomes.most_common(3)}"
    unknown = len(stored) - len(uses) - searched.total()
    assert unknown >= 0
    return len(uses) + searched.total(), len(judged)


def kill(folder: Path, kills: int, seed: int) -> dict[str, int]:
    """Kill so many processes one after the other; return what came of it."""
    chance = random.Random(seed)
    path = folder / "store.db"
    fill(path)
    said: list[Any] = []
    queued = 0
    with beside(take_in, path):
        for number in range(kills):
            life = chance.choice(LIVES) * chance.random()
            said += live_and_die(life, partial(report, path, f"p{number}", chance.randrange(1 << 30)))[1:]
            queued += any("-accesses-" in entry.name for entry in folder.iterdir())
            if number % 20 == 19:
                expect_every_report(path, said)
    accesses, outcomes = expect_every_report(path, said)
    left = [entry.name for entry in folder.iterdir() if "-accesses-" in entry.name]
    assert not left, f"left beside the store: {left}"
    return {"kills": kills, "with reports still queued": queued, "accesses": accesses, "outcomes": outcomes}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        print(json.dumps(kill(Path(folder), options.kills, options.seed)))


if __name__ == "__main__":
    main()
