"""One store, both frameworks at once: what one adds the other finds, in one process and in two."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("langchain_core", reason="needs the extra langchain")
pytest.importorskip("llama_index.core", reason="needs the extra llamaindex")

from langchain_core.documents import Document
from llama_index.core import VectorStoreIndex
from llama_index.core.node_parser import SentenceSplitter
from llama_index.core.schema import Document as LlamaDocument
from llama_index.core.schema import NodeRelationship, RelatedNodeInfo, TextNode
from llama_index.core.vector_stores.types import (
    MetadataFilter,
    MetadataFilters,
    VectorStoreQuery,
    VectorStoreQueryMode,
)

import langchain_rlm
import llamaindex_rlm
from langchain_support import WordEmbeddings
from llamaindex_support import WordEmbedding
from rlm_memory import Memory
from rlm_memory.errors import EmbeddingMismatchError
from support import WordEmbedder

METADATA = {"topic": "drinks", "year": 2024, "hot": True, "tags": ["tea", "green"], "by": {"name": "Ada"}, "none": None}


@pytest.fixture(params=["one memory", "a memory each"])
def stores(
    request: pytest.FixtureRequest, store_path: Path
) -> Iterator[tuple[langchain_rlm.RLMVectorStore, llamaindex_rlm.RLMVectorStore]]:
    """A vector store of each framework on one file."""
    with Memory.open(store_path, embedder=langchain_rlm.as_embedder(WordEmbeddings())) as memory:
        lang = langchain_rlm.RLMVectorStore(memory=memory)
        if request.param == "one memory":
            yield lang, llamaindex_rlm.RLMVectorStore(memory=memory)
        else:
            with Memory.open(store_path, embedder=llamaindex_rlm.as_embedder(WordEmbedding(model_name="words"))) as own:
                yield lang, llamaindex_rlm.RLMVectorStore(memory=own)


def question(text: str, mode: str = "default", **options: object) -> VectorStoreQuery:
    return VectorStoreQuery(query_str=text, mode=VectorStoreQueryMode(mode), **options)


def one(key: str, value: object, operator: str = "==") -> MetadataFilters:
    return MetadataFilters(filters=[MetadataFilter(key=key, value=value, operator=operator)])


# -- what one adds the other finds ----------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["default", "hybrid", "text_search", "mmr"])
def test_llama_index_finds_what_langchain_added(stores, mode: str) -> None:
    """B039."""
    lang, llama = stores
    lang.add_documents(
        [
            Document(id="tea", page_content="Ada drinks green tea", metadata=METADATA),
            Document(id="rome", page_content="Bo lives in Rome", metadata={"topic": "places"}),
        ]
    )
    expected = TextNode(id_="tea", text="Ada drinks green tea", metadata=METADATA)
    assert llama.query(question("Ada drinks green tea", mode)).nodes == [expected]
    assert llama.query(question("Bo lives in Rome", mode, filters=one("topic", "drinks"))).nodes == [expected]
    assert llama.get_nodes(filters=one("tags", ["red", "green"], "any")) == [expected]
    retriever = llamaindex_rlm.RLMRetriever(memory=lang.memory, similarity_top_k=1, filters={"hot": True})
    assert [found.node for found in retriever.retrieve("Bo lives in Rome")] == [expected]
    index = VectorStoreIndex.from_vector_store(llama, embed_model=WordEmbedding(model_name="words"))
    assert [found.node for found in index.as_retriever(similarity_top_k=1).retrieve("green tea")] == [expected]


def test_langchain_finds_what_llama_index_added(stores) -> None:
    """B039: with the user's metadata and no more."""
    lang, llama = stores
    source = RelatedNodeInfo(node_id="diary", metadata=METADATA)
    tea = TextNode(
        id_="tea", text="Ada drinks green tea", metadata=METADATA, excluded_llm_metadata_keys=["hot"],
        relationships={NodeRelationship.SOURCE: source}, start_char_idx=0, end_char_idx=20,
    )  # fmt: skip
    llama.add([tea, TextNode(id_="rome", text="Bo lives in Rome", metadata={"topic": "places"})])
    expected = Document(id="tea", page_content="Ada drinks green tea", metadata=METADATA)
    assert lang.similarity_search("Ada drinks green tea", k=1) == [expected]
    assert lang.similarity_search("Bo lives in Rome", k=1, filter={"topic": "drinks"}) == [expected]
    assert lang.similarity_search("Bo lives in Rome", k=1, filter={"by.name": "Ada", "year": {"$gt": 2000}}) == [
        expected
    ]
    assert lang.get_by_ids(["tea"]) == [expected]
    assert lang.as_retriever(search_kwargs={"k": 1}).invoke("Ada drinks green tea") == [expected]
    found = langchain_rlm.RLMRetriever(memory=lang.memory, k=1).invoke("Ada drinks green tea")
    assert found == [expected]
    assert llama.get_nodes(["tea"]) == [tea]


