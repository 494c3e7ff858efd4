"""A run that is killed anywhere and resumed ends like one that was not: same answer, same cost, nothing paid twice."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rlm_memory.checkpoints import CheckpointNotFoundError, CheckpointStore, RLMSession

TURNS = [
    "chunks = [context[i : i + 4] for i in range(0, len(context), 4)]\nalias = chunks",
    "def score(text): return ask('score ' + text)\nscores = [score(chunk) for chunk in chunks]",
    "best = max(range(len(scores)), key=scores.__getitem__)\nalias.append('seen')",
    "answer = ask('answer ' + chunks[best]), len(chunks)",
]


class Killed(BaseException):
    """Stands for the death of the process: no handler of the run may catch it."""


class Provider:
    """A model whose replies depend on the prompt alone; it counts what it is paid for, and kills at a given call."""

    def __init__(self) -> None:
        self.paid: list[str] = []
        self.kill_at: tuple[int, str] | None = None

    def reply(self, prompt: str) -> int:
        if self.kill_at == (len(self.paid), "before"):
            self.kill_at = None
            raise Killed
        self.paid.append(prompt)
        return sum(map(ord, prompt)) % 97


def run(store: CheckpointStore, provider: Provider, *, kill_after_turn: int | None = None) -> RLMSession:
    """Run the turns that are left, each from its first line, as a runtime does that knows nothing but the session."""
    bridge: dict[str, Any] = {}
    provided = {"ask": lambda prompt: bridge["ask"](prompt)}
    store = CheckpointStore(store.root, trust="key", provided=provided)
    try:
        session = RLMSession.restore("s", store=store, every=1)
    except CheckpointNotFoundError:
        session = RLMSession("s", store=store, every=1, namespace={"context": "the quick brown fox", **provided})
        session.checkpoint()
    session.resume()

    def ask(prompt: str) -> int:
        def call() -> int:
            reply = provider.reply(prompt)
            session.add_usage("scripted", len(prompt), 1, cost=0.25)
            return reply

        reply = session.call("llm", prompt, call)
        if provider.kill_at == (len(provider.paid), "after"):
            provider.kill_at = None
            raise Killed
        return reply

    bridge["ask"] = ask
    for source in TURNS[session.turn :]:
        exec(source, session.namespace)
        session.record_cell(source)
        session.end_turn()
        if session.turn == kill_after_turn:
            raise Killed
    return session


def outcome(session: RLMSession) -> tuple[Any, ...]:
    names = ("answer", "chunks", "scores", "best")
    values = [session.namespace[name] for name in names]
    return (*values, session.namespace["alias"] is session.namespace["chunks"], session.turn, session.cost_so_far)


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> tuple[tuple[Any, ...], list[str]]:
    provider = Provider()
    return outcome(run(CheckpointStore(tmp_path_factory.mktemp("whole")), provider)), provider.paid


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("call", range(6))
def test_a_run_that_is_killed_at_a_call_ends_as_if_it_had_not_been(
    call: int, when: str, uninterrupted: tuple[tuple[Any, ...], list[str]], tmp_path: Path
) -> None:
    """Answers B098."""
    store, provider = CheckpointStore(tmp_path), Provider()
    provider.kill_at = (call + (when == "after"), when)
    with pytest.raises(Killed):
        run(store, provider)
    assert outcome(run(store, provider)) == uninterrupted[0]
    assert provider.paid == uninterrupted[1]


@pytest.mark.parametrize("turn", range(1, len(TURNS)))
def test_a_run_that_is_killed_after_a_turn_ends_as_if_it_had_not_been(
    turn: int, uninterrupted: tuple[tuple[Any, ...], list[str]], tmp_path: Path
) -> None:
    store, provider = CheckpointStore(tmp_path), Provider()
    with pytest.raises(Killed):
        run(store, provider, kill_after_turn=turn)
    assert outcome(run(store, provider)) == uninterrupted[0]
    assert provider.paid == uninterrupted[1]
