"""The stores that peers.py measures: this project and others, each through what its users call.

Packages are imported when a store is loaded, so that a process has nothing in it but its own, and that one which is not
installed is left out. `Known` stands in for a model: it looks vectors up, so that embedding costs next to nothing and
the same for all.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from datetime import timedelta
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar, Final

import numpy as np
from langchain_core.embeddings import Embeddings
from synthetic import DIMENSIONS, K, Vectors

QUERIES: Final = ("dense", "hybrid", "filtered")


class Known(Embeddings):
    """Looks vectors up by their text; one it does not know is zero but for its first component."""

    def __init__(self) -> None:
        self.dimensions = DIMENSIONS
        self._known: dict[str, list[float]] = {}
        self._unknown = [1.0] + [0.0] * (DIMENSIONS - 1)

    def replace(self, texts: Sequence[str], vectors: Vectors) -> None:
        """Know these and no others."""
        self._known = dict(zip(texts, vectors.tolist(), strict=True))

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return [self.embed_query(text) for text in texts]

    def embed_query(self, text: str) -> list[float]:
        return self._known.get(text, self._unknown)


class Store:
    """A store in a folder. What it `can`: dense, hybrid, filtered (queries); add (one, durably); delete; compact."""

    about: ClassVar[str]
    needs: ClassVar[tuple[str, ...]]
    can: ClassVar[frozenset[str]] = frozenset({"dense", "filtered", "add", "delete"})
    most: ClassVar[int] = sys.maxsize
    """The most documents it is measured with, unless it is asked for by its name."""

    def __init__(self, folder: Path, known: Known) -> None:
        self.folder, self.known = folder, known

    @classmethod
    def is_installed(cls) -> bool:
        try:
            return all(find_spec(package) is not None for package in cls.needs)
        except ModuleNotFoundError:  # a package that such a package is in
            return False

    def load(self) -> None:
        """Import what it is made of."""

    def create(self) -> None:
        """Make it, with nothing in it."""
        self.open()

    def open(self) -> None:
        raise NotImplementedError

    def add(self, ids: list[str], texts: list[str], metadatas: list[dict[str, Any]]) -> None:
        raise NotImplementedError

    def finish(self) -> None:
        """Build the indexes, and save what is not saved yet."""

    def dense(self, question: str) -> list[str]:
        """Return the ids of the ten nearest."""
        raise NotImplementedError

    def hybrid(self, question: str) -> list[str]:
        """Return the ids of the ten best by vector and words."""
        raise NotImplementedError

    def filtered(self, question: str, group: str) -> list[str]:
        """Return the ids of the ten nearest of a group."""
        raise NotImplementedError

    def delete(self, ids: list[str]) -> None:
        raise NotImplementedError

    def compact(self) -> None:
        """Give back the space of what is deleted, where it can."""

    def count(self) -> int:
        raise NotImplementedError

    def close(self) -> None:
        pass


def _ids(documents: Sequence[Any]) -> list[str]:
    return [document.id for document in documents]


class Rlm(Store):
    about = "this project: langchain_rlm.RLMVectorStore"
    needs: ClassVar[tuple[str, ...]] = ("langchain_rlm",)
    can = frozenset({"dense", "hybrid", "filtered", "add", "delete", "compact"})

    def load(self) -> None:
        self._class = import_module("langchain_rlm").RLMVectorStore

    def open(self) -> None:
        self._store = self._class(self.known, path=self.folder / "memory.db")

    def add(self, ids: list[str], texts: list[str], metadatas: list[dict[str, Any]]) -> None:
        self._store.add_texts(texts, metadatas, ids=ids)

    def dense(self, question: str) -> list[str]:
        return _ids(self._store.similarity_search(question, k=K, alpha=1))

    def hybrid(self, question: str) -> list[str]:
        return _ids(self._store.similarity_search(question, k=K, alpha=0.5))

    def filtered(self, question: str, group: str) -> list[str]:
        return _ids(self._store.similarity_search(question, k=K, alpha=1, filter={"group": group}))

    def delete(self, ids: list[str]) -> None:
        self._store.delete(ids)

    def compact(self) -> None:
        self._store.memory.compact()

    def count(self) -> int:
        return int(self._store.memory.count())

    def close(self) -> None:
        self._store.memory.close()


class RlmWithoutExtras(Rlm):
    about = "this project without the packages of its extra `fast`"
    needs = ("langchain_rlm", "simsimd")

    def load(self) -> None:
        sys.modules["simsimd"] = None  # type: ignore[assignment]  # so that its import fails, as Python documents
        super().load()


class Chroma(Store):
    about = "langchain_chroma.Chroma, persistent, HNSW by cosine"
    needs = ("langchain_chroma",)

    def load(self) -> None:
        self._class = import_module("langchain_chroma").Chroma
        self._settings = import_module("chromadb.config").Settings

    def open(self) -> None:
        settings = self._settings(
            anonymized_telemetry=False, is_persistent=True, persist_directory=str(self.folder / "chroma")
        )
        self._store = self._class(
            "documents", self.known, client_settings=settings, collection_metadata={"hnsw:space": "cosine"}
        )

    def add(self, ids: list[str], texts: list[str], metadatas: list[dict[str, Any]]) -> None:
        self._store.add_texts(texts, metadatas, ids=ids)

    def dense(self, question: str) -> list[str]:
        return _ids(self._store.similarity_search(question, k=K))

    def filtered(self, question: str, group: str) -> list[str]:
        return _ids(self._store.similarity_search(question, k=K, filter={"group": group}))

    def delete(self, ids: list[str]) -> None:
        self._store.delete(ids)

    def count(self) -> int:
        return len(self._store.get(include=[])["ids"])


class FaissFlat(Store):
    about = "langchain_community FAISS, every vector compared; saved at the end; a filter fetches all"
    needs: ClassVar[tuple[str, ...]] = ("langchain_community", "faiss")
    can = frozenset({"dense", "filtered", "delete"})

    def load(self) -> None:
        self._class = import_module("langchain_community.vectorstores").FAISS
        self._documents = import_module("langchain_community.docstore.in_memory").InMemoryDocstore
        distances = import_module("langchain_community.vectorstores.utils").DistanceStrategy
        self._inner_product = distances.MAX_INNER_PRODUCT
        self._faiss = import_module("faiss")

    def _index(self) -> Any:
        return self._faiss.IndexFlatIP(DIMENSIONS)

    def create(self) -> None:
        self._store = self._class(
            self.known, self._index(), self._documents(), {}, distance_strategy=self._inner_product
        )

    def open(self) -> None:
        self._store = self._class.load_local(str(self.folder), self.known, allow_dangerous_deserialization=True)

    def add(self, ids: list[str], texts: list[str], metadatas: list[dict[str, Any]]) -> None:
        self._store.add_texts(texts, metadatas, ids=ids)

    def finish(self) -> None:
        self._store.save_local(str(self.folder))

    def dense(self, question: str) -> list[str]:
        return _ids(self._store.similarity_search(question, k=K))

    def filtered(self, question: str, group: str) -> list[str]:
        everything = self._store.index.ntotal
        return _ids(self._store.similarity_search(question, k=K, filter={"group": group}, fetch_k=everything))

    def delete(self, ids: list[str]) -> None:
        self._store.delete(ids)

    def count(self) -> int:
        return int(self._store.index.ntotal)


class FaissHnsw(FaissFlat):
    about = "langchain_community FAISS, HNSW of 32 links, efSearch 64; saved at the end; a filter fetches all"
    can = frozenset({"dense", "filtered"})

    def _index(self) -> Any:
        index = self._faiss.IndexHNSWFlat(DIMENSIONS, 32, self._faiss.METRIC_INNER_PRODUCT)
        index.hnsw.efConstruction = 80
        return index

    def open(self) -> None:
        super().open()
        self._store.index.hnsw.efSearch = 64


class LanceDb(Store):
    about = "lancedb, every vector compared, with its text index (LangChain's own builds that index for each query)"
    needs = ("lancedb", "pyarrow")
    can = frozenset({"dense", "hybrid", "filtered", "add", "delete", "compact"})

    def load(self) -> None:
        self._lancedb, self._arrow = import_module("lancedb"), import_module("pyarrow")
        self._reranker = import_module("lancedb.rerankers").RRFReranker()

    def create(self) -> None:
        arrow = self._arrow
        columns = [(name, arrow.string()) for name in ("id", "text", "group", "source")]
        vector = ("vector", arrow.list_(arrow.float32(), DIMENSIONS))
        schema = arrow.schema([*columns, ("year", arrow.int64()), vector])
        self._table = self._lancedb.connect(str(self.folder)).create_table("documents", schema=schema)

    def open(self) -> None:
        self._table = self._lancedb.connect(str(self.folder)).open_table("documents")

    def add(self, ids: list[str], texts: list[str], metadatas: list[dict[str, Any]]) -> None:
        vectors = self.known.embed_documents(texts)
        rows = zip(ids, texts, metadatas, vectors, strict=True)
        self._table.add([{"id": id, "text": text, **metadata, "vector": vector} for id, text, metadata, vector in rows])

    def finish(self) -> None:
        self._table.create_fts_index("text")
        self._table.optimize()

    def _found(self, query: Any) -> list[str]:
        return [row["id"] for row in query.select(["id", "text", "group"]).limit(K).to_list()]

    def _nearest(self, question: str) -> Any:
        return self._table.search(self.known.embed_query(question)).distance_type("cosine")

    def dense(self, question: str) -> list[str]:
        return self._found(self._nearest(question))

    def hybrid(self, question: str) -> list[str]:
        query = self._table.search(query_type="hybrid").vector(self.known.embed_query(question)).text(question)
        return [row["id"] for row in query.rerank(self._reranker).limit(K).to_list()]

    def filtered(self, question: str, group: str) -> list[str]:
        return self._found(self._nearest(question).where(f"`group` = '{group}'", prefilter=True))

    def delete(self, ids: list[str]) -> None:
        self._table.delete(f"id in ({', '.join(repr(id) for id in ids)})")

    def compact(self) -> None:
        self._table.optimize(cleanup_older_than=timedelta(0))

    def count(self) -> int:
        return int(self._table.count_rows())


class LanceDbIvfPq(LanceDb):
    about = "lancedb, its IVF-PQ index as it comes, with its text index"

    def finish(self) -> None:
        self._table.create_index(metric="cosine")
        super().finish()


def _use_sqlite_with_extensions() -> None:
    """Put pysqlite3 in the place of a sqlite3 that was built without loading of extensions."""
    if not hasattr(import_module("sqlite3").Connection, "enable_load_extension"):
        sys.modules["sqlite3"] = import_module("pysqlite3")
        sys.modules["sqlite3.dbapi2"] = import_module("pysqlite3.dbapi2")


class SqliteVec(Store):
    about = "langchain_community SQLiteVec"
    needs = ("langchain_community", "sqlite_vec")
    can = frozenset({"dense", "add"})

    def load(self) -> None:
        _use_sqlite_with_extensions()
        self._class = import_module("langchain_community.vectorstores").SQLiteVec

    def open(self) -> None:
        self._connection = self._class.create_connection(str(self.folder / "vectors.db"))
        self._store = self._class("documents", self._connection, self.known)

    def add(self, ids: list[str], texts: list[str], metadatas: list[dict[str, Any]]) -> None:
        # it takes no ids
        metadatas = [{**metadata, "id": id} for id, metadata in zip(ids, metadatas, strict=True)]
        self._store.add_texts(texts, metadatas)

    def dense(self, question: str) -> list[str]:
        return [document.metadata["id"] for document in self._store.similarity_search(question, k=K)]

    def count(self) -> int:
        return int(self._connection.execute("SELECT count(*) FROM documents").fetchone()[0])

    def close(self) -> None:
        self._connection.close()


class SqliteStore(Store):
    about = "LangGraph's SqliteStore with its vector index, without an index of words"
    needs = ("langgraph.store.sqlite", "sqlite_vec")

    def load(self) -> None:
        _use_sqlite_with_extensions()
        self._class = import_module("langgraph.store.sqlite").SqliteStore
        self._put = import_module("langgraph.store.base").PutOp

    def open(self) -> None:
        # it reads text_fields where its documentation says fields
        index = {"dims": DIMENSIONS, "embed": self.known, "fields": ["text"], "text_fields": ["text"]}
        self._opened = self._class.from_conn_string(str(self.folder / "store.db"), index=index)
        self._store = self._opened.__enter__()
        self._store.setup()

    def add(self, ids: list[str], texts: list[str], metadatas: list[dict[str, Any]]) -> None:
        items = zip(ids, texts, metadatas, strict=True)
        self._store.batch([self._put(("docs",), id, {"text": text, **metadata}) for id, text, metadata in items])

    def dense(self, question: str) -> list[str]:
        return [item.key for item in self._store.search(("docs",), query=question, limit=K)]

    def filtered(self, question: str, group: str) -> list[str]:
        return [item.key for item in self._store.search(("docs",), query=question, limit=K, filter={"group": group})]

    def delete(self, ids: list[str]) -> None:
        self._store.batch([self._put(("docs",), id, None) for id in ids])

    def count(self) -> int:
        return int(self._store.conn.execute("SELECT count(*) FROM store").fetchone()[0])

    def close(self) -> None:
        self._opened.__exit__(None, None, None)


class Usearch(Store):
    about = "usearch, HNSW by cosine, vectors alone, without texts; saved at the end"
    needs = ("usearch",)
    can = frozenset({"dense", "delete"})

    def load(self) -> None:
        self._class = import_module("usearch.index").Index

    def create(self) -> None:
        self._index = self._class(ndim=DIMENSIONS, metric="cos", dtype="f32")

    def open(self) -> None:
        self._index = self._class.restore(str(self.folder / "index.usearch"))

    def add(self, ids: list[str], texts: list[str], metadatas: list[dict[str, Any]]) -> None:
        vectors = np.array(self.known.embed_documents(texts), dtype=np.float32)
        self._index.add(np.array([int(id[1:]) for id in ids]), vectors)

    def finish(self) -> None:
        self._index.save(str(self.folder / "index.usearch"))

    def dense(self, question: str) -> list[str]:
        vector = np.array(self.known.embed_query(question), dtype=np.float32)
        return [f"n{int(key):07d}" for key in self._index.search(vector, K).keys]

    def delete(self, ids: list[str]) -> None:
        self._index.remove(np.array([int(id[1:]) for id in ids]))

    def count(self) -> int:
        return len(self._index)


class SqliteHybridSearch(Store):
    about = "sqlite_hybrid_search.Engine: usearch and FTS5, fused by rank"
    needs = ("sqlite_hybrid_search",)
    can = frozenset({"dense", "hybrid", "add"})

    def load(self) -> None:
        self._class = import_module("sqlite_hybrid_search").Engine

    def open(self) -> None:
        self._engine = self._class(str(self.folder / "memory.sqlite3"), DIMENSIONS)

    def add(self, ids: list[str], texts: list[str], metadatas: list[dict[str, Any]]) -> None:
        rows = zip(ids, texts, metadatas, strict=True)
        documents = [{"id": id, "text": text, "metadata": json.dumps(metadata)} for id, text, metadata in rows]
        self._engine.add(documents, self.known.embed_documents(texts))

    def dense(self, question: str) -> list[str]:
        return [row["document_id"] for row in self._engine.search(self.known.embed_query(question), K)]

    def hybrid(self, question: str) -> list[str]:
        found = self._engine.search_hybrid(question, self.known.embed_query(question), K)
        return [row["document_id"] for row in found]

    def count(self) -> int:
        return int(self._engine.chunk_count())

    def close(self) -> None:
        del self._engine


class Ensemble(FaissFlat):
    about = "LangChain's EnsembleRetriever of FAISS flat and rank-bm25, which is built anew when it is opened"
    needs = ("langchain_classic", "langchain_community", "faiss", "rank_bm25")
    can = frozenset({"dense", "hybrid"})
    most = 20_000

    def load(self) -> None:
        super().load()
        self._ensemble = import_module("langchain_classic.retrievers").EnsembleRetriever
        self._by_words = import_module("langchain_community.retrievers").BM25Retriever

    def finish(self) -> None:
        super().finish()
        self._build()

    def open(self) -> None:
        super().open()
        self._build()

    def _build(self) -> None:
        documents = [self._store.docstore.search(id) for id in self._store.index_to_docstore_id.values()]
        by_words = self._by_words.from_documents(documents, k=K)
        by_vector = self._store.as_retriever(search_kwargs={"k": K})
        self._retriever = self._ensemble(retrievers=[by_words, by_vector], weights=[0.5, 0.5])

    def hybrid(self, question: str) -> list[str]:
        return [document.id or document.metadata["id"] for document in self._retriever.invoke(question)[:K]]


class Fusion(Store):
    about = "LlamaIndex's QueryFusionRetriever of its SimpleVectorStore and bm25s; saved at the end"
    needs = ("llama_index.core", "llama_index.retrievers.bm25")
    can = frozenset({"dense", "hybrid"})
    most = 2_000

    def load(self) -> None:
        core = import_module("llama_index.core")
        core.Settings.llm = import_module("llama_index.core.llms").MockLLM()
        core.Settings.embed_model = import_module("llama_index.core.embeddings").MockEmbedding(embed_dim=DIMENSIONS)
        self._core = core
        schema = import_module("llama_index.core.schema")
        self._node, self._query = schema.TextNode, schema.QueryBundle
        self._by_words = import_module("llama_index.retrievers.bm25").BM25Retriever
        self._fusion = import_module("llama_index.core.retrievers").QueryFusionRetriever

    def create(self) -> None:
        self._index = self._core.VectorStoreIndex([])
        self._nodes: list[Any] = []

    def open(self) -> None:
        context = self._core.StorageContext.from_defaults(persist_dir=str(self.folder))
        self._index = self._core.load_index_from_storage(context)
        self._build(self._by_words.from_persist_dir(str(self.folder / "words")))

    def _build(self, by_words: Any) -> None:
        self._by_vector = self._index.as_retriever(similarity_top_k=K)
        self._retriever = self._fusion(
            [self._by_vector, by_words], mode="relative_score", similarity_top_k=K, num_queries=1, use_async=False
        )

    def add(self, ids: list[str], texts: list[str], metadatas: list[dict[str, Any]]) -> None:
        rows = zip(ids, texts, metadatas, self.known.embed_documents(texts), strict=True)
        nodes = [self._node(id_=id, text=text, metadata=data, embedding=vector) for id, text, data, vector in rows]
        self._index.insert_nodes(nodes)
        self._nodes += nodes

    def finish(self) -> None:
        self._index.storage_context.persist(str(self.folder))
        by_words = self._by_words.from_defaults(nodes=self._nodes, similarity_top_k=K, skip_stemming=True)
        by_words.persist(str(self.folder / "words"))
        self._build(by_words)

    def _asked(self, retriever: Any, question: str) -> list[str]:
        query = self._query(question, embedding=self.known.embed_query(question))
        return [found.node.node_id for found in retriever.retrieve(query)]

    def dense(self, question: str) -> list[str]:
        return self._asked(self._by_vector, question)

    def hybrid(self, question: str) -> list[str]:
        return self._asked(self._retriever, question)

    def count(self) -> int:
        return len(self._index.docstore.docs)


STORES: Final[dict[str, type[Store]]] = {
    "rlm": Rlm,
    "rlm_plain": RlmWithoutExtras,
    "chroma": Chroma,
    "faiss_flat": FaissFlat,
    "faiss_hnsw": FaissHnsw,
    "lancedb": LanceDb,
    "lancedb_ivfpq": LanceDbIvfPq,
    "sqlitevec": SqliteVec,
    "sqlitestore": SqliteStore,
    "usearch": Usearch,
    "sqlite_hybrid": SqliteHybridSearch,
    "ensemble": Ensemble,
    "fusion": Fusion,
}
