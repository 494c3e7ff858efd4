"""Processes of their own that sessions record: `python recorded_workflow.py FOLDER`.

In each a `FunctionAgent` answers one question, and is killed within the second: while its tool works, or its model. The
folder then has a folder of checkpoints for each.
"""

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from typing import Any

from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.workflow import Context, HumanResponseEvent, InputRequiredEvent

from llamaindex_rlm import tracked
from llamaindex_script import call
from paid_llm import paid
from processes import kill_each
from rlm_memory import Memory
from rlm_memory.checkpoints import CheckpointStore, RLMSession

KEY = "sk-live-" + "Zz9" * 12
PLAIN = "correct horse battery"

COLOURS = {"whole": False, "streaming": True}


def die(*_: Any) -> Any:
    os.kill(os.getpid(), signal.SIGKILL)


def add(a: int, b: int, headers: dict[str, str] | None = None, api_key: str = "") -> int:
    """Add two numbers."""
    return a + b


def sender(act: Callable[[], Any]) -> Callable[[str], str]:
    def send(to: str) -> str:
        """Send the sum."""
        act()
        return f"sent to {to}"

    return send


async def approve(ctx: Context, what: str) -> str:
    """Ask a human."""
    answer = await ctx.wait_for_event(
        HumanResponseEvent, waiter_id="approve", waiter_event=InputRequiredEvent(prefix=f"{what}? {KEY}")
    )
    return f"human: {answer.response}"


def first() -> list[Any]:
    """Return what the model says in the first turn: it calls a tool with secrets, and answers."""
    return [call("add", a=1, b=2, api_key=PLAIN, headers={"Authorization": PLAIN, "note": f"use {KEY}"}), "3"]


def agent(colour: str, tools: list[Any], *lines: Any, **told: Any) -> FunctionAgent:
    return FunctionAgent(name="adder", tools=tools, llm=paid(*lines, **told), streaming=COLOURS[colour])


PLACES = ("tool", "model")


def main(folder: str, colour: str, place: str) -> None:
    asyncio.run(work(folder, colour, place))


async def work(folder: str, colour: str, place: str) -> None:
    session = RLMSession("s", store=CheckpointStore(folder), every=5)
    second = [call("send", to="Ada"), die]
    adder = agent(colour, [add, sender(die if place == "tool" else lambda: None)], *first(), *second)
    with tracked(Memory.open(":memory:", embedder=None), rlm_session=session):
        await adder.run("1 + 2?")
        await adder.run("Send it.")


if __name__ == "__main__":
    kill_each(sys.argv[1], [(place, colour) for place in PLACES for colour in COLOURS], main)
