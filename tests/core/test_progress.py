"""Long work tells how far it is, and a bar shows it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from rlm_memory import Memory
from support import WordEmbedder

TEXTS = [f"memory number {number}" for number in range(1200)]
Work = Callable[[Memory, Path, Callable[[int, int], object]], object]


def fill(memory: Memory) -> None:
    memory.add(TEXTS, compute_embedding=False)


def exported(memory: Memory, folder: Path) -> Path:
    fill(memory)
    memory.export(folder / "nodes.jsonl")
    memory.clear()
    return folder / "nodes.jsonl"


def add(memory: Memory, folder: Path, progress: Callable[[int, int], object]) -> object:
    return memory.add(TEXTS, progress=progress)


def embed_pending(memory: Memory, folder: Path, progress: Callable[[int, int], object]) -> object:
    fill(memory)
    return memory.embed_pending(progress=progress)


def export(memory: Memory, folder: Path, progress: Callable[[int, int], object]) -> object:
    fill(memory)
    return memory.export(folder / "nodes.jsonl", progress=progress)


def import_(memory: Memory, folder: Path, progress: Callable[[int, int], object]) -> object:
    return memory.import_(exported(memory, folder), progress=progress)


def reembed(memory: Memory, folder: Path, progress: Callable[[int, int], object]) -> object:
    memory.add(TEXTS)
    return memory.reembed(WordEmbedder(model="new"), progress=progress)


@pytest.fixture
def memory() -> Memory:
    return Memory.open(":memory:", embedder=WordEmbedder())


@pytest.mark.parametrize("work", [add, embed_pending, reembed, export, import_])
def test_long_work_tells_how_far_it_is_up_to_its_end(work: Work, memory: Memory, tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    work(memory, tmp_path, lambda done, total: told.append((done, total)))
    assert len(told) > 1
    assert told == sorted(told)
    assert len({total for _, total in told}) == 1
    assert told[-1][0] == told[-1][1] >= len(TEXTS)


def test_a_bar_shows_what_is_done_of_how_much(
    memory: Memory, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("tqdm", reason="the bar is of the extra notebooks")
    from rlm_memory.progress import progress_bar

    with progress_bar("Adding", unit="text") as progress:
        memory.add(TEXTS, progress=progress)
    shown = capsys.readouterr().err
    assert "Adding: 100%" in shown
    assert "1200/1200" in shown
