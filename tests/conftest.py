"""The fixtures that every part of the suite shares."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from postgres_server import emptied, running_server, url_in_schema
from support import SettableClock, WordEmbedder

# the same examples in every run, and no deadline: a machine that builds something else at the same time is no bug
settings.register_profile("steady", derandomize=True, deadline=None)
# other examples in every run, and many: `pytest --hypothesis-profile=long tests/core/test_fuzzing.py`
settings.register_profile("long", derandomize=False, deadline=None, max_examples=20_000)
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


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    """The URL of a store on a server that lives as long as the tests, skipping where there is no server."""
    with running_server() as url:
        yield url_in_schema(url)


@pytest.fixture
def postgres_url(postgres_server: str) -> str:
    """The URL of a store on a server at which nothing is stored yet."""
    emptied(postgres_server)
    return postgres_server
