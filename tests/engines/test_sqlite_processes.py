"""One file, several processes: opened at once, written at once, killed, forked."""

from __future__ import annotations

import os
import pickle
import shutil
import sys
import threading
import time

import apsw
import pytest

from processes import python, started
from rlm_memory import Memory
from rlm_memory.engines.sqlite.connection import Database
from rlm_memory.errors import StoreBusyError
from support import WordEmbedder

needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")


def test_processes_that_open_a_new_file_at_once_all_succeed(tmp_path):
    """B091 B147"""
    program = """
        import time
        folder, start, tokenizer, name = sys.argv[1], float(sys.argv[2]), sys.argv[3], sys.argv[4]
        from rlm_memory.errors import InvalidInputError
        for round in range(5):
            while time.time() < start + round * 0.25:
                pass
            try:
                with Memory.open(f"{folder}/{round}.db", embedder=WordEmbedder(), tokenizer=tokenizer) as memory:
                    memory.add(f"text of {name}", ids=[name])
            except InvalidInputError as error:  # the file has the tokenizer of another process
                assert "tokenizer" in str(error)
                with Memory.open(f"{folder}/{round}.db", embedder=WordEmbedder()) as memory:
                    memory.add(f"text of {name}", ids=[name])
    """
    start = time.time() + 2.5
    tokenizers = ["porter unicode61", "unicode61", "trigram", "porter unicode61"]
    processes = [started(program, tmp_path, start, tokenizer, i) for i, tokenizer in enumerate(tokenizers)]
    assert [process.wait(60) for process in processes] == [0] * 4
    for process in processes:
        process.communicate()
    for round in range(5):
        path = tmp_path / f"{round}.db"
        with Memory.open(path, embedder=WordEmbedder()) as memory:
            assert {node.id for node in memory.list()} == {"0", "1", "2", "3"}
            assert memory.check()
            tokenizer = memory.stats().tokenizer
        connection = apsw.Connection(str(path))
        (sql,) = connection.execute("SELECT sql FROM sqlite_schema WHERE name = 'nodes_fts'").fetchone()
        connection.close()
        assert f"'{tokenizer}'" in sql


def test_a_search_beside_the_very_first_addition_compares_by_meaning_too(tmp_path):
    """B175: it asked whether there are vectors before there were any, and found by words alone what had one."""
    for attempt in range(40):
        path = tmp_path / f"{attempt}.db"
        with Memory.open(path, embedder=WordEmbedder()) as writer, Memory.open(path, embedder=WordEmbedder()) as reader:
            thread = threading.Thread(target=writer.add, args=("tea",))
            thread.start()
            while not (hits := reader.search("tea", k=1)):
                pass
            thread.join()
            assert hits[0].semantic == pytest.approx(1.0)


def test_two_writing_processes_and_a_reading_one_do_not_disturb_each_other(store_path):
    """B008 B175"""
    Memory.open(store_path, embedder=WordEmbedder()).close()
    writer = """
        name = sys.argv[2]
        with Memory.open(sys.argv[1], embedder=WordEmbedder()) as memory:
            for i in range(50):
                memory.add(f"text {i} of {name}", ids=[f"{name}-{i}"])
                if i % 10 == 9:
                    memory.delete([f"{name}-{i}"])
                    memory.update(f"{name}-{i - 1}", metadata={"n": i})
    """
    reader = """
        with Memory.open(sys.argv[1], embedder=WordEmbedder()) as memory:
            seen = 0
            while seen < 90:
                count = memory.count()
                assert count >= seen - 2, (count, seen)
                seen = max(seen, count)
                for hit in memory.search("text of a", k=5):
                    assert hit.semantic is not None and hit.text.startswith("text ")
    """
    processes = [started(writer, store_path, "a"), started(writer, store_path, "b"), started(reader, store_path)]
    assert [process.wait(100) for process in processes] == [0, 0, 0]
    for process in processes:
        process.communicate()
    with Memory.open(store_path, embedder=WordEmbedder()) as memory:
        assert memory.count() == 90
        assert memory.count(where={"n": {"$exists": True}}) == 10
        assert memory.check()


