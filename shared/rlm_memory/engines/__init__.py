"""The engines that store and rank nodes, found by the location of the store."""

from __future__ import annotations

import os
import re
from os import PathLike
from typing import Any, Final

from rlm_memory.errors import InvalidInputError, MissingExtraError
from rlm_memory.filters import is_storable
from rlm_memory.ports import Engine

_URL: Final = re.compile(r"([a-z][a-z0-9+.-]+)://", re.IGNORECASE)


def open_engine(location: str | PathLike[str], **options: Any) -> Engine:
    """Return the engine for this location: a path, ":memory:" or the URL of a PostgreSQL database.

    Raises:
        MissingExtraError: It is on a server, and the driver is not installed.
        InvalidInputError: It is a URL of a kind that is not known, or no path that SQLite can open.
    """
    path = os.fspath(location)
    if not isinstance(path, str) or not path or "\0" in path or not is_storable(path):
        raise InvalidInputError(f"{location!r} is not the location of a store; expected a path or ':memory:'.")
    if url := _URL.match(path):
        if url[1].lower() not in ("postgresql", "postgres"):
            raise InvalidInputError(
                f"Unknown kind of store {url[1]}://; expected a path, ':memory:' or 'postgresql://…'."
            )
        return _open_postgres(path, **options)
    from rlm_memory.engines.sqlite.engine import SQLiteEngine  # an engine is loaded when a store asks for it

    return SQLiteEngine(path, **options)


def _open_postgres(url: str, **options: Any) -> Engine:
    try:
        import psycopg  # noqa: F401 - its absence is told apart from that of one of our own modules
    except ImportError as error:
        raise MissingExtraError("A store on PostgreSQL", "postgres") from error
    from rlm_memory.engines.postgres.engine import PostgresEngine

    return PostgresEngine(url, **options)
