"""sqlite-vec in this process: beside other SQLite libraries, after all files were closed, and where it cannot run."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from processes import python
from rlm_memory.engines.sqlite.extension import hide_symbols

OURS = """
        def use_ours(memory, round):
            memory.add([f"red {round}", f"blue {round}"], ids=[f"red-{round}", f"blue-{round}"])
            assert memory.search(f"red {round}", k=1, alpha=1)[0].id == f"red-{round}"
            assert memory.delete([f"blue-{round}"]) == 1
            assert memory.check()
"""
THEIRS = """
        import pysqlite3, sqlite_vec

        def theirs(path):
            connection = pysqlite3.connect(path)
            connection.enable_load_extension(True)
            sqlite_vec.load(connection)
            connection.execute("CREATE VIRTUAL TABLE IF NOT EXISTS v USING vec0(id TEXT PRIMARY KEY, e FLOAT[3])")
            return connection

        def use_theirs(connection, round):
            for number in range(3):
                vector = [float(number == i) for i in range(3)]
                row = (f"{round}-{number}", sqlite_vec.serialize_float32(vector))
                connection.execute("INSERT INTO v (id, e) VALUES (?, ?)", row)
            connection.commit()
            query = sqlite_vec.serialize_float32([0.1, 0.9, 0.0])
            rows = connection.execute("SELECT id FROM v WHERE e MATCH ? AND k = 1", (query,)).fetchall()
            assert rows[0][0].endswith("-1"), rows
"""
ORDERS = {
    "this store first": """
        memory = Memory.open(sys.argv[1], embedder=WordEmbedder())
        use_ours(memory, 0)
        connection = theirs(sys.argv[2])
    """,
    "the other one first": """
        connection = theirs(sys.argv[2])
        use_theirs(connection, 0)
        memory = Memory.open(sys.argv[1], embedder=WordEmbedder())
    """,
}


@pytest.mark.parametrize("order", ORDERS.values(), ids=ORDERS.keys())
def test_another_sqlite_with_vectors_may_live_in_the_same_process(tmp_path: Path, order: str) -> None:
    pytest.importorskip("pysqlite3", reason="needs another SQLite library that loads extensions: pysqlite3")
    both = """
        import threading
        for round in range(1, 4):
            use_ours(memory, round)
            use_theirs(connection, round)
            thread = threading.Thread(target=memory.search, args=("red",))
            thread.start(), thread.join()
        memory.close()
        use_theirs(connection, 4)
        connection.close()
        with Memory.open(sys.argv[1], embedder=WordEmbedder()) as memory:
            use_ours(memory, 5)
        use_theirs(theirs(sys.argv[2]), 6)
        print("alive")
    """
    assert python(OURS + THEIRS + order + both, tmp_path / "ours.db", tmp_path / "theirs.db") == "alive\n"


@pytest.mark.skipif(os.name == "nt", reason="Windows has no numbers of files that a program can close in a row")
def test_a_process_that_closes_all_its_files_can_open_the_store_again(store_path: Path) -> None:
    """As one that becomes a daemon does; the numbers are then those of other files."""
    program = """
        with Memory.open(sys.argv[1], embedder=WordEmbedder()) as memory:
            memory.add("before", ids=["before"])
        os.closerange(3, 64)
        others = [open(os.devnull) for _ in range(20)]
        with Memory.open(sys.argv[1], embedder=WordEmbedder()) as memory:
            memory.add("after", ids=["after"])
            print([hit.id for hit in memory.search("after", k=2)], bool(memory.check()))
    """
    assert python(program, store_path) == "['after', 'before'] True\n"


@pytest.mark.skipif(sys.platform != "linux", reason="files without a name are Linux's")
def test_a_system_without_files_in_memory_gets_a_file_in_a_folder(store_path: Path, tmp_path: Path) -> None:
    program = """
        import errno, tempfile
        tempfile.tempdir = sys.argv[2]

        def refuse(name):
            raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

        os.memfd_create = refuse
        with Memory.open(sys.argv[1], embedder=WordEmbedder()) as memory:
            memory.add("text", ids=["n"])
            print(memory.search("text", k=1, alpha=1)[0].id, bool(memory.check()))
    """
    folder = tmp_path / "temporary"
    folder.mkdir()
    assert python(program, store_path, folder) == "n True\n"
    assert list(folder.iterdir()) == []


BROKEN = {
    "not installed": "sys.modules['sqlite_vec'] = None",
    "no library in it": "sqlite_vec.loadable_path = lambda: sys.argv[1] + '.nowhere'",
    "a library of another machine": """
        open(sys.argv[1] + ".so", "wb").write(bytes(5000))
        sqlite_vec.loadable_path = lambda: sys.argv[1] + ".so"
    """,
}


@pytest.mark.parametrize("broken", BROKEN.values(), ids=BROKEN.keys())
def test_where_sqlite_vec_cannot_be_loaded_the_error_names_it_and_the_platform(store_path: Path, broken: str) -> None:
    """B114 B169 B171"""
    program = f"""
        import sqlite_vec
        from rlm_memory.errors import StoreError
        {broken}
        try:
            Memory.open(sys.argv[1], embedder=None)
        except StoreError as error:
            print(error)
    """
    message = python(program, store_path)
    assert f"sqlite-vec cannot be loaded on {sys.platform}" in message
    assert "pip install --force-reinstall 'sqlite-vec>=0.1.9" in message


@pytest.mark.parametrize(
    "library", [b"", b"\x7fELF", b"\x7fELF\x01\x01 of 32 bits", b"\xcf\xfa\xed\xfe of a Mac", b"MZ"]
)
def test_libraries_of_other_kinds_are_left_as_they_are(library: bytes) -> None:
    assert hide_symbols(library, keep="sqlite3_vec_init") == library
