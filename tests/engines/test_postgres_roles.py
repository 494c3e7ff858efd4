"""Who may do what on a server: nothing but the extension needs a superuser, and daily work needs no right to create."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlencode

import numpy as np
import pytest

from postgres_server import database_of_roles
from rlm_memory import Memory
from rlm_memory.copying import copy_store
from rlm_memory.errors import StoreError, StoreReadOnlyError
from rlm_memory.records import Encoded, ThreadCheckpoint
from support import SettableClock, WordEmbedder

psycopg = pytest.importorskip("psycopg", reason="needs the extra postgres")

DOCUMENTED: Final = Path(__file__).parents[2] / "docs" / "server.md"
DATABASE: Final = "rlm_owned"
OWNER: Final = "rlm_owner"
WORKER: Final = "rlm_worker"


def documented() -> tuple[str, str]:
    """Return the statements that the documentation has a superuser and the owner say, for the roles of this test."""
    text = re.sub(r"\bworker\b", WORKER, DOCUMENTED.read_text("utf-8"))
    by_superuser, by_owner = re.findall(r"```sql\n(.*?)```", re.sub(r"\bagent;", f"{OWNER};", text), re.DOTALL)
    return by_superuser, by_owner


Urls = Callable[..., str]


@pytest.fixture
def urls(postgres_server: str) -> Iterator[Urls]:
    """Gives URLs of a database, with the extension, by role and schema; the role that owns it is no superuser."""
    rights = "NOSUPERUSER NOCREATEDB NOCREATEROLE"
    with database_of_roles(postgres_server, DATABASE, {OWNER: rights, WORKER: rights}) as url_of:

        def url(role: str, schema: str = "agents", **options: object) -> str:
            return url_of(role, **{"options": f"-c search_path={schema},public", **options})

        yield url


def say(url: str, *statements: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement)


def opened(url: str, **options: Any) -> Memory:
    return Memory.open(url, **{"embedder": WordEmbedder(16), "clock": SettableClock(), **options})


def daily_work(memory: Memory) -> None:
    memory.add(["green tea", "black coffee"], ids=["a", "b"], metadatas=[{"n": 1}, {"n": 2}], tier="session")
    with memory.session("s") as session:
        assert [hit.id for hit in memory.search("tea", k=1, where={"n": 1}, session=session)] == ["a"]
        session.outcome(True)
    memory.update("a", text="white tea")
    memory.promote("a", "longterm", reason="good")
    memory.sweep()
    memory.conversations.append("chat", [{"n": 1}])
    memory.conversations.archive_oldest("chat", 1)
    memory.key_values("c").put({"k": 1})
    memory.threads("t").put(
        ThreadCheckpoint(
            thread_id="t", id="1", parent_id=None, graph="", head=Encoded("json", b"{}"), metadata={},
            values={"v": Encoded("bytes", bytes(range(256)) * 64)}, versions={"v": 1},
        )
    )  # fmt: skip
    memory.threads("t").copy("t", "u")
    memory.threads("t").delete("t")
    memory.delete("b")
    assert [node.text for node in memory.list()] == ["white tea"]
    assert memory.stats().nodes == 1
    assert list(memory.check()) == []


def has_index(url: str) -> bool:
    with psycopg.connect(url) as connection:
        select = "SELECT indisvalid FROM pg_index WHERE indexrelid = to_regclass('rlm_node_vectors_nearest')"
        return bool(connection.execute(select).fetchone() == (True,))


@pytest.mark.parametrize("partitions", [0, 3])
def test_an_owner_who_is_no_superuser_can_do_everything(urls: Urls, partitions: int) -> None:
    url = urls(OWNER, partitions=partitions)
    say(urls(OWNER), "CREATE SCHEMA agents")
    with opened(url) as memory:
        daily_work(memory)
        say(urls(OWNER), "UPDATE rlm_namespaces SET nodes = nodes + 6000")  # so many that an index is due
        memory.add("an index is due", ids=["c"])
        assert has_index(urls(OWNER))
        memory.compact()
        say(urls(OWNER), "UPDATE rlm_namespaces SET nodes = nodes - 6000")
        memory.reembed(WordEmbedder(32, model="another"))
        assert memory.search("index", k=1)[0].id == "c"
        assert list(memory.check()) == []
    say(urls(OWNER), "CREATE SCHEMA elsewhere")
    target = urls(OWNER, "elsewhere")
    copy_store(url, target)
    with opened(target, embedder=WordEmbedder(32, model="another")) as memory:
        assert memory.search("index", k=1)[0].id == "c"
        assert [each.thread_id for each in memory.threads("t").list("u")] == ["u"]
        assert list(memory.check()) == []


def test_stores_in_two_schemas_share_one_pgvector(urls: Urls, postgres_server: str) -> None:
    with psycopg.connect(postgres_server, autocommit=True, dbname=DATABASE) as admin:
        for statement in ("DROP EXTENSION vector", "CREATE SCHEMA one", "CREATE SCHEMA two", "CREATE SCHEMA three"):
            admin.execute(statement)
        there, password = admin.info, admin.info.password

        def url(schema: str) -> str:
            options = {"host": there.host, "port": there.port, "options": f"-c search_path={schema},public"}
            named = quote(there.user) + (f":{quote(password)}" if password else "")
            return f"postgresql://{named}@/{DATABASE}?{urlencode(options, quote_via=quote)}"

        for schema in ("one", "two"):
            with opened(url(schema)) as memory:
                memory.add("green tea")
        admin.execute("DROP SCHEMA one CASCADE")
        with opened(url("two")) as memory:
            assert memory.search("tea", k=1)
        admin.execute("CREATE SCHEMA apart")
        admin.execute("ALTER EXTENSION vector SET SCHEMA apart")
        with pytest.raises(StoreError, match="pgvector is in the schema 'apart'"):
            opened(url("three"))


def test_a_search_path_that_has_lost_pgvector_is_told(urls: Urls, postgres_server: str) -> None:
    with psycopg.connect(postgres_server, autocommit=True, dbname=DATABASE) as admin:
        admin.execute(f"CREATE SCHEMA agents AUTHORIZATION {OWNER}")
        admin.execute(f"CREATE SCHEMA extensions AUTHORIZATION {OWNER}")
        admin.execute("ALTER EXTENSION vector SET SCHEMA extensions")
    both = urls(OWNER, options="-c search_path=agents,extensions")
    with Memory.open(both, embedder=WordEmbedder(16)) as memory:
        memory.add("green tea", ids=["a"])
    with Memory.open(urls(OWNER, options="-c search_path=agents"), embedder=WordEmbedder(16)) as memory:
        for call in (lambda: memory.add("black tea"), lambda: memory.search("tea")):
            with pytest.raises(StoreError, match="add the schema of pgvector behind that of the store") as error:
                call()
            assert "planted" not in str(error.value)
    with Memory.open(both, embedder=WordEmbedder(16)) as memory:
        assert memory.count() == 1
        assert memory.check()


def test_an_owner_may_bring_many_vectors_and_builds_their_index(urls: Urls) -> None:
    """In the schema `public` too, which is the owner's of the database since PostgreSQL 15."""
    url = urls(OWNER, "public")
    with opened(url, embedder=None) as memory:
        vectors = np.random.default_rng(1).standard_normal((5_001, 8)).astype(np.float32)
        memory.add(["text"] * 5_001, embeddings=vectors)
        assert has_index(url)
        assert memory.check()


