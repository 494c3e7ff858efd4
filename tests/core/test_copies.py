"""What a copy of a memory is: the same file, opened again."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import Any

import pytest

from rlm_memory import AsyncMemory, Memory

COPIES = [copy.deepcopy, lambda memory: pickle.loads(pickle.dumps(memory))]


@pytest.mark.parametrize("copied", COPIES)
async def test_a_copy_opens_the_same_file(store_path: Path, copied: Any) -> None:
    """B158"""
    with Memory.open(store_path, embedder=None, namespace="n") as memory:
        memory.add(["Oslo is in Norway."], ids=["oslo"])
        async with copied(AsyncMemory(memory)) as other:
            assert [node.id for node in await other.get(["oslo"])] == ["oslo"]
            assert other.memory is not memory
        with copied(memory) as other:
            assert [node.id for node in other.get(["oslo"])] == ["oslo"]
        assert memory.count() == 1


@pytest.mark.parametrize("copied", COPIES)
def test_a_memory_without_a_file_cannot_be_copied(copied: Any) -> None:
    """B158"""
    with Memory.open(":memory:", embedder=None) as memory:
        for thing in (memory, AsyncMemory(memory)):
            with pytest.raises(TypeError, match=":memory:"):
                copied(thing)
