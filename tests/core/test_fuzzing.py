"""Filters, questions, import files and checkpoints that chance makes: answered rightly, or refused by a typed error."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fuzzing import Checkpoints, Filters, Imports, Questions, sealed
from rlm_memory import Memory

ANY_TEXT = st.text(st.characters(exclude_categories=()), max_size=20)


class Drawn:
    """Dice that hypothesis throws."""

    def __init__(self, data: st.DataObject) -> None:
        self.data = data

    def whole(self, low: int, high: int) -> int:
        return self.data.draw(st.integers(low, high))

    def text(self) -> str:
        return self.data.draw(ANY_TEXT)


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def filters(request: pytest.FixtureRequest) -> Iterator[Filters]:
    location = ":memory:" if request.param == "sqlite" else request.getfixturevalue("postgres_server")
    with Memory.open(location, embedder=None, namespace="of filters") as memory:
        yield Filters(memory)


@given(data=st.data())
def test_filter_is_refused_or_lets_through_what_it_means(filters: Filters, data: st.DataObject) -> None:
    filters.throw(Drawn(data))


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def questions(request: pytest.FixtureRequest) -> Iterator[Questions]:
    location = ":memory:" if request.param == "sqlite" else request.getfixturevalue("postgres_server")
    with Memory.open(location, embedder=None, namespace="of questions") as memory:
        yield Questions(memory)


@given(data=st.data())
def test_any_text_is_a_question_and_none_is_syntax(questions: Questions, data: st.DataObject) -> None:
    """B001 B003 B009 B014"""
    questions.throw(Drawn(data))


@pytest.fixture(scope="module")
def imports(tmp_path_factory: pytest.TempPathFactory) -> Imports:
    return Imports(tmp_path_factory.mktemp("imports"))


def test_export_that_nobody_changed_is_imported(imports: Imports) -> None:
    assert imports.check(b"\n".join(sealed(imports.seed)))


@given(data=st.data())
def test_changed_export_is_imported_as_it_says_or_leaves_the_store_as_it_was(
    imports: Imports, data: st.DataObject
) -> None:
    """B101 B108"""
    imports.throw(Drawn(data))


@pytest.fixture(scope="module")
def checkpoints() -> Checkpoints:
    return Checkpoints()


def test_checkpoints_that_nobody_changed_are_read(checkpoints: Checkpoints) -> None:
    assert all(map(checkpoints.check, checkpoints.files))


@given(data=st.data())
def test_changed_checkpoint_is_refused_or_is_data(checkpoints: Checkpoints, data: st.DataObject) -> None:
    """B082"""
    checkpoints.throw(Drawn(data))
