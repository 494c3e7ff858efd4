"""Texts that mean something to whoever does not treat them as texts, and all that a file holds of a namespace."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import apsw

MARK = "zirconium"
"""A word of everything that the other tenant keeps."""

HOSTILE = {
    "quotes": """'; DROP TABLE nodes; -- " ` ] ) ''""",
    "NUL": "a\0b",
    "wildcards": "%_*?[a-z]^",
    "right to left": "\u202eabc\u202c\u200f\ufeff",
    "a million letters": "x" * 1_000_000,
    "FTS5": 'text:a NEAR(b c, 2) AND "d" OR NOT e* ^f {text}: + - ( ',
    "SQL": "1 OR 1=1) UNION SELECT id, text FROM nodes WHERE ('1'='1",
    "template": "{where} {tokenizer} %s %(id)s ?1 :id $id",
    "JSON path": '$."a"[0].b',
    "lone surrogate": "\ud800",
    "path": "../../../../etc/passwd",
    "nothing": "",
}

_BY = {
    "namespace": "= (SELECT number FROM namespaces WHERE name = :name)",
    "thread": "IN (SELECT thread FROM threads JOIN namespaces ON number = namespace WHERE name = :name)",
    "session": "IN (SELECT session FROM sessions JOIN namespaces ON number = namespace WHERE name = :name)",
    "node": "IN (SELECT node FROM nodes JOIN namespaces ON number = namespace WHERE name = :name)",
    "source": "IN (SELECT node FROM nodes JOIN namespaces ON number = namespace WHERE name = :name)",
}
"""The columns that tell whose a row is, the plainest first."""

_TABLES = "SELECT name FROM sqlite_schema WHERE type = 'table' AND sql NOT LIKE 'CREATE VIRTUAL%'"
_OF_USE = frozenset({"sessions", "accesses", "forgotten_accesses", "uses", "outcomes"})
_NOTES = frozenset({"node_changes", "unweighed_nodes"})  # what was done, for caches and sweeps, and cut off


def is_text(text: str) -> bool:
    """Tell whether Unicode has the text."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def rows_of(place: Path | str, namespace: str, *, with_use: bool = True) -> dict[str, Any]:
    """Return every row of a store that belongs to a namespace, by its table, without asking the store.

    Args:
        place: The file, or the URL of a server, of whose rows a hash is returned.
        namespace: Whose rows.
        with_use: Also what was read when: a call that is refused may have told that.
    """
    if isinstance(place, str):
        import psycopg  # where there is a server, it is there

        with psycopg.connect(place) as server:
            return rows_on_server(server, namespace, with_use=with_use)
    connection = apsw.Connection(str(place), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        found: dict[str, Any] = {}
        for (table,) in connection.execute(_TABLES).fetchall():
            columns = [row[1] for row in connection.execute(f'PRAGMA table_info("{table}")')]
            by = next((name for name in _BY if name in columns), None)
            if by is None or table in _NOTES or (table in _OF_USE and not with_use):
                continue
            read = [name for name in columns if with_use or name not in ("last_accessed", "access_count")]
            listed = ", ".join(f'"{name}"' for name in read)
            rows = connection.execute(
                f'SELECT {listed} FROM "{table}" WHERE "{by}" {_BY[by]} ORDER BY {listed}', {"name": namespace}
            )
            found[table] = rows.fetchall()
        return found
    finally:
        connection.close()


def rows_on_server(connection: Any, namespace: str, *, with_use: bool = True) -> dict[str, Any]:
    """Return a hash of the rows of each table that belong to a namespace."""
    left_out = _NOTES if with_use else {*_NOTES, *_OF_USE, *_COUNTERS}
    tables = [table for (table,) in connection.execute(_TABLES_ON_SERVER) if table.removeprefix("rlm_") not in left_out]
    hashes = " UNION ALL ".join(
        f"SELECT '{table}', md5(string_agg((to_jsonb(t) - %(uncounted)s::text[])::text, '|' "
        f"ORDER BY (to_jsonb(t) - %(uncounted)s::text[])::text)) FROM {table} t "
        "WHERE t.namespace = (SELECT s.namespace FROM rlm_namespaces s WHERE s.name = %(name)s)"
        for table in tables
    )
    values = {"name": namespace, "uncounted": [] if with_use else ["last_accessed", "access_count"]}
    return dict(connection.execute(hashes, values).fetchall())


_TABLES_ON_SERVER = (
    "SELECT c.relname FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attname = 'namespace' "
    "WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind = 'r' ORDER BY c.relname"
)
_COUNTERS = frozenset({"namespaces", "access_reports"})