def test_a_role_with_the_documented_rights_can_do_all_daily_work_and_no_more(urls: Urls, postgres_server: str) -> None:
    by_superuser, by_owner = documented()
    with psycopg.connect(postgres_server, autocommit=True, dbname=DATABASE) as admin:
        admin.execute("DROP EXTENSION vector")
        admin.execute(by_superuser)
    with opened(urls(OWNER)) as owner:
        owner.add("the first vector", ids=["first"])
        owner.delete("first")
    say(urls(OWNER), by_owner)
    with opened(urls(WORKER)) as memory:
        daily_work(memory)
        say(urls(OWNER), "UPDATE rlm_namespaces SET nodes = nodes + 6000")
        memory.add("an index is due", ids=["c"])
        assert not has_index(urls(OWNER)), "the table is another's"
        assert memory.search("index", k=1)[0].id == "c"
        with pytest.raises(StoreReadOnlyError, match="let their owner"):
            memory.compact()
        never_asked = WordEmbedder(32, model="another")
        with pytest.raises(StoreReadOnlyError, match="owns the tables"):
            memory.reembed(never_asked)
        assert not never_asked.asked
    for statement in (
        "UPDATE rlm_promotion_log SET reason = 'x'",
        "DELETE FROM rlm_promotion_log",
        "TRUNCATE rlm_nodes",
        "DROP TABLE rlm_nodes",
        "ALTER TABLE rlm_promotion_log DISABLE TRIGGER ALL",
        "CREATE TABLE agents.mine ()",
    ):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            say(urls(WORKER), statement)
    with opened(urls(OWNER)) as owner:
        owner.compact()
        assert has_index(urls(OWNER))
        owner.reembed(WordEmbedder(32, model="another"))  # the table of the vectors is a new one
    with opened(urls(WORKER), embedder=WordEmbedder(32, model="another")) as memory:
        memory.add("after the change", ids=["d"])
        assert memory.search("change", k=1)[0].id == "d"


def test_a_role_that_may_not_create_says_who_has_to(urls: Urls) -> None:
    say(urls(OWNER), "CREATE SCHEMA agents", f"GRANT USAGE ON SCHEMA agents TO {WORKER}")
    with pytest.raises(StoreError, match="owns the schema"):
        opened(urls(WORKER))
    opened(urls(OWNER)).close()
    say(urls(OWNER), f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA agents TO {WORKER}")
    with opened(urls(WORKER)) as memory:
        with pytest.raises(StoreError, match="role"):
            memory.add("the first vector needs a table")
        assert memory.count() == 0


def test_a_database_without_the_extension_says_what_an_administrator_has_to_do(
    urls: Urls, postgres_server: str
) -> None:
    with psycopg.connect(postgres_server, autocommit=True, dbname=DATABASE) as admin:
        admin.execute("DROP EXTENSION vector")
        (trusted,) = admin.execute("SELECT bool_or(trusted) FROM pg_available_extension_versions WHERE name = 'vector'")
        if trusted[0]:
            pytest.skip("on this server, the owner of a database may create the extension")
    say(urls(OWNER), "CREATE SCHEMA agents")
    with pytest.raises(StoreError, match="CREATE EXTENSION vector"):
        opened(urls(OWNER))