def test_chunks_of_an_index_are_plain_documents(stores) -> None:
    lang, llama = stores
    index = VectorStoreIndex.from_vector_store(
        llama, embed_model=WordEmbedding(model_name="words"),
        transformations=[SentenceSplitter(chunk_size=64, chunk_overlap=0)],
    )  # fmt: skip
    index.insert(
        LlamaDocument(
            id_="diary", text=" ".join(f"Sentence {number} is about foxes." for number in range(40)),
            metadata={"file": "diary.txt"},
        )
    )  # fmt: skip
    found = lang.similarity_search("Sentence 7 is about foxes", k=100)
    assert len(found) > 3
    assert all(document.metadata == {"file": "diary.txt"} for document in found)
    assert any("Sentence 7 is about foxes." in document.page_content for document in found)


def test_what_one_changes_or_deletes_the_other_sees(stores) -> None:
    """B026, B031, B129."""
    lang, llama = stores
    llama.add([TextNode(id_="x", text="red fox", metadata={"version": 1})])
    lang.add_documents([Document(id="x", page_content="blue whale", metadata={"version": 2})])
    assert llama.get_nodes() == [TextNode(id_="x", text="blue whale", metadata={"version": 2})]
    assert llama.query(question("blue whale")).similarities == pytest.approx([1.0], abs=1e-5)
    llama.add([TextNode(id_="x", text="green frog", metadata={"version": 3})])
    assert lang.get_by_ids(["x"]) == [Document(id="x", page_content="green frog", metadata={"version": 3})]
    lang.delete(["x"])
    assert llama.get_nodes() == []
    lang.add_texts(["red fox", "blue whale"], [{"a": 1}, {"a": 2}], ids=["x", "y"])
    llama.delete_nodes(filters=one("a", 1))
    assert [document.id for document in lang.similarity_search("fox", k=9)] == ["y"]
    source = {NodeRelationship.SOURCE: RelatedNodeInfo(node_id="doc")}
    llama.add([TextNode(text=f"part {number}", relationships=source) for number in range(3)])
    llama.delete("doc")
    assert [document.id for document in lang.similarity_search("part", k=9)] == ["y"]
    assert lang.memory.check()


def test_same_filter_means_the_same_in_both(stores) -> None:
    """B016, B077."""
    lang, llama = stores
    lang.add_texts(["a", "b"], [{"cat": "news", "n": 5, "tags": ["x", "z"]}, {"n": 5.0}], ids=["a", "b"])
    llama.add([TextNode(id_="c", text="c", metadata={"cat": "sport", "n": "5", "tags": []})])
    for mine, theirs, expected in (
        ({"cat": {"$ne": "news"}}, one("cat", "news", "!="), ["b", "c"]),
        ({"cat": {"$nin": ["news"]}}, one("cat", ["news"], "nin"), ["b", "c"]),
        ({"n": 5}, one("n", 5), ["a", "b"]),
        ({"tags": {"$contains": "x"}}, one("tags", "x", "contains"), ["a"]),
        ({"tags": {"$any": ["x", "y"]}}, one("tags", ["x", "y"], "any"), ["a"]),
        ({"tags": {"$empty": True}}, one("tags", None, "is_empty"), ["b", "c"]),
    ):
        assert sorted(document.id for document in lang.similarity_search("a", k=9, filter=mine)) == expected
        assert [node.node_id for node in llama.get_nodes(filters=theirs)] == expected
        assert [node.node_id for node in llama.get_nodes(filters=mine)] == expected


def test_uses_are_counted_alike(stores) -> None:
    """B135."""
    lang, llama = stores
    lang.add_texts(["red fox", "blue whale"], ids=["x", "y"])
    lang.similarity_search("red fox", k=1, session_id="run-1")
    llama.query(question("red fox"), session_id="run-1")
    llamaindex_rlm.RLMRetriever(memory=llama.client, similarity_top_k=1, session_id="run-1").retrieve("red fox")
    langchain_rlm.RLMRetriever(memory=lang.memory, k=1, session_id="run-1").invoke("red fox")
    lang.similarity_search("red fox", k=1)
    llama.client.count()  # its own reads wait for what it has reported
    assert {node.id: (node.access_count, node.tier) for node in lang.memory.list()} == {
        "x": (4, "session"), "y": (0, "task"),
    }  # fmt: skip


# -- the embedding model --------------------------------------------------------------------------------------------


