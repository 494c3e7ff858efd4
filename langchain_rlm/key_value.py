"""A store for LangGraph whose items are memories: what graphs keep under namespaces and keys, found by search too."""

from __future__ import annotations

import asyncio
import itertools
import logging
import math
import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from os import PathLike
from typing import Any, Final, NamedTuple, TypeAlias

from langchain_core.runnables.config import ensure_config

from langchain_rlm.convert import RESERVED, EmbeddingLike, to_memory
from langchain_rlm.tracing import present_turn
from rlm_memory import AsyncMemory, Hit, Memory, Node
from rlm_memory.errors import InvalidFilterError, InvalidInputError, InvalidNodeError, MissingExtraError
from rlm_memory.filters import MAX_DEPTH, And, Comparison, Filter, Key, Operator, parse_filter
from rlm_memory.turns import Sessions

try:
    from langgraph.store.base import (
        BaseStore,
        GetOp,
        InvalidNamespaceError,
        Item,
        ListNamespacesOp,
        MatchCondition,
        Op,
        PutOp,
        Result,
        SearchItem,
        SearchOp,
        TTLConfig,
        get_text_at_path,
        validate_op_namespace,
    )
except ImportError as error:
    raise MissingExtraError("RLMStore", "langgraph") from error

_PREFIX: Final = "langgraph:"
_RESERVED: Final = "_langgraph"
_NAMESPACE: Final = Key(f"{_RESERVED}.namespace")
_WITHIN: Final = Key(f"{_RESERVED}.within")
_EXPIRES_AT: Final = Key(f"{_RESERVED}.expires_at")

_PAGE: Final = 500
_ALL: Final = 2**31
_LISTING: Final = {"include_archived": True, "newest_first": True, "as_written": True}
_KNOWN: Final = 5_000
_DEPTH: Final = 20
"""Searches fetch hits by so many: each leg gives more candidates for more hits, and pages must be cut from one list."""

_MORTAL: Final = ("task", "session")
"""The tiers in which an item can expire: what has proved itself is kept."""

_logger = logging.getLogger("langchain_rlm")


class _Call(NamedTuple):
    """A method of `Memory`, and of `AsyncMemory` by the same name, to be called with these arguments."""

    method: str
    arguments: dict[str, Any]


_Steps: TypeAlias = "Generator[_Call | Callable[[], object], Any, list[Result]]"
"""A batch: it yields what it needs done and returns the results. Sync and async drive it."""


