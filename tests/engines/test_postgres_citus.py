"""What is asked of Citus where a database has it, held against a stand-in: the extension itself is not to be had here.

The stand-in is a row in the list of extensions, and functions with the names, arguments and defaults that Citus
documents, which write down how they were called. It distributes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final
from urllib.parse import quote, urlencode

import pytest

from rlm_memory import Memory
from rlm_memory.engines.postgres import statements
from support import SettableClock, WordEmbedder

psycopg = pytest.importorskip("psycopg", reason="needs the extra postgres")

DATABASE: Final = "rlm_citus"
STAND_IN: Final = """
CREATE EXTENSION vector;
INSERT INTO pg_extension (oid, extname, extowner, extnamespace, extrelocatable, extversion)
SELECT 999999, 'citus', 10, 'pg_catalog'::regnamespace, false, '0 (a stand-in)';
CREATE SCHEMA citus;
CREATE TYPE citus.distribution_type AS ENUM ('hash', 'range', 'append');
CREATE TABLE citus.calls (number serial, call text, tab text, col text, colocate_with text, triggers text,
    shards text);
CREATE FUNCTION create_distributed_table(
    table_name regclass, distribution_column text, distribution_type citus.distribution_type DEFAULT 'hash',
    colocate_with text DEFAULT 'default', shard_count int DEFAULT NULL
) RETURNS void LANGUAGE sql AS $$
    INSERT INTO citus.calls (call, tab, col, colocate_with, triggers, shards)
    VALUES ('distributed', table_name::text, distribution_column, colocate_with,
            current_setting('citus.enable_unsafe_triggers', true),
            current_setting('citus.multi_shard_modify_mode', true))
$$;
CREATE FUNCTION create_reference_table(table_name regclass) RETURNS void LANGUAGE sql AS $$
    INSERT INTO citus.calls (call, tab) VALUES ('reference', table_name::text)
$$;
"""


@pytest.fixture
def url(postgres_server: str) -> Iterator[str]:
    with psycopg.connect(postgres_server, autocommit=True) as admin:
        if not admin.execute("SELECT rolsuper FROM pg_roles WHERE rolname = current_user").fetchone()[0]:
            pytest.skip("a row in the list of extensions needs a superuser")
        admin.execute(f"DROP DATABASE IF EXISTS {DATABASE} WITH (FORCE)")
        admin.execute(f"CREATE DATABASE {DATABASE}")
        there, password = admin.info, admin.info.password
        with psycopg.connect(postgres_server, autocommit=True, dbname=DATABASE, options="") as inside:
            inside.execute(STAND_IN)
        options: dict[str, Any] = {"host": there.host, "port": there.port, "user": there.user}
        options |= {"password": password} if password else {}
        yield f"postgresql:///{DATABASE}?{urlencode(options, quote_via=quote)}"
        admin.execute(f"DROP DATABASE {DATABASE} WITH (FORCE)")


def calls(url: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(url) as connection:
        select = "SELECT call, tab, col, colocate_with, triggers FROM citus.calls ORDER BY number"
        return connection.execute(select).fetchall()


def test_each_table_is_distributed_by_namespace_on_one_shard_a_tenant(url: str) -> None:
    with Memory.open(url, embedder=WordEmbedder(16), clock=SettableClock()) as memory:
        memory.add("green tea", ids=["a"])
        memory.reembed(WordEmbedder(32, model="another"))
        assert memory.search("tea", k=1)[0].id == "a"
    asked = calls(url)
    with psycopg.connect(url) as connection:
        tables = [name for (name,) in connection.execute("SELECT tablename FROM pg_tables WHERE tablename LIKE 'rlm%'")]
    assert {call[1] for call in asked} == {*tables, "rlm_node_words"}, "the one that a migration has replaced, too"
    assert asked[0] == ("reference", "rlm_meta", None, None, None)
    assert asked[1] == ("distributed", "rlm_namespaces", "namespace", "none", "on")
    assert {(call[0], *call[2:]) for call in asked[2:]} == {("distributed", "namespace", "rlm_namespaces", "on")}
    again = [call[1] for call in asked if [each[1] for each in asked].count(call[1]) > 1]
    assert again == ["rlm_node_vectors"] * 2, "the table that a change of the model makes anew"


def test_a_change_of_the_model_writes_to_one_shard_after_the_other(url: str) -> None:
    with Memory.open(url, embedder=WordEmbedder(16)) as memory:
        memory.add("green tea")
        memory.reembed(WordEmbedder(32, model="another"))
    with psycopg.connect(url) as connection:
        select = "SELECT shards FROM citus.calls WHERE tab = 'rlm_node_vectors' ORDER BY number DESC LIMIT 1"
        assert connection.execute(select).fetchone() == ("sequential",)


def test_no_insert_of_values_has_a_subquery() -> None:
    """Citus refuses it, on one shard too."""
    written = [value for name, value in vars(statements).items() if name.isupper() and isinstance(value, str)]
    inserts = [sql for sql in [*written, *statements.ADD_PART.values()] if sql.startswith("INSERT") and "VALUES" in sql]
    assert len(inserts) > 10
    assert [sql for sql in inserts if "SELECT" in sql] == []


def test_nothing_is_asked_of_it_where_the_extension_is_not(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("DELETE FROM pg_extension WHERE extname = 'citus'")
    with Memory.open(url, embedder=WordEmbedder(16)) as memory:
        memory.add("green tea")
    assert calls(url) == []
