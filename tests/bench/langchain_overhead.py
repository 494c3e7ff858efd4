"""What LangChain's interface costs over the core: RLMVectorStore.similarity_search against Memory.search.

    python tests/bench/langchain_overhead.py [--nodes 500] [--k 10] [--rounds 1000] [--goal 150]

Both ask the same question of the same store one right after the other, each in turn the first, so that whatever else
the machine does slows both. Printed are the medians in microseconds, the median of the differences and the ratio, sync
and awaited; the exit code is 1 if the sync difference is greater than the goal.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import tempfile
from itertools import cycle, islice
from pathlib import Path

import numpy as np
from langchain_core.embeddings import Embeddings
from side_by_side import awaited_in_turns, in_turns, show

from langchain_rlm import RLMVectorStore
from rlm_memory import AsyncMemory

DIMENSIONS = 384


class Noise(Embeddings):
    """Answers at once with a random vector for each text, the same every time."""

    def __init__(self) -> None:
        self.known: dict[str, list[float]] = {}

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return [self.embed_query(text) for text in texts]

    def embed_query(self, text: str) -> list[float]:
        if text not in self.known:
            self.known[text] = np.random.default_rng(len(self.known)).standard_normal(DIMENSIONS).tolist()
        return self.known[text]

    async def aembed_query(self, text: str) -> list[float]:
        return self.embed_query(text)


def filled(path: Path, nodes: int) -> tuple[RLMVectorStore, list[str]]:
    """Return a store of made-up notes with metadata, and questions about them."""
    generator = random.Random(7)
    words = [f"word{i}" for i in range(2000)]
    texts = [" ".join(generator.choices(words, k=40)) for _ in range(nodes)]
    metadatas = [{"source": f"note-{i % 50}", "page": i, "tags": ["a", "b"]} for i in range(nodes)]
    store = RLMVectorStore.from_texts(texts, Noise(), metadatas, path=path)
    questions = [" ".join(generator.choices(words, k=6)) for _ in range(50)]
    for question in questions:
        store.similarity_search(question)
    return store, questions


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=500)
    parser.add_argument("--k", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=1000)
    parser.add_argument("--goal", type=float, default=150.0, help="microseconds")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        store, questions = filled(Path(folder) / "memory.db", options.nodes)
        with store.memory as memory:
            k, own, asked = options.k, AsyncMemory(memory), list(islice(cycle(questions), options.rounds))
            sync = in_turns(lambda q: memory.search(q, k=k), lambda q: store.similarity_search(q, k=k), asked)
            show("sync", "LangChain", sync)
            awaited = awaited_in_turns(lambda q: own.search(q, k=k), lambda q: store.asimilarity_search(q, k=k), asked)
            show("awaited", "LangChain", asyncio.run(awaited))
    print(f"goal: a sync difference of at most {options.goal:.0f} us")
    return int(sync[2] > options.goal)


if __name__ == "__main__":
    sys.exit(main())
