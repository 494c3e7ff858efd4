"""Filters of LlamaIndex that chance makes: refused, or the tree that says the same as the dialect of dicts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from llama_index.core.vector_stores.types import FilterCondition, FilterOperator, MetadataFilter, MetadataFilters

from fuzzing import KEYS, METADATA, Filters
from llamaindex_rlm.convert import to_filter
from rlm_memory import Memory

texts = st.text(st.characters(exclude_categories=("Cs",)))  # pydantic takes no lone surrogates
kinds = [st.integers(), st.floats(), texts | st.sampled_from(["a", "%", "x' OR 1=1"])]
single = st.builds(
    MetadataFilter,
    key=st.sampled_from(KEYS) | texts,
    value=st.none() | st.one_of(kinds) | st.one_of([st.lists(kind, max_size=3) for kind in kinds]),
    operator=st.sampled_from(FilterOperator),
)
groups = st.recursive(
    single,
    lambda inner: st.builds(
        MetadataFilters,
        filters=st.lists(inner, max_size=3),
        condition=st.none() | st.sampled_from(FilterCondition),
    ),
    max_leaves=8,
)


@pytest.fixture(scope="module")
def filters() -> Iterator[Filters]:
    with Memory.open(":memory:", embedder=None) as memory:
        yield Filters(memory)


@given(where=groups)
def test_filter_of_llama_index_is_refused_or_lets_through_what_it_means(filters: Filters, where: Any) -> None:
    filters.check(lambda: to_filter(where))


SAME = {
    FilterOperator.EQ: "$eq", FilterOperator.NE: "$ne", FilterOperator.GT: "$gt", FilterOperator.GTE: "$gte",
    FilterOperator.LT: "$lt", FilterOperator.LTE: "$lte", FilterOperator.IN: "$in", FilterOperator.NIN: "$nin",
    FilterOperator.ANY: "$any", FilterOperator.ALL: "$all", FilterOperator.CONTAINS: "$contains",
    FilterOperator.TEXT_MATCH: "$text_match", FilterOperator.TEXT_MATCH_INSENSITIVE: "$text_match_insensitive",
}  # fmt: skip


@given(one=single.filter(lambda one: one.operator in SAME and not one.key.startswith("$")))
def test_both_dialects_say_the_same(filters: Filters, one: MetadataFilter) -> None:
    def found(where: Any) -> Any:
        try:
            return [node.id for node in filters.memory.list(where=where() if callable(where) else where, limit=100)]
        except ValueError as error:
            return type(error)

    assert len(filters.nodes) == len(METADATA)
    assert found(lambda: to_filter(one)) == found({one.key: {SAME[one.operator]: one.value}})
