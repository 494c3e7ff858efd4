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


def read_elsewhere(folder: Path, *key: str) -> dict[str, str]:
    """Return the verdict of another process, with another hash seed, on each row that is stored in the folder."""
    done = subprocess.run(
        command("reader_process", folder, *key), env=environment(), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("table")
    for number, row in enumerate(TABLE):
        if not missing(row):
            namespace, sources = run_cell(row.cell)
            RLMCheckpoint(session_id=row.name, repl_state=namespace, sources=sources).save(
                folder / f"{number}.rlmc", trust=KEY
            )
    return folder


@pytest.fixture(scope="module")
def signed(stored: Path) -> dict[str, str]:
    return read_elsewhere(stored, KEY)


@pytest.fixture(scope="module")
def unsigned(stored: Path) -> dict[str, str]:
    return read_elsewhere(stored)


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row.name)
def test_a_trusted_file_gives_the_value_back_or_reports_it(row: Row, signed: dict[str, str]) -> None:
    """Answers B074, B133, B145."""
    if missing(row):
        pytest.skip(f"{row.needs} is not installed")
    assert signed[row.name] == row.signed


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row.name)
def test_a_file_that_nobody_vouches_for_gives_data_back_and_reports_the_rest(
    row: Row, unsigned: dict[str, str]
) -> None:
    if missing(row):
        pytest.skip(f"{row.needs} is not installed")
    assert unsigned[row.name] == row.unsigned


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
