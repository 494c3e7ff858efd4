"""Hypothesis strategies for graphs of objects: nested values with parts that are shared, and with cycles."""

from __future__ import annotations

import datetime as dt
from collections import Counter, OrderedDict, deque
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
from hypothesis import strategies as st

texts = st.text(st.characters(exclude_categories=())) | st.sampled_from(["\ud800\udc00", "\x00", "x" * 300])
atoms = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(-(2**70), 2**70)
    | st.floats()
    | st.complex_numbers()
    | texts
    | st.binary()
)
values = (
    atoms
    | st.decimals()
    | st.fractions()
    | st.datetimes(timezones=st.none() | st.just(dt.UTC))
    | st.dates()
    | st.timedeltas()
    | st.uuids()
    | st.builds(np.float32, st.floats(width=32))
    | st.lists(st.integers(-100, 100), max_size=4).map(np.array)
    | st.builds(slice, st.integers(), st.none(), st.integers())
    | st.builds(range, st.integers(-5, 5), st.integers(-5, 50))
)
hashable = atoms | st.builds(Fraction, st.integers()) | st.builds(Decimal, st.integers())
keys = st.recursive(hashable, lambda inner: st.tuples(inner, inner) | st.frozensets(inner, max_size=3), max_leaves=4)


def _containers(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    items = st.lists(inner, max_size=4)
    return (
        items
        | items.map(tuple)
        | st.builds(deque, items, st.none() | st.integers(4, 9))
        | st.dictionaries(keys, inner, max_size=4)
        | st.dictionaries(texts, inner, max_size=4)
        | st.dictionaries(keys, inner, max_size=3).map(OrderedDict)
        | st.dictionaries(keys, st.integers(), max_size=3).map(Counter)
        | st.sets(keys, max_size=4)
        | st.frozensets(keys, max_size=4)
    )


trees = st.recursive(values, _containers, max_leaves=25)


@st.composite
def graphs(draw: st.DrawFn) -> Any:
    """Draw a tree, then graft parts of it into others: they are shared, and cycles where one is put into itself."""
    root = [draw(trees), draw(trees)]
    mutable: list[Any] = [root]
    everything: list[Any] = []
    todo: list[Any] = [root]
    while todo:
        value = todo.pop()
        everything.append(value)
        if type(value) in {list, deque, dict, OrderedDict}:
            mutable.append(value)
        if isinstance(value, dict):
            todo.extend(value.values())
        elif isinstance(value, (list, tuple, deque)):
            todo.extend(value)
    for number in range(draw(st.integers(0, 4))):
        target, graft = draw(st.sampled_from(mutable)), draw(st.sampled_from(everything))
        if isinstance(target, dict):
            target[f"graft {number}"] = graft
        else:
            target.append(graft)
    return root
