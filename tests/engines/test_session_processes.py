"""One session in two processes at the same time."""

from __future__ import annotations

from pathlib import Path

from processes import started
from rlm_memory import Memory

USES = 40


def test_a_session_of_two_processes_is_one_and_keeps_the_uses_and_turns_of_both(store_path: Path) -> None:
    """B135"""
    with Memory.open(store_path, embedder=None) as memory:
        memory.add(["Oslo is in Norway.", "Paris is in France."], ids=["oslo", "paris"], confidence=0.9)
    program = """
        path, uses = sys.argv[1], int(sys.argv[2])
        memory = Memory.open(path, embedder=None)
        session = memory.session("shared")
        print("ready", flush=True)
        sys.stdin.readline()
        for number in range(uses):
            memory.search("Norway", k=1, session=session)
            session.record_access("paris", run_id=f"{os.getpid()}-{number}")
            if number % 10 == 5:
                session.record_outcome(True, run_id=f"{os.getpid()}-{number}")
                memory.sessions()  # writes down what both have reported
        memory.close()
    """
    processes = [started(program, store_path, USES) for _ in range(2)]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    for process in processes:
        process.communicate(timeout=60)
    assert [process.returncode for process in processes] == [0, 0]
    with Memory.open(store_path, embedder=None) as memory:
        [record] = memory.sessions()
        assert (record.id, record.turn, record.ended_at) == ("shared", 2 * USES, None)
        for id, turns in (("oslo", range(1, 2 * USES, 2)), ("paris", range(2, 2 * USES + 1, 2))):
            by_writer: dict[str, list[int]] = {}
            for access in memory.accesses(id):
                by_writer.setdefault(access.writer, []).append(access.turn)
            assert [sorted(found) for found in by_writer.values()] == [list(turns)] * 2
            assert memory.get(id)[0].access_count == 2 * USES
        assert len({access.run_id for access in memory.accesses("paris")}) == 2 * USES
        moved = [entry.decision.node_id for entry in memory.promotion_log() if entry.decision.moved]
        assert sorted(moved) == ["oslo", "paris"], "each rose once, though both processes saw its second use"
        found = {condition.name: condition.found for condition in memory.explain_promotion("paris").conditions}
        assert (found["distinct sessions"], found["successful outcomes"]) == (1, 8)
        assert memory.check()
