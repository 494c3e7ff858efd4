"""Files that released versions wrote are read as long as there are releases."""

from __future__ import annotations

from pathlib import Path

import pytest

from checkpoints.golden_state import KEY, state
from checkpoints.same import difference
from rlm_memory.checkpoints import FORMAT_VERSION, RLMCheckpoint, Unrestored

FILES = sorted((Path(__file__).parent / "golden").glob("*.rlmc"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_file_of_an_earlier_release_gives_back_what_was_saved(path: Path) -> None:
    loaded = RLMCheckpoint.load(path, trust=KEY)
    expected, _ = state()
    del expected["__builtins__"], expected["__name__"]
    assert isinstance(loaded.repl_state.pop("lost"), Unrestored)
    assert difference(expected, loaded.repl_state) is None
    assert loaded.repl_state["alias"] is loaded.repl_state["shared"]
    assert loaded.repl_state["best"](loaded.repl_state["hits"]) is loaded.repl_state["top"]
    assert (loaded.turn, loaded.cost_so_far, loaded.version) == (5, 0.125, path.stem)
    assert [issue.path for issue in loaded.issues] == ["lost"]


def test_every_released_format_has_its_file() -> None:
    assert FORMAT_VERSION in {path.stem for path in FILES}
