"""Roles in a race for one thread of checkpoints, for threads and processes: `python saver_races.py PATH ROLE NAME`."""

from __future__ import annotations

import random
import sys
from pathlib import Path
from typing import Any

from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.base.id import uuid6

from langchain_rlm import RLMSaver

ROUNDS = 12
KEPT = random.Random("kept").randbytes(6_000)
"""What every checkpoint has, and its parent nearly always: a put names it as unchanged."""
THREAD: Any = {"configurable": {"thread_id": "raced", "checkpoint_ns": ""}}


def content(name: str) -> bytes:
    return random.Random(name).randbytes(6_000)


def put(saver: RLMSaver, name: str) -> None:
    """Put a line of checkpoints with their writes; others take away what it stands on."""
    config = THREAD
    for number in range(ROUNDS):
        own = f"{name} {number}"
        checkpoint: Any = {
            **empty_checkpoint(),
            "id": str(uuid6()),
            "channel_values": {"name": own, "content": content(own), "kept": KEPT},
            "channel_versions": {"name": number + 1, "content": number + 1, "kept": 1},
        }
        new: Any = {"name": number + 1, "content": number + 1}
        config = saver.put(config, checkpoint, {"step": number}, new)
        saver.put_writes(config, [("content", content(own))], "task")


def prune(saver: RLMSaver, name: str) -> None:
    for _ in range(ROUNDS):
        saver.prune(["raced"])


def delete(saver: RLMSaver, name: str) -> None:
    for _ in range(ROUNDS // 3):
        saver.delete_thread("raced")


def copy(saver: RLMSaver, name: str) -> None:
    for number in range(ROUNDS // 2):
        target = f"copy {name} {number}"
        saver.copy_thread("raced", target)
        expect_whole(saver, target)


def read(saver: RLMSaver, name: str) -> None:
    for _ in range(ROUNDS):
        expect_whole(saver, "raced")


def take_away(saver: RLMSaver, name: str) -> None:
    """Copy, prune and delete in turn, for processes, which take long to start."""
    for number in range(ROUNDS // 3):
        saver.copy_thread("raced", f"copy {name} {number}")
        saver.prune(["raced"])
        expect_whole(saver, f"copy {name} {number}")
        saver.copy_thread("raced", f"pruned {name} {number}")
        saver.delete_thread("raced")


ROLES = {"take away": take_away, "put": put, "prune": prune, "delete": delete, "copy": copy, "read": read}


def expect_whole(saver: RLMSaver, thread_id: str) -> int:
    """Fail if a checkpoint is not what its name says; return how many there are."""
    found = list(saver.list({"configurable": {"thread_id": thread_id}}))
    for each in found:
        values: Any = each.checkpoint["channel_values"]
        assert values == {"name": values["name"], "content": content(values["name"]), "kept": KEPT}
        assert each.pending_writes in ([], [("task", "content", content(values["name"]))])
    return len(found)


if __name__ == "__main__":
    path, role, name = sys.argv[1:]
    with RLMSaver(Path(path)) as opened:
        print("ready", flush=True)
        sys.stdin.readline()
        ROLES[role](opened, name)
