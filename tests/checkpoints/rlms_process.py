"""Processes that run a completion of rlms and are killed in it.

python -m checkpoints.rlms_process URL    # each line of its standard input is a life: JSON, the arguments of `live`

Each life is a process of its own, forked from this one, which has but imported what a life needs. A line tells how it
ended: JSON with its exit status, and what it said before.
"""

from __future__ import annotations

import functools
import json
import os
import signal
import socketserver
import ssl
import sys
import threading
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NoReturn

import rlm
from rlm.clients import get_client
from rlm.logger import RLMLogger

from rlm_memory.integrations.rlms import RLM

CONTEXT = "the quick brown fox jumps"


class Tools:
    """Tools that count their calls in a file, and may die in one."""

    def __init__(self, folder: Path, *, die: bool) -> None:
        self._file = folder / "calls.txt"
        self._die = die

    def look_up(self, word: str) -> tuple[str, int]:
        with self._file.open("a") as file:
            file.write(f"{word}\n")
        if self._die:
            os.kill(os.getpid(), signal.SIGKILL)
        return word, len(word)

    def hold(self) -> AbstractContextManager[bool]:
        """Return what no journal can hold."""
        return threading.Lock()


def live(
    url: str, folder: str, *, options: dict[str, Any], plain: bool = False, sync: int = 0, die_in_tool: bool = False
) -> dict[str, Any]:
    """Run the completion, or go on with it, and return what it is.

    `plain`: with the class of rlms itself; else `options` are those of ours. `sync`: be killed at this sync with the
    disk, from 1.
    """
    if sync:
        die_at_sync(sync)
    tools = Tools(Path(folder), die=die_in_tool)
    settings: dict[str, Any] = {
        "backend_kwargs": {
            "base_url": url,
            "api_key": "k",
            "model_name": "root",
            "max_retries": 0,
            "default_headers": {"x-pid": str(os.getpid())},
        },
        "max_depth": 2,
        "max_iterations": 8,
        "max_concurrent_subcalls": 1,
        "custom_tools": {
            "look_up": {"tool": tools.look_up, "description": "tells of a word"},
            "hold": tools.hold,
            "limits": {"low": 1},
        },
        "logger": RLMLogger(),
    }
    if plain:
        runtime: Any = rlm.RLM(**settings)
    else:
        runtime = RLM(**{**settings, **options}, checkpoints=folder, session_id="s")
    done = runtime.completion(CONTEXT, root_prompt="How many?")
    return {
        "response": done.response,
        "usage": done.usage_summary.to_dict(),
        "iterations": [
            [each["response"], [[block["code"], block["result"]["stdout"]] for block in each["code_blocks"]]]
            for each in (done.metadata or {"iterations": []})["iterations"]
        ],
    }


def die_at_sync(number: int) -> None:
    """Be killed at the nth sync of a file or folder, when what is to be synced is written."""
    left = number

    def fsync(fd: Any) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    os.fsync = fsync


def one_life(arguments: dict[str, Any], url: str, said: int) -> NoReturn:
    try:
        os.write(said, json.dumps(live(url, **arguments)).encode())
        os._exit(0)
    except BaseException as error:  # noqa: BLE001  # a forked child must never return into its parent's code
        os.write(said, json.dumps({"error": f"{type(error).__name__}: {error}"}).encode())
        os._exit(1)


def hasten(url: str) -> None:
    """Do once, for all lives, what would take most of the time of each."""
    os.fsync = lambda fd: None  # what is written outlives the process; power is not lost here
    socketserver.BaseServer.serve_forever.__defaults__ = (0.01,)  # rlms waits for that long when a completion ends
    context = functools.cache(ssl.create_default_context)
    ssl.create_default_context = lambda *_, **__: context()  # each client makes two, for nothing
    sys.modules["tiktoken"] = None  # type: ignore[assignment]  # it would look for its tables on the network
    client = get_client("openai", {"base_url": url, "api_key": "k", "model_name": "none"})
    client.completion("Which modules does a first request import?")


def main(url: str) -> None:
    hasten(url)
    print("ready", flush=True)
    for line in sys.stdin:
        reading, writing = os.pipe()
        process = os.fork()
        if process == 0:
            one_life(json.loads(line), url, writing)
        os.close(writing)
        with open(reading, encoding="utf-8") as file:
            said = file.read()
        _, status = os.waitpid(process, 0)
        print(json.dumps([os.waitstatus_to_exitcode(status), json.loads(said or "{}")]), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