@needs_fork
def test_a_killed_add_is_there_whole_or_not_at_all(store_path):
    """B027 B059"""
    program = """
        import random, signal, time
        path, chance = sys.argv[1], random.Random(7)
        ids = lambda batch: [f"{batch}-{i}" for i in range(60)]
        texts = lambda batch: [f"text {i} of batch {batch} 设备" for i in range(60)]
        Memory.open(path, embedder=WordEmbedder()).close()
        torn = whole = 0
        for kill in range(20):
            reading, writing = os.pipe()
            child = os.fork()
            if child == 0:
                memory = Memory.open(path, embedder=WordEmbedder())
                os.write(writing, b".")
                for batch in range(kill * 1000, kill * 1000 + 1000):
                    memory.add(texts(batch), ids=ids(batch), metadatas=[{"batch": batch}] * 60)
                    memory.update(f"{batch}-0", text=f"changed in batch {batch}")
            os.read(reading, 1)
            time.sleep(chance.uniform(0, 0.08 if whole else 0.05 * kill))  # a busy machine needs longer for a whole one
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            os.close(reading), os.close(writing)
            with Memory.open(path, embedder=WordEmbedder()) as memory:
                assert memory.check(), list(memory.check())
                last = kill * 1000
                while (count := memory.count(where={"batch": last})) == 60:
                    last += 1
                    whole += 1
                assert count == 0, count
                assert memory.add(texts(last), ids=ids(last), metadatas=[{"batch": last}] * 60) == ids(last)
                assert memory.search(f"text 7 of batch {last}", k=1, where={"batch": last})[0].semantic > 0.5
        print(whole)
    """
    assert int(python(program, store_path)) > 0


@needs_fork
def test_parent_and_child_both_write_after_a_fork(store_path):
    """B130"""
    program = """
        path = sys.argv[1]
        memory = Memory.open(path, embedder=WordEmbedder())
        memory.add("before the fork", ids=["before"])
        memory.search("fork")
        children = []
        for number in range(2):
            child = os.fork()
            if child == 0:
                for i in range(20):
                    memory.add(f"child {number} text {i}", ids=[f"child-{number}-{i}"])
                    assert memory.search(f"child {number} text {i}", k=1, alpha=1)[0].id == f"child-{number}-{i}"
                memory.close()
                os._exit(0)
            children.append(child)
        for i in range(20):
            memory.add(f"parent text {i}", ids=[f"parent-{i}"])
            assert memory.search(f"parent text {i}", k=1, alpha=1)[0].id == f"parent-{i}"
        assert [os.waitpid(child, 0)[1] for child in children] == [0, 0]
        print(memory.count(), len(memory.search("text", k=100)), bool(memory.check()))
        memory.close()
    """
    assert python(program, store_path).split() == ["61", "61", "True"]


@needs_fork
def test_what_a_child_writes_after_its_parent_has_closed_is_kept(store_path):
    """B130"""
    program = """
        import subprocess
        path = sys.argv[1]
        memory = Memory.open(path, embedder=WordEmbedder())
        memory.add("before the fork", ids=["before"])
        memory.search("fork")
        go, going = os.pipe()
        done, doing = os.pipe()
        child = os.fork()
        if child == 0:
            os.read(go, 1)
            memory.add("while the parent has closed", ids=["first"])
            os.write(doing, b".")
            os.read(go, 1)
            memory.add("after another process came and went", ids=["second"])
            memory.close()
            os._exit(0)
        memory.close()
        os.write(going, b".")
        os.read(done, 1)
        other = "import sys; from rlm_memory import Memory; m = Memory.open(sys.argv[1], embedder=None); "
        other += "m.add('of another process', ids=['other']); m.close()"
        subprocess.run([sys.executable, "-c", other, path], check=True)
        os.write(going, b".")
        assert os.waitpid(child, 0)[1] == 0
        with Memory.open(path, embedder=None) as memory:
            print(*[node.id for node in memory.list()], bool(memory.check()))
    """
    assert python(program, store_path).split() == ["before", "first", "other", "second", "True"]


@needs_fork
def test_a_fork_while_other_threads_search_and_write_leaves_no_lock_behind(store_path):
    """B130"""
    program = """
        import signal, threading, warnings
        warnings.simplefilter("ignore")  # newer Pythons warn of every fork of a process that has threads
        path = sys.argv[1]
        memory = Memory.open(path, embedder=WordEmbedder())
        memory.add([f"text {i}" for i in range(50)], ids=[f"{i}" for i in range(50)])
        stop = threading.Event()

        def search():
            while not stop.is_set():
                memory.search("text 7", session="s")

        def write():
            while not stop.is_set():
                memory.add("changed", ids=["0"])
                memory.add("text 0", ids=["0"])

        threads = [threading.Thread(target=search), threading.Thread(target=search), threading.Thread(target=write)]
        for thread in threads:
            thread.start()
        failed = 0
        for number in range(10):
            child = os.fork()
            if child == 0:
                signal.alarm(20)
                memory.search("text 7", session="child")
                memory.add(f"child {number}", ids=[f"child-{number}"])
                memory.close()
                os._exit(0)
            failed += os.waitpid(child, 0)[1] != 0
        stop.set()
        for thread in threads:
            thread.join()
        print(failed, memory.count(), bool(memory.check()))
        memory.close()
    """
    assert python(program, store_path).split() == ["0", "60", "True"]


@needs_fork
def test_a_store_in_memory_is_copied_by_a_fork(store_path):
    """B080 B130"""
    program = """
        memory = Memory.open(":memory:", embedder=WordEmbedder())
        memory.add("one", ids=["one"])
        child = os.fork()
        if child == 0:
            memory.add("two", ids=["two"])
            os._exit(0 if memory.count() == 2 else 1)
        print(os.waitpid(child, 0)[1], memory.count())
    """
    assert python(program).split() == ["0", "1"]


