"""In which order nodes are listed, page by page."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import pytest

from rlm_memory import AsyncMemory, Memory
from rlm_memory.errors import NodeNotFoundError
from support import SettableClock

OpenMemory: TypeAlias = Callable[..., Memory]


@pytest.fixture
def filled(memory: Memory, clock: SettableClock) -> Memory:
    """Five nodes, two of them written at once, and the first again at the end."""
    for ids in (["a"], ["b"], ["c", "d"], ["e"], ["a"]):
        memory.add([f"text {id}" for id in ids], ids=ids, metadatas=[{"vowel": id in "ae"} for id in ids])
        clock.advance(seconds=1)
    return memory


def pages(memory: Memory, limit: int, **options: object) -> list[str]:
    found: list[str] = []
    after = None
    while page := memory.list(limit=limit, after=after, **options):  # type: ignore[arg-type]  # what list takes
        found += [node.id for node in page]
        after = page[-1].id
    return found


@pytest.mark.parametrize("limit", [1, 2, 3, 100])
def test_nodes_are_listed_as_they_were_added_or_the_last_written_first(filled: Memory, limit: int) -> None:
    assert pages(filled, limit) == ["a", "b", "c", "d", "e"]
    assert pages(filled, limit, newest_first=True) == ["a", "e", "d", "c", "b"]
    assert pages(filled, limit, newest_first=True, where={"vowel": True}) == ["a", "e"]


def test_the_newest_of_the_tiers_that_are_asked_for_are_listed(filled: Memory) -> None:
    filled.promote("e", "archive", reason="old")
    assert pages(filled, 2, newest_first=True) == ["a", "d", "c", "b"]
    assert pages(filled, 2, newest_first=True, include_archived=True) == ["a", "e", "d", "c", "b"]
    assert pages(filled, 2, newest_first=True, tiers=["archive"]) == ["e"]


def test_using_a_node_does_not_make_it_newer(filled: Memory) -> None:
    filled.session("s").record_access("b")
    filled.promote("c", "longterm", reason="proved")
    assert pages(filled, 9, newest_first=True) == ["a", "e", "d", "c", "b"]


async def test_what_is_read_as_written_is_the_same_but_for_its_last_uses(filled: Memory) -> None:
    filled.session("s").record_access(["a", "b"])
    asked, nodes = AsyncMemory(filled), filled.get(["b", "nobody", "a"], as_written=True)
    assert [(node.id, node.text) for node in nodes] == [("b", "text b"), ("a", "text a")]
    assert [node.id for node in await asked.get(["b", "a"], as_written=True)] == ["b", "a"]
    assert [node.id for node in await asked.list(newest_first=True, as_written=True)] == ["a", "e", "d", "c", "b"]
    assert [node.access_count for node in filled.get(["b", "a", "c"])] == [1, 1, 0]


def test_there_is_no_page_after_a_node_that_is_not_there(filled: Memory) -> None:
    for newest_first in (False, True):
        with pytest.raises(NodeNotFoundError, match="'gone'"):
            filled.list(after="gone", newest_first=newest_first)


def test_other_namespaces_are_not_listed(open_shared: OpenMemory) -> None:
    one, other = open_shared(namespace="one"), open_shared(namespace="other")
    one.add(["x"], ids=["x"])
    other.add(["y"], ids=["y"])
    assert [node.id for node in one.list(newest_first=True)] == ["x"]
    assert open_shared(namespace="empty").list(newest_first=True) == []


@pytest.mark.parametrize("limit", [10**9, 2**63, 10**30])
def test_any_number_is_a_limit(memory: Memory, limit: int) -> None:
    memory.add(["word"] * 300, ids=[str(i) for i in range(300)])
    assert len(memory.list(limit=limit)) == len(memory.list(limit=limit, newest_first=True)) == 300
    assert len(memory.search("word", k=limit)) == len(memory.search("word", k=limit, alpha=0)) == 300
    assert len(memory.search("word", k=2, mmr=0.5, fetch_k=limit)) == 2
    memory.session("s").record_access("7")
    assert [session.id for session in memory.sessions(limit=limit)] == ["s"]
    memory.conversations.append("key", ["message"])
    assert len(memory.conversations.list("key", limit=limit)) == 1
    assert memory.conversations.list("key", offset=limit) == []


@pytest.mark.parametrize("field", ["node.confidence", "node.access_count"])
def test_a_number_that_no_float_holds_is_compared_like_any_other(filled: Memory, field: str) -> None:
    assert filled.list(where={field: 10**400}) == filled.list(where={field: {"$lt": -(10**400)}}) == []
    assert filled.count(where={field: {"$between": [-(10**400), 10**400]}}) == 5