class RLMStore(BaseStore):
    """A LangGraph store in a memory: one file, searched by meaning and by words, shared with everything else there.

    Setup:
        Install `rlm-memory[langgraph]`.

    Key init args:
        memory: Memory
            An opened memory. Or else `path` and `embedding`, to open one.
        fields: Sequence[str]
            What of a value is searched, as paths: `["text"]`, `["title", "notes[*].body"]`; the whole value as JSON
            unless given. An item has one text and one vector: what the paths lead to, a line each.
        ttl: TTLConfig | None
            `default_ttl`, `refresh_on_read`, `omit_expired` and `sweep_interval_minutes`.

    Instantiate:
        >>> import asyncio
        >>> from langchain_rlm import RLMStore
        >>> store = RLMStore(path=":memory:", fields=["text"])

    Put, get, delete:
        >>> store.put(("users", "ada"), "drink", {"text": "Ada likes green tea.", "rating": 5})
        >>> store.get(("users", "ada"), "drink").value
        {'text': 'Ada likes green tea.', 'rating': 5}
        >>> store.delete(("users", "ada"), "nothing")

    Search:
        >>> [item.key for item in store.search(("users",), query="Who drinks tea?", limit=1)]
        ['drink']

    Search with filter:
        >>> store.search(("users",), filter={"rating": {"$lt": 5}})
        []

        The filter is that of `rlm_memory.filters`, which has more than the six operators of other stores; an object
        without operators must be contained in the value. Without a query the items come newest first.

    Namespaces:
        >>> store.list_namespaces(prefix=("users", "*"))
        [('users', 'ada')]

    Async:
        >>> asyncio.run(store.aget(("users", "ada"), "drink")).key
        'drink'

    Use in a graph:
        `builder.compile(store=store)`, `create_agent(…, store=store)`.

    **Items are memories**, in the namespace of the memory: other adapters find them by their text, with the value as
    metadata; memories that were not put here are not in the store. An item that is read in a graph is an access in
    the session of the run (its `session_id`, else that of this store, else the `thread_id`), so it is promoted as any
    other. Each batch is a turn, unless a callback handler of the memory watches the run: then the run is.

    **Time to live** is in minutes and counts from the last write or read. Reads with `refresh_ttl=False` are no
    access of an item that has one. Expired items are deleted by `sweep_ttl`. An item that was promoted to longterm, or
    pinned, does not expire. Items in the archive are got and listed as ever, but not found by a query.

    As in other stores, the reads of a batch see the state before it, and the last put of a key wins. As in LangGraph's
    PostgresStore, `created_at` stays when an item is put again. A batch is written whole or not at all, but for its
    deletions, which come last.
    """

    supports_ttl = True

    def __init__(
        self,
        memory: Memory | None = None,
        *,
        path: str | PathLike[str] | None = None,
        embedding: EmbeddingLike = None,
        fields: Sequence[str] = ("$",),
        ttl: TTLConfig | None = None,
        alpha: float | None = None,
        confidence: float = 0.5,
        session_id: str | None = None,
        **options: Any,
    ) -> None:
        """Make a store over an opened memory, or over the one at `path`; `store.memory.close()` closes it.

        Args:
            memory: An opened memory.
            path: Where to open one, see `Memory.open`; None for one that lives in the computer's memory.
            embedding: Its embedder: LangChain's, or what `Memory.open` takes; None for keyword search alone.
            fields: The paths of what is searched.
            ttl: How items expire.
            alpha: The weight of meaning against words, from 0 to 1; the memory's own unless given.
            confidence: How sure new items are, from 0 to 1.
            session_id: The session of reads in runs that do not name one.
            **options: What else `Memory.open` takes.

        Raises:
            InvalidInputError: The arguments contradict each other, or cannot be used.
            EmbeddingMismatchError: The memory holds vectors of another model.
        """
        if isinstance(fields, str):
            raise InvalidInputError(f"fields is {fields!r}; expected a list of paths.")
        self.memory = to_memory(memory, path, embedding, **options)
        self.ttl_config = ttl
        self._async = AsyncMemory(self.memory)
        self._fields = tuple(fields)
        self._alpha = alpha
        self._confidence = confidence
        self._sessions = Sessions(self.memory, session_id)
        self._omit_expired = bool((ttl or {}).get("omit_expired"))
        self._sweeper: threading.Thread | None = None
        self._stop = threading.Event()

    def __repr__(self) -> str:
        return f"RLMStore({self.memory!r})"

    # -- batches ------------------------------------------------------------------------------------------------

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """Return the result of each operation, in order.

        Raises:
            InvalidNamespaceError: A label of a namespace is no text, empty, or has a dot.
            InvalidNodeError: A value cannot be stored; nothing was written.
            InvalidFilterError: A filter says something that has no meaning.
            EmbeddingError: The vectors could not be had; nothing was written.
        """
        steps = self._steps(list(ops))
        try:
            call = next(steps)
            while True:
                call = steps.send(
                    getattr(self.memory, call.method)(**call.arguments) if isinstance(call, _Call) else call()
                )
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]  # a generator's return value is untyped here

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """Await what `batch` returns."""
        steps = self._steps(list(ops))
        try:
            call = next(steps)
            while True:
                if isinstance(call, _Call):
                    call = steps.send(await getattr(self._async, call.method)(**call.arguments))
                else:
                    call = steps.send(await asyncio.to_thread(call))
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]  # a generator's return value is untyped here

    def _steps(self, ops: Sequence[Op]) -> _Steps:
        for op in ops:
            validate_op_namespace(op)
        puts = {item_id(op.namespace, op.key): op for op in ops if isinstance(op, PutOp)}
        written = [self._node(id, op) for id, op in puts.items() if op.value is not None]
        results: list[Result] = []
        used: dict[str, Node] = {}
        got = {}
        if wanted := [item_id(op.namespace, op.key) for op in ops if isinstance(op, GetOp)]:
            nodes = yield _Call("get", {"ids": wanted, "as_written": True})
            got = {node.id: node for node in (yield from self._items(nodes))}
        for op in ops:
            match op:
                case GetOp():
                    node = got.get(item_id(op.namespace, op.key))
                    used.update(_uses([] if node is None else [node], op))
                    results.append(None if node is None else Item(**_content(node)))
                case SearchOp():
                    found = yield from self._search(op)
                    used.update(_uses([node for node, _ in found], op))
                    results.append([SearchItem(**_content(node), score=score) for node, score in found])
                case ListNamespacesOp():
                    results.append((yield from self._namespaces(op)))
                case PutOp():
                    results.append(None)
                case _:
                    raise InvalidInputError(f"{op!r} is no operation of a LangGraph store.")
        if used:
            yield lambda: self._report(list(used.values()))
        if written:
            yield _Call("add", {"texts": written})
        if deleted := [id for id, op in puts.items() if op.value is None]:
            yield _Call("delete", {"ids": deleted})
        return results

    def _report(self, nodes: Sequence[Node]) -> None:
        """Report what was read to the session of the present run."""
        config = ensure_config()
        session_id = self._sessions.name(config.get("metadata", {}), config.get("configurable", {}))
        (present_turn(self.memory, session_id) or self._sessions.turn(session_id)).record(nodes)

    # -- reading ------------------------------------------------------------------------------------------------

    def _items(self, nodes: Sequence[Node], prefix: Sequence[str] = ()) -> Generator[_Call, Any, list[Node]]:
        """Return the nodes that are items under a namespace, without those that are to be omitted."""
        # Its id says where an item is; metadata could be a copy of another's.
        items = [node for node in nodes if (at := _namespace(node)) and at[: len(prefix)] == tuple(prefix)]
        now = _milliseconds(self.memory.clock())
        if self._omit_expired and (late := [node.id for node in items if _has_expired(node, now)]):
            # unless they were read a moment ago
            latest = {node.id: node for node in (yield _Call("get", {"ids": late}))}
            items = [latest.get(node.id, node) for node in items]
            items = [node for node in items if not _has_expired(node, now)]
        return items

    def _search(self, op: SearchOp) -> Generator[_Call, Any, list[tuple[Node, float | None]]]:
        if op.limit < 0 or op.offset < 0:
            raise InvalidInputError(f"limit is {op.limit}, offset {op.offset}; expected 0 or more.")
        where = _scope(op.namespace_prefix, op.filter)
        wanted = op.offset + op.limit
        if not op.query or not op.query.strip():
            nodes = yield from self._list(where, op.namespace_prefix, limit=_ALL if self._omit_expired else wanted)
            return [(node, None) for node in nodes[op.offset : wanted]]
        k = _DEPTH * math.ceil(wanted / _DEPTH)
        while True:
            hits: list[Hit] = yield _Call("search", {"query": op.query, "k": k, "where": where, "alpha": self._alpha})
            items = yield from self._items([hit.node for hit in hits], op.namespace_prefix)
            kept = {node.id for node in items}
            found = [hit for hit in hits if hit.id in kept]
            if len(found) >= wanted or len(hits) < k:
                break
            k *= 2  # some of them have expired
        # an item without a text was not compared with anything
        return [(hit.node, hit.score if hit.text else None) for hit in found[op.offset : wanted]]

    def _list(self, where: Filter, prefix: Sequence[str], *, limit: int = _ALL) -> Generator[_Call, Any, list[Node]]:
        """Return the items among the newest nodes that a filter lets through, the last written first."""
        nodes = yield _Call("list", {"where": where, "limit": limit, **_LISTING})
        return (yield from self._items(nodes, prefix))

    def _namespaces(self, op: ListNamespacesOp) -> Generator[_Call, Any, list[tuple[str, ...]]]:
        conditions = op.match_conditions or ()
        prefix = max((_literal(condition) for condition in conditions), key=len, default=())
        found = yield from self._inhabited(prefix)
        matching = (namespace for namespace in found if all(_matches(namespace, one) for one in conditions))
        return sorted({namespace[: op.max_depth] for namespace in matching})[op.offset : op.offset + op.limit]

    def _inhabited(self, prefix: Sequence[str]) -> Generator[_Call, Any, set[tuple[str, ...]]]:
        """Return the namespaces of all items under one, reading as few of the items as possible."""
        scope = _scope(prefix, None)
        found: set[tuple[str, ...]] = set()
        # an item that has expired would hide the others of its namespace
        while len(found) < _KNOWN and not self._omit_expired:
            # What is in none of those that were found: 100 namespaces of 10,000 items take two pages.
            known = [".".join(namespace) for namespace in found]
            where = And((scope, Comparison(_NAMESPACE, Operator.NIN, known)))
            page = yield from self._list(where, prefix, limit=_PAGE)
            new = {_namespace(node) for node in page} - found
            if not new:
                return found
            found |= new
        return {_namespace(node) for node in (yield from self._list(scope, prefix))}

    # -- writing ------------------------------------------------------------------------------------------------

    def _node(self, id: str, op: PutOp) -> Node:
        assert op.value is not None  # a deletion is no node
        if not op.namespace:
            raise InvalidNamespaceError(f"Item {op.key!r} has no namespace; expected one label at least.")
        value = dict(op.value)
        for key in value:
            if isinstance(key, str) and key.startswith(RESERVED):
                raise InvalidNodeError(f"Item {op.key!r} has {key!r} in its value; that name is reserved.")
        return Node(
            id=id,
            text=self._text(value, op.index),
            metadata={**value, _RESERVED: self._keeping(op)},
            confidence=self._confidence,
        )

    def _text(self, value: dict[str, Any], index: Sequence[str] | bool | None) -> str:
        """Return what of a value is searched: a blank text, if nothing is."""
        if index is False:
            return ""
        paths = self._fields if index is None or index is True else index
        try:
            return "\n".join(text for path in paths for text in get_text_at_path(value, path))
        except (TypeError, ValueError, RecursionError):
            return ""  # it is no JSON, which the memory will refuse, and say where

    def _keeping(self, op: PutOp) -> dict[str, Any]:
        """Return what is kept of an item besides its value: where it is, for filters, and when it expires."""
        paths = [".".join(op.namespace[: i + 1]) for i in range(len(op.namespace))]
        kept: dict[str, Any] = {"namespace": paths[-1], "within": paths}
        if op.ttl is None:
            return kept
        if isinstance(op.ttl, bool) or not isinstance(op.ttl, int | float) or not 0 <= op.ttl < math.inf:
            raise InvalidInputError(f"ttl is {op.ttl!r}; expected minutes, a number of 0 or more.")
        return {**kept, "ttl": op.ttl, "expires_at": _milliseconds(self.memory.clock()) + _lifetime(op.ttl)}

    # -- expiry -------------------------------------------------------------------------------------------------

    def sweep_ttl(self) -> int:
        """Delete the items that have expired; return how many."""
        now = _milliseconds(self.memory.clock())
        # the time at which an item expires if nobody reads it: later reads are in the node itself
        due = And((_scope((), None), Comparison(_EXPIRES_AT, Operator.LTE, now)))
        nodes = self.memory.list(where=due, tiers=_MORTAL, limit=_ALL)
        expired = [node.id for node in nodes if _namespace(node) and _has_expired(node, now)]
        return self.memory.delete(expired, where=due) if expired else 0  # one that was put again is due no more

    async def asweep_ttl(self) -> int:
        """Await what `sweep_ttl` returns."""
        return await asyncio.to_thread(self.sweep_ttl)

    def start_ttl_sweeper(self, sweep_interval_minutes: float | None = None) -> None:
        """Sweep in the background until `stop_ttl_sweeper`, or the end of the process.

        Args:
            sweep_interval_minutes: How often; `sweep_interval_minutes` of the store's `ttl` unless given, else 5.
        """
        if self._sweeper is not None and self._sweeper.is_alive():
            return
        minutes = sweep_interval_minutes or (self.ttl_config or {}).get("sweep_interval_minutes") or 5
        self._stop.clear()
        self._sweeper = threading.Thread(target=self._sweep_until_stopped, args=(minutes * 60,), daemon=True)
        self._sweeper.start()

    def _sweep_until_stopped(self, seconds: float) -> None:
        while not self._stop.wait(seconds):
            try:
                self.sweep_ttl()
            except Exception:
                _logger.exception("Expired items of %r were not deleted; the next sweep will try again.", self)

    def stop_ttl_sweeper(self, timeout: float | None = None) -> bool:
        """Stop sweeping in the background; return whether it has stopped.

        Args:
            timeout: How many seconds to wait for a sweep that is going on; without end unless given.
        """
        self._stop.set()
        if self._sweeper is not None:
            self._sweeper.join(timeout)
        return self._sweeper is None or not self._sweeper.is_alive()


