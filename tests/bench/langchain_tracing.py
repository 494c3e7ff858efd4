"""What it costs to watch a LangChain run, to give an agent a memory, and to keep LangGraph's items as memories.

    python tests/bench/langchain_tracing.py [--nodes 10000] [--rounds 200]

Each line is the median in microseconds, without and with, asked in turns so that whatever else the machine does slows
both. A retriever that hands over four documents at once shows the handler alone; one that searches shows its share. A
chain is judged when it ends, which is a transaction. The agent's model answers at once. The last lines compare the
store with LangGraph's SqliteStore, which keeps no use of what is read and searches no text.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

from langchain.agents import create_agent
from langchain_core.callbacks import BaseCallbackHandler, CallbackManagerForRetrieverRun
from langchain_core.documents import Document
from langchain_core.language_models.fake_chat_models import FakeListChatModel
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import RunnableLambda
from langgraph.store.base import BaseStore, PutOp
from langgraph.store.sqlite import SqliteStore

from langchain_rlm import AsyncRLMCallbackHandler, RLMCallbackHandler, RLMMemoryMiddleware, RLMRetriever, RLMStore
from rlm_memory import Memory


class Fixed(BaseRetriever):
    """Hands over the same documents whatever is asked."""

    documents: list[Document]

    def _get_relevant_documents(self, query: str, *, run_manager: CallbackManagerForRetrieverRun) -> list[Document]:
        return self.documents

    async def _aget_relevant_documents(self, query: str, *, run_manager: Any) -> list[Document]:
        return self.documents


def medians(calls: Iterable[Callable[[], Any]], rounds: int) -> list[float]:
    """Return the median of each call in microseconds, called in turns."""
    listed = list(calls)
    taken: list[list[float]] = [[] for _ in listed]
    for turn in range(rounds + 3):
        for call, times in zip(listed, taken, strict=True):
            start = time.perf_counter()
            call()
            if turn >= 3:
                times.append(time.perf_counter() - start)
    return [statistics.median(times) * 1e6 for times in taken]


async def awaited(calls: Iterable[Callable[[], Awaitable[Any]]], rounds: int) -> list[float]:
    """Return the same for calls that are awaited."""
    listed = list(calls)
    taken: list[list[float]] = [[] for _ in listed]
    for turn in range(rounds + 3):
        for call, times in zip(listed, taken, strict=True):
            start = time.perf_counter()
            await call()
            if turn >= 3:
                times.append(time.perf_counter() - start)
    return [statistics.median(times) * 1e6 for times in taken]


def show(what: str, without: float, with_it: float) -> None:
    print(f"{what:42} {without:9.0f} {with_it:9.0f} {with_it - without:+9.0f} us")


def watch(memory: Memory, rounds: int) -> None:
    searching = RLMRetriever(memory=memory, k=4)
    fixed = Fixed(documents=searching.invoke("topic 5"))
    chain = RunnableLambda(str) | fixed | len
    idle = {"callbacks": [BaseCallbackHandler()]}
    watched = {"callbacks": [RLMCallbackHandler(memory, session_id="s")]}
    for name, runnable in {"a retriever": fixed, "a retriever that searches": searching, "a chain": chain}.items():
        show(name, *medians([lambda r=runnable, c=c: r.invoke("topic 5", c) for c in (idle, watched)], rounds))
    watched = {"callbacks": [AsyncRLMCallbackHandler(memory, session_id="s")]}
    for name, runnable in {"a retriever": fixed, "a chain": chain}.items():
        calls = [lambda r=runnable, c=c: r.ainvoke("topic 5", c) for c in (idle, watched)]
        show(f"{name}, awaited", *asyncio.run(awaited(calls, rounds)))


def remind(memory: Memory, rounds: int) -> None:
    question = {"messages": [("user", "What is topic 5?")]}
    agents = [
        create_agent(FakeListChatModel(responses=["ok"]), middleware=middleware)
        for middleware in ([], [RLMMemoryMiddleware(memory, tools=())])
    ]
    config = {"configurable": {"thread_id": "agent"}}
    show("a run of an agent", *medians([lambda a=a: a.invoke(question, config) for a in agents], rounds))


def keep(folder: Path, nodes: int, rounds: int) -> None:
    print("LangGraph's SqliteStore, and ours")
    ours = RLMStore(path=folder / "items.db", fields=["text"])
    with SqliteStore.from_conn_string(str(folder / "langgraph.db")) as theirs:
        stores: tuple[BaseStore, BaseStore] = (theirs, ours)
        for store in stores:
            for start in range(0, nodes, 500):
                store.batch(
                    [
                        PutOp(("users", f"{i % 100}"), f"{i}", {"text": f"note {i} on topic {i % 37}", "n": i})
                        for i in range(start, start + 500)
                    ]
                )
        place = ("users", "5")
        operations: dict[str, Callable[[BaseStore], Any]] = {
            "put": lambda store: store.put(place, "new", {"text": "a new note", "n": 1}),
            "get": lambda store: store.get(place, "105"),
            "search a namespace": lambda store: store.search(place),
            "search a namespace with a filter": lambda store: store.search(place, filter={"n": {"$gt": 500}}),
            "search everything": lambda store: store.search(()),
            "list 100 namespaces": lambda store: store.list_namespaces(),
        }
        for name, operation in operations.items():
            show(name, *medians([partial(operation, store) for store in stores], rounds // 4))
    ours.memory.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--nodes", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=200)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        with Memory.open(Path(folder) / "memory.db", embedder=None) as memory:
            memory.add([f"note {i} on topic {i % 37}" for i in range(arguments.nodes)])
            watch(memory, arguments.rounds)
            remind(memory, arguments.rounds)
        keep(Path(folder), arguments.nodes, arguments.rounds)


if __name__ == "__main__":
    main()
