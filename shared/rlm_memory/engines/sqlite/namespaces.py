"""The number that stands for a namespace in every table."""

from __future__ import annotations

import apsw

from rlm_memory.engines.sqlite import statements
from rlm_memory.engines.sqlite.connection import row_of


def number_of(connection: apsw.Connection, namespace: str) -> int:
    """Return the number of a namespace; -1, which no row has, while it has none."""
    row = row_of(connection, statements.SELECT_NAMESPACE, (namespace,))
    return -1 if row is None else int(row[0])


def own_number_of(connection: apsw.Connection, namespace: str) -> int:
    """Return the number of a namespace, giving it one if it is new; in a transaction."""
    row = row_of(connection, statements.SELECT_NAMESPACE, (namespace,))
    return int((row or row_of(connection, statements.INSERT_NAMESPACE, (namespace,)))[0])
