"""A REPL over a session: what cells leave, print and show, what they may not break, and how one is stopped."""

from __future__ import annotations

import gc
import io
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from rlm_memory.checkpoints import CheckpointStore, RLMSession
from rlm_memory.errors import InvalidInputError
from rlm_memory.repl import Repl, Repls


@pytest.fixture
def store(tmp_path: Path) -> CheckpointStore:
    return CheckpointStore(tmp_path / "store", trust="key")


@pytest.fixture
def repl(store: CheckpointStore) -> Repl:
    return Repl(RLMSession("s", store=store))


@pytest.fixture(scope="module")
def slow_worker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Repl]:
    """A REPL with a worker that starts once for several tests."""
    store = CheckpointStore(tmp_path_factory.mktemp("worker"), trust="key")
    repl = Repl(RLMSession("s", store=store), time_limit=20, functions={"double": lambda value: value * 2})
    yield repl
    repl.close()


@pytest.fixture(params=["here", "worker"])
def either(request: pytest.FixtureRequest, repl: Repl) -> Repl:
    """A REPL in this process, and one with a worker."""
    if request.param == "here":
        return repl
    worker: Repl = request.getfixturevalue("slow_worker")
    for name in worker.session.namespace.keys() - {"double"}:
        del worker.session.namespace[name]
    return worker


# what a cell gives


def test_output_errors_and_the_last_value_are_told_apart(either: Repl) -> None:
    result = either.run("import sys\nprint('out')\nprint('err', file=sys.stderr)\n{'a': (1, 2)}")
    assert (result.stdout, result.stderr, result.value, result.error) == ("out\n", "err\n", "{'a': (1, 2)}", None)
    assert result.text == "out\nerr\n{'a': (1, 2)}"
    assert result.seconds >= 0


@pytest.mark.parametrize("source", ["", "# nothing", "x = 1", "None", "def f(): pass"])
def test_a_cell_that_shows_nothing_says_so(source: str, repl: Repl) -> None:
    result = repl.run(source)
    assert (result.value, result.error, result.text) == (None, None, "Done. Nothing was printed.")


def test_names_of_one_cell_are_there_in_the_next_also_inside_functions(either: Repl) -> None:
    either.run("import math\nK = 2\ndef area(r): return K * math.floor(r)")
    either.run("K = 3")
    assert either.run("[area(2.5) for _ in range(2)]").value == "[6, 6]"


def test_a_function_can_call_itself_and_a_class_can_be_pickled_by_dataclasses(either: Repl) -> None:
    result = either.run(
        "from __future__ import annotations\n"
        "from dataclasses import dataclass\n"
        "@dataclass\nclass Hit:\n    score: float\n    more: Hit | None = None\n"
        "def fact(n): return n and n * fact(n - 1) or 1\n"
        "Hit(fact(5))"
    )
    assert result.value == "Hit(score=120, more=None)"


def test_code_for_a_main_program_runs(repl: Repl) -> None:
    assert repl.run("if __name__ == '__main__':\n    print('ran')").stdout == "ran\n"


def test_source_of_a_function_can_be_inspected(repl: Repl) -> None:
    repl.run("x = 1\ndef f(n):\n    return n + 1  # why")
    assert "# why" in str(repl.run("import inspect\ninspect.getsource(f)").value)


# errors


def test_a_cell_that_fails_keeps_what_it_had_assigned_and_is_recorded(either: Repl) -> None:
    """B085"""
    either.run("def ratio(a, b):\n    return a / b")
    result = either.run("x = 1\ny = [2]\nz = ratio(x, 0)")
    assert result.error == (
        "ZeroDivisionError: division by zero\n  line 3: z = ratio(x, 0)\n  line 2 in ratio: return a / b"
    )
    restored = RLMSession.restore("s", store=either.session.store)
    assert (restored.namespace["x"], restored.namespace["y"], "z" in restored.namespace) == (1, [2], False)
    assert restored.trajectory_events[-1]["error"] == result.error
    assert either.run("x + 1").value == "2"


