"""Completions of rlms that are killed anywhere and resumed in a new process end like one that was not."""

from __future__ import annotations

import importlib
import json
import re
import signal
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import pytest

from chat_server import COST, Asked, ChatServer
from checkpoints.processes import command, environment
from rlm_memory.checkpoints import CheckpointStore
from rlm_memory.errors import InvalidInputError, MissingExtraError
from rlm_memory.integrations import UnsupportedRuntimeError

rlm = pytest.importorskip("rlm", reason="needs the extra rlms")

pytestmark = [pytest.mark.loopback, pytest.mark.enable_socket]

KEY = "a key"
CELLS = {
    "root": [
        ["from collections import Counter\nwords = context.split()\nalias = words\nlog = []\n"
         "def score(word):\n    log.append(word)\n    return int(llm_query('score ' + word))\n"
         "print(len(words))"],
        ["scores = [score(word) for word in words[:2]]\ncounts = Counter(words)\nprint(scores)"],
        ["parts = llm_query_batched(['batch ' + word for word in words[:3]])\nalias.append('seen')"],
        ["told = rlm_query('one ' + words[0], model='child')", "print(undefined)"],
        ["twins = rlm_query_batched(['one ' + words[0]] * 2, model='child')\n"
         "limits['low'] += 1\nanswer['draft'] = alias"],
        ["with hold():\n    found = look_up(words[3])\nprint(found)", "scores.append(score(words[2]))"],
        ["answer['content'] = f'{scores} {alias} {log} {parts} {told} {twins} {found} {limits}'\n"
         "answer['ready'] = answer['draft'] is words"],
    ],
    "child": [
        ["first = llm_query('first ' + context)\ndeep = rlm_query('deep ' + context)\nprint(first)"],
        ["answer['content'] = first + ', ' + deep\nanswer['ready'] = True"],
    ],
}  # fmt: skip
REQUESTS = 25
"""Of them root's turns are 7, scores 3, the batch 3, and each of the three children has two turns and asks twice:

0 turn · 1 turn, 2 3 scores · 4 turn, 5 6 7 batch · 8 turn, 9 10 11 12 child · 13 turn, 14 15 16 17, 18 19 20 21 twins ·
22 turn, 23 score · 24 turn
"""
LIKE_ANOTHER = {3, 6, 10, 14, 15, 16, 18, 20}


def reply(asked: Asked) -> str:
    """Answer with the cells of the turn that the last message names, or with the question itself."""
    turn = re.search(r"Turn (\d+)/", asked.last)
    if turn is None:
        return str(len(asked.last)) if asked.last.startswith("score") else f"reply to {asked.last[:40]}"
    cells = CELLS[asked.model][int(turn[1]) - 1 :][:1] or [[]]
    return "\n".join(f"```repl\n{cell}\n```" for cell in cells[0])


def three_of_a_batch(asked: Asked) -> int:
    return 3 if asked.last.startswith("batch") else 1


