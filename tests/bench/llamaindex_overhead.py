"""What LlamaIndex's interface costs over the core: RLMVectorStore.query against Memory.search.

    python tests/bench/llamaindex_overhead.py [--nodes 500] [--k 10] [--rounds 1000] [--goal 250]

Both ask the same question of the same store one right after the other, each in turn the first, so that whatever else
the machine does slows both. `plain` nodes have text and metadata, `chunks` come out of a SentenceSplitter: six keys of
metadata, two lists of excluded keys, a source, a previous and a next node. Printed are the medians in microseconds, the
median of the differences and the ratio; the exit code is 1 if a difference is greater than the goal. The last line is
the time to delete one document of 25 chunks among all.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import time
from itertools import cycle, islice, pairwise

import numpy as np
from llama_index.core.schema import Document, NodeRelationship, TextNode
from llama_index.core.vector_stores.types import VectorStoreQuery, VectorStoreQueryMode
from side_by_side import awaited_in_turns, in_turns, show

from llamaindex_rlm import RLMVectorStore
from rlm_memory import AsyncMemory, Memory

DIMENSIONS = 384
CHUNKS = 25


def made_up(number: int, *, linked: bool) -> list[TextNode]:
    """Return nodes of made-up words, with vectors, in documents of 25 chunks."""
    generator, noise = random.Random(7), np.random.default_rng(7)
    words = [f"word{i}" for i in range(2000)]
    metadata = {
        "file_path": "/data/reports/report-2024.pdf", "file_name": "report-2024.pdf", "file_type": "application/pdf",
        "file_size": 482211, "creation_date": "2024-01-02", "last_modified_date": "2024-01-03",
    }  # fmt: skip
    nodes = [
        TextNode(
            text=" ".join(generator.choices(words, k=40)),
            metadata=dict(metadata),
            embedding=noise.standard_normal(DIMENSIONS).tolist(),
        )
        for _ in range(number)
    ]
    if linked:
        excluded = [name for name in metadata if name != "file_path"]
        for position, node in enumerate(nodes):
            source = Document(id_=f"document-{position // CHUNKS}", metadata=metadata).as_related_node_info()
            node.relationships = {NodeRelationship.SOURCE: source}
            node.excluded_embed_metadata_keys = node.excluded_llm_metadata_keys = excluded
            node.start_char_idx, node.end_char_idx = 0, len(node.text)
        for before, after in pairwise(nodes):
            before.relationships[NodeRelationship.NEXT] = after.as_related_node_info()
            after.relationships[NodeRelationship.PREVIOUS] = before.as_related_node_info()
    return nodes


def add(store: RLMVectorStore, nodes: list[TextNode]) -> float:
    start = time.perf_counter()
    store.add(nodes)
    return time.perf_counter() - start


def measured(memory: Memory, label: str, options: argparse.Namespace) -> list[float]:
    """Print the figures of one store and return the differences of the sync calls."""
    store, own, k = RLMVectorStore(memory=memory), AsyncMemory(memory), options.k
    vectors = np.random.default_rng(8).standard_normal((50, DIMENSIONS)).tolist()
    questions = [(f"word{i} word{2 * i} word{3 * i}", vector) for i, vector in enumerate(vectors)]
    asked = list(islice(cycle(questions), options.rounds))

    def query(question: tuple[str, list[float]], mode: str) -> VectorStoreQuery:
        text, vector = question
        return VectorStoreQuery(
            query_str=text, query_embedding=vector, similarity_top_k=k, mode=VectorStoreQueryMode(mode)
        )

    default = in_turns(lambda q: memory.search(embedding=q[1], k=k), lambda q: store.query(query(q, "default")), asked)
    show(f"{label}, default", "LlamaIndex", default)
    hybrid = in_turns(
        lambda q: memory.search(q[0], embedding=q[1], k=k), lambda q: store.query(query(q, "hybrid")), asked
    )
    show(f"{label}, hybrid", "LlamaIndex", hybrid)
    awaited = awaited_in_turns(
        lambda q: own.search(q[0], embedding=q[1], k=k), lambda q: store.aquery(query(q, "hybrid")), asked
    )
    show(f"{label}, hybrid, awaited", "LlamaIndex", asyncio.run(awaited))
    return [default[2], hybrid[2]]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=500)
    parser.add_argument("--k", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=1000)
    parser.add_argument("--goal", type=float, default=250.0, help="microseconds")
    options = parser.parse_args()
    differences: list[float] = []
    for label, linked in (("plain", False), ("chunks", True)):
        with Memory.open(":memory:", embedder=None) as memory:
            store = RLMVectorStore(memory=memory)
            print(f"{label}: {options.nodes} nodes added in {add(store, made_up(options.nodes, linked=linked)):.2f} s")
            differences += measured(memory, label, options)
            if linked:
                start = time.perf_counter()
                store.delete("document-3")
                print(f"chunks: a document of {CHUNKS} deleted in {(time.perf_counter() - start) * 1000:.1f} ms")
    print(f"goal: a sync difference of at most {options.goal:.0f} us")
    return int(max(differences) > options.goal)


if __name__ == "__main__":
    sys.exit(main())
