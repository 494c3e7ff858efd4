"""Every type of the table, written here and read in another process."""

from __future__ import annotations

import json
import subprocess
import warnings
from importlib.util import find_spec
from pathlib import Path

import pytest

from checkpoints.processes import command, environment
from checkpoints.same import difference
from checkpoints.table import TABLE, Row, markdown
from rlm_memory.checkpoints import RLMCheckpoint
from rlm_memory.checkpoints.sources import Sources

KEY = "the owner's key"


def run_cell(cell: str) -> tuple[dict[str, object], Sources]:
    """Run a cell as a REPL does: in one namespace, and keep its text."""
    namespace: dict[str, object] = {"__name__": "__main__"}
    sources = Sources()
    with warnings.catch_warnings(action="ignore"):
        exec(compile(cell, "<cell>", "exec", dont_inherit=True), namespace)
    sources.add(cell, namespace)
    return namespace, sources


def missing(row: Row) -> bool:
    return row.needs is not None and find_spec(row.needs) is None


@pytest.fixture(scope="module")
def verdicts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, str]]:
    """What another process, with another hash seed, says of each row: read with the key that signed it, and without."""
    folder = tmp_path_factory.mktemp("table")
    for number, row in enumerate(TABLE):
        if not missing(row):
            namespace, sources = run_cell(row.cell)
            checkpoint = RLMCheckpoint(session_id="s", repl_state=namespace, sources=sources)
            checkpoint.save(folder / f"{number}.rlmc", trust=KEY)
    done = subprocess.run(
        command("reader_process", folder, KEY), env=environment(), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("trust", ["signed", "unsigned"])
@pytest.mark.parametrize("row", TABLE, ids=lambda row: row.name)
def test_a_value_comes_back_exactly_or_is_reported(row: Row, trust: str, verdicts: dict[str, dict[str, str]]) -> None:
    """Answers B074, B133, B145."""
    if missing(row):
        pytest.skip(f"{row.needs} is not installed")
    assert verdicts[trust][str(TABLE.index(row))] == getattr(row, trust)


def test_the_table_of_the_documentation_is_the_one_that_is_proved_here() -> None:
    assert Path(__file__).with_name("types.md").read_text(encoding="utf-8") == markdown()


@pytest.mark.parametrize(
    ("one", "two"),
    [
        ([1, 2], [1]),
        ([1], [1, 2]),
        ((1,), [1]),
        ([1], [True]),
        ([0.0], [-0.0]),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
        ({1: 0}, {True: 0}),
        ({1, 2}, {1}),
        ((x := [1], x), ([1], [1])),
        (([1], [1]), (x := [1], x)),
        ({"a": [1]}, {"a": [2]}),
    ],
    ids=str,
)
def test_the_judge_sees_a_difference(one: object, two: object) -> None:
    """A judge that lets something pass would make every other test of this folder worthless."""
    assert difference(one, two) is not None
    assert difference(one, one) is None
