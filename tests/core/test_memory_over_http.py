"""A memory whose embedder is a server: what is asked of it, what a failure leaves, and what the caller is told."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from embedding_server import EmbeddingServer, Refusal
from rlm_memory import AsyncMemory, Memory, OpenAIEmbedder
from rlm_memory.errors import EmbeddingRequestError

pytestmark = [pytest.mark.loopback, pytest.mark.enable_socket]


@pytest.fixture
def server() -> Iterator[EmbeddingServer]:
    with EmbeddingServer(dimensions=8) as server:
        yield server


@pytest.fixture
def embedder(server: EmbeddingServer) -> Iterator[OpenAIEmbedder]:
    embedder = OpenAIEmbedder("small", base_url=server.url, batch_size=2, max_retries=0)
    yield embedder
    embedder.close()


def test_blank_known_and_repeated_texts_are_not_paid_for(
    server: EmbeddingServer, embedder: OpenAIEmbedder, store_path: Path
) -> None:
    """B028, B100, B121."""
    with Memory.open(store_path, embedder=embedder) as memory:
        memory.add(["a", "", " ", "b", "a"], ids=["1", "2", "3", "4", "5"])
        assert sorted(server.inputs) == ["a", "b"]
        memory.add(["a", "b"], ids=["6", "4"], metadatas=[{"n": 1}, {"n": 2}])
        assert sorted(server.inputs) == ["a", "b"]
        assert memory.get("4")[0].metadata == {"n": 2}
        assert memory.stats().with_vector == 4
        assert memory.check()


def test_text_that_the_same_call_replaces_is_not_paid_for(
    server: EmbeddingServer, embedder: OpenAIEmbedder, store_path: Path
) -> None:
    with Memory.open(store_path, embedder=embedder) as memory:
        assert memory.add(["first", "second"], ids=["x", "x"]) == ["x", "x"]
        assert server.inputs == ["second"]
        assert [node.text for node in memory.list()] == ["second"]


def test_failed_request_leaves_nothing_and_names_the_items_of_the_call(
    server: EmbeddingServer, embedder: OpenAIEmbedder, store_path: Path
) -> None:
    with Memory.open(store_path, embedder=embedder) as memory:
        memory.add(["known"])
        server.fail_next(Refusal(400))
        with pytest.raises(EmbeddingRequestError, match=r"In this call they are: 3, 4\.") as caught:
            memory.add(["known", "", "known", "bad", "worse"])
        assert caught.value.positions == (3, 4)
        assert memory.count() == 1
        assert memory.check()


def test_failed_question_names_no_items_of_a_call(
    server: EmbeddingServer, embedder: OpenAIEmbedder, store_path: Path
) -> None:
    with Memory.open(store_path, embedder=embedder) as memory:
        memory.add(["known"])
        server.fail_next(Refusal(400))
        with pytest.raises(EmbeddingRequestError) as caught:
            memory.search("what?", k=1)
        assert str(caught.value) == "No vectors for item 0: HTTP 400: refused on demand."


async def test_failed_request_names_the_items_of_an_awaited_call(
    server: EmbeddingServer, embedder: OpenAIEmbedder, store_path: Path
) -> None:
    async with await AsyncMemory.open(store_path, embedder=embedder) as memory:
        server.fail_next(Refusal(400))
        with pytest.raises(EmbeddingRequestError) as caught:
            await memory.add(["", "bad"])
        assert caught.value.positions == (1,)
        assert await memory.count() == 0
        assert await memory.add(["good"])
        assert [hit.text for hit in await memory.search("good")] == ["good"]
        await embedder.aclose()


def test_keyword_search_asks_the_server_nothing(
    server: EmbeddingServer, embedder: OpenAIEmbedder, store_path: Path
) -> None:
    """B057."""
    with Memory.open(store_path, embedder=embedder) as memory:
        assert memory.search("anything") == []  # nothing is there: nothing to pay for
        memory.add(["an apple"], compute_embedding=False)
        assert [hit.text for hit in memory.search("apple")] == ["an apple"]
        memory.add(["a pear"])
        asked = len(server.inputs)
        assert [hit.text for hit in memory.search("apple", k=1, alpha=0)] == ["an apple"]
        assert len(server.inputs) == asked


def test_pending_texts_are_embedded_later_and_once(
    server: EmbeddingServer, embedder: OpenAIEmbedder, store_path: Path
) -> None:
    with Memory.open(store_path, embedder=embedder) as memory:
        memory.add(["a", "b", "", "c"], compute_embedding=[True, False, True, False])
        assert server.inputs == ["a"]
        server.fail_next(Refusal(400))
        with pytest.raises(EmbeddingRequestError):
            memory.embed_pending()
        seen: list[tuple[int, int]] = []
        asked = len(server.inputs)
        assert memory.embed_pending(progress=lambda done, total: seen.append((done, total))) == 2
        assert sorted(server.inputs[asked:]) == ["b", "c"]
        assert seen[-1] == (3, 3)
        assert memory.embed_pending() == 0
        assert len(server.inputs) == asked + 2
        assert memory.check()
