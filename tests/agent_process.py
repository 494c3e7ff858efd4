"""A process of its own that runs an agent or a graph on a file of checkpoints: `python agent_process.py NAME PATH`.

Each prints one line of JSON for what it saw, and may end by killing itself. What the process after it does
with the file is here too.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, TypedDict

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import tool
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command

from langchain_rlm import RLMSaver

THREAD: Any = {"configurable": {"thread_id": "thread"}}


class OneCall(BaseChatModel):
    """Asks for the tool once, then tells what it answered."""

    @property
    def _llm_type(self) -> str:
        return "one-call"

    def bind_tools(self, tools: Sequence[Any], **_: Any) -> Any:
        return self

    def _generate(self, messages: list[BaseMessage], *_: Any, **__: Any) -> ChatResult:
        if isinstance(messages[-1], ToolMessage):
            answer = AIMessage(content=f"done: {messages[-1].content}")
        else:
            answer = AIMessage(content="", tool_calls=[{"name": "send", "args": {"to": "Ada"}, "id": "call-1"}])
        return ChatResult(generations=[ChatGeneration(message=answer)])


def agent(path: Path) -> Any:
    from langchain.agents import create_agent  # here, for it takes seconds and the other runs have no use for it
    from langchain.agents.middleware import HumanInTheLoopMiddleware

    @tool
    def send(to: str) -> str:
        """Send the letter."""
        note(path, "sent")
        return f"sent to {to}"

    return create_agent(
        OneCall(),
        [send],
        middleware=[HumanInTheLoopMiddleware(interrupt_on={"send": True})],
        checkpointer=RLMSaver(path),
    )


def note(path: Path, what: str) -> None:
    """Leave a line beside the file, which survives a kill."""
    with path.with_suffix(".notes").open("a") as notes:
        print(what, file=notes, flush=True)
        os.fsync(notes.fileno())


def ask(path: Path) -> None:
    result = agent(path).invoke({"messages": [HumanMessage("Send the letter to Ada.")]}, THREAD)
    requests = [each.value["action_requests"][0]["name"] for each in result["__interrupt__"]]
    print(json.dumps({"interrupted for": requests}))


def ask_and_die(path: Path) -> None:
    """Be killed while the human has not answered: nothing is closed, nothing tidied up."""
    ask(path)
    os.kill(os.getpid(), signal.SIGKILL)


def approve(path: Path) -> list[Any]:
    result = agent(path).invoke(Command(resume={"decisions": [{"type": "approve"}]}), THREAD)
    return [message.content for message in result["messages"]]


class Trail(TypedDict):
    trail: Annotated[list[str], lambda old, new: old + new]


def parallel(path: Path, *, kill: bool) -> list[str]:
    """Run two nodes of one step; the second kills the process when the writes of the first are in the file."""
    saver = RLMSaver(path)

    def first(state: Trail) -> Any:
        note(path, "first")
        return {"trail": ["first"]}

    def second(state: Trail) -> Any:
        note(path, "second")
        while kill:
            found = saver.get_tuple(THREAD)
            if found is not None and ["first"] in [value for _, _, value in found.pending_writes or ()]:
                os.kill(os.getpid(), signal.SIGKILL)
        return {"trail": ["second"]}

    graph = (
        StateGraph(Trail)
        .add_node("first", first)
        .add_node("second", second)
        .add_edge(START, "first")
        .add_edge(START, "second")
        .add_edge("first", END)
        .add_edge("second", END)
        .compile(checkpointer=saver)
    )
    trail: list[str] = graph.invoke({"trail": ["input"]} if kill else None, THREAD)["trail"]
    return trail


def first_node(path: Path) -> None:
    """Die in the first node; what is to be done was checkpointed before it began."""

    def die(state: Trail) -> Any:
        note(path, "began")
        os.kill(os.getpid(), signal.SIGKILL)

    graph = StateGraph(Trail).add_node("die", die).add_edge(START, "die").compile(checkpointer=RLMSaver(path))
    graph.invoke({"trail": ["input"]}, THREAD, durability="sync")


def first_node_again(path: Path) -> list[str]:
    def live(state: Trail) -> Any:
        return {"trail": ["lived"]}

    graph = StateGraph(Trail).add_node("die", live).add_edge(START, "die").compile(checkpointer=RLMSaver(path))
    trail: list[str] = graph.invoke(None, THREAD)["trail"]
    return trail


def opened_at_once(path: Path) -> None:
    saver = RLMSaver(path)
    print(json.dumps(saver.get_tuple(THREAD) is None))


RUNS = {
    "ask": ask,
    "ask-and-die": ask_and_die,
    "parallel": lambda path: parallel(path, kill=True),
    "first-node": first_node,
    "open": opened_at_once,
}

if __name__ == "__main__":
    RUNS[sys.argv[1]](Path(sys.argv[2]))
