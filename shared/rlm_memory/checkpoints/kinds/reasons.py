"""Why values of some types cannot be saved, in words that help whoever made them."""

from __future__ import annotations

from typing import Any

_BY_NAME = {
    "generator": "a generator cannot be continued in another process; keep its items in a list",
    "async_generator": "a generator cannot be continued in another process; keep its items in a list",
    "coroutine": "a coroutine cannot be continued in another process",
    "frame": "a frame ends with its process",
    "traceback": "a traceback leads to frames that end with their process",
    "code": "code is saved by its source: keep the function, or the text",
    "lock": "a lock belongs to its process",
    "RLock": "a lock belongs to its process",
    "TextIOWrapper": "an open file belongs to its process; keep its path",
    "BufferedReader": "an open file belongs to its process; keep its path",
    "BufferedWriter": "an open file belongs to its process; keep its path",
    "BufferedRandom": "an open file belongs to its process; keep its path",
    "FileIO": "an open file belongs to its process; keep its path",
    "socket": "a socket belongs to its process",
    "_lru_cache_wrapper": "a cached function cannot be taken apart; keep the function and wrap it again",
    "ReferenceType": "a weak reference ends with its process",
    "mmap": "mapped memory belongs to its process",
}
_BY_MODULE = {
    "_thread": "it belongs to its process",
    "threading": "threads and what they wait for belong to their process",
    "queue": "a queue between threads belongs to its process; keep its items in a list",
    "socket": "a socket belongs to its process",
    "ssl": "a connection belongs to its process",
    "subprocess": "a child process cannot be handed on",
    "multiprocessing": "it belongs to its process",
    "concurrent": "an executor and its futures belong to their process; keep the results",
    "asyncio": "it belongs to its event loop; keep the results",
    "logging": "a logger is found by its name; ask for it again",
    "tempfile": "a temporary file ends with its process; keep its path",
    "contextvars": "a context belongs to its process",
    "sqlite3": "a connection belongs to its process; keep the path of the database",
    "apsw": "a connection belongs to its process; keep the path of the database",
}


def is_bound_to_process(kind: type) -> bool:
    """Tell whether objects of the type mean something only in the process that made them."""
    return kind.__module__.split(".")[0] in _BY_MODULE


def reason_for(value: Any) -> str:
    """Return why a value of a type that no kind knows cannot be saved."""
    kind = type(value)
    if issubclass(kind, type):
        return "a class that was made by a call has no statement to make it again"
    reason = _BY_NAME.get(kind.__name__) or _BY_MODULE.get(kind.__module__.split(".")[0])
    if reason is not None:
        return reason
    if kind.__name__.endswith("iterator") or issubclass(kind, (zip, map, filter, enumerate)):
        return "an iterator that was begun cannot be continued in another process; keep its items in a list"
    return f"objects of {kind.__module__}.{kind.__qualname__} are made by code that is not Python, with no known form"
