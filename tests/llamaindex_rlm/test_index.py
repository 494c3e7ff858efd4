"""What LlamaIndex builds on a vector store, end to end: indexes, engines, pipelines, tools, agents, memory blocks."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from llama_index.core import StorageContext, VectorStoreIndex, load_index_from_storage
from llama_index.core.agent.workflow import ReActAgent
from llama_index.core.base.llms.types import ChatMessage, CompletionResponse, CompletionResponseGen, LLMMetadata
from llama_index.core.ingestion import DocstoreStrategy, IngestionPipeline
from llama_index.core.llms import CustomLLM, MockLLM
from llama_index.core.memory import Memory as ChatMemory
from llama_index.core.memory import VectorMemoryBlock
from llama_index.core.node_parser import SentenceSplitter
from llama_index.core.postprocessor import SimilarityPostprocessor
from llama_index.core.query_engine import RetrieverQueryEngine
from llama_index.core.retrievers import QueryFusionRetriever
from llama_index.core.schema import Document, ImageNode, IndexNode, NodeRelationship, RelatedNodeInfo, TextNode
from llama_index.core.storage.docstore import SimpleDocumentStore
from llama_index.core.tools import QueryEngineTool, RetrieverTool
from llama_index.core.vector_stores.types import MetadataFilter, MetadataFilters
from sqlalchemy.ext.asyncio import create_async_engine

from llamaindex_rlm import RLMRetriever, RLMVectorStore
from llamaindex_support import WordEmbedding

DOCUMENTS = [
    Document(id_="drinks", text="Ada drinks green tea. Bo drinks black coffee.", metadata={"topic": "drinks"}),
    Document(id_="places", text="Ada lives in Oslo. Bo lives in Rome.", metadata={"topic": "places"}),
]


class Scripted(CustomLLM):
    """Answers with what it is told to, in order, and keeps the prompts it was given."""

    answers: list[str]
    prompts: list[str] = []  # noqa: RUF012 - pydantic copies it

    @property
    def metadata(self) -> LLMMetadata:
        return LLMMetadata()

    def complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponse:
        self.prompts.append(prompt)
        return CompletionResponse(text=self.answers[min(len(self.prompts), len(self.answers)) - 1])

    def stream_complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponseGen:
        response = self.complete(prompt)
        yield CompletionResponse(text=response.text, delta=response.text)


@pytest.fixture(params=["file", "memory"])
def store(request: pytest.FixtureRequest, store_path: Path, embedding: WordEmbedding) -> Iterator[RLMVectorStore]:
    """An empty store that embeds with the model of the index."""
    store = RLMVectorStore.from_params(store_path if request.param == "file" else ":memory:", embedding=embedding)
    yield store
    store.client.close()


@pytest.fixture
def index(store: RLMVectorStore, embedding: WordEmbedding) -> VectorStoreIndex:
    """An index of the two documents, a node for each sentence."""
    index = VectorStoreIndex.from_vector_store(store, embed_model=embedding, transformations=[by_sentence])
    for document in DOCUMENTS:
        index.insert(document)
    return index


def by_sentence(documents: Sequence[Document], **_: Any) -> list[TextNode]:
    return [
        TextNode(
            id_=f"{document.doc_id}-{number}",
            text=sentence,
            metadata=dict(document.metadata),
            relationships={NodeRelationship.SOURCE: document.as_related_node_info()},
        )
        for document in documents
        for number, sentence in enumerate(document.text.rstrip(".").split(". "))
    ]


def ids(found: Sequence[Any]) -> list[str]:
    return [one.node_id for one in found]


# -- index ----------------------------------------------------------------------------------------------------------


async def test_index_finds_what_was_inserted(index: VectorStoreIndex) -> None:
    retriever = index.as_retriever(similarity_top_k=1)
    (found,) = retriever.retrieve("Ada drinks green tea")
    assert (found.node_id, found.text, found.metadata) == ("drinks-0", "Ada drinks green tea", {"topic": "drinks"})
    assert found.node.ref_doc_id == "drinks"
    assert 0 < found.score <= 1.0001
    assert ids(await retriever.aretrieve("Bo lives in Rome")) == ["places-1"]


@pytest.mark.parametrize(
    ("mode", "best"),
    [("default", "drinks-0"), ("hybrid", "drinks-0"), ("text_search", "places-0"), ("sparse", "places-0")],
)
async def test_index_searches_in_each_mode(
    store: RLMVectorStore, embedding: WordEmbedding, mode: str, best: str
) -> None:
    index = VectorStoreIndex.from_vector_store(store, embed_model=embedding)
    index.insert_nodes(
        [
            TextNode(id_="drinks-0", text="tea"),
            TextNode(id_="places-0", text="oslo oslo and many other words of no importance, tea"),
        ]
    )
    question = "tea" if mode in ("default", "hybrid") else "oslo"
    retriever = index.as_retriever(vector_store_query_mode=mode, similarity_top_k=2, alpha=0.9)
    assert ids(retriever.retrieve(question))[0] == best
    assert ids(await retriever.aretrieve(question))[0] == best


async def test_index_chooses_for_diversity(index: VectorStoreIndex) -> None:
    index.insert_nodes([TextNode(id_="twin", text="Ada drinks green tea")])
    options: dict[str, Any] = {"vector_store_query_mode": "mmr", "similarity_top_k": 2}
    alike = index.as_retriever(**options, vector_store_kwargs={"mmr_threshold": 1.0})
    apart = index.as_retriever(**options, vector_store_kwargs={"mmr_threshold": 0.3})
    assert sorted(ids(alike.retrieve("Ada drinks green tea"))) == ["drinks-0", "twin"]
    assert sorted(ids(apart.retrieve("Ada drinks green tea"))) != ["drinks-0", "twin"]
    assert ids(await apart.aretrieve("Ada drinks green tea")) == ids(apart.retrieve("Ada drinks green tea"))


async def test_index_reaches_the_options_of_the_store(index: VectorStoreIndex) -> None:
    index.insert_nodes([TextNode(id_="old", text="Ada drank milk")], tier="archive", confidence=0.9)
    everything = index.as_retriever(similarity_top_k=9, vector_store_kwargs={"include_archived": True})
    assert "old" in ids(everything.retrieve("milk"))
    assert "old" not in ids(index.as_retriever(similarity_top_k=9).retrieve("milk"))


async def test_documents_and_nodes_are_deleted(index: VectorStoreIndex, store: RLMVectorStore) -> None:
    """B031."""
    index.delete_ref_doc("drinks", delete_from_docstore=True)
    index.delete_ref_doc("unknown")
    assert ids(store.get_nodes()) == ["places-0", "places-1"]
    index.delete_nodes(["places-0", "unknown"])
    assert ids(store.get_nodes()) == ["places-1"]
    await index.adelete_ref_doc("places")
    assert store.get_nodes() == []
    for mode in ("default", "text_search"):
        retriever = index.as_retriever(vector_store_query_mode=mode, similarity_top_k=9)
        assert retriever.retrieve("Ada drinks green tea") == []
    assert store.client.check()


def test_updated_document_replaces_the_old_one(index: VectorStoreIndex, store: RLMVectorStore) -> None:
    index.update_ref_doc(Document(id_="drinks", text="Ada drinks water.", metadata={"topic": "drinks"}))
    assert [node.get_content() for node in store.get_nodes(filters=_one("topic", "drinks"))] == ["Ada drinks water"]


def test_same_nodes_inserted_again_do_not_double(index: VectorStoreIndex, store: RLMVectorStore) -> None:
    for document in DOCUMENTS:
        index.insert(document)
    assert store.client.count() == 4


async def test_text_is_not_hidden_by_index_and_image_nodes(
    index: VectorStoreIndex, store: RLMVectorStore, embedding: WordEmbedding
) -> None:
    others = [
        IndexNode(id_="index", text="all about whales", index_id="whales", obj=TextNode(id_="whale", text="blue")),
        ImageNode(id_="image", text="a picture of a fox", image_url="https://example.org/fox.png"),
    ]
    index.insert_nodes(others)
    retriever = index.as_retriever(similarity_top_k=1)
    assert ids(retriever.retrieve("Bo lives in Rome")) == ["places-1"]
    assert ids(await retriever.aretrieve("Bo lives in Rome")) == ["places-1"]
    assert ids(retriever.retrieve("all about whales")) == ["whale"]
    assert type(retriever.retrieve("a picture of a fox")[0].node) is ImageNode
    another = VectorStoreIndex.from_vector_store(store, embed_model=embedding)
    assert ids(another.as_retriever(similarity_top_k=1).retrieve("all about whales")) == ["whale"]


async def test_index_is_built_in_both_colours(store: RLMVectorStore, embedding: WordEmbedding) -> None:
    context = StorageContext.from_defaults(vector_store=store)
    index = VectorStoreIndex.from_documents(
        DOCUMENTS, storage_context=context, embed_model=embedding, transformations=[by_sentence]
    )
    await index.ainsert_nodes([TextNode(id_="new", text="Eve lives in Lima")])
    assert embedding.awaited > 0
    assert ids(index.as_retriever(similarity_top_k=1).retrieve("Eve lives in Lima")) == ["new"]
    assert store.client.count() == 5


def test_storage_context_is_persisted_beside_the_store(
    store_path: Path, tmp_path: Path, embedding: WordEmbedding
) -> None:
    store = RLMVectorStore.from_params(store_path)
    context = StorageContext.from_defaults(vector_store=store)
    VectorStoreIndex.from_documents(
        DOCUMENTS, storage_context=context, embed_model=embedding, transformations=[by_sentence]
    )
    context.persist(persist_dir=str(tmp_path / "storage"))
    store.client.close()

    store = RLMVectorStore.from_params(store_path)
    context = StorageContext.from_defaults(vector_store=store, persist_dir=str(tmp_path / "storage"))
    index = load_index_from_storage(context, embed_model=embedding)
    assert ids(index.as_retriever(similarity_top_k=1).retrieve("Bo lives in Rome")) == ["places-1"]
    store.client.close()


# -- engines and fusion ---------------------------------------------------------------------------------------------


async def test_query_engine_answers_from_the_store(index: VectorStoreIndex) -> None:
    engine = index.as_query_engine(llm=MockLLM(), similarity_top_k=1)
    response = engine.query("Where does Bo live, in Rome?")
    assert "Bo lives in Rome" in str(response)
    assert ids(response.source_nodes) == ["places-1"]
    assert "Bo lives in Rome" in str(await engine.aquery("Where does Bo live, in Rome?"))


async def test_query_engine_over_the_retriever_shows_the_llm_what_was_found(
    index: VectorStoreIndex, store: RLMVectorStore
) -> None:
    llm = Scripted(answers=["In Rome."])
    retriever = RLMRetriever(memory=store.client, similarity_top_k=1, filters={"topic": "places"})
    engine = RetrieverQueryEngine.from_args(
        retriever, llm=llm, node_postprocessors=[SimilarityPostprocessor(similarity_cutoff=0.1)]
    )
    response = engine.query("Where does Bo live, in Rome?")
    assert (str(response), ids(response.source_nodes)) == ("In Rome.", ["places-1"])
    assert "Bo lives in Rome" in llm.prompts[0]
    assert "topic: places" in llm.prompts[0]
    assert "_llamaindex" not in llm.prompts[0]
    assert str(await engine.aquery("Where does Bo live?")) == "In Rome."


def test_similarity_of_the_default_mode_is_fit_for_a_cut_off(index: VectorStoreIndex) -> None:
    cut = SimilarityPostprocessor(similarity_cutoff=0.7)
    found = index.as_retriever(similarity_top_k=4).retrieve("Bo lives in Rome")
    assert ids(cut.postprocess_nodes(found)) == ["places-1"]


@pytest.mark.parametrize("mode", ["simple", "reciprocal_rerank", "relative_score", "dist_based_score"])
@pytest.mark.parametrize("weights", [[1, 0], [0.5, 0.5]])
async def test_results_can_be_fused_in_any_mode(
    index: VectorStoreIndex, store: RLMVectorStore, mode: str, weights: list[float]
) -> None:
    """B139."""
    index.insert_nodes([TextNode(id_="same", text="x"), TextNode(id_="same too", text="x")])
    fusion = QueryFusionRetriever(
        [RLMRetriever(memory=store.client, similarity_top_k=3), index.as_retriever(similarity_top_k=3)],
        retriever_weights=weights,
        mode=mode,
        num_queries=1,
        similarity_top_k=3,
        use_async=False,
        llm=MockLLM(),
    )
    for found in (fusion.retrieve("Bo lives in Rome"), await fusion.aretrieve("Bo lives in Rome")):
        assert ids(found)[0] == "places-1"
        assert all(0 <= one.score < float("inf") for one in found)


# -- pipelines ------------------------------------------------------------------------------------------------------


async def test_pipeline_replaces_changed_documents(store: RLMVectorStore, embedding: WordEmbedding) -> None:
    pipeline = IngestionPipeline(
        transformations=[SentenceSplitter(chunk_size=40, chunk_overlap=0), embedding],
        vector_store=store,
        docstore=SimpleDocumentStore(),
        docstore_strategy=DocstoreStrategy.UPSERTS,
    )
    pipeline.run(documents=DOCUMENTS)
    first = store.client.count()
    assert first >= 2
    pipeline.run(documents=DOCUMENTS)
    assert store.client.count() == first
    changed = Document(id_="drinks", text="Ada drinks water.", metadata={"topic": "drinks"})
    await pipeline.arun(documents=[changed, DOCUMENTS[1]])
    found = store.get_nodes(filters=_one("ref_doc_id", "drinks"))
    assert [node.get_content() for node in found] == ["Ada drinks water."]
    assert len(store.get_nodes(filters=_one("ref_doc_id", "places"))) >= 1


def test_pipeline_removes_documents_that_are_gone(store: RLMVectorStore, embedding: WordEmbedding) -> None:
    pipeline = IngestionPipeline(
        transformations=[SentenceSplitter(), embedding],
        vector_store=store,
        docstore=SimpleDocumentStore(),
        docstore_strategy=DocstoreStrategy.UPSERTS_AND_DELETE,
    )
    pipeline.run(documents=DOCUMENTS)
    pipeline.run(documents=DOCUMENTS[:1])
    assert {node.ref_doc_id for node in store.get_nodes()} == {"drinks"}


def _one(key: str, value: Any) -> MetadataFilters:
    return MetadataFilters(filters=[MetadataFilter(key=key, value=value)])


# -- tools, agents, memory blocks -----------------------------------------------------------------------------------


async def test_retriever_is_a_tool(index: VectorStoreIndex, store: RLMVectorStore) -> None:
    tool = RetrieverTool.from_defaults(RLMRetriever(memory=store.client, similarity_top_k=1), name="recall")
    assert "Bo lives in Rome" in tool.call("Where does Bo live, in Rome?").content
    assert "Bo lives in Rome" in (await tool.acall("Where does Bo live, in Rome?")).content
    engine = QueryEngineTool.from_defaults(index.as_query_engine(llm=MockLLM(), similarity_top_k=1))
    assert "Bo lives in Rome" in engine.call("Where does Bo live, in Rome?").content


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # what agents of LlamaIndex use of their own
async def test_agent_recalls_with_the_tool(index: VectorStoreIndex, store: RLMVectorStore) -> None:
    asked = json.dumps({"input": "Where does Bo live, in Rome?"})
    llm = Scripted(
        answers=[
            f"Thought: I need to look.\nAction: recall\nAction Input: {asked}",
            "Thought: I can answer without using any more tools.\nAnswer: In Rome.",
        ]
    )
    tool = RetrieverTool.from_defaults(
        RLMRetriever(memory=store.client, similarity_top_k=1), name="recall", description="Looks into memory."
    )
    response = await ReActAgent(tools=[tool], llm=llm, streaming=False).run("Where does Bo live?")
    assert str(response) == "In Rome."
    assert "Bo lives in Rome" in llm.prompts[1]


async def test_memory_block_keeps_old_messages_in_the_store(store: RLMVectorStore, embedding: WordEmbedding) -> None:
    block = VectorMemoryBlock(vector_store=store, embed_model=embedding, similarity_top_k=1)
    engine = create_async_engine("sqlite+aiosqlite:///:memory:")
    chat = ChatMemory.from_defaults(
        session_id="run-1", memory_blocks=[block], token_limit=60, chat_history_token_ratio=0.5, token_flush_size=10,
        async_engine=engine,
    )  # fmt: skip
    for text in ("My cat is called Schnurri and likes tuna.", "What a nice name.", "The weather is fine today, is it?"):
        await chat.aput(ChatMessage(role="user", content=text))
        await chat.aput(ChatMessage(role="assistant", content="I see, tell me more about it, please do."))
    assert store.client.count() >= 1
    assert {node.metadata["session_id"] for node in store.get_nodes()} == {"run-1"}
    messages = await chat.aget(input="What is the name of my cat Schnurri?")
    assert any("Schnurri and likes tuna" in str(message.content) for message in messages)
    await engine.dispose()
    elsewhere = VectorMemoryBlock(vector_store=store, embed_model=embedding, similarity_top_k=1)
    asked = [ChatMessage(role="user", content="What is the name of my cat Schnurri?")]
    assert "Schnurri" not in await elsewhere.aget(asked, session_id="run-2")


def test_nodes_of_one_document_are_linked(store: RLMVectorStore, embedding: WordEmbedding) -> None:
    """B039: previous and next lead from node to node through the store."""
    long = Document(id_="long", text=" ".join(f"Sentence number {number} follows." for number in range(60)))
    index = VectorStoreIndex.from_vector_store(
        store, embed_model=embedding, transformations=[SentenceSplitter(chunk_size=64, chunk_overlap=0)]
    )
    index.insert(long)
    (node,) = [node for node in store.get_nodes() if node.prev_node is None]
    seen = [node.node_id]
    while isinstance(following := node.next_node, RelatedNodeInfo):
        (node,) = store.get_nodes([following.node_id])
        seen.append(node.node_id)
    assert len(seen) == store.client.count() > 3
