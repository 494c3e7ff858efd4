"""A checkpointer for LangGraph: the threads of a graph in the same file as the memories."""

from __future__ import annotations

import asyncio
import builtins
import contextlib
import itertools
import json
import random
from collections.abc import AsyncIterator, Collection, Iterator, Mapping, Sequence
from os import PathLike
from typing import Any, Final, Self, cast

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    WRITES_IDX_MAP,
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    get_checkpoint_metadata,
)
from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from langchain_rlm.convert import to_memory
from rlm_memory import Memory
from rlm_memory.checkpoints.redaction import redacted
from rlm_memory.errors import InvalidInputError
from rlm_memory.records import CheckpointOutline, Encoded, ThreadCheckpoint, ThreadWrite, Tier

KIND: Final = "langgraph"
_PAGE: Final = 16
_COUNTERS: Final = "counters_since_delta_snapshot"
_OF_THE_FRAMEWORK: Final = frozenset({"source", "step", "parents", "run_id", _COUNTERS})
_PLAIN: Final = (str, int, bool, type(None))
_strict: Final = json.JSONEncoder(allow_nan=False).encode


class RLMSaver(BaseCheckpointSaver[Any]):
    """Keeps the checkpoints of graphs beside the memories, in one file and for sync and async graphs alike.

    Setup:
        Install `rlm-memory[langgraph]`.

    Instantiate:
        With `path="memory.db"` it is there again the next time; `memory=` takes a memory that is open.

        >>> import asyncio
        >>> from langchain_rlm import RLMSaver
        >>> saver = RLMSaver()

    Use in a graph:
        >>> from langgraph.graph import StateGraph
        >>> builder = StateGraph(int).add_node("add one", lambda n: n + 1)
        >>> graph = builder.set_entry_point("add one").set_finish_point("add one").compile(checkpointer=saver)
        >>> config = {"configurable": {"thread_id": "1"}}
        >>> graph.invoke(1, config), graph.get_state(config).values
        (2, 2)

    Search with filter:
        The checkpoints of a thread, the latest first; `filter` is about their metadata.

        >>> [found.metadata["step"] for found in saver.list(config)]
        [1, 0, -1]
        >>> [found.metadata["step"] for found in saver.list(config, filter={"source": "input"})]
        [-1]

    Async:
        >>> asyncio.run(graph.ainvoke(5, config))
        6
        >>> saver.close()

    It may be used from any thread and any number of event loops; other processes may use the file at the same time.
    A checkpoint, or the writes of a task, is on disk when the method returns. What is the same in two checkpoints of a
    thread is stored once, the messages that two states of a conversation share for instance.

    Nothing that is stored can name a class to import: what is neither a plain value, nor a message, document or other
    type that LangGraph counts as safe, comes back as a dict, unless it is allowed.
    """

    def __init__(
        self,
        path: str | PathLike[str] | None = None,
        *,
        memory: Memory | None = None,
        serde: SerializerProtocol | None = None,
        allowed: Collection[tuple[str, str] | type] = (),
    ) -> None:
        """Keep checkpoints in the file at `path`, or beside the memories of `memory`.

        Args:
            path: The file; created if there is none. Without it and without `memory`, the checkpoints live in the
                computer's memory.
            memory: An opened memory; its namespace is that of the threads, and who opened it closes it.
            serde: What turns values into bytes, LangGraph's own without imports unless given.
            allowed: Classes, or (module, name), that LangGraph's serialiser may import to bring values back.

        Raises:
            InvalidInputError: Both `path` and `memory` are given, or both `serde` and `allowed`.
        """
        if serde is not None and allowed:
            raise InvalidInputError(
                "allowed= is for LangGraph's own serialiser; with serde=, tell that one what it may import."
            )
        strict = JsonPlusSerializer(allowed_msgpack_modules=tuple(allowed) or None)
        super().__init__(serde=strict if serde is None else serde)
        self.memory = to_memory(memory, path, None)
        self._opened = memory is None
        self._threads = self.memory.threads(KIND)

    # -- writing ------------------------------------------------------------------------------------------------

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Store a checkpoint whose parent `config` names, and return the config that names it.

        Raises:
            InvalidInputError: The config has no thread_id, or the serialiser cannot hold a value; nothing was written.
        """
        thread_id, graph, parent_id = _place(config)
        values, versions = checkpoint["channel_values"], checkpoint["channel_versions"]
        new = {
            channel: self._encoded(value)
            for channel, value in values.items()
            if parent_id is None or channel in new_versions or channel not in versions
        }
        head = {name: value for name, value in checkpoint.items() if name != "channel_values"}
        self._threads.put(
            ThreadCheckpoint(
                thread_id=thread_id,
                graph=graph,
                id=checkpoint["id"],
                parent_id=parent_id,
                head=self._encoded(head),
                metadata=_to_metadata(config, metadata),
                values=new,
                versions={channel: versions.get(channel) for channel in new},
            ),
            kept={channel: versions[channel] for channel in values if channel not in new},
            encode=lambda channel: self._encoded(values[channel]),
        )
        return _config(thread_id, graph, checkpoint["id"])

    def put_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """Store what a task wrote, so that a resumed graph does not run it again.

        What is known of a task stays, but for errors, interrupts and the like, of which the last one counts.

        Raises:
            InvalidInputError: The config has no thread_id or no checkpoint_id, or the serialiser cannot hold a value;
                nothing was written.
        """
        thread_id, graph, checkpoint_id = _place(config)
        if checkpoint_id is None:
            raise InvalidInputError("config['configurable'] has no 'checkpoint_id'; writes belong to a checkpoint.")
        self._threads.put_writes(
            thread_id,
            graph,
            checkpoint_id,
            [
                ThreadWrite(
                    task_id=task_id,
                    place=WRITES_IDX_MAP.get(channel, position),
                    channel=channel,
                    value=self._encoded(value),
                    task_path=task_path,
                )
                for position, (channel, value) in enumerate(writes)
            ],
            replace=all(channel in WRITES_IDX_MAP for channel, _ in writes),
        )

    def _encoded(self, value: Any) -> Encoded:
        try:
            return Encoded(*self.serde.dumps_typed(value))
        except (TypeError, UnicodeError) as error:
            raise InvalidInputError(
                f"A value of type {type(value).__name__} cannot be stored: {error}. Keep in the state what the "
                "serialiser can hold; texts must be valid Unicode."
            ) from error

    # -- reading ------------------------------------------------------------------------------------------------

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Return the checkpoint that the config names, the last one of its thread if it names none.

        Raises:
            InvalidInputError: The config has no thread_id.
        """
        found = self._threads.get(*_place(config))
        return None if found is None else self._tuple(found)

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        """Yield checkpoints, the last one that was stored first.

        Args:
            config: The thread, and with them the namespace and the id, to look in; None, or no thread_id, is all.
            filter: What their metadata must have, `{"step": 1}` or `{"step": {"$gte": 1}}`, in the dialect of
                `rlm_memory.filters`.
            before: Those stored before this one.
            limit: At most so many.
        """
        return map(self._tuple, self._listed(config, filter, before, limit))

    def _listed(
        self,
        config: RunnableConfig | None,
        filter: dict[str, Any] | None,
        before: RunnableConfig | None,
        limit: int | None,
    ) -> Iterator[ThreadCheckpoint]:
        place = (config or {}).get("configurable", {})
        thread_id = place.get("thread_id")
        return self._threads.list(
            None if thread_id is None else str(thread_id),
            place.get("checkpoint_ns"),
            place.get("checkpoint_id"),
            where=_to_where(filter),
            before=(before or {}).get("configurable", {}).get("checkpoint_id"),
            limit=limit,
        )

    def _tuple(self, found: ThreadCheckpoint) -> CheckpointTuple:
        head = self._decoded(found.head)
        values = {channel: self._decoded(value) for channel, value in found.values.items()}
        return CheckpointTuple(
            config=_config(found.thread_id, found.graph, found.id),
            checkpoint=cast(Checkpoint, {**head, "channel_values": values}),
            metadata=cast(CheckpointMetadata, dict(found.metadata)),
            parent_config=_config(found.thread_id, found.graph, found.parent_id) if found.parent_id else None,
            pending_writes=[(write.task_id, write.channel, self._decoded(write.value)) for write in found.writes],
        )

    def _decoded(self, value: Encoded) -> Any:
        return self.serde.loads_typed((value.encoding, value.content))

    def tiers_at(self, config: RunnableConfig) -> dict[str, Tier]:
        """Return the tier that each memory had when the checkpoint was stored, by the memory's id.

        See `rlm_memory.threads.Threads.tiers_at`.
        """
        return self._threads.tiers_at(*_place(config))

    # -- whole threads ------------------------------------------------------------------------------------------

    def delete_thread(self, thread_id: str) -> None:
        """Delete the checkpoints and writes of a thread; its memories stay."""
        self._threads.delete(str(thread_id))

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Delete the checkpoints whose metadata names one of these runs as `run_id`, with their writes."""
        self._threads.delete_runs(map(str, run_ids))

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copy the checkpoints and writes of a thread, all of them, into a new one.

        Raises:
            InvalidInputError: There is a thread with the target's id already.
        """
        self._threads.copy(str(source_thread_id), str(target_thread_id))

    def prune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Keep the last checkpoint of each namespace of these threads ("keep_latest"), or nothing ("delete").

        What the last checkpoint needs is kept with it: of a `DeltaChannel`, the writes since its last snapshot.

        Raises:
            InvalidInputError: The strategy is another one.
        """
        listed = [str(thread_id) for thread_id in thread_ids]
        match strategy:
            case "keep_latest":
                self._threads.prune(listed, _replayed)
            case "delete":
                for thread_id in listed:
                    self._threads.delete(thread_id)
            case _:
                raise InvalidInputError(f"Unknown strategy {strategy!r}; expected 'keep_latest' or 'delete'.")

    def get_next_version(self, current: Any, channel: None) -> Any:
        """Return the version after this one: 1, 2, …, or a text in a thread that another checkpointer began.

        Values are found by the line of checkpoints they lie on, so that branches may count alike.
        """
        if isinstance(current, str):
            return f"{int(current.split('.')[0]) + 1:032}.{random.random():016}"  # noqa: S311 - nothing secret
        return 1 if current is None else int(current) + 1

    # -- async --------------------------------------------------------------------------------------------------

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """See `put`."""
        return await asyncio.to_thread(self.put, config, checkpoint, metadata, new_versions)

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """See `put_writes`."""
        await asyncio.to_thread(self.put_writes, config, writes, task_id, task_path)

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """See `get_tuple`."""
        return await asyncio.to_thread(self.get_tuple, config)

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        """See `list`."""
        found = await asyncio.to_thread(self.list, config, filter=filter, before=before, limit=limit)
        while page := await asyncio.to_thread(builtins.list, itertools.islice(found, _PAGE)):
            for each in page:
                yield each

    async def adelete_thread(self, thread_id: str) -> None:
        """See `delete_thread`."""
        await asyncio.to_thread(self.delete_thread, thread_id)

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        """See `delete_for_runs`."""
        await asyncio.to_thread(self.delete_for_runs, run_ids)

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """See `copy_thread`."""
        await asyncio.to_thread(self.copy_thread, source_thread_id, target_thread_id)

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """See `prune`."""
        await asyncio.to_thread(self.prune, thread_ids, strategy=strategy)

    async def atiers_at(self, config: RunnableConfig) -> dict[str, Tier]:
        """See `tiers_at`."""
        return await asyncio.to_thread(self.tiers_at, config)

    # -- the file -----------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Release the file, unless the memory was given; closing twice is fine."""
        if self._opened:
            self.memory.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.to_thread(self.close)