def test_same_model_of_both_frameworks_is_one_model(store_path: Path) -> None:
    """B066."""
    name = "text-embedding-3-small"
    with Memory.open(store_path, embedder=langchain_rlm.as_embedder(WordEmbeddings(name))) as memory:
        memory.add("red fox")
        assert memory.stats().embedding_model == f"openai:{name}"
    with Memory.open(store_path, embedder=llamaindex_rlm.as_embedder(WordEmbedding(model_name=name))) as memory:
        assert memory.search("red fox")[0].semantic == pytest.approx(1.0, abs=1e-5)
    with Memory.open(store_path, embedder=f"openai:{name}") as memory:
        assert memory.count() == 1
    with pytest.raises(EmbeddingMismatchError):
        Memory.open(store_path, embedder=llamaindex_rlm.as_embedder(WordEmbedding(model_name="other")))


# -- at once --------------------------------------------------------------------------------------------------------


def test_both_write_and_read_at_once_in_threads(stores) -> None:
    """B008."""
    lang, llama = stores
    errors: list[BaseException] = []

    def run(work) -> None:
        try:
            for number in range(20):
                work(number)
        except BaseException as error:  # noqa: BLE001 - shown by the assertion
            errors.append(error)

    threads = [
        threading.Thread(target=run, args=[work])
        for work in (
            lambda n: lang.add_texts([f"fox number {n}"], ids=[f"lang-{n}"]),
            lambda n: llama.add([TextNode(id_=f"llama-{n}", text=f"whale number {n}")]),
            lambda n: lang.similarity_search("whale", k=3),
            lambda n: llama.query(question("fox", "hybrid", similarity_top_k=3)),
        )
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert lang.memory.count() == llama.client.count() == 40
    assert lang.memory.check()


async def test_both_write_and_read_at_once_in_one_loop(stores) -> None:
    lang, llama = stores
    await asyncio.gather(
        *(lang.aadd_texts([f"fox number {n}"], ids=[f"lang-{n}"]) for n in range(10)),
        *(llama.async_add([TextNode(id_=f"llama-{n}", text=f"whale number {n}")]) for n in range(10)),
        *(lang.asimilarity_search("whale", k=3) for _ in range(10)),
        *(llama.aquery(question("fox", "hybrid", similarity_top_k=3)) for _ in range(10)),
    )
    assert (await llama.aquery(question("fox number 3"))).ids == ["lang-3"]
    assert [document.id for document in await lang.asimilarity_search("whale number 3", k=1)] == ["llama-3"]
    assert lang.memory.count() == 20
    assert lang.memory.check()


OTHER_PROCESS = """
import sys
from langchain_core.documents import Document
import langchain_rlm
from rlm_memory import Memory
from support import WordEmbedder

with Memory.open(sys.argv[1], embedder=WordEmbedder()) as memory:
    store = langchain_rlm.RLMVectorStore(memory=memory)
    print("open", flush=True)
    sys.stdin.readline()
    for n in range(20):
        store.add_documents([Document(id=f"lang-{n}", page_content=f"fox number {n}", metadata={"by": "lang", "n": n})])
        store.similarity_search("whale", k=3)
    print("written", flush=True)
    sys.stdin.readline()
    found = store.similarity_search("whale number 7", k=1)
    print(found[0].id, found[0].metadata, memory.count(), bool(memory.check()), flush=True)
"""


def test_both_write_and_read_at_once_in_two_processes(store_path: Path) -> None:
    """B008, B091: LangChain in one process, LlamaIndex in another, from the first opening on."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    with subprocess.Popen(
        [sys.executable, "-c", OTHER_PROCESS, str(store_path)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment,
    ) as process:  # fmt: skip
        try:
            with Memory.open(store_path, embedder=WordEmbedder()) as memory:
                store = llamaindex_rlm.RLMVectorStore(memory=memory)
                assert process.stdout.readline() == "open\n"
                _say(process)
                source = {NodeRelationship.SOURCE: RelatedNodeInfo(node_id="doc")}
                for n in range(20):
                    text, metadata = f"whale number {n}", {"by": "llama", "n": n}
                    store.add([TextNode(id_=f"llama-{n}", text=text, metadata=metadata, relationships=source)])
                    store.query(question("fox", "hybrid", similarity_top_k=3))
                assert process.stdout.readline() == "written\n"
                (found,) = store.query(question("fox number 7")).nodes
                assert found == TextNode(id_="lang-7", text="fox number 7", metadata={"by": "lang", "n": 7})
                assert len(store.get_nodes(filters=one("by", "lang"))) == 20
                _say(process)
                assert process.stdout.readline() == "llama-7 {'by': 'llama', 'n': 7} 40 True\n"
                assert memory.check()
        finally:
            process.kill()


def _say(process: subprocess.Popen[str]) -> None:
    process.stdin.write("go\n")
    process.stdin.flush()
