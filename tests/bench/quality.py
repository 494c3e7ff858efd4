"""How well `Memory.search` finds: nDCG@10 and recall@10 on LoCoMo and SciFact, by keywords, by vectors, and by both.

    python tests/bench/quality.py DATA [--url postgresql://…] [--parts locomo,scifact] [--json OUT]

DATA is a folder with `locomo/` (flat.json: conversations with their turns and questions; minilm_f16.npz: their vectors)
and `scifact/` (scifact.zip: claims and abstracts). Neither is part of this project: LoCoMo is CC BY-NC 4.0, the
abstracts of SciFact are ODC-By 1.0. A part whose folder is not there is left out.

The store is a file, or with `--url` a schema of a PostgreSQL database, made anew and left there.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence, Set
from pathlib import Path
from typing import Any
from urllib.parse import quote

import corpora
import numpy as np

from rlm_memory import Memory
from rlm_memory.records import VECTOR_STORAGES, VectorStorage

K = 10
ALPHAS = {"keyword": 0.0, "semantic": 1.0, "hybrid": 0.5}


def ndcg(found: Sequence[str], relevant: Set[str]) -> float:
    """Return the discounted cumulative gain of the first K, as a share of the best possible one."""
    gain = sum(1 / np.log2(rank + 2) for rank, id in enumerate(found[:K]) if id in relevant)
    return float(gain / sum(1 / np.log2(rank + 2) for rank in range(min(K, len(relevant)))))


def recall(found: Sequence[str], relevant: Set[str]) -> float:
    """Return the share of what is relevant that stands among the first K."""
    return len(relevant & set(found[:K])) / len(relevant)


class Tally:
    """Means of nDCG and recall, by method and by kind of question."""

    def __init__(self) -> None:
        self._scores: dict[tuple[str, str], list[tuple[float, float]]] = defaultdict(list)

    def add(self, method: str, kind: str, found: Sequence[str], relevant: Set[str]) -> None:
        for group in (kind, "all"):
            self._scores[method, group].append((ndcg(found, relevant), recall(found, relevant)))

    def table(self) -> dict[str, dict[str, dict[str, float]]]:
        result: dict[str, dict[str, dict[str, float]]] = {}
        for (method, group), scores in sorted(self._scores.items()):
            means = np.mean(scores, axis=0)
            result.setdefault(group, {})[method] = {
                "ndcg": round(float(means[0]), 4), "recall": round(float(means[1]), 4), "questions": len(scores),
            }  # fmt: skip
        return result


def locomo(folder: Path, store: str, storage: VectorStorage) -> Tally:
    """Search each conversation in a namespace of its own of one store, with the vectors of the data."""
    tally = Tally()
    for corpus in corpora.locomo(folder):
        with Memory.open(store, embedder=None, namespace=corpus.name, embedding_storage=storage) as memory:
            memory.add(list(corpus.texts.values()), ids=list(corpus.texts), embeddings=corpus.vectors)
            for question, vector in zip(corpus.questions, corpus.question_vectors, strict=True):
                for method, alpha in ALPHAS.items():
                    hits = memory.search(question.text, embedding=vector, k=K, alpha=alpha)
                    tally.add(method, question.kind, [hit.id for hit in hits], question.relevant)
    return tally


def scifact(folder: Path, store: str, storage: VectorStorage) -> Tally:
    """Search the abstracts for the claims of the validation part, with wordllama."""
    corpus, tally = corpora.scifact(folder), Tally()
    with Memory.open(store, embedder="wordllama", embedding_storage=storage) as memory:
        memory.add(list(corpus.texts.values()), ids=list(corpus.texts))
        for question in corpus.questions:
            for method, alpha in ALPHAS.items():
                hits = memory.search(question.text, k=K, alpha=alpha)
                tally.add(method, question.kind, [hit.id for hit in hits], question.relevant)
    return tally


def new_schema(url: str, name: str) -> str:
    """Return the URL of a store in a schema with nothing in it."""
    import psycopg  # needed on a server alone

    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"DROP SCHEMA IF EXISTS {name} CASCADE".encode())
        connection.execute(f"CREATE SCHEMA {name}".encode())
    return f"{url}{'&' if '?' in url else '?'}options={quote(f'-c search_path={name},public')}"


def show(title: str, table: Mapping[str, Mapping[str, Mapping[str, float]]]) -> None:
    print(f"\n{title}\n{'':14}{'questions':>10}" + "".join(f"{method:>22}" for method in ALPHAS))
    print(f"{'':24}" + f"{'nDCG@10':>12}{'recall@10':>10}" * len(ALPHAS))
    for group, methods in table.items():
        cells = "".join(f"{methods[method]['ndcg']:>12.4f}{methods[method]['recall']:>10.4f}" for method in ALPHAS)
        print(f"{group:14}{methods['hybrid']['questions']:>10.0f}{cells}")


def main(arguments: Iterable[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--json", type=Path, help="write the figures here too")
    parser.add_argument("--storage", default="float32", choices=VECTOR_STORAGES)
    parser.add_argument("--url", help="of a PostgreSQL database to measure on, in place of a file")
    parser.add_argument("--parts", default="locomo,scifact", help="what to measure")
    options = parser.parse_args(arguments)
    figures: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, measure in (("locomo", locomo), ("scifact", scifact)):
            if name in options.parts.split(",") and (options.data / name).is_dir():
                store = new_schema(options.url, f"bench_{name}") if options.url else str(Path(folder, f"{name}.db"))
                figures[name] = measure(options.data / name, store, options.storage).table()
                show(name, figures[name])
    if options.json:
        options.json.write_text(json.dumps(figures, indent=2), "utf-8")
    return 0 if figures else 1


if __name__ == "__main__":
    sys.exit(main())
