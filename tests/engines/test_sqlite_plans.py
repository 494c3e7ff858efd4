"""How SQLite goes about the statements: what it walks over, told by its own plans and not by a clock."""

from __future__ import annotations

from pathlib import Path

import apsw
import pytest

from rlm_memory import Memory
from rlm_memory.engines.sqlite import statements
from rlm_memory.engines.sqlite.extension import load_vec0

LISTS = sorted(
    name
    for name, value in vars(statements).items()
    if name.isupper() and isinstance(value, str) and "json_each(?) AS wanted" in value
)


@pytest.fixture
def connection(tmp_path: Path) -> apsw.Connection:
    path = tmp_path / "memory.db"
    with Memory.open(path, embedder=None) as memory:
        memory.add([f"text {i}" for i in range(200)], embeddings=[[1.0, i] for i in range(200)])
    connection = apsw.Connection(str(path))
    load_vec0(connection)
    return connection


def plan(connection: apsw.Connection, sql: str) -> list[str]:
    for parameters in range(sql.count("?") + 1):
        try:
            return [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {sql}", [None] * parameters)]
        except apsw.BindingsError:
            continue  # a numbered parameter may stand in a statement more than once
    raise AssertionError(f"no number of parameters fits {sql}")


@pytest.mark.parametrize("name", LISTS)
def test_a_bound_list_is_walked_once_and_each_entry_looked_up(connection: apsw.Connection, name: str) -> None:
    # without CROSS JOIN, SQLite walked over all nodes of the namespace and the whole list for each of them
    steps = [step for step in plan(connection, getattr(statements, name)) if "USE TEMP B-TREE" not in step]
    assert steps[0].startswith("SCAN wanted"), steps
    assert not [step for step in steps[1:] if step.startswith("SCAN")], steps


@pytest.mark.parametrize("name", ["SELECT_INDEX", "COUNT_WITH_VECTOR", "SELECT_PENDING"])
def test_what_needs_no_text_reads_no_text(connection: apsw.Connection, name: str) -> None:
    steps = plan(connection, getattr(statements, name))
    assert any("nodes_by_place" in step for step in steps), steps


def test_the_log_of_a_node_is_found_by_its_node(connection: apsw.Connection) -> None:
    assert any("promotion_log_by_node" in step for step in plan(connection, statements.SELECT_LOG_OF_NODE))
    assert not any("SCAN" in step for step in plan(connection, statements.SELECT_LOG))


def test_a_few_nodes_of_a_large_session_are_found_without_the_rest(connection: apsw.Connection) -> None:
    steps = plan(connection, statements.SELECT_IDS_IN_SESSION)
    assert "uses_by_session (session=?)" in steps[0], steps
    assert not any("TEMP B-TREE" in step for step in steps), steps


def test_a_sweep_walks_over_what_has_changed_or_become_due(connection: apsw.Connection) -> None:
    [since] = plan(connection, statements.SELECT_UNWEIGHED)
    assert since.startswith("SEARCH unweighed_nodes USING INTEGER PRIMARY KEY"), since
    proved = plan(connection, statements.SELECT_PROVED)
    assert "(namespace=? AND tier=? AND rowid>?)" in proved[0], proved
    assert "SEARCH u USING PRIMARY KEY (node=?)" in proved, proved
    assert not any("TEMP B-TREE" in step for step in proved), proved
    assert any(
        "nodes_to_archive (namespace=? AND <expr><?)" in step for step in plan(connection, statements.SELECT_UNUSED)
    )
    assert any("sessions_open" in step for step in plan(connection, statements.SELECT_IDLE_SESSIONS))


def test_forgetting_walks_over_what_it_forgets(connection: apsw.Connection) -> None:
    [found] = plan(connection, statements.SELECT_SESSION_TO_FORGET)
    assert "sessions_kept (namespace=? AND last_active<?)" in found
    [found] = plan(connection, statements.SELECT_ACCESSES_TO_FORGET)
    assert "accesses_by_session (session=?" in found
    for statement in (statements.SUM_FORGOTTEN, statements.FORGET_ACCESSES):
        steps = plan(connection, statement)
        assert any("accesses USING INTEGER PRIMARY KEY (rowid=?)" in step for step in steps), steps


def test_an_outcome_looks_at_its_session_alone(connection: apsw.Connection) -> None:
    steps = plan(connection, statements.SELECT_TO_JUDGE)
    assert not [step for step in steps if step.startswith("SCAN") and "used" not in step and "json_each" not in step]
