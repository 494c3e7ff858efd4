"""What the handlers for LlamaIndex's dispatcher cost.

    python tests/bench/llamaindex_tracing.py [--nodes 10000] [--rounds 300] [--goal 0.15]

The same question is asked with the handlers and without them one right after the other, each in turn the first, so that
whatever else the machine does slows both. Printed are the medians in microseconds, the median of the differences, and
what share of a `retrieve` that is; the exit code is 1 if it is more than the goal. The last line is the event handler
alone, event by event: for so long it holds up an event loop.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from llama_index.core.instrumentation.events.retrieval import RetrievalEndEvent
from llama_index_instrumentation import get_dispatcher

from llamaindex_rlm import RLMEventHandler, RLMRetriever, RLMSpanHandler
from rlm_memory import Memory
from support import WordEmbedder

WARM_UP = 20


class Watching:
    """The handlers, to be put in place and taken away again."""

    def __init__(self, memory: Memory) -> None:
        dispatcher = get_dispatcher()
        self.events = RLMEventHandler(memory, session_id="s")
        self._watched = [*dispatcher.event_handlers, self.events], [*dispatcher.span_handlers, RLMSpanHandler(memory)]
        self._plain = list(dispatcher.event_handlers), list(dispatcher.span_handlers)

    def switch(self, on: bool) -> None:
        dispatcher = get_dispatcher()
        dispatcher.event_handlers, dispatcher.span_handlers = self._watched if on else self._plain


def seconds(call: Callable[[str], object], question: str) -> float:
    start = time.perf_counter()
    call(question)
    return time.perf_counter() - start


def compare(name: str, ask: Callable[[str], object], questions: Sequence[str], watching: Watching) -> float:
    """Print what a question costs without and with the handlers; return how much more, as a share."""
    taken: list[tuple[float, float]] = []
    for turn, question in enumerate(questions):
        both = [0.0, 0.0]
        for on in (False, True) if turn % 2 else (True, False):
            watching.switch(on)
            both[on] = seconds(ask, question)
        taken.append((both[0], both[1]))
    watching.switch(False)
    plain, watched = (statistics.median(column) * 1e6 for column in zip(*taken[WARM_UP:], strict=True))
    more = statistics.median(b - a for a, b in taken[WARM_UP:]) * 1e6
    print(f"{name:10} without {plain:8.0f}  with {watched:8.0f}  more {more:8.0f}  {more / plain:+.1%}")
    return more / plain


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--nodes", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=300)
    parser.add_argument("--goal", type=float, default=0.15)
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as folder,
        Memory.open(Path(folder) / "memory.db", embedder=WordEmbedder()) as memory,
        asyncio.Runner() as runner,
    ):
        memory.add([f"note {i} about topic {i % 97} and person {i % 31}" for i in range(options.nodes)])
        retriever, watching = RLMRetriever(memory, similarity_top_k=4), Watching(memory)
        questions = [f"What about topic {i % 97} and person {i % 31}?" for i in range(options.rounds + WARM_UP)]
        shares = [
            compare("retrieve", retriever.retrieve, questions, watching),
            compare("aretrieve", lambda question: runner.run(retriever.aretrieve(question)), questions, watching),
        ]
        found = {question: retriever.retrieve(question) for question in set(questions)}
        events = {q: RetrievalEndEvent(str_or_query_bundle=q, nodes=nodes) for q, nodes in found.items()}
        alone = [seconds(lambda q: watching.events.handle(events[q]), question) for question in questions]
        cuts = statistics.quantiles(alone[WARM_UP:], n=20)
        print(f"the event handler alone: median {cuts[9] * 1e6:.0f}, 95 % within {cuts[-1] * 1e6:.0f}")
    return int(max(shares) > options.goal)


if __name__ == "__main__":
    sys.exit(main())