# -- items as nodes -------------------------------------------------------------------------------------------------


def item_id(namespace: Sequence[str], key: str) -> str:
    """Return the id of the node that an item is: no two items share one.

    Labels have no dots and are not empty, so the first two dots in a row end the namespace, whatever the key is.

    >>> item_id(("users", "ada"), "drink")
    'langgraph:users.ada..drink'
    """
    return f"{_PREFIX}{'.'.join(namespace)}..{key}"


def _address(node: Node) -> tuple[tuple[str, ...], str]:
    """Return the namespace and key of the item that a node is; the namespace is empty if it is none."""
    namespace, dots, key = node.id.removeprefix(_PREFIX).partition("..")
    is_item = dots and node.id.startswith(_PREFIX) and isinstance(node.metadata.get(_RESERVED), Mapping)
    return (tuple(namespace.split(".")), key) if is_item else ((), "")


def _namespace(node: Node) -> tuple[str, ...]:
    return _address(node)[0]


def _content(node: Node) -> dict[str, Any]:
    """Return the arguments of an `Item`."""
    namespace, key = _address(node)
    return {
        "namespace": namespace,
        "key": key,
        "value": {name: value for name, value in node.metadata.items() if name != _RESERVED},
        "created_at": node.created_at,
        "updated_at": node.updated_at,
    }


