"""What a checkpoint costs in a conversation, in bytes and time, beside LangGraph's AsyncSqliteSaver.

    python tests/bench/saver.py [--turns 200] [--messages 50] [--size 500]

Each turn is a run of a graph as an agent makes them: the user's message, a step that answers, the end; so three
checkpoints and two sets of writes. "grows": the thread begins with the messages given and gets two more a turn.
"window": the oldest two are dropped. "steps": the messages stay, and a counter changes. The savers take turns, one call
each, so that whatever else the machine does falls on both alike.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import statistics
import tempfile
import time
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage
from langgraph.checkpoint.base import BaseCheckpointSaver, empty_checkpoint
from langgraph.checkpoint.base.id import uuid6
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

from langchain_rlm.checkpoints import RLMSaver

WORDS = [
    "".join(random.Random(i).choices("abcdefghijklmnopqrstuvwxyz", k=random.Random(-i).randint(2, 9)))
    for i in range(3000)
]


def message(kind: type[AnyMessage], size: int, chance: random.Random) -> AnyMessage:
    text = ""
    while len(text) < size:
        text += chance.choice(WORDS) + " "
    return kind(content=text, id=str(uuid.UUID(int=chance.getrandbits(128))))


async def converse(
    saver: BaseCheckpointSaver[Any], way: str, turns: int, messages: int, size: int
) -> AsyncIterator[float]:
    """Put the checkpoints of a conversation; yield the seconds of each put and put_writes."""
    chance = random.Random(7)
    thread = [message(HumanMessage if i % 2 == 0 else AIMessage, size, chance) for i in range(messages)]
    config: Any = {"configurable": {"thread_id": "conversation", "checkpoint_ns": ""}}
    versions: dict[str, Any] = {}
    seen: dict[str, dict[str, Any]] = {"__input__": {}, "__start__": {}, "model": {}}
    step = -1

    async def put_writes(written: AnyMessage) -> float:
        start = time.perf_counter()
        await saver.aput_writes(config, [("messages", [written])], str(uuid.uuid4()))
        return time.perf_counter() - start

    async def put(values: dict[str, Any], changed: list[str], source: str) -> float:
        nonlocal config, step
        new = {channel: saver.get_next_version(versions.get(channel), None) for channel in changed}
        versions.update(new)
        checkpoint = {
            **empty_checkpoint(),
            "id": str(uuid6(clock_seq=step)),
            "channel_values": values,
            "channel_versions": dict(versions),
            "versions_seen": {node: dict(of_node) for node, of_node in seen.items()},
        }
        start = time.perf_counter()
        config = await saver.aput(config, checkpoint, {"source": source, "step": step, "parents": {}}, new)
        seconds = time.perf_counter() - start
        step += 1
        return seconds

    for turn in range(turns):
        question, answer = message(HumanMessage, size, chance), message(AIMessage, size, chance)
        yield await put({"messages": list(thread), "__start__": {"messages": [question]}}, ["__start__"], "input")
        if way != "steps":
            thread.append(question)
            yield await put_writes(question)
        seen["__start__"] = {"__start__": versions["__start__"]}
        state = {"messages": list(thread), "count": turn}
        yield await put({**state, "branch:to:model": None}, ["messages", "branch:to:model", "count"], "loop")
        if way != "steps":
            thread.append(answer)
            yield await put_writes(answer)
        seen["model"] = {"branch:to:model": versions["branch:to:model"]}
        if way == "window":
            del thread[:2]
        changed = ["count"] if way == "steps" else ["messages", "branch:to:model"]
        yield await put({**state, "messages": list(thread)}, changed, "loop")


def bytes_of(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.iterdir())


async def measure(options: argparse.Namespace) -> None:
    for way in ("grows", "window", "steps"):
        with tempfile.TemporaryDirectory() as ours, tempfile.TemporaryDirectory() as theirs:
            async with AsyncSqliteSaver.from_conn_string(str(Path(theirs) / "file.db")) as other:
                with RLMSaver(Path(ours) / "file.db") as saver:
                    empty = saver.memory.stats().file_bytes
                    calls = [
                        converse(each, way, options.turns, options.messages, options.size) for each in (saver, other)
                    ]
                    times = [(seconds, await anext(calls[1])) async for seconds in calls[0]]
                    assert saver.memory.check()
            sizes = (bytes_of(Path(ours)) - empty, bytes_of(Path(theirs)))
        mean, median = ([of(each) for each in zip(*times, strict=True)] for of in (statistics.mean, statistics.median))
        for i, name in enumerate(("RLMSaver", "AsyncSqliteSaver")):
            print(
                f"{way:7} {name:17} {sizes[i] / 1e6:8.2f} MB  {mean[i] * 1e3:6.2f} ms mean  "
                f"{median[i] * 1e3:6.2f} ms median"
            )
        print(
            f"{way:7} ratio: {sizes[0] / sizes[1]:.3f} of the size, {mean[0] / mean[1]:.2f} of the mean time, "
            f"{median[0] / median[1]:.2f} of the median time"
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=200)
    parser.add_argument("--messages", type=int, default=50)
    parser.add_argument("--size", type=int, default=500)
    asyncio.run(measure(parser.parse_args()))