def _error_of_null_bytes() -> str:
    """Return what this Python raises for them: a ValueError up to 3.11.3, then a SyntaxError."""
    try:
        compile("\0", "cell", "exec")
    except (SyntaxError, ValueError) as error:
        return type(error).__name__
    raise AssertionError("null bytes were compiled")


@pytest.mark.parametrize(
    ("source", "error"),
    [
        ("x = (1,\ny = = 2", "SyntaxError: "),
        ("raise SystemExit(3)", "The cell called exit"),
        ("exit()", "The cell called exit"),
        ("def f(): return f()\nf()", "RecursionError: "),
        ("class E(Exception):\n    def __str__(self): raise ValueError\nraise E", "E: it has no text"),
        ("class R:\n    def __repr__(self): raise ValueError('no repr')\nR()", "ValueError: no repr"),
        ("import asyncio\nraise asyncio.CancelledError", "CancelledError"),
        ("raise GeneratorExit", "GeneratorExit"),
        ("raise BaseException('base')", "BaseException: base"),
        ("raise KeyError('missing')", "KeyError: 'missing'"),
        ("x = '\\ud800'\nraise ValueError(x)", "ValueError: "),
        ("compile('1 +', 'other', 'exec')", "SyntaxError: invalid syntax"),
        ("\0", f"{_error_of_null_bytes()}: "),
        ("await f()", "SyntaxError: "),
    ],
)
def test_any_error_of_a_cell_is_told_and_the_session_goes_on(source: str, error: str, either: Repl) -> None:
    result = either.run(source)
    assert str(result.error).startswith(error)
    assert either.run("1 + 1").value == "2"


def test_causes_and_notes_of_an_error_are_told(repl: Repl) -> None:
    source = "try:\n    {}['k']\nexcept KeyError as e:\n    n = ValueError('bad')\n    n.add_note('see k')\n"
    source += "    raise n from e"
    assert repl.run(source).error == "ValueError: bad\n  line 6: raise n from e\n  see k\n  It came from KeyError: 'k'"


def test_deep_recursion_is_told_in_a_few_lines(repl: Repl) -> None:
    assert len(str(repl.run("def f(n): return f(n + 1)\nf(0)").error).splitlines()) < 12


def test_an_interrupt_goes_on_to_the_program_and_loses_no_function(repl: Repl) -> None:
    with pytest.raises(KeyboardInterrupt):
        repl.run("def f(): return 7\nraise KeyboardInterrupt")
    repl.session.checkpoint()
    assert RLMSession.restore("s", store=repl.session.store).namespace["f"]() == 7


# output


def test_long_output_is_cut_in_the_middle_and_says_by_how_much(store: CheckpointStore) -> None:
    repl = Repl(RLMSession("s", store=store), max_output=20)
    result = repl.run("for i in range(100_000):\n    print(i)\n'v' * 100")
    assert result.stdout == "0\n1\n2\n3\n4\n\n… 588,870 characters left out …\n998\n99999\n"
    assert result.value == "vvvvvvvvvv\n… 80 characters left out …\nvvvvvvvvvv"
    assert len(str(repl.run("raise ValueError('x' * 10**6)").error)) < 100


def test_threads_of_a_cell_are_heard_and_others_are_not(repl: Repl, capsys: pytest.CaptureFixture[str]) -> None:
    go, heard = threading.Event(), threading.Event()

    def bystander() -> None:
        go.wait(5)
        print("not of the cell")
        heard.set()

    thread = threading.Thread(target=bystander)
    thread.start()
    repl.session.namespace.update(go=go, heard=heard)
    result = repl.run(
        "import threading\nt = threading.Thread(target=print, args=('of the cell',))\nt.start()\nt.join()\n"
        "go.set()\nheard.wait(5)"
    )
    thread.join()
    assert (result.stdout, capsys.readouterr().out) == ("of the cell\n", "not of the cell\n")


