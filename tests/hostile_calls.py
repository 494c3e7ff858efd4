"""Everything that is public of an object, called with a hostile text and beside what another tenant keeps."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

import apsw

from hostile_texts import rows_of, rows_on_server
from public_calls import OURS, Argument, calls_of, settled
from rlm_memory import RLMError


@dataclass(frozen=True)
class Subject:
    """An object, and what its public methods take."""

    thing: Any
    arguments: Mapping[str, Argument]
    keywords: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    without: frozenset[str] = frozenset()
    roots: tuple[str, ...] = ()
    """Modules of the framework whose methods, inherited, are called too."""
    refusals: tuple[type[Exception], ...] = ()
    """What the framework documents as a refusal, besides ours."""

    def calls(self, text: str) -> Iterable[tuple[str, Callable[[], Any]]]:
        return calls_of(
            self.thing,
            text,
            self.arguments,
            without=self.without,
            roots=(*OURS, *self.roots),
            keywords=self.keywords,
        )

    def named(self, method: str) -> str:
        return f"{type(self.thing).__name__}.{method}"


class Witness:
    """Knows what is stored for a namespace, reading it again when the file has changed."""

    def __init__(self, path: Path, namespace: str) -> None:
        self._path = path
        self._namespace = namespace
        self._connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
        self._version: Any = None
        self._rows: dict[str, Any] = {}

    def rows(self) -> dict[str, Any]:
        version = self._connection.execute("PRAGMA data_version").fetchall()
        if version != self._version:
            self._rows = rows_of(self._path, self._namespace, with_use=False)
            self._version = version
        return self._rows

    def __enter__(self) -> Witness:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        self._connection.close()


class ServerWitness:
    """The same for a store on a server."""

    def __init__(self, url: str, namespace: str) -> None:
        import psycopg  # where there is a server, it is there

        self._namespace = namespace
        self._connection = psycopg.connect(url, autocommit=True)
        self._version: Any = None
        self._rows: dict[str, Any] = {}

    def rows(self) -> dict[str, Any]:
        version = self._connection.execute("SELECT pg_current_snapshot()::text").fetchone()
        if version != self._version:
            self._rows = rows_on_server(self._connection, self._namespace, with_use=False)
            self._version = version
        return self._rows

    def __enter__(self) -> ServerWitness:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        self._connection.close()


def witness(place: Path | str, namespace: str) -> Witness | ServerWitness:
    return ServerWitness(place, namespace) if isinstance(place, str) else Witness(place, namespace)


async def call_everything(place: Path | str, namespace: str, subjects: Iterable[Subject], text: str) -> set[str]:
    """Call all with a text; return the names of the calls that took it.

    Raises:
        AssertionError: A call failed otherwise than by a typed error, or wrote something and refused it then.
    """
    taken = set()
    with witness(place, namespace) as seen:
        for subject in subjects:
            for name, call in subject.calls(text):
                before = seen.rows()
                try:
                    await settled(call())
                except (RLMError, *subject.refusals) as error:
                    str(error).encode("utf-8", "backslashreplace")
                    assert seen.rows() == before, f"{subject.named(name)} wrote and refused"
                except Exception as error:
                    raise AssertionError(f"{subject.named(name)}: untyped {error!r:.300}") from error
                else:
                    taken.add(subject.named(name))
    return taken


async def results_of(subjects: Iterable[Subject], text: str) -> dict[str, str]:
    """Return what every call that takes the text shows, by its name."""
    shown = {}
    for subject in subjects:
        for name, call in subject.calls(text):
            with contextlib.suppress(RLMError, *subject.refusals):
                shown[subject.named(name)] = repr(await settled(call()))
    return shown
