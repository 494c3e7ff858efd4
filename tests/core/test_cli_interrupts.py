"""Ctrl-C: a command that it stops says so in a line, ends with 130, and leaves a store that is whole."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

pytest.importorskip("typer", reason="the command line needs the extra cli")
pytest.importorskip("rich", reason="the command line needs the extra cli")

from embedding_server import Asked, EmbeddingServer
from rlm_memory import Memory
from support import WordEmbedder

pytestmark = [
    pytest.mark.loopback,
    pytest.mark.enable_socket,
    pytest.mark.skipif(sys.platform == "win32", reason="sends no SIGINT to one process"),
]
TEXTS = [f"Passage number {number}." for number in range(600)]


class Held:
    """A server of embeddings that keeps its second request waiting."""

    def __init__(self) -> None:
        self.is_waiting, self.ends = threading.Event(), threading.Event()
        self.server = EmbeddingServer(dimensions=8, fault=self._hold)

    def _hold(self, asked: Asked) -> None:
        if self.server.asked.index(asked) == 1:
            self.is_waiting.set()
            self.ends.wait()


@pytest.fixture
def held() -> Iterator[Held]:
    held = Held()
    with held.server:
        yield held
        held.ends.set()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "notes.txt").write_text("\n\n".join(TEXTS))
    (tmp_path / "temporary").mkdir()
    return tmp_path


def start(folder: Path, command: str, **settings: str) -> subprocess.Popen[bytes]:
    paths = os.pathsep.join(filter(None, sys.path))
    environment = {**os.environ, "PYTHONPATH": paths, "RLM_MEMORY_DB": "memory.db", "TMPDIR": str(folder / "temporary")}
    return subprocess.Popen(
        [sys.executable, "-m", "rlm_memory.cli", *command.split()],
        cwd=folder, env={**environment, **settings}, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def expect_interrupted(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGINT)
    _, told = process.communicate(timeout=60)
    assert (told, process.returncode) == (b"rlm-memory: interrupted\n", 130)


def embedding(folder: Path, command: str, held: Held) -> subprocess.Popen[bytes]:
    process = start(folder, command, OPENAI_BASE_URL=held.server.url, OPENAI_API_KEY="none")
    assert held.is_waiting.wait(60)
    return process


def test_an_interrupted_add_keeps_what_was_stored_and_goes_on(folder: Path, held: Held) -> None:
    expect_interrupted(embedding(folder, "add notes.txt --size 20 --embedder openai:its-own", held))
    with Memory.open(folder / "memory.db", embedder=None) as memory:
        assert memory.count() == 256
        assert memory.check()
    held.ends.set()
    again = start(
        folder, "add notes.txt --size 20 --embedder openai:its-own",
        OPENAI_BASE_URL=held.server.url, OPENAI_API_KEY="none",
    )  # fmt: skip
    assert b"600 passages, 344 stored, 256 unchanged" in again.communicate(timeout=60)[0]


def test_an_interrupted_change_of_the_embedder_leaves_the_old_vectors(folder: Path, held: Held) -> None:
    with Memory.open(folder / "memory.db", embedder=WordEmbedder()) as memory:
        memory.add(TEXTS)
    expect_interrupted(embedding(folder, "reembed --to openai:its-own", held))
    with Memory.open(folder / "memory.db", embedder=WordEmbedder()) as memory:
        assert memory.check()
        assert memory.stats().with_vector == len(TEXTS)
        assert memory.search("passage", k=1, alpha=1)


def test_an_interrupted_import_leaves_nothing(folder: Path) -> None:
    with Memory.open(folder / "other.db", embedder=None) as memory:
        memory.add(TEXTS)
        memory.export(folder / "nodes.jsonl")
    (folder / "other.db").unlink()
    lines = (folder / "nodes.jsonl").read_bytes()
    assert len(lines) > 2 * 65_536
    os.mkfifo(folder / "slow.jsonl")
    with Memory.open(folder / "memory.db", embedder=None) as memory:
        memory.add("Ada likes tea.", ids=["ada"])
    process = start(folder, "import slow.jsonl")
    with open(folder / "slow.jsonl", "wb") as header:  # which the command looks at before it opens the store
        header.write(lines[: lines.index(b"\n") + 1])
    while process.returncode is None:
        with suppress(BrokenPipeError), open(folder / "slow.jsonl", "wb", buffering=0) as rest:
            rest.write(lines[:-200])  # returns when all but what a pipe holds is read, by whom it is taken in
            expect_interrupted(process)
    with Memory.open(folder / "memory.db", embedder=None) as memory:
        assert [node.id for node in memory.list()] == ["ada"]
        assert memory.check()


def test_an_interrupted_export_leaves_nothing(folder: Path) -> None:
    with Memory.open(folder / "memory.db", embedder=None) as memory:
        memory.add(TEXTS)
    process = start(folder, "export -")
    assert process.stdout is not None
    assert process.stdout.read(1) == b"{"  # more is to come than a pipe holds
    expect_interrupted(process)
    assert list((folder / "temporary").iterdir()) == []
