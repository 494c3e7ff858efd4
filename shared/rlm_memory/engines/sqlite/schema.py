"""The schema of a store file, and its way from one release to the next."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Final

import apsw

from rlm_memory.engines.sqlite.connection import Database, row_of
from rlm_memory.engines.sqlite.statements import PUT_META
from rlm_memory.engines.texts import Tokenizer
from rlm_memory.errors import StoreCorruptError, StoreError, StoreVersionError

APPLICATION_ID: Final = 0x524C4D31  # "RLM1" in the file's header: this file is ours

_MIGRATION_NAME = re.compile(r"(\d{4})_\w+\.sql")


def quoted(text: str) -> str:
    """Return the text as an SQL string literal, for the places in DDL where nothing can be bound."""
    return "'" + text.replace("'", "''") + "'"


@cache  # a process goes on with what it began with, also where its files are exchanged or out of reach since
def migrations() -> Sequence[tuple[int, str]]:
    """Return the migrations as (version, SQL), the first one first."""
    found = []
    for entry in files("rlm_memory.engines.sqlite").joinpath("migrations").iterdir():
        if match := _MIGRATION_NAME.fullmatch(entry.name):
            found.append((int(match[1]), entry.read_text("utf-8")))
    return sorted(found)


def migrate(database: Database, *, tokenizer: str, defaults: Mapping[str, str]) -> None:
    """Bring the file to the schema of this release; a new file gets this tokenizer, and these defaults in its `meta`.

    Two processes may do this at once: the second waits for the first and finds nothing left to do. A file that holds
    something is copied first, to `<its name>.schema-<its version>.backup`; killed in the middle, it is as it was.

    Raises:
        StoreVersionError: The file is from a newer release.
        StoreCorruptError: The file is a database, but not one of ours.
        StoreError: The file is to be read alone, and there is nothing in it.
        InvalidInputError: There is no such tokenizer.
    """
    steps = migrations()
    newest = steps[-1][0]
    with database.reading() as connection:
        version = _version(database, connection, newest)
    if version == newest:
        return
    if database.read_only and version == 0:
        raise StoreError(
            f"{database.location}: there is no store to read, the file is empty. "
            "A store is made when it is first opened to write."
        )
    if database.read_only:
        raise StoreVersionError(
            f"{database.location} has schema version {version}, this release reads {newest}. Bring it up to date, "
            f"which keeps a copy of it, with: rlm-memory --db {database.location} upgrade; "
            "or open it without read_only=True."
        )
    with database.transaction() as connection:
        version = _version(database, connection, newest)
        if 0 < version < newest and not database.in_memory:
            database.keep_copy(f"{database.location}.schema-{version}.backup")
        if version == 0:
            Tokenizer(tokenizer)
            connection.pragma("application_id", APPLICATION_ID)
        for number, sql in steps:
            if number > version:
                connection.execute(sql.replace("{tokenizer}", quoted(tokenizer)))
                connection.pragma("user_version", number)
        if version == 0:
            connection.executemany(PUT_META, [("tokenizer", tokenizer), *defaults.items()])


def _version(database: Database, connection: apsw.Connection, newest: int) -> int:
    """Return the schema version of the file, 0 for an empty one."""
    version = int(connection.pragma("user_version"))
    ours = connection.pragma("application_id") == APPLICATION_ID
    if not ours and (version or row_of(connection, "SELECT 1 FROM sqlite_schema LIMIT 1")):
        raise StoreCorruptError(
            f"{database.location} is a database of another program, not a memory store; choose another path."
        )
    if version > newest:
        raise StoreVersionError(
            f"{database.location} has schema version {version}, this release knows up to {newest}. "
            "Update it with: pip install -U rlm-memory"
        )
    return version
