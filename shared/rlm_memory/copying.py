"""Copies a store, namespace after namespace, from one file or server to another."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from os import PathLike
from typing import Any, Final

from rlm_memory.engines import open_engine
from rlm_memory.errors import InvalidInputError, StoreVersionError
from rlm_memory.interchange import NamespaceCopy
from rlm_memory.memory import DEFAULT_TOKENIZER, Memory
from rlm_memory.ports import Engine, Identity, Progress

_ANY: Final = "default"


def copy_store(
    source: str | PathLike[str],
    target: str | PathLike[str],
    *,
    namespaces: Iterable[str] | None = None,
    progress: Progress | None = None,
) -> list[NamespaceCopy]:
    """Copy a store, or some namespaces of it, and return what each holds, the same on both sides.

    See `Memory.copy_to`: killed and called again, it goes on. A target that is new is made with the tokenizer of the
    source, and on the same engine with its form of vectors; else with float32.

    Args:
        source: A path, or the URL of a PostgreSQL database; there is a store.
        target: The same; other namespaces that it holds are left alone.
        namespaces: Their names; all unless given.
        progress: Called with (done, total) over all of them.

    Raises:
        InvalidInputError: There is no such namespace, the target holds something else in one of that name, or one of
            the two is ":memory:".
        EmbeddingMismatchError: The target has vectors of another model, length or form.
        StoreError: There is no store to read, or the two sides differ at the end.
    """
    if ":memory:" in (os.fspath(source), os.fspath(target)):
        raise InvalidInputError(
            "A store in memory cannot be copied by its place: it begins empty, and is gone at the end. Name files or "
            "postgresql:// URLs; from Python, Memory.copy_to copies a store that is open to another one."
        )
    _bring_up_to_date(source)
    with _engine(source) as engine:
        identity, known = engine.identity(), engine.namespaces()
    names = known if namespaces is None else list(dict.fromkeys(namespaces))
    if unknown := [name for name in names if name not in known]:
        raise InvalidInputError(f"{os.fspath(source)} has no namespace {unknown[0]!r}; it has {', '.join(known)}.")
    sizes = []
    for name in names:
        with _engine(source, name) as engine:
            sizes.append(2 * engine.parts.count())
    total, before = sum(sizes), 0
    copies = []
    for name, size in zip(names, sizes, strict=True):

        def advance(done: int, of_it: int, size: int = size, before: int = before) -> None:
            if progress is not None:
                progress(before + min(size, done * size // max(of_it, 1)), total)

        is_file = "://" not in os.fspath(source)
        with (
            _opened(source, name, read_only=not _writable(source)) as ours,
            _target(target, name, identity, source_is_file=is_file) as theirs,
        ):
            copies.append(ours.copy_to(theirs, progress=advance))
        before += size
        advance(0, 1, 0, before)
    return copies


def _bring_up_to_date(source: str | PathLike[str]) -> None:
    """Change an older schema, as the copying itself would when it opens the store."""
    try:
        with _engine(source):
            pass
    except StoreVersionError:
        if not _writable(source):
            raise
        _opened(source, _ANY).close()


@contextmanager
def _engine(location: str | PathLike[str], namespace: str = _ANY) -> Iterator[Engine]:
    """Open a store that is there, to look at it."""
    engine = open_engine(
        location,
        namespace=namespace,
        tokenizer=DEFAULT_TOKENIZER,
        embedding_storage="float32",
        stop_words=frozenset(),
        read_only=True,
    )
    try:
        yield engine
    finally:
        engine.close()


def _opened(location: str | PathLike[str], namespace: str, **options: Any) -> Memory:
    # by what policy it is to be swept, is its application's affair
    return Memory.open(location, embedder=None, namespace=namespace, sweep=False, **options)


def _target(location: str | PathLike[str], namespace: str, identity: Identity, *, source_is_file: bool) -> Memory:
    is_file = "://" not in os.fspath(location)
    keeps_form = is_file == source_is_file and not (is_file and os.path.exists(location))
    storage = identity.embedding_storage if keeps_form else None
    return _opened(location, namespace, tokenizer=identity.tokenizer, embedding_storage=storage)


def _writable(location: str | PathLike[str]) -> bool:
    """Whether what was reported of use can be written down before it is copied."""
    path = os.fspath(location)
    return "://" in path or (os.access(path, os.W_OK) and os.access(os.path.dirname(os.path.abspath(path)), os.W_OK))
