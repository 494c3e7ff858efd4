"""The file of a store: who may read it, what is refused, what reading leaves behind, what damage does."""

from __future__ import annotations

import os
import random
import re
import shutil
import stat
import sys
import tempfile
import warnings
from pathlib import Path

import apsw
import pytest

from processes import python
from rlm_memory import Memory, RLMError
from rlm_memory.checkpoints import CheckpointStore, RLMSession
from rlm_memory.errors import (
    InvalidInputError,
    StoreClosedError,
    StoreCorruptError,
    StoreError,
    StoreReadOnlyError,
    StoreVersionError,
)
from support import WordEmbedder


def fill(path: Path, **options) -> None:
    with Memory.open(path, embedder=WordEmbedder(16), **options) as memory:
        memory.add(
            [f"text {i} topic{i % 7} 设备" for i in range(60)],
            ids=[str(i) for i in range(60)],
            metadatas=[{"n": i, "tags": [str(i % 3)]} for i in range(60)],
        )


def trace(folder: Path) -> dict[str, tuple[int, bytes]]:
    """Return every file of a folder with the time of its last change and its bytes."""
    return {path.name: (path.stat().st_mtime_ns, path.read_bytes()) for path in sorted(folder.iterdir())}


# -- who may read it ------------------------------------------------------------------------------------------------


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such modes")
def test_files_are_for_their_owner_alone(tmp_path, monkeypatch):
    met: dict[str, set[int]] = {}
    renamed = os.replace

    def look() -> None:
        for path in tmp_path.rglob("*"):
            kind = "folder" if path.is_dir() else re.sub(r"[0-9a-f]{8,}|[0-9]+", "*", path.name)
            met.setdefault(kind, set()).add(stat.S_IMODE(path.stat().st_mode))

    def replace(*paths) -> None:
        look()  # what has another name for a moment
        renamed(*paths)

    monkeypatch.setattr(os, "replace", replace)
    before = os.umask(0)
    try:
        with Memory.open(tmp_path / "memory.db", embedder=WordEmbedder()) as memory:
            memory.add("text")
            writer = apsw.Connection(str(tmp_path / "memory.db"))
            with writer:
                writer.execute("DELETE FROM sessions")  # so that accesses wait in a file of their own
                memory.search("text", session="s")
                look()
            writer.close()
            memory.backup(tmp_path / "backup.db")
            memory.export(tmp_path / "export.jsonl")
            look()
        with RLMSession("s", store=CheckpointStore(tmp_path / "a/b/checkpoints"), namespace={"x": bytes(100_000)}) as s:
            s.begin_operation("llm", {"prompt": "p"}, idempotent=True)
            s.checkpoint().save(tmp_path / "c/d/state.rlmc")
        look()
    finally:
        os.umask(before)
    assert met.pop("folder") == {0o700}
    assert {mode for modes in met.values() for mode in modes} == {0o600}
    assert {
        "memory.db",
        "memory.db-wal",
        "memory.db-shm",
        "backup.db",
        "backup.db.*.partial",
        "export.jsonl",
        "state.rlmc",
        "journal.jsonl",
        ".tmp-*",
        "lock",
    } <= met.keys(), met.keys()
    assert any(name.startswith("memory.db-accesses-") for name in met), met.keys()


@pytest.mark.skipif(sys.platform == "win32", reason="locks files in another way")
def test_a_backup_that_is_interrupted_before_it_began_leaves_nothing(store_path, tmp_path, monkeypatch):
    def interrupted(*arguments: object) -> None:
        raise KeyboardInterrupt

    fill(store_path)
    with Memory.open(store_path, embedder=WordEmbedder(16)) as memory:
        monkeypatch.setattr("fcntl.flock", interrupted)
        with pytest.raises(KeyboardInterrupt):
            memory.backup(tmp_path / "backup.db")
        monkeypatch.undo()
        assert list(tmp_path.glob("backup.db*")) == []
        memory.backup(tmp_path / "backup.db")


# -- reading leaves no trace ----------------------------------------------------------------------------------------


def read(path: Path) -> None:
    with Memory.open(path, embedder=WordEmbedder(16), read_only=True) as memory:
        assert memory.search("topic3 text", k=5, session="s")
        assert memory.get(["3", "4"])
        assert memory.count(where={"n": {"$gt": 50}}) == 9
        assert memory.stats().nodes == 60
        assert memory.check()