def test_a_pickled_memory_opens_the_same_file_in_another_process(store_path):
    """B158"""
    with Memory.open(store_path, embedder=WordEmbedder(), namespace="tenant", alpha=0.3) as memory:
        memory.add("written here")
        pickled = pickle.dumps(memory).hex()
        program = """
            import pickle
            memory = pickle.loads(bytes.fromhex(sys.argv[1]))
            memory.add("written there")
            print(memory.namespace, memory.alpha, memory.count())
            memory.close()
        """
        assert python(program, pickled).split() == ["tenant", "0.3", "2"]
        assert memory.search("written there", k=1)[0].text == "written there"


def test_what_was_written_without_closing_is_kept(store_path):
    """B107"""
    python("Memory.open(sys.argv[1], embedder=WordEmbedder()).add('text', ids=['n'])", store_path)
    with Memory.open(store_path, embedder=WordEmbedder()) as memory:
        assert [node.id for node in memory.list()] == ["n"]
        assert memory.check()


def test_a_writer_waits_only_so_long_for_another_process(store_path):
    """B106"""
    holder = started(
        """
        import apsw
        Memory.open(sys.argv[1], embedder=None).add("text")
        connection = apsw.Connection(sys.argv[1])
        connection.execute("BEGIN IMMEDIATE")
        print("holding", flush=True)
        sys.stdin.readline()
        connection.execute("COMMIT")
        """,
        store_path,
    )
    assert holder.stdout.readline() == "holding\n"
    database = Database(str(store_path), timeout=0.2)  # B opens although A is writing
    with database.reading() as connection:
        assert connection.execute("SELECT count(*) FROM nodes").fetchone() == (1,)
    before = time.monotonic()
    with (
        pytest.raises(StoreBusyError, match=rf"{store_path.name}.*another process.*0\.2 s"),
        database.transaction(),
    ):
        raise AssertionError("the lock is taken")
    assert 0.15 < time.monotonic() - before < 5
    with (
        Memory.open(store_path, embedder=None) as memory,
        pytest.raises(TimeoutError, match=r"thread|process"),
        memory._engine.transaction(wait=False),
    ):
        raise AssertionError("the lock is taken")
    holder.communicate("\n")
    with database.transaction() as connection:
        connection.execute("SELECT 1")
    database.close()


def test_a_search_does_not_wait_for_a_writer(store_path):
    """B076"""
    holder = started(
        """
        import apsw
        memory = Memory.open(sys.argv[1], embedder=WordEmbedder())
        memory.add("text")
        with memory._engine.transaction():
            memory.add("not yet to be seen")
            print("holding", flush=True)
            sys.stdin.readline()
        """,
        store_path,
    )
    assert holder.stdout.readline() == "holding\n"
    with Memory.open(store_path, embedder=WordEmbedder()) as memory:
        before = time.monotonic()
        assert [hit.text for hit in memory.search("text", session="s")] == ["text"]
        assert time.monotonic() - before < 5
        holder.communicate("\n")
        assert memory.count() == 2
        assert [hit.text for hit in memory.search("not yet", k=1)] == ["not yet to be seen"]


def test_the_same_path_can_be_used_again_after_its_folder_was_deleted(tmp_path):
    """B153"""
    folder = tmp_path / "folder"
    for text in ("first", "second"):
        folder.mkdir()
        memory = Memory.open(folder / "memory.db", embedder=WordEmbedder())
        memory.add(text)
        assert [node.text for node in memory.list()] == [text]
        thread = threading.Thread(target=memory.search, args=("text",))
        thread.start()
        thread.join()
        memory.close()
        shutil.rmtree(folder)
    if sys.platform == "linux":
        links = (f"/proc/self/fd/{name}" for name in os.listdir("/proc/self/fd"))
        assert not [link for link in links if os.path.islink(link) and "memory.db" in os.readlink(link)]


def test_no_file_stays_beside_the_store_after_closing(tmp_path):
    """B153"""
    with (
        Memory.open(tmp_path / "memory.db", embedder=WordEmbedder()) as memory,
        Memory.open(tmp_path / "memory.db", embedder=WordEmbedder()) as other,
    ):
        memory.add("text")
        other.search("text", session="s")
    assert os.listdir(tmp_path) == ["memory.db"]


def test_check_takes_what_others_have_written_since_the_last_one_for_no_damage(tmp_path):
    with (
        Memory.open(tmp_path / "memory.db", embedder=None) as writing,
        Memory.open(tmp_path / "memory.db", embedder=None) as checking,
    ):
        for number in range(20):  # the words of the first 16 writes are then merged into one part of the index
            writing.add(f"text {number}")
            assert list(checking.check()) == []
