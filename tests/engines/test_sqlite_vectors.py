"""The table of vectors is the one that is promised: any program with sqlite-vec can read it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import get_args

import apsw
import numpy as np
import pytest

from embedding_server import EmbeddingServer
from processes import python
from rlm_memory import Memory
from rlm_memory.engines.sqlite.extension import load_vec0
from rlm_memory.engines.sqlite.keys import vector_key
from rlm_memory.records import VectorStorage
from support import WordEmbedder


def table_of(path: Path) -> str:
    """Return the statement that made the table of vectors."""
    connection = apsw.Connection(str(path))
    (sql,) = connection.execute("SELECT sql FROM sqlite_schema WHERE name = 'node_embeddings'").fetchone()
    connection.close()
    return str(sql)


@pytest.mark.loopback
@pytest.mark.enable_socket
def test_the_default_embedder_makes_a_table_of_1536_floats(store_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """B170"""
    with EmbeddingServer(dimensions=1536) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        monkeypatch.setenv("OPENAI_API_KEY", "a key")
        with Memory.open(store_path) as memory:
            memory.add("text", ids=["n"])
            stats = memory.stats()
            assert (stats.embedding_model, stats.dimensions) == ("openai:text-embedding-3-small", 1536)
    assert "vec0(node_id TEXT PRIMARY KEY, embedding FLOAT[1536]" in table_of(store_path)


@pytest.mark.parametrize("dimensions", [1, 8, 3072])
def test_the_table_has_the_length_of_the_embedder_and_no_column_of_metadata(store_path: Path, dimensions: int) -> None:
    """B159"""
    kinds = [
        {"tag": None},
        {"tag": "text"},
        {"tag": 1},
        {"tag": 1.5},
        {"tag": True},
        {"tag": ["x"]},
        {"tag": {"x": 1}},
        {},
    ]
    with Memory.open(store_path, embedder=WordEmbedder(dimensions)) as memory:
        ids = memory.add([f"text {i}" for i in range(len(kinds))], metadatas=kinds)
        assert [node.metadata for node in memory.get(ids)] == kinds
        assert memory.check()
    columns = table_of(store_path).partition("vec0(")[2]
    assert columns.startswith(f"node_id TEXT PRIMARY KEY, embedding FLOAT[{dimensions}], chunk_size=")
    assert columns.count(",") == 2


@pytest.mark.parametrize("length", [12, 13, 5_000])
def test_nodes_with_long_values_can_be_deleted(store_path: Path, length: int) -> None:
    """B142: before 0.1.9, sqlite-vec could not delete a row with a text of more than 12 characters."""
    with Memory.open(store_path, embedder=WordEmbedder()) as memory:
        memory.add(["one", "two"], ids=["i" * length, "other"], metadatas=[{"tag": "t" * length}, {}])
        assert memory.delete(where={"tag": "t" * length}) == 1
        assert memory.check()
        assert [hit.id for hit in memory.search("one", alpha=1)] == ["other"]


def test_another_program_finds_the_nearest_vector(store_path: Path) -> None:
    program = """
        import apsw, json, sqlite_vec
        connection = apsw.Connection(sys.argv[1], flags=apsw.SQLITE_OPEN_READONLY)
        connection.enable_load_extension(True)
        connection.load_extension(sqlite_vec.loadable_path())
        nearest = "SELECT node_id FROM node_embeddings WHERE embedding MATCH vec_f32(?) AND k = 2 ORDER BY distance"
        rows = connection.execute(nearest, (sys.argv[2],))
        print(json.dumps([id for id, in rows]))
    """
    embedder = WordEmbedder(8)
    with Memory.open(store_path, embedder=embedder) as memory:
        memory.add(["red", "blue", "green"], ids=["r", "b", "g"])
        memory.update("g", text="yellow")
    query = embedder.embed_query("yellow")
    assert json.loads(python(program, store_path, json.dumps(query.tolist())))[0] == "g"


@pytest.mark.parametrize("storage", get_args(VectorStorage))
def test_a_question_that_signs_tell_nothing_about_finds_k_nodes(storage: VectorStorage) -> None:
    """All vectors have the same signs, and the question has as much against them as for them."""
    rows = np.abs(np.random.default_rng(0).standard_normal((600, 200))) + 0.01
    with Memory.open(":memory:", embedder=None, embedding_storage=storage) as memory:
        memory.add([f"text {i}" for i in range(600)], embeddings=rows)
        hits = memory.search(embedding=[1.0, -1.0, *[0.0] * 198], k=5)
    assert len(hits) == 5
    assert hits[0].semantic is not None
    assert hits[0].semantic >= hits[-1].semantic


def vectors_in(connection: apsw.Connection) -> dict[str, list[tuple[object, ...]]]:
    """Return all that vec0 keeps of the vectors."""
    names = ("chunks", "rowids", "vector_chunks00")
    return {name: list(connection.execute(f"SELECT * FROM node_embeddings_{name} ORDER BY 1")) for name in names}


STORED_BY_VEC0 = {"float32": "?", "int8": "vec_int8(?)", "bit": "vec_bit(?)"}


@pytest.mark.parametrize("storage", get_args(VectorStorage))
def test_vectors_come_and_go_as_with_vec0(store_path: Path, tmp_path: Path, storage: VectorStorage) -> None:
    """Whole chunks and parts of chunks, where new vectors take the slots that vec0 would give them."""
    vectors = np.random.default_rng(1).standard_normal((400, 256))
    ids = [str(i) for i in range(len(vectors))]
    steps = [
        ("add", [0, 1, 2]),
        ("add", [*range(3, 100)]),
        ("delete", [*range(3, 60), 70, 71, 98]),
        ("add", [3, 4]),
        ("add", [*range(200, 390)]),
        ("delete", [*range(200, 390)]),
        ("add", [390]),
        ("delete", [0, 390]),
        ("add", [*range(5, 20), 391]),
    ]
    with Memory.open(store_path, embedder=None, embedding_storage=storage) as memory:
        memory.add(["first"], ids=["first"], embeddings=vectors[-1:])
        memory.backup(tmp_path / "copy.db")
        stored: dict[str, bytes] = {}
        theirs = apsw.Connection(str(tmp_path / "copy.db"))
        ours = apsw.Connection(str(store_path))
        for connection in (ours, theirs):
            load_vec0(connection)
        for what, numbers in steps:
            some = [ids[i] for i in numbers]
            if what == "add":
                memory.add(some, ids=some, embeddings=vectors[numbers])
                stored.update(ours.execute("SELECT node_id, embedding FROM node_embeddings"))
                insert = f"INSERT INTO node_embeddings (node_id, embedding) VALUES (?, {STORED_BY_VEC0[storage]})"
                theirs.executemany(insert, [(key, stored[key]) for key in map(key_of, some)])
            else:
                memory.delete(some)
                theirs.executemany("DELETE FROM node_embeddings WHERE node_id = ?", [(key_of(id),) for id in some])
            assert vectors_in(ours) == vectors_in(theirs)
        assert len(vectors_in(theirs)["rowids"]) == 58
        ours.close()
        theirs.close()
        assert memory.check()
        for i in (5, 99, 391):
            assert memory.search(embedding=vectors[i], k=1)[0].id == ids[i]
        memory.clear()
        assert memory.check()


def key_of(id: str) -> str:
    return vector_key("default", id)


def test_the_nearest_are_found_where_signs_tell_little() -> None:
    """Vectors without clusters: the nearest one is hardly nearer than all others."""
    random = np.random.default_rng(5)
    vectors = random.standard_normal((3000, 512)).astype(np.float32)
    questions = random.standard_normal((20, 512)).astype(np.float32)
    cosines = (questions @ vectors.T) / np.linalg.norm(vectors, axis=1)
    nearest = np.argsort(-cosines, axis=1)[:, :10]
    with Memory.open(":memory:", embedder=None) as memory:
        ids = [str(i) for i in range(len(vectors))]
        memory.add(ids, ids=ids, embeddings=vectors)
        found = [{int(hit.id) for hit in memory.search(embedding=question, k=10)} for question in questions]
    shared = sum(len(some & set(best)) for some, best in zip(found, nearest.tolist(), strict=True))
    assert shared >= 0.99 * nearest.size