def _uses(nodes: Iterable[Node], op: GetOp | SearchOp) -> dict[str, Node]:
    """Return the nodes whose reading is an access, by their ids."""
    return {node.id: node for node in nodes if op.refresh_ttl or "ttl" not in node.metadata[_RESERVED]}


def _lifetime(minutes: float) -> int:
    return round(minutes * 60_000)


def _has_expired(node: Node, now: int) -> bool:
    ttl = node.metadata[_RESERVED].get("ttl")
    if not isinstance(ttl, int | float) or node.pinned or node.tier not in _MORTAL:
        return False
    last = max(_milliseconds(at) for at in (node.updated_at, node.last_accessed) if at is not None)
    return last + _lifetime(ttl) <= now


def _milliseconds(at: datetime | None) -> int:
    assert at is not None  # the memory has given each node its times
    return round(at.timestamp() * 1000)


# -- what is asked, in the memory's words ---------------------------------------------------------------------------


def _scope(prefix: Sequence[str], filter: Mapping[str, Any] | None) -> Filter:
    """Return the filter for the items under a namespace that another filter lets through."""
    scope = (
        Comparison(_WITHIN, Operator.CONTAINS, ".".join(prefix))
        if prefix
        else Comparison(_WITHIN, Operator.EXISTS, True)
    )
    condition = parse_filter(dict(_paths(filter or {})))
    return scope if condition is None else And((scope, condition))