def _place(config: RunnableConfig) -> tuple[str, str, str | None]:
    """Return the thread, the namespace of the graph and the checkpoint that a config names."""
    place = config.get("configurable", {})
    if (thread_id := place.get("thread_id")) is None:
        raise InvalidInputError(
            "config['configurable'] has no 'thread_id'; pass {'configurable': {'thread_id': '…'}} to the graph."
        )
    return str(thread_id), place.get("checkpoint_ns") or "", place.get("checkpoint_id") or None


def _config(thread_id: str, graph: str, id: str) -> RunnableConfig:
    return {"configurable": {"thread_id": thread_id, "checkpoint_ns": graph, "checkpoint_id": id}}


def _to_metadata(config: RunnableConfig, metadata: CheckpointMetadata) -> dict[str, Any]:
    """Return what of the metadata, and of the config, is stored: what JSON can hold, and no secrets."""
    merged: Mapping[str, Any] = cast(Mapping[str, Any], get_checkpoint_metadata(config, metadata))
    own = {name: value for name, value in merged.items() if name in _OF_THE_FRAMEWORK}
    for name in [name for name in merged if name not in own]:
        with contextlib.suppress(RecursionError):  # what is nested so deep is nothing that JSON can hold either
            own |= redacted({name: merged[name]})
    return {name: value for name, value in own.items() if _is_json(value)}


def _is_json(value: Any) -> bool:
    if type(value) in _PLAIN:  # nearly all are
        return True
    try:
        _strict(value)
    except (TypeError, ValueError, RecursionError):
        return False
    return True


def _to_where(filter: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Return LangGraph's filter in the dialect of the memories: a dict without operators is a value to be equal to."""
    if not filter:
        return None
    return {
        key: value
        if isinstance(value, dict) and value and all(str(name).startswith("$") for name in value)
        else {"$eq": value}
        for key, value in filter.items()
    }


def _replayed(outlines: Sequence[CheckpointOutline]) -> set[str]:
    """Return the channels that are stored as a snapshot now and then, and as writes in between."""
    return {channel for each in outlines for channel in each.metadata.get(_COUNTERS, ())}
