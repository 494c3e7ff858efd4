"""The retriever: what it asks of a memory, and what LlamaIndex does with it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pytest
from llama_index.core.callbacks import CallbackManager, CBEventType, LlamaDebugHandler
from llama_index.core.instrumentation import get_dispatcher
from llama_index.core.instrumentation.event_handlers import BaseEventHandler
from llama_index.core.instrumentation.events.retrieval import RetrievalEndEvent
from llama_index.core.schema import IndexNode, NodeWithScore, QueryBundle, TextNode
from llama_index.core.vector_stores.types import MetadataFilter, MetadataFilters, VectorStoreQuery, VectorStoreQueryMode

from llamaindex_rlm import RLMRetriever, RLMVectorStore, as_embedder
from llamaindex_support import WordEmbedding
from rlm_memory import AsyncMemory, Memory
from rlm_memory.errors import EmbeddingUnavailableError, InvalidFilterError, InvalidInputError

TEXTS = {
    "tea": "Ada drinks green tea",
    "coffee": "Bo drinks black coffee",
    "oslo": "Ada lives in Oslo",
    "rome": "Bo lives in Rome",
}


@pytest.fixture
def memory(embedding: WordEmbedding) -> Iterator[Memory]:
    """A memory of four texts about two people."""
    with Memory.open(":memory:", embedder=as_embedder(embedding)) as memory:
        metadatas = [{"who": text.split()[0], "kind": text.split()[1]} for text in TEXTS.values()]
        memory.add(list(TEXTS.values()), ids=list(TEXTS), metadatas=metadatas)
        yield memory


@pytest.fixture(params=["sync", "async"])
def retrieve(request: pytest.FixtureRequest) -> Any:
    """Asks a retriever in one colour and the other."""

    async def ask(retriever: RLMRetriever, query: str | QueryBundle) -> list[NodeWithScore]:
        return retriever.retrieve(query) if request.param == "sync" else await retriever.aretrieve(query)

    return ask


def ids(found: list[NodeWithScore]) -> list[str]:
    return [one.node_id for one in found]


async def test_best_nodes_come_first_with_their_scores(memory: Memory, retrieve: Any) -> None:
    found = await retrieve(RLMRetriever(memory=memory, similarity_top_k=4), "Where does Ada live, in Oslo?")
    assert found[0].node == TextNode(id_="oslo", text=TEXTS["oslo"], metadata={"who": "Ada", "kind": "lives"})
    hits = memory.search("Where does Ada live, in Oslo?", k=4)
    assert [(one.node_id, one.score) for one in found] == [(hit.id, hit.score) for hit in hits]


async def test_two_nodes_unless_asked_for_more(memory: Memory, retrieve: Any) -> None:
    retriever = RLMRetriever(memory=memory)
    assert len(await retrieve(retriever, "tea")) == 2
    retriever.similarity_top_k = 3
    assert len(await retrieve(retriever, "tea")) == 3


async def test_restrictions(memory: Memory, retrieve: Any) -> None:
    async def found(**options: Any) -> list[str]:
        return sorted(ids(await retrieve(RLMRetriever(memory=memory, similarity_top_k=9, **options), "drinks tea")))

    who = MetadataFilters(filters=[MetadataFilter(key="who", value="Ada")])
    memory.add("Ada likes cats", ids=["cats"], tier="archive", type="experience", confidence=0.9)
    assert await found(filters=who) == ["oslo", "tea"]
    assert await found(filters={"who": "Bo", "kind": {"$ne": "lives"}}) == ["coffee"]
    assert await found(include_archived=True, types=["experience"]) == ["cats"]
    assert await found(tiers=["archive"]) == ["cats"]
    assert await found(min_confidence=0.8, include_archived=True) == ["cats"]
    assert await found(min_relevance=0.9) == ["tea"]


async def test_what_is_found_is_reported_to_the_session(memory: Memory, retrieve: Any) -> None:
    retriever = RLMRetriever(memory=memory, similarity_top_k=1, session_id="run-1")
    await retrieve(retriever, "black coffee")
    await retrieve(retriever, "black coffee")
    await retrieve(RLMRetriever(memory=memory, similarity_top_k=1), "Rome")
    store = RLMVectorStore(memory=memory)
    query = VectorStoreQuery(query_str="Oslo", mode=VectorStoreQueryMode.TEXT_SEARCH)
    store.query(query, session_id="run-1")
    await store.aquery(query, session_id="run-2")
    store.query(query)
    assert {node.id: node.access_count for node in memory.list()} == {"tea": 0, "coffee": 2, "oslo": 2, "rome": 0}
    assert memory.get(["coffee"])[0].tier == "session"


@pytest.mark.parametrize("kind", [RLMRetriever, RLMVectorStore])
@pytest.mark.parametrize("wrong", ["memory.db", None])
def test_what_is_no_memory_is_refused(kind: Any, wrong: Any) -> None:
    with pytest.raises(InvalidInputError, match=r"as Memory\.open returns it"):
        kind(memory=wrong)


def test_filter_without_meaning_is_refused_at_once(memory: Memory) -> None:
    with pytest.raises(InvalidFilterError):
        RLMRetriever(memory=memory, filters={"who": {"$near": "Ada"}})


@pytest.mark.parametrize("alpha", [0, 0.0])
async def test_alpha_zero_embeds_nothing(memory: Memory, embedding: WordEmbedding, retrieve: Any, alpha: float) -> None:
    """B057."""
    before = list(embedding.asked)
    assert ids(await retrieve(RLMRetriever(memory=memory, alpha=alpha), "black coffee"))[0] == "coffee"
    bundle = QueryBundle("black coffee", custom_embedding_strs=["tea", "Oslo"])
    assert ids(await retrieve(RLMRetriever(memory=memory, alpha=alpha), bundle))[0] == "coffee"
    assert embedding.asked == before


async def test_diversity(memory: Memory, retrieve: Any) -> None:
    memory.add(["Ada drinks green tea", "Ada drinks green green tea"], ids=["tea 2", "tea 3"])
    question = "Ada drinks green tea"
    alike = await retrieve(RLMRetriever(memory=memory, alpha=1, mmr_threshold=1.0, similarity_top_k=3), question)
    apart = await retrieve(RLMRetriever(memory=memory, alpha=1, mmr_threshold=0.3, similarity_top_k=3), question)
    assert all(id.startswith("tea") for id in ids(alike))
    assert not all(id.startswith("tea") for id in ids(apart))


async def test_vector_of_the_bundle_is_used(memory: Memory, embedding: WordEmbedding, retrieve: Any) -> None:
    bundle = QueryBundle("nothing of the kind", embedding=embedding.get_query_embedding("Bo lives in Rome"))
    asked = len(embedding.asked)
    assert ids(await retrieve(RLMRetriever(memory=memory, alpha=1), bundle))[0] == "rome"
    assert len(embedding.asked) == asked


async def test_texts_to_embed_instead_of_the_question(memory: Memory, embedding: WordEmbedding, retrieve: Any) -> None:
    bundle = QueryBundle("Which drink?", custom_embedding_strs=["black coffee drinks", "Bo drinks black coffee"])
    assert ids(await retrieve(RLMRetriever(memory=memory, alpha=1), bundle))[0] == "coffee"
    assert embedding.asked[-2:] == ["black coffee drinks", "Bo drinks black coffee"]
    assert bundle.embedding is None


async def test_memory_without_an_embedder_is_searched_by_words(retrieve: Any) -> None:
    with Memory.open(":memory:", embedder=None) as memory:
        memory.add(list(TEXTS.values()), ids=list(TEXTS))
        bundle = QueryBundle("coffee", custom_embedding_strs=["tea"])
        assert ids(await retrieve(RLMRetriever(memory=memory), bundle))[0] == "coffee"
        with pytest.raises(EmbeddingUnavailableError):
            await retrieve(RLMRetriever(memory=memory, alpha=1), "coffee")


async def test_empty_question_returns_nodes_too(memory: Memory, retrieve: Any) -> None:
    assert len(await retrieve(RLMRetriever(memory=memory, similarity_top_k=3), "")) == 3


@pytest.mark.parametrize("options", [{"similarity_top_k": -1}, {"alpha": 1.5}, {"mmr_threshold": 2}])
async def test_what_cannot_be_searched_is_refused(memory: Memory, retrieve: Any, options: dict[str, Any]) -> None:
    with pytest.raises(InvalidInputError):
        await retrieve(RLMRetriever(memory=memory, **options), "tea")


async def test_question_is_embedded_once_and_awaited(memory: Memory, embedding: WordEmbedding) -> None:
    asked = len(embedding.asked)
    await RLMRetriever(memory=memory).aretrieve("tea")
    bundle = QueryBundle("tea", custom_embedding_strs=["a", "b"])
    await RLMRetriever(memory=memory).aretrieve(bundle)
    assert embedding.awaited == len(embedding.asked) - asked == 3


async def test_texts_are_embedded_off_the_loop_where_they_cannot_be_awaited() -> None:
    threads = []

    class Sync:
        model = "sync"
        dimensions = 2

        def embed(self, texts: list[str]) -> list[list[float]]:
            return [[1.0, 0.0]] * len(texts)

        def embed_query(self, text: str) -> list[float]:
            threads.append(threading.get_ident())
            return [1.0, 0.0]

    with Memory.open(":memory:", embedder=Sync()) as memory:
        memory.add("red fox")
        bundle = QueryBundle("fox", custom_embedding_strs=["a", "b"])
        assert len(await RLMRetriever(memory=memory).aretrieve(bundle)) == 1
    assert len(threads) == 2
    assert threading.get_ident() not in threads


async def test_sync_calls_work_where_a_loop_runs(memory: Memory) -> None:
    """B081: in a notebook, in a web server."""
    assert ids(RLMRetriever(memory=memory).retrieve("coffee"))[0] == "coffee"
    store = RLMVectorStore(memory=memory)
    store.add([TextNode(id_="x", text="red fox")])
    store.delete_nodes(["x"])
    assert store.get_nodes(["x"]) == []


async def test_async_calls_work_off_the_loop(embedding: WordEmbedding) -> None:
    threads = []

    def clock() -> datetime:
        threads.append(threading.get_ident())
        return datetime.now().astimezone()

    with Memory.open(":memory:", embedder=as_embedder(embedding), clock=clock) as memory:
        threads.clear()
        await RLMVectorStore(memory=memory).async_add([TextNode(text="red fox")])
    assert threads
    assert threading.get_ident() not in threads


def test_index_nodes_are_followed(memory: Memory) -> None:
    store = RLMVectorStore(memory=memory)
    store.add([IndexNode(id_="deeper", text="all about foxes and hounds", index_id="foxes")])
    inner = TextNode(id_="inner", text="The fox is red")
    by_map = RLMRetriever(memory=memory, similarity_top_k=1, object_map={"foxes": inner})
    assert ids(by_map.retrieve("foxes and hounds")) == ["inner"]
    objects = [IndexNode(text="", index_id="foxes", obj=inner)]
    assert ids(RLMRetriever(memory=memory, similarity_top_k=1, objects=objects).retrieve("foxes and hounds")) == [
        "inner"
    ]
    assert ids(RLMRetriever(memory=memory, similarity_top_k=1).retrieve("foxes and hounds")) == ["deeper"]


async def test_llama_index_is_told_of_what_is_retrieved(memory: Memory, retrieve: Any) -> None:
    seen: list[RetrievalEndEvent] = []

    class Handler(BaseEventHandler):
        def handle(self, event: Any, **kwargs: Any) -> None:
            if isinstance(event, RetrievalEndEvent):
                seen.append(event)

    debug = LlamaDebugHandler(print_trace_on_end=False)
    retriever = RLMRetriever(memory=memory, callback_manager=CallbackManager([debug]))
    dispatcher = get_dispatcher()
    dispatcher.add_event_handler(Handler())
    try:
        found = await retrieve(retriever, "tea")
    finally:
        dispatcher.event_handlers.pop()
    assert [ids(event.nodes) for event in seen] == [ids(found)]
    assert len(debug.get_event_pairs(CBEventType.RETRIEVE)) == 1


async def test_other_threads_may_search_meanwhile(memory: Memory) -> None:
    retriever = RLMRetriever(memory=memory)
    found: list[str] = []
    threads = [threading.Thread(target=lambda: found.append(retriever.retrieve("coffee")[0].node_id)) for _ in range(8)]
    for thread in threads:
        thread.start()
    assert (await AsyncMemory(memory).search("coffee", k=1))[0].id == "coffee"
    for thread in threads:
        thread.join()
    assert found == ["coffee"] * 8
