"""The fixtures that every part of the suite shares."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import settings

from support import SettableClock, WordEmbedder

# the same examples in every run, and no deadline: a machine that builds something else at the same time is no bug
settings.register_profile("steady", derandomize=True, deadline=None)
settings.load_profile("steady")

# no tests: the programs that tests start and what tests share; looked through for doctests, they would be imported,
# also where the extra is missing that they need
collect_ignore = [
    str(path) for path in Path(__file__).parent.rglob("*.py") if not path.name.startswith(("test_", "conftest"))
]


@pytest.fixture
def store_path(tmp_path: Path) -> Path:
    """A path at which no store is yet."""
    return tmp_path / "memory.db"


@pytest.fixture
def embedder() -> WordEmbedder:
    """An embedder that is deterministic and needs no model."""
    return WordEmbedder()


@pytest.fixture
def clock() -> SettableClock:
    """A clock that stands still until it is moved."""
    return SettableClock()