def test_cells_that_run_at_once_have_their_own_output(store: CheckpointStore) -> None:
    both = threading.Barrier(2)
    before = sys.stdout

    def run(name: str) -> str:
        repl = Repl(RLMSession(name, store=store), functions={"meet": lambda: both.wait(5)})
        return repl.run(f"for _ in range(50):\n    meet()\n    print({name!r})").stdout

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(run, ["a", "b"])) == ["a\n" * 50, "b\n" * 50]
    assert sys.stdout is before


# turns and checkpoints


@pytest.mark.parametrize(("turn_per_cell", "saved"), [(True, [2, 4]), (False, [])])
def test_each_cell_is_a_turn_unless_something_else_counts(
    turn_per_cell: bool, saved: list[int], store: CheckpointStore
) -> None:
    repl = Repl(RLMSession("s", store=store, every=2), turn_per_cell=turn_per_cell)
    for number in range(5):
        repl.run(f"x = {number}")
    assert [info.turn for info in store.list("s")] == saved


def test_functions_classes_and_sharing_are_there_after_a_restore(either: Repl) -> None:
    """B145"""
    either.run(
        "def helper(): return len(items)\nclass Box:\n    def open(self): return helper()\nitems = [1]\nalias = items"
    )
    either.run("box = Box()")
    either.session.checkpoint()
    again = Repl(RLMSession.restore("s", store=either.session.store))
    assert again.run("alias.append(2)\nbox.open(), isinstance(box, Box)").value == "(2, True)"


def test_a_restored_namespace_is_what_the_last_turn_left(either: Repl) -> None:
    """B118"""
    either.session.namespace["numbers"] = [1, 2, 3]
    either.run("numbers.append(4)")
    either.session.checkpoint()
    again = Repl(RLMSession.restore("s", store=either.session.store))
    assert again.run("sum(numbers)").value == "10"


def test_functions_of_the_program_are_those_of_the_new_program_after_a_restore(store: CheckpointStore) -> None:
    repl = Repl(RLMSession("s", store=store), functions={"ask": lambda text: text + "?"})
    assert repl.run("ask('who')").value == "'who?'"
    repl.session.checkpoint()
    again = Repl(RLMSession.restore("s", store=store), functions={"ask": lambda text: text + "!"})
    assert again.run("ask('who')").value == "'who!'"


# a worker


def test_variables_of_every_kind_survive_the_way_to_the_worker_and_back(slow_worker: Repl) -> None:
    shared: list[Any] = [1]
    namespace = slow_worker.session.namespace
    namespace.update(shared=shared, alias=shared, t=(1, {2}), nan=float("nan"), odd={(1, 2): b"x"})
    result = slow_worker.run("alias.append(3)\nimport numpy as np\narray = np.arange(3)\nf = lambda n: n + len(shared)")
    assert result.error is None
    assert namespace["shared"] == [1, 3]
    assert namespace["alias"] is namespace["shared"]
    assert namespace["t"] == (1, {2})
    assert namespace["odd"] == {(1, 2): b"x"}
    assert namespace["array"].sum() == 3
    assert namespace["f"](1) == 3


def test_what_cannot_leave_the_worker_is_told_once(slow_worker: Repl) -> None:
    result = slow_worker.run("numbers = (n for n in range(3))\nkept = next(numbers)")
    assert [note for note in result.notes if "numbers" in note and "generator" in note]
    assert slow_worker.run("kept").notes == ()


def test_functions_of_the_program_are_called_in_the_program(slow_worker: Repl) -> None:
    assert slow_worker.run("double([1, (2,)])").value == "[1, (2,), 1, (2,)]"
    assert "TypeError" in str(slow_worker.run("double()").error)
    source = "from concurrent.futures import ThreadPoolExecutor\n"
    source += "with ThreadPoolExecutor(4) as p: r = list(p.map(double, range(9)))"
    assert slow_worker.run(source + "\nr").value == "[0, 2, 4, 6, 8, 10, 12, 14, 16]"


