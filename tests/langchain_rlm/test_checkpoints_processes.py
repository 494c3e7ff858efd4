"""Checkpoints over the end of a process: this one goes on from what others have left, by their end or by a kill."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import agent_process
import saver_kills
from langchain_rlm import RLMSaver

HERE = Path(__file__).parent
THREAD: Any = {"configurable": {"thread_id": "thread"}}


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}


def start(name: str, path: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, agent_process.__file__, name, str(path)],
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run(name: str, path: Path, *, dies: bool = False) -> Any:
    process = start(name, path)
    out, err = process.communicate(timeout=100)
    assert process.returncode == (-signal.SIGKILL if dies else 0), err
    return None if dies else json.loads(out)


def notes(path: Path) -> list[str]:
    return path.with_suffix(".notes").read_text().split()


def test_agent_waits_for_a_human_in_one_process_and_goes_on_in_another(store_path: Path) -> None:
    assert run("ask", store_path) == {"interrupted for": ["send"]}
    assert not store_path.with_suffix(".notes").exists(), "the tool has run without approval"
    said = agent_process.approve(store_path)
    assert said[-1] == "done: sent to Ada"
    assert said[0] == "Send the letter to Ada."
    assert notes(store_path) == ["sent"]


def test_agent_that_was_killed_while_it_waited_for_a_human_goes_on_in_another_process(store_path: Path) -> None:
    run("ask-and-die", store_path, dies=True)
    assert agent_process.approve(store_path)[-1] == "done: sent to Ada"
    assert notes(store_path) == ["sent"]


def test_task_that_was_done_when_the_process_was_killed_is_not_run_again(store_path: Path) -> None:
    """B098"""
    run("parallel", store_path, dies=True)
    assert agent_process.parallel(store_path, kill=False) == ["input", "first", "second"]
    assert sorted(notes(store_path)) == ["first", "second", "second"]


def test_graph_killed_before_or_after_any_call_runs_again_only_what_was_not_acknowledged(tmp_path: Path) -> None:
    """B008 B098"""
    done = subprocess.run(
        [sys.executable, saver_kills.__file__, str(tmp_path)],
        env=environment(), capture_output=True, text=True, timeout=200, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    for calls in json.loads(done.stdout).values():
        assert calls.count("put") == 5
        assert {f"writes of {[name]}" for name in saver_kills.NODES} < set(calls)


def test_input_is_checkpointed_before_the_first_node_begins(store_path: Path) -> None:
    """B166"""
    run("first-node", store_path, dies=True)
    with RLMSaver(store_path) as saver:
        assert saver.get_tuple(THREAD) is not None
    assert agent_process.first_node_again(store_path) == ["input", "lived"]


def test_several_processes_may_open_a_new_file_at_once(store_path: Path) -> None:
    """B091"""
    processes = [start("open", store_path) for _ in range(3)]
    for process in processes:
        out, err = process.communicate(timeout=100)
        assert (process.returncode, out) == (0, "true\n"), err


def test_no_checkpoint_is_lost_or_torn_by_threads_processes_and_kills() -> None:
    """B008"""
    program = HERE.parent / "crash" / "saver.py"
    done = subprocess.run(
        [sys.executable, str(program), "--processes", "3", "--threads", "8", "--puts", "3", "--kills", "2"],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "96 checkpoints put at the same time" in done.stdout