def _paths(filter: Mapping[str, Any], path: str = "", levels: int = MAX_DEPTH) -> Iterator[tuple[str, Any]]:
    """Yield the parts of a filter, an object without operators as the paths to what it contains."""
    if not levels:
        raise InvalidFilterError(f"The filter is nested more than {MAX_DEPTH} levels deep.")
    for name, condition in filter.items():
        is_object = isinstance(condition, Mapping) and condition and not any(str(key)[:1] == "$" for key in condition)
        if is_object and not name.startswith("$"):
            yield from _paths(condition, f"{path}{name}.", levels - 1)
        else:
            yield f"{path}{name}", condition


def _literal(condition: MatchCondition) -> tuple[str, ...]:
    """Return the labels that all namespaces which match a condition start with."""
    return (
        tuple(itertools.takewhile(lambda label: label != "*", condition.path))
        if condition.match_type == "prefix"
        else ()
    )


def _matches(namespace: tuple[str, ...], condition: MatchCondition) -> bool:
    path = tuple(condition.path)
    if len(path) > len(namespace):
        return False
    match condition.match_type:
        case "prefix":
            labels = namespace[: len(path)]
        case "suffix":
            labels = namespace[len(namespace) - len(path) :]
        case _:
            raise InvalidInputError(f"Unknown match_type {condition.match_type!r}; expected 'prefix' or 'suffix'.")
    return all(wanted in ("*", label) for label, wanted in zip(labels, path, strict=True))