class Lives:
    """Processes that begin a completion and go on with it, one after the other."""

    def __init__(self, server: ChatServer) -> None:
        self.server = server
        self._process = subprocess.Popen(
            command("rlms_process", server.url),
            env=environment(),
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "ready\n"

    def live(
        self, folder: Path, *, kill_at: int | None = None, options: dict[str, Any] | None = None, **arguments: Any
    ) -> dict[str, Any] | None:
        """Run one and return what it says at its end, or None when it was killed."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self.server.kill_at = kill_at
        given = {"trust": KEY, "idempotent_tools": ["look_up", "hold"], **(options or {})}
        self._process.stdin.write(json.dumps({"folder": str(folder), "options": given, **arguments}) + "\n")
        self._process.stdin.flush()
        status, said = json.loads(self._process.stdout.readline())
        assert status == (1 if "error" in said else 0 if said else -signal.SIGKILL)
        return said or None

    def end(self) -> None:
        self._process.communicate()
        assert self._process.returncode == 0


@pytest.fixture(scope="module")
def all_lives() -> Iterator[Lives]:
    with ChatServer(reply, three_of_a_batch) as server:
        lives = Lives(server)
        yield lives
        lives.end()


@pytest.fixture
def lives(all_lives: Lives) -> Lives:
    all_lives.server.forget()
    all_lives.server.together = three_of_a_batch
    return all_lives


@dataclass(frozen=True)
class Outcome:
    """What is left of a completion: what it returned, and what the newest checkpoint of each session has."""

    said: dict[str, Any] | None
    sessions: dict[str, dict[str, Any]]
    cost: float

    @classmethod
    def of(cls, said: dict[str, Any] | None, folder: Path) -> Outcome:
        store = CheckpointStore(folder, trust=KEY, provided={"llm_query": print})
        newest = {session: store.latest(session) for session in store.sessions()}
        sessions = {
            session: {
                "turn": found.turn,
                "depth": found.depth,
                "messages": found.messages,
                "answer": found.working_memory["answer"],
                "variables": {
                    name: value
                    for name, value in found.repl_state.items()
                    if not isinstance(value, FunctionType | ModuleType)
                },
                "functions": {name for name, value in found.repl_state.items() if isinstance(value, FunctionType)},
                "alias": found.repl_state.get("alias") is found.repl_state.get("words"),
                "issues": found.issues,
            }
            for session, found in newest.items()
        }
        return cls(said, sessions, next(found.cost_so_far for found in newest.values() if found.depth == 0))


def keys(asked: list[Asked]) -> Counter[str]:
    return Counter(each.key for each in asked)


def of_root(asked: list[Asked], turn: int) -> list[Asked]:
    return [each for each in asked if each.model == "root" and f"Turn {turn}/" in each.last]


@dataclass(frozen=True)
class Whole:
    """A completion that was not interrupted."""

    outcome: Outcome
    asked: list[str]


@pytest.fixture(scope="module")
def run_whole(all_lives: Lives, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Whole]:
    known: dict[str, Whole] = {}

    def run(**options: Any) -> Whole:
        name = json.dumps(options)
        if name not in known:
            folder = tmp_path_factory.mktemp("whole")
            all_lives.server.forget()
            said = all_lives.live(folder, options=options)
            known[name] = Whole(Outcome.of(said, folder), [each.key for each in all_lives.server.asked])
            all_lives.server.forget()
        return known[name]

    return run


@pytest.fixture
def whole(run_whole: Callable[..., Whole]) -> Whole:
    return run_whole()


def test_uninterrupted_completion_asks_and_says_what_that_of_rlms_does(
    lives: Lives, whole: Whole, tmp_path: Path
) -> None:
    said = lives.live(tmp_path, plain=True)
    assert said is not None
    assert whole.outcome.said is not None
    assert keys(lives.server.asked) == Counter(whole.asked)
    assert len(whole.asked) == REQUESTS
    assert (said["response"], said["iterations"]) == (whole.outcome.said["response"], whole.outcome.said["iterations"])


def test_cost_counts_the_children(whole: Whole) -> None:
    assert whole.outcome.said is not None
    assert whole.outcome.said["usage"]["total_cost"] == whole.outcome.cost == REQUESTS * COST
    assert [session["depth"] for session in whole.outcome.sessions.values()] == [0, 1, 1, 1]


def test_every_variable_is_saved(whole: Whole) -> None:
    assert [session["issues"] for session in whole.outcome.sessions.values()] == [[], [], [], []]


@pytest.mark.parametrize("request_", sorted({*range(REQUESTS)} - LIKE_ANOTHER))
def test_completion_that_is_killed_at_a_request_ends_as_if_it_had_not_been(
    request_: int, lives: Lives, whole: Whole, tmp_path: Path
) -> None:
    assert lives.live(tmp_path, kill_at=request_) is None
    said = lives.live(tmp_path)
    assert Outcome.of(said, tmp_path) == whole.outcome
    assert keys(lives.server.asked) - Counter(whole.asked) == keys(lives.server.unanswered)


def test_completion_that_is_killed_at_every_few_writes_ends_as_if_it_had_not_been(
    lives: Lives, whole: Whole, tmp_path: Path
) -> None:
    lives.server.together = lambda asked: 1
    said, killed = None, 0
    for sync in cycle([2, 3, 1]):
        said = lives.live(tmp_path, sync=sync)
        if said is not None:
            break
        killed += 1
    assert killed > REQUESTS
    outcome = Outcome.of(said, tmp_path)
    assert outcome.sessions == whole.outcome.sessions
    assert outcome.said is not None
    assert whole.outcome.said is not None
    assert outcome.said["response"] == whole.outcome.said["response"]
    assert not lives.server.unanswered
    assert set(keys(lives.server.asked)) == set(whole.asked)
    assert whole.outcome.cost <= outcome.cost <= len(lives.server.asked) * COST
    store = CheckpointStore(tmp_path, trust=KEY)
    assert [finding for finding in store.verify() if finding.problem is not None] == []
    for session in store.sessions():
        finished: set[str] = set()
        begun: dict[str, str] = {}
        for entry in store.journal(session).entries():
            if entry["event"] == "begin":
                assert entry["key"] not in finished
                begun[entry["id"]] = entry["key"]
            elif entry["event"] == "done":
                finished.add(begun[entry["id"]])


@pytest.mark.parametrize("every", [0, 4])
def test_turns_since_the_last_checkpoint_are_run_again_with_the_replies_that_were_paid(
    every: int, lives: Lives, run_whole: Callable[..., Whole], tmp_path: Path
) -> None:
    options = {"every": every}
    whole = run_whole(**options)
    assert lives.live(tmp_path, kill_at=22, options=options) is None
    assert lives.live(tmp_path, kill_at=24, options=options) is None
    assert Outcome.of(lives.live(tmp_path, options=options), tmp_path) == whole.outcome
    assert keys(lives.server.asked) - Counter(whole.asked) == keys(lives.server.unanswered)


def test_completion_that_had_ended_is_returned_and_asks_nothing(lives: Lives, whole: Whole, tmp_path: Path) -> None:
    lives.live(tmp_path)
    lives.server.forget()
    said = lives.live(tmp_path)
    assert whole.outcome.said is not None
    assert said == {**whole.outcome.said, "iterations": []}
    assert lives.server.asked == []


def test_history_that_was_compacted_comes_back_as_it_was(
    lives: Lives, run_whole: Callable[..., Whole], tmp_path: Path
) -> None:
    options = {"compaction": True, "compaction_threshold_pct": 0.0125}
    whole = run_whole(**options)
    summaries = [place for place, each in enumerate(whole.asked) if "Summarize your progress" in each]
    assert len(summaries) >= 2
    for lost, place in enumerate([summaries[0], summaries[0] + 1, summaries[-1]]):
        assert lives.live(tmp_path, kill_at=place + lost, options=options) is None
    assert Outcome.of(lives.live(tmp_path, options=options), tmp_path) == whole.outcome
    assert keys(lives.server.asked) - Counter(whole.asked) == keys(lives.server.unanswered)


@pytest.mark.parametrize(("budget", "kill_at"), [(2.5, 3), (3.5, 11)])
def test_budget_counts_what_was_spent_before_and_that_of_a_child_once(
    budget: float, kill_at: int, lives: Lives, run_whole: Callable[..., Whole], tmp_path: Path
) -> None:
    options = {"max_budget": budget}
    whole = run_whole(**options)
    assert whole.outcome.said is not None
    assert whole.outcome.said["error"].startswith("BudgetExceededError")
    assert lives.live(tmp_path, kill_at=kill_at, options=options) is None
    assert Outcome.of(lives.live(tmp_path, options=options), tmp_path) == whole.outcome


def test_time_limit_counts_what_was_used_before(lives: Lives, tmp_path: Path) -> None:
    assert lives.live(tmp_path, kill_at=8) is None
    (session,) = CheckpointStore(tmp_path).sessions()
    used = CheckpointStore(tmp_path).latest(session).working_memory["seconds"]
    said = lives.live(tmp_path, options={"max_timeout": used / 2})
    assert said is not None
    assert said["error"].startswith("TimeoutExceededError: Timeout exceeded after iteration 0")
    assert len(lives.server.asked) == 9


def test_children_that_run_at_the_same_time_come_back(lives: Lives, whole: Whole, tmp_path: Path) -> None:
    options = {"max_concurrent_subcalls": 2}
    assert lives.live(tmp_path, kill_at=18, options=options) is None
    said = lives.live(tmp_path, options=options)
    assert said is not None
    assert whole.outcome.said is not None
    assert said["response"] == whole.outcome.said["response"]
    assert len(lives.server.asked) <= REQUESTS + 2  # of the two that were in flight, one may have been answered


def test_model_is_told_once_what_did_not_come_back_and_no_reply_is_paid_again_for_it(
    lives: Lives, tmp_path: Path
) -> None:
    options = {"trust": None}
    assert lives.live(tmp_path, kill_at=2, options=options) is None  # in the second turn, whose reply is paid
    assert lives.live(tmp_path, kill_at=3, options=options) is None  # in the third, the first time that it is told
    assert lives.live(tmp_path, kill_at=5, options=options) is None  # in the batch
    lives.live(tmp_path, options=options)
    assert [len(of_root(lives.server.asked, turn)) for turn in (1, 2, 3, 4)] == [1, 1, 2, 1]
    for turn, times in [(1, 0), (2, 0), (3, 1), (4, 1), (7, 1)]:
        for asked in of_root(lives.server.asked, turn):
            told = [message["content"] for message in asked.messages if "NOT restored: score" in message["content"]]
            assert len(told) == times
            assert all("def score(word)" in note for note in told)


def test_tool_that_may_be_called_again_is(lives: Lives, whole: Whole, tmp_path: Path) -> None:
    assert lives.live(tmp_path, die_in_tool=True) is None
    assert Outcome.of(lives.live(tmp_path), tmp_path) == whole.outcome
    assert (tmp_path / "calls.txt").read_text().split() == ["fox", "fox"]


def test_tool_that_must_not_be_called_twice_is_not(lives: Lives, tmp_path: Path) -> None:
    options: dict[str, Any] = {"idempotent_tools": ["hold"]}
    assert lives.live(tmp_path, die_in_tool=True, options=options) is None
    lives.live(tmp_path, options=options)
    assert (tmp_path / "calls.txt").read_text().split() == ["fox"]
    (asked,) = of_root(lives.server.asked, 7)
    assert "OperationError" in asked.messages[-2]["content"]
    assert "may have happened" in asked.messages[-2]["content"]


def test_finished_tool_is_not_called_again(lives: Lives, whole: Whole, tmp_path: Path) -> None:
    options: dict[str, Any] = {"idempotent_tools": ["hold"]}
    assert lives.live(tmp_path, kill_at=23, options=options) is None  # the score that is asked after it
    assert Outcome.of(lives.live(tmp_path, options=options), tmp_path) == whole.outcome
    assert (tmp_path / "calls.txt").read_text().split() == ["fox"]


# The installed version


@pytest.mark.parametrize("options", [{"environment": "docker"}, {"persistent": True}])
def test_variables_out_of_reach_are_refused(options: dict[str, Any], tmp_path: Path) -> None:
    from rlm_memory.integrations.rlms import RLM

    with pytest.raises(InvalidInputError, match='Expected environment="local" without persistent=True'):
        RLM(checkpoints=tmp_path, session_id="s", **options)


def test_installed_version_has_what_is_used() -> None:
    importlib.import_module("rlm_memory.integrations.rlms")


@pytest.fixture
def not_imported(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """The part that looks at rlms, to be imported anew with what the test makes of rlms."""
    for name in [name for name in sys.modules if name.startswith("rlm_memory.integrations.rlms")]:
        monkeypatch.delitem(sys.modules, name)
    return monkeypatch


def _without_a_method(patch: pytest.MonkeyPatch) -> None:
    patch.delattr(rlm.RLM, "_check_timeout")


def _with_another_parameter(patch: pytest.MonkeyPatch) -> None:
    def _subcall(self: Any, prompt: str, model: str | None = None, depth: int = 0) -> Any:
        return rlm.RLM(prompt, model, depth)

    patch.setattr(rlm.RLM, "_subcall", _subcall)


def _that_does_not_call(patch: pytest.MonkeyPatch) -> None:
    def completion(self: Any, prompt: str, root_prompt: str | None = None) -> Any:
        return self._completion_turn(prompt, self._spawn_completion_context(prompt), root_prompt)

    patch.setattr(rlm.RLM, "completion", completion)


def _without_a_class(patch: pytest.MonkeyPatch) -> None:
    patch.delattr(importlib.import_module("rlm.environments.local_repl"), "_AnswerDict")


@pytest.mark.parametrize(
    ("other", "complaint"),
    [
        (_without_a_method, "RLM has no method _check_timeout"),
        (_with_another_parameter, r"RLM\._subcall takes \(prompt, model, depth\), not \(prompt, model\)"),
        (_that_does_not_call, "RLM.completion does not use _check_iteration_limits, _check_timeout"),
        (_without_a_class, "_AnswerDict"),
    ],
)
def test_version_that_does_not_fit_is_refused_with_what_is_missing(
    other: Callable[[pytest.MonkeyPatch], None], complaint: str, not_imported: pytest.MonkeyPatch
) -> None:
    other(not_imported)
    with pytest.raises(UnsupportedRuntimeError, match=complaint) as caught:
        importlib.import_module("rlm_memory.integrations.rlms")
    assert "Expected the package rlms>=" in str(caught.value)


class _Hidden:
    """Finds that there is no rlm."""

    @staticmethod
    def find_spec(name: str, path: Any, target: Any = None) -> None:
        if name == "rlm":
            raise ModuleNotFoundError("No module named 'rlm'", name=name)


def test_missing_package_names_the_extra(not_imported: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "rlm"]:
        not_imported.delitem(sys.modules, name)
    not_imported.setattr(sys, "meta_path", [_Hidden, *sys.meta_path])
    with pytest.raises(MissingExtraError, match=r"pip install 'rlm-memory\[rlms\]'"):
        importlib.import_module("rlm_memory.integrations.rlms")


def test_extra_asks_for_the_version_that_is_named() -> None:
    interface = importlib.import_module("rlm_memory.integrations.rlms.interface")
    extras = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text("utf-8"))
    assert extras["project"]["optional-dependencies"]["rlms"] == [interface.WANTED]
