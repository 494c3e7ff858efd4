"""The schema of a store on a server, and its way from one release to the next."""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib.resources import files
from typing import Final

import psycopg

from rlm_memory.conflicts import repeated
from rlm_memory.engines.postgres import statements
from rlm_memory.engines.postgres.connection import Connection, Database
from rlm_memory.engines.postgres.values import row_of, rows_of
from rlm_memory.errors import StoreError, StoreVersionError

VERSION_KEY: Final = "schema_version"
PARTITIONS_KEY: Final = "partitions"

_MIGRATION_NAME: Final = re.compile(r"(\d{4})_\w+\.sql")
_TABLE: Final = re.compile(r"^CREATE TABLE (rlm_\w+) \(", re.MULTILINE)
_PAGES: Final = {
    **dict.fromkeys(("rlm_nodes", "rlm_sessions", "rlm_terms"), "fillfactor = 80"),
    "rlm_namespaces": "fillfactor = 50",
    "rlm_node_terms": "toast_tuple_target = 8160",
}
"""How full pages of tables get whose rows change often: the new version of a row then finds room in its page, and no
index needs to know of it. Of tables that are read for scores, long rows stay whole: beside them, where large values go,
each is several rows more."""


def migrations() -> list[tuple[int, str]]:
    """Return the migrations as (version, SQL), the first one first."""
    found = []
    for entry in files("rlm_memory.engines.postgres").joinpath("migrations").iterdir():
        if match := _MIGRATION_NAME.fullmatch(entry.name):
            found.append((int(match[1]), entry.read_text("utf-8")))
    return sorted(found)


@repeated
def migrate(database: Database, *, defaults: Mapping[str, str]) -> None:
    """Bring the store to the schema of this release; a new one gets these defaults in its `meta`.

    Processes that do this at once take turns by an advisory lock: the second finds nothing left to do.

    Raises:
        StoreVersionError: The store is from a newer release, or from an older one and to be read alone.
        StoreError: It is to be read alone, and there is none. Or there is no schema to create tables in, no pgvector,
            or no right to create them.
    """
    steps = migrations()
    newest = steps[-1][0]
    with database.reading() as connection:
        version = _version(database, connection, newest)
        if version == newest:
            meta = dict(rows_of(connection, statements.SELECT_META))
            if defaults.keys() <= meta.keys():
                return
    if database.read_only and version == 0:
        raise StoreError(
            f"{database.location}: there is no store to read, the database has none. "
            "A store is made when it is first opened to write."
        )
    if database.read_only:
        raise StoreVersionError(
            f"{database.location} has schema version {version}, this release reads {newest}. Bring it up to date, by a "
            f"role that may create tables, with: rlm-memory --db {database.location} upgrade; or open it without "
            "read_only=True."
        )
    with database.outside() as connection, connection.transaction():
        connection.execute(statements.LOCK_SCHEMA)
        version = _version(database, connection, newest)
        try:
            if version < newest:
                _migrate(database, connection, steps, version)
        except psycopg.errors.InsufficientPrivilege as error:
            raise StoreError(
                f"{database.location}: the role may not create tables here ({error}). Open the store once by a role "
                "that owns the schema, or grant CREATE on it."
            ) from error
        connection.cursor().executemany(statements.PUT_META_ONCE, list(defaults.items()))


def _migrate(database: Database, connection: Connection, steps: list[tuple[int, str]], version: int) -> None:
    if row_of(connection, statements.SELECT_SCHEMA)[0] is None:
        raise StoreError(f"{database.location}: no schema of the search_path exists; create one first.")
    if version == 0:
        _create_extension(database, connection)
    partitions = database.partitions
    if version:
        partitions = int(dict(rows_of(connection, statements.SELECT_META)).get(PARTITIONS_KEY, 0))
    for number, sql in steps:
        if number > version:
            connection.execute(sql.replace("{partitioned}", partitioned(partitions)).encode())
            for table in _TABLE.findall(sql):
                finish_table(connection, table, partitions if table != "rlm_meta" else 0)
    rows = [(VERSION_KEY, str(steps[-1][0])), (PARTITIONS_KEY, str(partitions))]
    connection.cursor().executemany(statements.PUT_META, rows)


def partitioned(partitions: int) -> str:
    """Return what a statement that creates a table says of its partitions."""
    return "PARTITION BY HASH (namespace)" if partitions else ""


def finish_table(connection: Connection, table: str, partitions: int) -> None:
    """Create the partitions of a table, say how its pages are filled, and hand it to Citus where that is installed.

    Args:
        connection: In the transaction that has created the table.
        table: One of ours.
        partitions: How many, 0 for none.
    """
    leaves = [f"{table}_{i}" for i in range(partitions)] or [table]
    for i, leaf in enumerate(leaves if partitions else []):
        connection.execute(
            f"CREATE TABLE {leaf} PARTITION OF {table} FOR VALUES WITH (MODULUS {partitions}, REMAINDER {i})".encode()
        )
    if settings := _PAGES.get(table):
        for leaf in leaves:
            connection.execute(f"ALTER TABLE {leaf} SET ({settings})".encode())
    if row_of(connection, statements.SELECT_EXTENSION, ("citus",)) is None:
        return
    if table == "rlm_meta":
        connection.execute("SELECT create_reference_table(%s::regclass)", (table,))
        return
    # The trigger of the promotion log looks at its own row alone, which is what the setting asks to be sure of.
    connection.execute("SET LOCAL citus.enable_unsafe_triggers = on")
    together = "none" if table == "rlm_namespaces" else "rlm_namespaces"
    connection.execute(
        "SELECT create_distributed_table(%s::regclass, 'namespace', colocate_with => %s)", (table, together)
    )


def _create_extension(database: Database, connection: Connection) -> None:
    if present := row_of(connection, statements.SELECT_SCHEMA_OF_VECTOR):
        schema, is_searched = present
        if not is_searched:
            raise StoreError(
                f"{database.location}: pgvector is in the schema {schema!r}, which the search_path lacks; add it "
                "behind the schema of the store, or let a superuser say: ALTER EXTENSION vector SET SCHEMA public"
            )
        return
    # Where others find it too: a database has it once, and in the schema of this store it would go with that.
    where = " SCHEMA public" if row_of(connection, statements.IS_PUBLIC_SEARCHED)[0] else ""
    try:
        connection.execute(f"CREATE EXTENSION vector{where}".encode())
    except (psycopg.errors.InsufficientPrivilege, psycopg.errors.FeatureNotSupported) as error:
        raise StoreError(
            f"{database.location}: the database has no pgvector, and this role cannot create it ({error}). Install "
            "pgvector 0.8 or newer on the server and let a superuser say once in this database: CREATE EXTENSION vector"
        ) from error


def _version(database: Database, connection: Connection, newest: int) -> int:
    """Return the schema version of the store, 0 where there is none."""
    if not any(name == "rlm_meta" for (name,) in rows_of(connection, statements.SELECT_TABLES)):
        return 0
    meta = dict(rows_of(connection, statements.SELECT_META))
    version = int(meta.get(VERSION_KEY, 0))
    if version > newest:
        raise StoreVersionError(
            f"{database.location} has schema version {version}, this release knows up to {newest}. "
            "Update it with: pip install -U rlm-memory"
        )
    return version
