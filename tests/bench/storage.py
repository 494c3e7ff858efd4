"""What vectors cost on disk and what smaller ones lose: growth of the file and recall@10 for each embedding_storage.

    python tests/bench/storage.py DATA [--json OUT]

DATA is the folder of quality.py. The vectors have 1,536 dimensions: those of wordllama (SciFact) and MiniLM (LoCoMo),
turned into the larger space by a random rotation, which leaves every cosine as it is. Growth is the size of the store
over that of the same store without vectors, both compacted: of the records as they come (the texts, and the title of an
abstract as metadata), and of the bare texts. Recall is the share of the ten nearest, by exact cosines of
float32, that a search by vector alone finds.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import corpora
import numpy as np
from numpy.typing import NDArray

from rlm_memory import Memory, WordLlamaEmbedder
from rlm_memory.records import VECTOR_STORAGES, VectorStorage

DIMENSIONS = 1536
K = 10


def rotated(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the vectors in 1,536 dimensions, with the same cosines between them."""
    gaussian = np.random.default_rng(7).standard_normal((DIMENSIONS, vectors.shape[1]))
    basis, _ = np.linalg.qr(gaussian)
    return (vectors @ basis.T).astype(np.float32)


def measure(
    texts: list[str], ids: list[str], metadatas: list[dict[str, str]], vectors: Any, questions: Any, folder: Path
) -> dict[str, Any]:
    """Return the size without vectors and, for each storage, the growth and the recall."""
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    exact = np.argsort(-(questions @ unit.T), axis=1)[:, :K]
    figures: dict[str, Any] = {"nodes": len(texts), "text_bytes": sum(len(text.encode()) for text in texts)}
    for label, extra in (("records", metadatas), ("texts", None)):
        with stored(folder / f"{label}.db", texts, ids=ids, metadatas=extra) as plain:
            base = plain.stats().file_bytes
        figures[f"{label}_bytes"] = base
        for storage in VECTOR_STORAGES:
            options = {"ids": ids, "metadatas": extra, "embeddings": vectors}
            with stored(folder / f"{label}-{storage}.db", texts, storage, **options) as memory:
                grown = memory.stats().file_bytes
                figures.setdefault(storage, {})[f"{label}_growth"] = round(grown / base - 1, 4)
                if extra is not None:
                    found = [[hit.id for hit in memory.search(embedding=question, k=K)] for question in questions]
                    pairs = zip(exact, found, strict=True)
                    shares = [len({ids[i] for i in best} & set(hits)) / K for best, hits in pairs]
                    figures[storage]["recall"] = round(float(np.mean(shares)), 4)
    return figures


def stored(path: Path, texts: list[str], storage: VectorStorage = "float32", **options: Any) -> Memory:
    """Return a new, compacted store of the texts."""
    memory = Memory.open(path, embedder=None, embedding_storage=storage)
    memory.add(texts, **options)
    memory.compact()
    return memory


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--json", type=Path, help="write the figures here too")
    options = parser.parse_args()
    figures: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        if (options.data / "scifact").is_dir():
            corpus, model = corpora.scifact(options.data / "scifact"), WordLlamaEmbedder()
            texts = list(corpus.texts.values())
            questions = model.embed([question.text for question in corpus.questions])
            figures["scifact"] = measure(
                texts, list(corpus.texts), corpus.metadatas, rotated(model.embed(texts)), rotated(questions),
                Path(tempfile.mkdtemp(dir=folder)),
            )  # fmt: skip
        if (options.data / "locomo").is_dir():
            parts = corpora.locomo(options.data / "locomo")
            figures["locomo"] = measure(
                [text for part in parts for text in part.texts.values()],
                [f"{part.name}/{id}" for part in parts for id in part.texts],
                [{"conversation": part.name} for part in parts for _ in part.texts],
                rotated(np.concatenate([part.vectors for part in parts])),
                rotated(np.concatenate([part.question_vectors for part in parts])[::5]),
                Path(tempfile.mkdtemp(dir=folder)),
            )
    for name, table in figures.items():
        size = {key: f"{table[f'{key}_bytes'] / 1e6:.1f} MB" for key in ("text", "records", "texts")}
        print(f"\n{name}: {table['nodes']:,} nodes, {size['text']} of text")
        print(f"without vectors {size['records']} as records, {size['texts']} as texts")
        print(f"{'':10}{'growth, records':>16}{'growth, texts':>16}{'recall@10':>12}")
        for storage in VECTOR_STORAGES:
            row = table[storage]
            print(f"{storage:10}{row['records_growth']:>+16.1%}{row['texts_growth']:>+16.1%}{row['recall']:>12.4f}")
    if options.json:
        options.json.write_text(json.dumps(figures, indent=2), "utf-8")
    return 0 if figures else 1


if __name__ == "__main__":
    sys.exit(main())