def test_reading_leaves_the_file_and_its_folder_as_they_are(store_path):
    """B143"""
    fill(store_path)
    before = trace(store_path.parent)
    read(store_path)
    assert trace(store_path.parent) == before


def test_reading_leaves_the_log_of_a_killed_writer_as_it_is(tmp_path):
    """B143"""
    (tmp_path / "living").mkdir()
    (tmp_path / "killed").mkdir()
    with Memory.open(tmp_path / "living" / "memory.db", embedder=WordEmbedder(16)):
        fill(tmp_path / "living" / "memory.db")
        for name in ("memory.db", "memory.db-wal"):
            shutil.copy2(tmp_path / "living" / name, tmp_path / "killed" / name)
    before = trace(tmp_path / "killed")
    assert len(before["memory.db-wal"][1]) > 0
    read(tmp_path / "killed" / "memory.db")
    after = trace(tmp_path / "killed")
    after.pop("memory.db-shm", None)  # the index of the log, which whoever opens it makes
    assert after == before
    with Memory.open(tmp_path / "killed" / "memory.db", embedder=WordEmbedder(16)) as memory:
        assert memory.check()
        assert memory.count() == 60


def test_reading_goes_on_while_others_write(store_path):
    fill(store_path)
    with Memory.open(store_path, embedder=WordEmbedder(16), read_only=True) as reader:
        assert reader.count() == 60
        with Memory.open(store_path, embedder=WordEmbedder(16)) as writer:
            writer.add("written meanwhile", ids=["new"])
            assert reader.search("written meanwhile", k=1)[0].id == "new"
            writer.compact()
            writer.delete(["new"])
        assert reader.count() == 60
        assert reader.search("written meanwhile", k=1)[0].id != "new"


@pytest.mark.skipif(sys.platform != "linux", reason="gives up the rights of root in Linux's way")
def test_a_store_in_a_folder_that_may_not_be_written_can_be_read():
    """B140"""
    program = """
        import ctypes
        with Memory.open(":memory:", embedder=WordEmbedder()) as memory:  # all modules are loaded while they can be
            memory.add("topic")
            assert memory.search("topic") and memory.check()
        if os.getuid() == 0:
            os.setgroups([]), os.setresgid(*[65534] * 3), os.setresuid(*[65534] * 3)
            PR_SET_DUMPABLE = 4  # else the process may not look into /proc/self
            assert ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 1) == 0
        try:
            open(sys.argv[1] + "-wal", "w")
        except PermissionError:
            pass
        else:
            raise AssertionError("the folder can be written")
        with Memory.open(sys.argv[1], embedder=None, read_only=True) as memory:
            print(memory.count(), memory.search("topic3", k=1)[0].metadata["n"] % 7, bool(memory.check()))
    """
    with tempfile.TemporaryDirectory() as name:  # tmp_path cannot be reached by another user
        folder = Path(name)
        fill(folder / "memory.db")
        (folder / "memory.db").chmod(0o444)
        folder.chmod(0o555)
        before = trace(folder)
        try:
            assert python(program, folder / "memory.db").split() == ["60", "3", "True"]
            assert trace(folder) == before
        finally:
            folder.chmod(0o755)


WRITES = {
    "add": lambda memory: memory.add("more"),
    "update": lambda memory: memory.update("1", text="changed"),
    "delete": lambda memory: memory.delete(["1"]),
    "delete where": lambda memory: memory.delete(where={"n": 1}),
    "clear": lambda memory: memory.clear(),
    "compact": lambda memory: memory.compact(),
    "reembed": lambda memory: memory.reembed(WordEmbedder(8, "new")),
    "promote": lambda memory: memory.promote("1", "longterm", reason="because"),
    "pin": lambda memory: memory.pin("1"),
    "unpin": lambda memory: memory.unpin("1"),
    "sweep": lambda memory: memory.sweep(),
    "decay": lambda memory: memory.decay(),
    "learn": lambda memory: memory.learn(),
    "consolidate": lambda memory: memory.consolidate(),
}


def error_of(call, memory: Memory) -> RLMError | None:
    """Return what a call raises."""
    try:
        call(memory)
    except RLMError as error:
        return error
    return None


