"""What a checkpoint costs in a conversation, in bytes and time, beside LangGraph's AsyncSqliteSaver.

    python tests/bench/saver.py [--turns 200] [--messages 50] [--size 500]

Each turn is a run of a graph as an agent makes them: the user's message, a step that answers, the end; so three
checkpoints and two sets of writes. "grows": the thread begins with the messages given and gets two more a turn.
"window": the oldest two are dropped. "steps": the messages stay, and a counter changes.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import statistics
import tempfile
import time
import uuid
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


async def converse(saver: BaseCheckpointSaver[Any], way: str, turns: int, messages: int, size: int) -> list[float]:
    """Put the checkpoints of a conversation; return the seconds of each put and put_writes."""
    chance = random.Random(7)
    thread = [message(HumanMessage if i % 2 == 0 else AIMessage, size, chance) for i in range(messages)]
    config: Any = {"configurable": {"thread_id": "conversation", "checkpoint_ns": ""}}
    versions: dict[str, Any] = {}
    seen: dict[str, dict[str, Any]] = {"__input__": {}, "__start__": {}, "model": {}}
    times: list[float] = []
    step = -1

    async def timed(waited: Any) -> Any:
        start = time.perf_counter()
        result = await waited
        times.append(time.perf_counter() - start)
        return result

    async def put(values: dict[str, Any], changed: list[str], source: str) -> None:
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
        config = await timed(saver.aput(config, checkpoint, {"source": source, "step": step, "parents": {}}, new))
        step += 1

    for turn in range(turns):
        question, answer = message(HumanMessage, size, chance), message(AIMessage, size, chance)
        await put({"messages": list(thread), "__start__": {"messages": [question]}}, ["__start__"], "input")
        if way != "steps":
            thread.append(question)
            await timed(saver.aput_writes(config, [("messages", [question])], str(uuid.uuid4())))
        seen["__start__"] = {"__start__": versions["__start__"]}
        state = {"messages": list(thread), "count": turn}
        await put({**state, "branch:to:model": None}, ["messages", "branch:to:model", "count"], "loop")
        if way != "steps":
            thread.append(answer)
            await timed(saver.aput_writes(config, [("messages", [answer])], str(uuid.uuid4())))
        seen["model"] = {"branch:to:model": versions["branch:to:model"]}
        if way == "window":
            del thread[:2]
        changed = ["count"] if way == "steps" else ["messages", "branch:to:model"]
        await put({**state, "messages": list(thread)}, changed, "loop")
    return times


def bytes_of(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.iterdir())


async def measure(options: argparse.Namespace) -> None:
    for way in ("grows", "window", "steps"):
        figures = {}
        for name in ("RLMSaver", "AsyncSqliteSaver"):
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder) / "file.db"
                if name == "RLMSaver":
                    with RLMSaver(path) as saver:
                        empty = saver.memory.stats().file_bytes
                        times = await converse(saver, way, options.turns, options.messages, options.size)
                        assert saver.memory.check()
                else:
                    empty = 0
                    async with AsyncSqliteSaver.from_conn_string(str(path)) as other:
                        times = await converse(other, way, options.turns, options.messages, options.size)
                figures[name] = bytes_of(Path(folder)) - empty, statistics.mean(times), statistics.median(times)
        for name, (size, mean, median) in figures.items():
            print(f"{way:7} {name:17} {size / 1e6:8.2f} MB  {mean * 1e3:6.2f} ms mean  {median * 1e3:6.2f} ms median")
        ours, theirs = figures["RLMSaver"], figures["AsyncSqliteSaver"]
        print(f"{way:7} ratio: {ours[0] / theirs[0]:.3f} of the size, {ours[1] / theirs[1]:.2f} of the time per put")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=200)
    parser.add_argument("--messages", type=int, default=50)
    parser.add_argument("--size", type=int, default=500)
    asyncio.run(measure(parser.parse_args()))