def test_a_cell_that_reads_stdin_does_not_wait(either: Repl) -> None:
    assert str(either.run("input()").error).startswith("EOFError")
    assert either.run("import sys\nsys.stdin.read(), list(sys.stdin)").value == "('', [])"


def test_exit_in_a_cell_leaves_the_programs_stdin_open(repl: Repl, monkeypatch: pytest.MonkeyPatch) -> None:
    stdin = io.StringIO("typed")
    monkeypatch.setattr(sys, "stdin", stdin)
    repl.run("exit()")
    gc.collect()
    assert sys.stdin is stdin
    assert stdin.read() == "typed"


def test_cells_cannot_write_into_the_messages(slow_worker: Repl) -> None:
    result = slow_worker.run("import os, subprocess, sys\nos.write(1, b'noise')\nos.system('echo noise')\n1")
    assert result.value == "1"


@pytest.mark.skipif(not hasattr(threading, "pthread_kill") and sys.platform == "win32", reason="no timers on Windows")
def test_a_cell_that_takes_too_long_is_stopped_and_keeps_what_it_had_assigned(store: CheckpointStore) -> None:
    repl = Repl(RLMSession("s", store=store), time_limit=0.2)
    result = repl.run("x = 1\nwhile True:\n    try:\n        pass\n    except Exception:\n        pass")
    assert str(result.error).startswith("The cell ran for longer than 0.2 seconds and was stopped.")
    assert repl.run("x").value == "1"
    repl.close()


def test_a_cell_that_does_not_let_itself_be_stopped_is_ended_and_leaves_the_variables_untouched(
    store: CheckpointStore,
) -> None:
    repl = Repl(RLMSession("s", store=store, namespace={"x": 1}), time_limit=0.2)
    result = repl.run("x = 2\nimport time\nwhile True:\n    try: time.sleep(9)\n    except BaseException: pass")
    assert "was ended with its process" in str(result.error)
    assert repl.run("x").value == "1"
    result = repl.run("x = 3\nimport os\nos._exit(7)")
    assert result.error == "The cell ended its process (exit code 7). The variables are as they were before the cell."
    assert repl.run("x").value == "1"
    repl.close()


def test_the_time_of_the_programs_functions_is_not_the_cells(store: CheckpointStore) -> None:
    waited = threading.Event()
    repl = Repl(RLMSession("s", store=store), time_limit=0.3, functions={"ask": lambda: waited.wait(1.5)})
    assert repl.run("ask()").value == "False"
    repl.close()


# many sessions


def test_sessions_do_not_see_each_other_and_go_on_in_another_process(store: CheckpointStore) -> None:
    first = Repls(store)
    for name in ("a", "b"):
        assert first.run(name, f"name = {name!r}\nlines = (n for n in name)").notes == ()
    assert first.run("a", "name").value == "'a'"
    first.close()
    second = Repls(store)
    result = second.run("b", "name")
    assert result.value == "'b'"
    assert "Variables that are back: name" in result.notes[0]
    assert "NOT restored: lines" in result.notes[0]
    assert second.run("b", "name").notes == ()
    assert second.session("b").namespace["name"] == "b"
    second.close()


def test_a_session_that_is_not_live_any_more_is_restored_when_it_is_asked_for(store: CheckpointStore) -> None:
    repls = Repls(store, live=1)
    for name in ("a", "b", "a"):
        repls.run(name, "count = globals().get('count', 0) + 1")
    assert repls.run("a", "count").value == "2"
    repls.close()


@pytest.mark.parametrize(
    "options", [{"max_output": 1}, {"time_limit": 0}, {"time_limit": float("nan")}, {"functions": {"a b": print}}]
)
def test_options_that_make_no_sense_are_refused(options: dict[str, Any], store: CheckpointStore) -> None:
    with pytest.raises(InvalidInputError):
        Repl(RLMSession("s", store=store), **options)
    with pytest.raises(InvalidInputError):
        Repls(store, live=0)