def test_a_store_opened_for_reading_refuses_every_write(store_path, tmp_path):
    """B143"""
    fill(store_path)
    with Memory.open(store_path, embedder=WordEmbedder(16)) as memory:
        memory.export(tmp_path / "export.jsonl")
        memory.add("pending", compute_embedding=False)
    writes = {
        **WRITES,
        "import": lambda memory: memory.import_(tmp_path / "export.jsonl"),
        "embed_pending": lambda memory: memory.embed_pending(),
    }
    before = trace(store_path.parent)
    with Memory.open(store_path, embedder=WordEmbedder(16), read_only=True) as memory:
        raised = {name: error_of(write, memory) for name, write in writes.items()}
    assert {name: type(error) for name, error in raised.items()} == dict.fromkeys(writes, StoreReadOnlyError)
    assert all("read_only=True" in str(error) for error in raised.values())
    assert trace(store_path.parent) == before


def test_reading_makes_no_file_and_says_that_there_is_none(store_path):
    with pytest.raises(StoreError, match=f"{store_path.name}: there is no store to read, the file does not exist"):
        Memory.open(store_path, embedder=None, read_only=True)
    assert not list(store_path.parent.iterdir())
    store_path.touch()
    with pytest.raises(StoreError, match=f"{store_path.name}: there is no store to read, the file is empty"):
        Memory.open(store_path, embedder=None, read_only=True)
    assert store_path.read_bytes() == b""
    with pytest.raises(StoreError, match="no store to read, a store in memory begins empty"):
        Memory.open(":memory:", embedder=None, read_only=True)


# -- what cannot be opened ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("read_only", [False, True])
@pytest.mark.parametrize("name", ["no/such/folder/memory.db", ".", "a.txt/memory.db", "n" * 300])
def test_a_path_that_cannot_be_opened_is_a_store_error(tmp_path, name, read_only):
    (tmp_path / "a.txt").write_text("text")
    with pytest.raises(StoreError, match="folder"):
        Memory.open(tmp_path / name, embedder=None, read_only=read_only)
    assert [path.name for path in tmp_path.iterdir()] == ["a.txt"]


@pytest.mark.parametrize("location", ["", "a\0b", "a\udcff", "mysql://host/db", "file://memory.db", b"bytes"])
def test_a_location_of_no_known_kind_is_refused(location):
    with pytest.raises(InvalidInputError, match=r"store|kind"):
        Memory.open(location, embedder=None)


def test_a_file_of_a_newer_release_is_refused(store_path):
    """B070"""
    fill(store_path)
    connection = apsw.Connection(str(store_path))
    version = connection.pragma("user_version")
    connection.pragma("user_version", version + 1)
    connection.close()
    before = store_path.read_bytes()
    for read_only in (False, True):
        with pytest.raises(StoreVersionError, match=f"version {version + 1}.*up to {version}.*pip install -U"):
            Memory.open(store_path, embedder=None, read_only=read_only)
    assert store_path.read_bytes() == before


@pytest.mark.parametrize("read_only", [False, True])
@pytest.mark.parametrize("version", [0, 1])
def test_a_database_of_another_program_is_refused_and_left_alone(store_path, version, read_only):
    connection = apsw.Connection(str(store_path))
    connection.execute("CREATE TABLE nodes (theirs); INSERT INTO nodes VALUES (1)")
    connection.pragma("user_version", version)
    connection.close()
    before = trace(store_path.parent)
    with pytest.raises(StoreCorruptError, match="another program"):
        Memory.open(store_path, embedder=None, read_only=read_only)
    connection = apsw.Connection(str(store_path))
    assert connection.execute("SELECT * FROM nodes").fetchall() == [(1,)]
    connection.close()
    if read_only:
        assert trace(store_path.parent) == before


@pytest.mark.parametrize("content", [b"This is a text file.\n" * 500, bytes(20_000), b"\xff" * 9000])
def test_a_file_that_is_no_database_is_refused_and_left_alone(store_path, content):
    store_path.write_bytes(content)
    for read_only in (False, True):
        with pytest.raises(StoreCorruptError):
            Memory.open(store_path, embedder=None, read_only=read_only)
    assert store_path.read_bytes() == content


def test_an_empty_file_becomes_a_store(store_path):
    store_path.touch()
    fill(store_path)
    with Memory.open(store_path, embedder=None) as memory:
        assert memory.count() == 60


