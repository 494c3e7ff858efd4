"""JSON values under keys: what comes back, in which order, and who sees it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import pytest

from rlm_memory import Memory
from rlm_memory.errors import InvalidInputError

OpenMemory: TypeAlias = Callable[..., Memory]


def test_values_come_back_as_they_are_in_the_order_of_their_keys(memory: Memory) -> None:
    values = {"b": {"n": 1, "f": 1.5, "deep": [None, True, "\ud800 🙂"]}, "a": [], "": "empty key", "nul\0": 0}
    collection = memory.key_values("c")
    collection.put(values)
    collection.put({"b": {"n": 2}})
    assert list(collection.items()) == list({**values, "b": {"n": 2}}.items())
    assert collection.get("a") == []
    assert collection.get("unknown") is None
    assert collection.get_many(["a", "unknown", "nul\0"]) == {"a": [], "nul\0": 0}


def test_collections_are_apart(memory: Memory) -> None:
    one, other = memory.key_values("one"), memory.key_values("other")
    one.put({"k": 1})
    assert other.get("k") is None
    assert other.delete(["k"]) == []
    assert one.delete(["k", "unknown"]) == ["k"]
    assert list(one.items()) == []


def test_tenants_share_no_value(open_shared: OpenMemory) -> None:
    open_shared(namespace="one").key_values("c").put({"k": 1})
    other = open_shared(namespace="other").key_values("c")
    assert other.get("k") is None
    assert other.delete("k") == []


@pytest.mark.parametrize("value", [object(), float("nan"), {1, 2}, b"bytes"])
def test_value_that_json_cannot_hold_is_refused_and_nothing_is_written(memory: Memory, value: Any) -> None:
    collection = memory.key_values("c")
    with pytest.raises(InvalidInputError, match="'bad'"):
        collection.put({"good": 1, "bad": value})
    assert list(collection.items()) == []


@pytest.mark.parametrize("key", [1, None, "\ud800"])
def test_key_that_is_no_text_is_refused(memory: Memory, key: Any) -> None:
    with pytest.raises(InvalidInputError):
        memory.key_values("c").put({key: 1})
