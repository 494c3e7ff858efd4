"""A session that is killed and goes on: `python -m rlm_memory.checkpoints.demo [FOLDER]`.

Another process runs the cells of a model, one a turn, with a checkpoint at each turn. In the middle of a call it is
killed by SIGKILL, which no process can catch. Then the session goes on here, from what is on the disk.
"""

from __future__ import annotations

import io
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from itertools import takewhile
from pathlib import Path
from typing import Any

from rlm_memory.checkpoints.placeholder import Unrestored
from rlm_memory.checkpoints.session import RLMSession
from rlm_memory.checkpoints.store import CheckpointStore
from rlm_memory.errors import RLMError

SESSION = "report"
CELLS = (
    "sales = {'2024': [12, 19], '2025': [31, 8]}",
    "total = sum(map(sum, sales.values()))",
    "def share(year):\n    return round(100 * sum(sales[year]) / total)",
    "shares = {year: share(year) for year in sales}; seen = set(shares)",
    "log = open(os.devnull)",
)
_ASK = "Sum up the sales of both years."
_SHOWN = ("sales", "total", "share", "shares", "seen", "log", "draft")
_BEFORE = "in the process that is killed"
_AFTER = "in this one, resumed"


def _work(folder: str, key: str) -> None:
    """Run the cells, tell what they have made, and wait for a model that never answers."""
    session = RLMSession(SESSION, store=CheckpointStore(folder, trust=key), every=1)
    exec("import os", session.namespace)  # noqa: S102 - a cell, as a model would write it
    for cell in CELLS:
        session.record_cell(cell)
        exec(compile(cell, "cell", "exec"), session.namespace)  # noqa: S102
        session.add_usage("gpt-5-mini", 1200, 80, 0.0005)
        session.end_turn()
    session.namespace["draft"] = "not in a checkpoint yet"
    session.begin_operation("llm", {"prompt": _ASK}, idempotent=True)
    for name, shown in _shown(session.namespace).items():
        print(f"{name}\t{shown}")
    print("", flush=True)
    sys.stdin.read()


def _shown(namespace: Mapping[str, Any]) -> dict[str, str]:
    """Return the values of the variables as a person reads them: a function by its result, a file by its type."""
    return {name: _text(namespace[name]) if name in namespace else "not there" for name in _SHOWN}


def _text(value: Any) -> str:
    if isinstance(value, Unrestored):
        return "not restored, and says why"
    if isinstance(value, set):
        return "{" + ", ".join(map(repr, sorted(value))) + "}"
    if callable(value):
        return f"a function, share('2024') = {value('2024')}"
    return "an open file" if hasattr(value, "fileno") else repr(value)


def main(folder: str) -> None:
    """Kill a session in another process, resume it in this one, and print its variables before and after."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # an arrow is not in every encoding of a terminal
    key = "the key of this demonstration"
    command = [sys.executable, "-m", "rlm_memory.checkpoints.demo", "--work", folder, key]
    with subprocess.Popen(  # noqa: S603 - this program again
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        encoding="utf-8",
        start_new_session=True,  # a Ctrl-C is for this process alone
    ) as process:
        assert process.stdout
        try:
            told = list(takewhile(lambda line: line != "\n", process.stdout))
            if len(told) < len(_SHOWN):
                sys.exit(process.wait())  # it has said on stderr what is wrong with the folder
        finally:
            process.kill()
    before = dict(line.rstrip("\n").split("\t", 1) for line in told)
    print(f"A session is killed and goes on: process {process.pid} ran {len(CELLS)} turns of Python,")
    print(f"and died in a call of a model, with exit code {process.returncode}.\n")

    store = CheckpointStore(folder, trust=key)
    session = RLMSession.restore(SESSION, store=store)
    after = _shown(session.namespace)
    print(f"  {'variable':9} {_BEFORE:42} {_AFTER}")
    for name in _SHOWN:
        print(f"  {name:9} {before[name]:42} {after[name]}")

    print(f"\n  turn {session.turn}, ${session.cost_so_far:.4f} spent so far; what the model is told:")
    for line in session.resume_note().splitlines():
        print(f"    {line}")
    done = session.resume({"llm": lambda payload: "Seventy in all."})
    print(f"\n  asked again: {done.rerun[0].payload['prompt']}  →  {done.rerun[0].result}")
    exec("best = max(shares, key=shares.get)", session.namespace)  # noqa: S102
    session.end_turn()
    print(f"  turn {session.turn} uses what is back: best = {session.namespace['best']!r}")
    session.close()


if __name__ == "__main__":
    try:
        if sys.argv[1:2] == ["--work"]:
            _work(*sys.argv[2:])
        else:
            with tempfile.TemporaryDirectory() as temporary:
                main(sys.argv[1] if len(sys.argv) > 1 else str(Path(temporary)))
    except KeyboardInterrupt:
        print("rlm_memory.checkpoints.demo: interrupted", file=sys.stderr)
        sys.exit(130)
    except (RLMError, OSError) as error:
        print(f"rlm_memory.checkpoints.demo: {error}", file=sys.stderr)
        sys.exit(3)
