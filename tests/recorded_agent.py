"""Processes of their own that sessions record: `python recorded_agent.py FOLDER`.

In each an agent of `create_agent` answers one question, and is killed within the second: while its tool works, or its
model. The folder then has a folder of checkpoints for each. What the process after them does is here too.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from typing import Any

from langchain.agents import create_agent
from langchain_core.messages import AIMessage
from langchain_core.tools import tool

from langchain_rlm import AsyncRLMCallbackHandler, RLMCallbackHandler
from processes import kill_each
from rlm_memory import Memory
from rlm_memory.checkpoints import CheckpointStore, RLMSession
from scripted_model import ScriptedModel, call

KEY = "sk-live-" + "Zz9" * 12
PLAIN = "correct horse battery"

COLOURS: dict[str, Callable[..., Any]] = {
    "sync": lambda agent, question, config: agent.invoke(question, config),
    "stream": lambda agent, question, config: list(agent.stream(question, config)),
    "async": lambda agent, question, config: asyncio.run(agent.ainvoke(question, config)),
    "async handler": lambda agent, question, config: asyncio.run(agent.ainvoke(question, config)),
}


def die(*_: Any) -> Any:
    os.kill(os.getpid(), signal.SIGKILL)


@tool
def add(a: int, b: int, headers: dict[str, str] | None = None, api_key: str = "") -> int:
    """Add two numbers."""
    return a + b


def sender(act: Callable[[], Any]) -> Any:
    @tool
    def send(to: str) -> str:
        """Send the sum."""
        act()
        return f"sent to {to}"

    return send


def paid(message: AIMessage, tokens: tuple[int, int], model: str = "model-1", **told: Any) -> AIMessage:
    """Return a message as a provider sends it: with the tokens it has counted."""
    message.usage_metadata = {"input_tokens": tokens[0], "output_tokens": tokens[1], "total_tokens": sum(tokens)}
    message.response_metadata = {"model_name": model, **told}
    return message


def sum_call() -> AIMessage:
    """Return the call of a tool in whose arguments are secrets."""
    return call("add", a=1, b=2, api_key=PLAIN, headers={"Authorization": PLAIN, "note": f"use {KEY}"})


def first() -> list[Any]:
    """Return what the model says in the first turn."""
    return [paid(sum_call(), (10, 5)), paid(AIMessage("3"), (20, 2), token_usage={"cost": 0.5})]


def ask(agent: Any, handler: Any, colour: str, question: str = "1 + 2?") -> Any:
    config = {"callbacks": [handler], "metadata": {"api_key": PLAIN}}
    return COLOURS[colour](agent, {"messages": [("user", question)]}, config)


def handler_of(colour: str, session: RLMSession, memory: Memory) -> Any:
    kind = AsyncRLMCallbackHandler if colour == "async handler" else RLMCallbackHandler
    return kind(memory, rlm_session=session)


PLACES = ("tool", "model")


def main(folder: str, colour: str, place: str) -> None:
    session = RLMSession("s", store=CheckpointStore(folder), every=5)
    second = [paid(call("send", to="Ada"), (30, 5)), die]
    agent = create_agent(
        ScriptedModel(script=[*first(), *second]), [add, sender(die if place == "tool" else lambda: None)]
    )
    handler = handler_of(colour, session, Memory.open(":memory:", embedder=None))
    ask(agent, handler, colour)
    ask(agent, handler, colour, "Send it.")


if __name__ == "__main__":
    kill_each(sys.argv[1], [(place, colour) for place in PLACES for colour in COLOURS], main)