def test_an_unknown_tokenizer_is_refused_and_leaves_no_file(store_path):
    for tokenizer in ("latin", "porter latin", "unicode61 nonsense 5", "'; DROP TABLE nodes; --", " "):
        with pytest.raises(InvalidInputError, match="tokenizer"):
            Memory.open(store_path, embedder=None, tokenizer=tokenizer)
        assert not store_path.exists()
    with Memory.open(store_path, embedder=None, tokenizer="unicode61 remove_diacritics 0") as memory:
        memory.add(["tür", "tur"])
        assert [hit.keyword > 0 for hit in memory.search("tür", k=2)] == [True, False]


def test_a_closed_store_says_so(store_path, tmp_path):
    fill(store_path)
    memory = Memory.open(store_path, embedder=WordEmbedder(16))
    memory.close()
    memory.close()
    reads = {
        "get": lambda memory: memory.get("1"),
        "list": lambda memory: memory.list(),
        "count": lambda memory: memory.count(),
        "search": lambda memory: memory.search("text"),
        "stats": lambda memory: memory.stats(),
        "check": lambda memory: memory.check(),
        "backup": lambda memory: memory.backup(tmp_path / "backup.db"),
        "export": lambda memory: memory.export(tmp_path / "export.jsonl"),
    }
    raised = {name: type(error_of(call, memory)) for name, call in {**WRITES, **reads}.items()}
    assert raised == dict.fromkeys(raised, StoreClosedError)
    assert not (tmp_path / "backup.db").exists()
    assert not (tmp_path / "export.jsonl").exists()


# -- damage ---------------------------------------------------------------------------------------------------------


def damaged(data: bytes, chance: random.Random) -> bytes:
    """Return the bytes of a file with something wrong in them."""
    image = bytearray(data)
    match chance.randrange(4):
        case 0:
            return bytes(image[: chance.randrange(len(image))])
        case 1:
            for _ in range(chance.choice([1, 5, 50])):
                image[chance.randrange(len(image))] = chance.randrange(256)
        case 2:
            start = chance.randrange(len(image))
            image[start : start + 512] = bytes(len(image[start : start + 512]))
        case _:
            for _ in range(5):
                image[chance.randrange(8192)] = chance.randrange(256)
    return bytes(image)


def test_whatever_is_wrong_with_a_file_the_error_is_ours(tmp_path):
    fill(tmp_path / "sound.db")
    sound = (tmp_path / "sound.db").read_bytes()
    chance = random.Random(11)
    path = tmp_path / "damaged.db"
    steps = [
        lambda memory: memory.get([str(i) for i in range(60)]),
        lambda memory: memory.list(limit=100, where={"n": {"$gt": 5}}),
        lambda memory: memory.search("topic1 text", k=10, alpha=0),
        lambda memory: memory.add("new", ids=["3"]),
        lambda memory: memory.delete(["5"]),
        lambda memory: memory.stats(),
        lambda memory: memory.close(),
    ]
    met: dict[str, int] = {}
    for _ in range(160):
        path.write_bytes(damaged(sound, chance))
        try:
            memory = Memory.open(path, embedder=WordEmbedder(16))
        except RLMError as error:
            met[type(error).__name__] = met.get(type(error).__name__, 0) + 1
            continue
        problems = list(memory.check())  # never raises: to tell what is wrong is what it is for
        met["sound" if not problems else "Problem"] = met.get("sound" if not problems else "Problem", 0) + 1
        for step in steps:
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", RuntimeWarning)  # numbers that were never a vector
                    step(memory)
            except RLMError:
                pass
            except Exception as error:
                raise AssertionError(f"untyped, where check finds {problems}") from error
        for extra in tmp_path.glob("damaged.db-*"):
            extra.unlink()
    assert met["Problem"] > 5
    assert met["StoreCorruptError"] > 5


TAMPERINGS = {
    "text": "UPDATE nodes SET text = 'changed' WHERE id = '7'",
    "hash of a text": "UPDATE nodes SET text_hash = 1 WHERE id = '7'",
    "cut keywords": "UPDATE nodes SET keywords = NULL WHERE id = '7'",
    "metadata": """UPDATE nodes SET metadata = '{"n": 99}' WHERE id = '7'""",
    "metadata that is no JSON": "UPDATE nodes SET metadata = 'nonsense' WHERE id = '7'",
    "a row for filters": "DELETE FROM node_fields WHERE key = 'n' AND value = 7",
    "a row for filters too many": "INSERT INTO node_fields VALUES ('x', 1, 1 << 50)",
    "a keyword row": "DELETE FROM nodes_fts_docsize WHERE id = (SELECT node FROM nodes WHERE id = '7')",
    "keywords": "INSERT INTO nodes_fts (rowid, text) SELECT node, 'more' FROM nodes WHERE id = '7'",
    "the count of nodes": "UPDATE namespaces SET nodes = nodes + 1",
    "the count of words": "UPDATE namespaces SET words = words - 1",
    "the last number": "UPDATE namespaces SET last_node = last_node - 1",
    "a place": "UPDATE nodes SET place = place + 1 WHERE id = '7'",
    "a lost place": "UPDATE nodes SET place = NULL WHERE id = '7'",
    "the owner of a vector": "DELETE FROM node_embeddings_rowids WHERE rowid = 2",
    "a slot in use": "UPDATE node_embeddings_chunks SET validity = zeroblob(length(validity)) WHERE chunk_id = 1",
    "the members of a chunk": "UPDATE node_embeddings_chunks SET rowids = zeroblob(length(rowids)) WHERE chunk_id = 1",
    "a vector": "UPDATE node_embeddings_vector_chunks00 SET vectors = zeroblob(length(vectors)) WHERE _rowid_ = 1",
    "a namespace": "PRAGMA foreign_keys = OFF; UPDATE nodes SET namespace = 77 WHERE id = '7'",
    "a tier": "PRAGMA ignore_check_constraints = ON; UPDATE nodes SET tier = 'nonsense' WHERE id = '7'",
    "a node": "DELETE FROM nodes WHERE id = '7'",
}


@pytest.mark.parametrize("read_only", [False, True])
@pytest.mark.parametrize("sql", TAMPERINGS.values(), ids=TAMPERINGS.keys())
def test_check_finds_what_was_tampered_with(store_path, sql, read_only):
    fill(store_path)
    with Memory.open(store_path, embedder=None) as memory:
        assert memory.check()
        assert list(memory.check()) == []
    connection = apsw.Connection(str(store_path))
    connection.execute(sql)
    connection.close()
    with Memory.open(store_path, embedder=None, read_only=read_only) as memory:
        report = memory.check()
        assert not report
        assert all(problem.where and problem.what for problem in report)


@pytest.mark.parametrize(
    "sql",
    [
        "UPDATE node_embeddings_rowids SET chunk_id = NULL",
        "UPDATE node_embeddings_chunks SET validity = x''",
        "UPDATE node_embeddings_chunks SET rowids = x'01'",
        "UPDATE node_embeddings_vector_chunks00 SET vectors = x'00'",
        "DELETE FROM node_embeddings_vector_chunks00",
        "DELETE FROM meta WHERE key = 'vectors_in_chunk'",
        "UPDATE meta SET value = 'many' WHERE key = 'dimensions'",
    ],
)
def test_damaged_vectors_are_told_by_an_error_of_ours(store_path, sql):
    fill(store_path)
    connection = apsw.Connection(str(store_path))
    connection.execute(sql)
    connection.close()

    def use() -> None:
        with Memory.open(store_path, embedder=WordEmbedder(16)) as memory:
            assert not memory.check()
            memory.search("topic1 text", alpha=1)
            memory.delete(["5"])
            memory.add("new", ids=["new"])

    with pytest.raises(StoreError):
        use()


def test_a_tier_that_is_none_is_damage(store_path):
    fill(store_path)
    connection = apsw.Connection(str(store_path))
    connection.execute(TAMPERINGS["a tier"])
    connection.close()
    with Memory.open(store_path, embedder=None) as memory, pytest.raises(StoreCorruptError, match=r"nonsense.*check"):
        memory.search("text")


def test_check_finds_lost_signs(store_path):
    with Memory.open(store_path, embedder=WordEmbedder(256)) as memory:
        memory.add(["one", "two"])
        assert memory.check()
    connection = apsw.Connection(str(store_path))
    connection.execute("UPDATE vector_signs SET bits = zeroblob(length(bits))")
    connection.close()
    with Memory.open(store_path, embedder=None) as memory:
        assert any("signs" in problem.what for problem in memory.check())


def test_check_finds_signs_of_nothing(store_path):
    with Memory.open(store_path, embedder=WordEmbedder(256)) as memory:
        memory.add(["one", "two"])
    connection = apsw.Connection(str(store_path))
    connection.execute("INSERT INTO vector_signs VALUES (77, zeroblob(8))")
    connection.close()
    with Memory.open(store_path, embedder=None) as memory:
        assert [problem.where for problem in memory.check()] == ["vector_signs"]
