"""The commands rlm-memory log, explain, promote, pin, unpin, restore, sweep and sessions."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

pytest.importorskip("typer", reason="the command line needs the extra cli")
pytest.importorskip("rich", reason="the command line needs the extra cli")

from command_line import Cli, Result
from rlm_memory import Memory
from rlm_memory.cli import run
from support import SettableClock

STARTED = datetime.now(UTC).replace(microsecond=0) - timedelta(days=200)


@pytest.fixture
def cli(store_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Cli:
    """Run a command on the test's store."""
    monkeypatch.setenv("RLM_MEMORY_DB", str(store_path))
    monkeypatch.delenv("RLM_MEMORY_POLICY", raising=False)

    def call(*arguments: str) -> Result:
        code = run(arguments)
        out, err = capfd.readouterr()
        return Result(code, out, err)

    return call


@pytest.fixture
def filled(cli: Cli, store_path: Path) -> Cli:
    """Four nodes of 200 days ago: new in task, used in two sessions, longterm and unused, longterm and pinned."""
    clock = SettableClock(STARTED)
    with Memory.open(store_path, embedder=None, clock=clock, sweep=False) as memory:
        memory.add(["a new note", "a used one"], ids=["new", "used"], confidence=0.9)
        memory.add(["an old note", "a kept one"], ids=["old", "kept"], tier="longterm")
        memory.pin("kept")
        for name in ("monday", "tuesday"):
            with memory.session(name) as session:
                session.record_access("used")
                session.record_access("used")
                session.outcome(True)
            clock.advance(days=1)
        memory.session("crashed").record_access("new")
    return cli


@pytest.fixture
def in_tokyo(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nine hours before UTC, all the year."""
    if not hasattr(time, "tzset"):
        pytest.skip("the time zone of a process cannot be set here")
    monkeypatch.setenv("TZ", "JST-9")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def tiers(cli: Cli) -> dict[str, str]:
    return {node["id"]: node["tier"] for node in cli("list", "--archived", "--json").documents}


def moves(result: Result) -> list[tuple[str, str, str]]:
    return [(each["node_id"], each["from_tier"], each["to_tier"]) for each in result.documents]


# the log


def test_log_shows_each_decision_with_its_reason(filled: Cli) -> None:
    heading, *rows = filled("log").rows
    assert heading == ["entry", "at", "id", "from", "to", "moved", "rule", "reason"]
    by_rule = {(row[2], row[6]): row for row in rows}
    assert by_rule["old", "added"][3:] == ["task", "longterm", "yes", "added", "added in this tier"]
    assert by_rule["kept", "pin"][5:] == ["no", "pin", "pinned"]
    assert by_rule["used", "task-to-session"][7] == "uses in one session 2 (required: >= 2)"
    assert by_rule["used", "session-to-longterm"][5] == "no"
    assert [int(row[0]) for row in rows] == sorted(int(row[0]) for row in rows)


def test_log_as_json_has_the_evidence_and_the_chain(filled: Cli, store_path: Path) -> None:
    documents = filled("log", "used", "--json").documents
    assert {each["node_id"] for each in documents} == {"used"}
    assert documents[0]["conditions"] == [
        {"name": "uses in one session", "found": 2, "required": ">= 2", "holds": True}
    ]
    assert datetime.fromisoformat(documents[0]["at"]) == STARTED
    with Memory.open(store_path, embedder=None, read_only=True) as memory:
        chain = [(each.sequence, each.previous_hash, each.hash) for each in memory.promotion_log("used")]
    assert [(each["sequence"], each["previous_hash"], each["hash"]) for each in documents] == chain


def test_log_shows_the_last_entries(filled: Cli) -> None:
    whole = filled("log", "--json").documents
    assert filled("log", "--last", "2", "--json").documents == whole[-2:]
    assert filled("log", "--last", str(10**30), "--json").documents == whole


def test_log_on_a_terminal_shows_whole_reasons(filled: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    filled("promote", "new", "longterm", "--reason", "words " * 30 + "[red]end[/red]")
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "80")
    shown = " ".join(filled("log", "new").out.split())
    assert "from task to longterm (by hand): words words" in shown
    assert "[red]end[/red]" in shown
    refused = " ".join(filled("log", "used").out.split())
    assert "stays in session, not longterm (session-to-longterm): missing: distinct sessions 1" in refused
    assert "stays in longterm (pin): pinned" in " ".join(filled("log", "kept").out.split())


@pytest.mark.usefixtures("in_tokyo")
def test_times_without_a_zone_are_local_as_those_that_are_printed(filled: Cli) -> None:
    filled("pin", "new")
    printed = filled("log", "new").rows[1][1]
    assert printed.endswith("+09:00")
    assert len(filled("log", "--since", printed).rows) == 2
    assert len(filled("log", "--since", printed.removesuffix("+09:00")).rows) == 2
    assert len(filled("log", "--since", printed.replace("+09:00", "+00:00")).rows) == 1, "nine hours later"


def test_log_remembers_a_deleted_node(filled: Cli) -> None:
    filled("delete", "--yes", "old")
    assert [each["rule"] for each in filled("log", "old", "--json").documents] == ["added", "deleted"]


def test_node_without_a_decision_has_an_empty_log(filled: Cli) -> None:
    assert len(filled("log", "new").rows) == 1
    later = filled("log", "used", "--since", datetime.now(UTC).isoformat(), "--json")
    assert (later.code, later.out) == (0, "")


# the next move


def test_explain_tells_each_condition_and_whether_it_holds(filled: Cli) -> None:
    pairs, table = filled("explain", "used").out.split("\n\n")
    assert pairs.splitlines()[:3] == ["id\tused", "tier\tsession", "next\tlongterm"]
    assert table.splitlines() == [
        "condition\tthreshold\tfound\tholds",
        "distinct sessions\t>= 3\t2\tno",
        "successful outcomes\t>= 1\t2\tyes",
        "failed outcomes\t< 2\t0\tyes",
        "lowest confidence in its last 3 sessions and now\t>= 0.8\t0.9\tyes",
    ]


def test_explain_goes_by_the_policy(filled: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    [document] = filled("explain", "used", "--json", "--policy", '{"min_sessions": 2}').documents
    assert document["conditions"][0] == {
        "name": "distinct sessions",
        "found": 2,
        "required": ">= 2",
        "holds": True,
    }
    assert (document["moved"], document["to_tier"]) == (False, "longterm")
    monkeypatch.setenv("RLM_MEMORY_POLICY", '{"min_sessions": 7}')
    assert filled("explain", "used", "--json").documents[0]["conditions"][0]["required"] == ">= 7"


def test_nothing_is_next_for_an_archived_node(filled: Cli) -> None:
    filled("promote", "old", "archive", "--reason", "a duplicate")
    assert "next\tnone\n" in filled("explain", "old").out
    assert filled("explain", "old", "--json").documents[0]["conditions"] == []


# by hand


def test_promote_moves_a_node_and_logs_the_reason(filled: Cli) -> None:
    result = filled("promote", "new", "longterm", "--reason", "Ada said so")
    assert (result.code, result.out) == (0, "new is moved from task to longterm.\n")
    assert tiers(filled)["new"] == "longterm"
    [entry] = filled("log", "new", "--json").documents
    assert (entry["actor"], entry["reason"], entry["moved"]) == ("manual", "Ada said so", True)


def test_promote_to_where_it_is_says_so(filled: Cli) -> None:
    result = filled("promote", "old", "longterm", "--reason", "again")
    assert (result.code, result.out) == (0, "old is in longterm already.\n")


def test_pin_keeps_a_node_from_the_sweep_until_it_is_unpinned(filled: Cli) -> None:
    assert filled("pin", "old", "--reason", "the law wants it").out == "old is pinned.\n"
    assert moves(filled("sweep", "--json")) == []
    assert filled("unpin", "old").out == "old is no longer pinned.\n"
    assert moves(filled("sweep", "--json")) == [("old", "longterm", "archive")]
    assert [(each["rule"], each["reason"]) for each in filled("log", "old", "--json").documents[1:3]] == [
        ("pin", "the law wants it"),
        ("unpin", "unpinned"),
    ]


def test_restored_node_stays_out_of_the_archive(filled: Cli) -> None:
    filled("sweep")
    assert tiers(filled)["old"] == "archive"
    assert filled("restore", "old").out == "old is moved from archive to longterm.\n"
    assert filled("sweep").out == "Nothing moved.\n"
    assert tiers(filled)["old"] == "longterm"


@pytest.mark.parametrize(
    "command", ["promote new longterm --reason r", "pin new", "unpin new", "restore old", "restore old --reason r"]
)
def test_what_is_done_by_hand_is_printed_as_json_as_it_is_logged(filled: Cli, command: str) -> None:
    filled("promote", "old", "archive", "--reason", "r")
    result = filled(*command.split(), "--json")
    assert (result.code, result.err) == (0, "")
    [document] = result.documents
    entry = filled("log", document["node_id"], "--last", "1", "--json").documents[0]
    assert {name: entry[name] for name in document} == document


# the sweep


def test_dry_run_changes_nothing_and_tells_what_the_sweep_then_does(filled: Cli, store_path: Path) -> None:
    policy = ["--policy", '{"min_sessions": 2}']
    before = (tiers(filled), filled("log").out, filled("sessions").out, store_path.read_bytes())
    would = filled("sweep", "--dry-run", "--json", *policy)
    assert sorted(moves(would)) == [("old", "longterm", "archive"), ("used", "session", "longterm")]
    assert (tiers(filled), filled("log").out, filled("sessions").out, store_path.read_bytes()) == before
    assert sorted(moves(filled("sweep", "--json", *policy))) == sorted(moves(would))
    assert tiers(filled) == {"new": "task", "used": "longterm", "old": "archive", "kept": "longterm"}
    assert filled("sweep", "--dry-run", *policy).out == "Nothing would move.\n"
    assert filled("sweep", *policy).out == "Nothing moved.\n"


def test_uses_that_a_reader_cannot_count_are_told_of(filled: Cli, store_path: Path) -> None:
    assert filled("sweep", "--dry-run").err == ""
    script = """
import os, sys
from rlm_memory import Memory
memory = Memory.open(sys.argv[1], embedder=None, sweep=False)
memory.session("killed").record_access("old")
os._exit(0)
"""
    subprocess.run([sys.executable, "-c", script, str(store_path)], check=True, timeout=60)
    for command in ("sweep --dry-run", "explain old"):
        result = filled(*command.split(), "--json")
        assert result.err.startswith("Uses that were reported lately")
        assert [each["to_tier"] for each in result.documents] == ["archive"]
    assert (filled("sweep").out, filled("sweep", "--dry-run").err) == ("Nothing moved.\n", "")


def test_sweep_shows_what_moved_and_why(filled: Cli) -> None:
    heading, row = filled("sweep").rows
    assert heading == ["id", "from", "to", "reason"]
    assert row[:3] == ["old", "longterm", "archive"]
    assert row[3].startswith("days unused 20")


def test_sweep_ends_crashed_sessions(filled: Cli) -> None:
    assert filled("sessions", "--json").documents[0]["ended_at"] is None
    filled("sweep")
    assert all(each["ended_at"] for each in filled("sessions", "--json").documents)


@pytest.mark.parametrize("policy", ['{"archive_after_days": 1000}', '{"archive_after_days": Infinity}'])
def test_sweep_archives_by_the_policy_alone(filled: Cli, policy: str) -> None:
    assert moves(filled("sweep", "--policy", policy, "--json")) == []
    assert tiers(filled)["old"] == "longterm"


@pytest.mark.parametrize(
    "command",
    [
        "add {tmp}/note.txt --embedder none",
        "import {tmp}/nodes.jsonl",
        "reembed --pending --embedder none",
        "compact",
        "delete new --yes",
        "promote new session --reason r",
        "pin new",
        "unpin new",
    ],
)
def test_no_command_but_sweep_archives(filled: Cli, tmp_path: Path, command: str) -> None:
    (tmp_path / "note.txt").write_text("A note.")
    with Memory.open(tmp_path / "other.db", embedder=None) as memory:
        memory.export(tmp_path / "nodes.jsonl")
    filled(*command.format(tmp=tmp_path).split())
    assert tiers(filled)["old"] == "longterm"


# the sessions


def test_sessions_lists_the_latest_first(filled: Cli) -> None:
    heading, *rows = filled("sessions").rows
    assert heading == ["turn", "last active", "ended", "id"]
    assert [[row[0], *row[2:]] for row in rows] == [
        ["1", "no", "crashed"],
        ["2", "yes", "tuesday"],
        ["2", "yes", "monday"],
    ]
    assert datetime.fromisoformat(rows[2][1]) == STARTED


def test_sessions_as_json(filled: Cli) -> None:
    [document] = filled("sessions", "--limit", "1", "--json").documents
    at = (STARTED + timedelta(days=2)).isoformat()
    assert document == {"id": "crashed", "started_at": at, "last_active": at, "ended_at": None, "turn": 1}


# errors


@pytest.mark.parametrize(
    ("arguments", "code", "part"),
    [
        (["log", "nobody"], 2, "nobody"),
        (["log", "--last", "0"], 2, "--last"),
        (["log", "--since", "yesterday"], 2, "yesterday"),
        (["log", "--since", "0001-01-01T00:00+14:00"], 2, "--since"),
        (["log", "--since", "2026-13-01"], 2, "--since"),
        (["explain", "nobody"], 2, "nobody"),
        (["explain"], 2, "Missing argument"),
        (["promote", "nobody", "task", "--reason", "r"], 2, "nobody"),
        (["promote", "new", "attic", "--reason", "r"], 2, "attic"),
        (["promote", "new", "longterm"], 2, "--reason"),
        (["promote", "new", "longterm", "--reason", " "], 2, "reason"),
        (["pin", "nobody"], 2, "nobody"),
        (["pin", "new", "--reason", ""], 2, "reason"),
        (["unpin", "nobody"], 2, "nobody"),
        (["restore", "nobody"], 2, "nobody"),
        (["restore", "old"], 2, "not in the archive"),
        (["sessions", "--limit", "0"], 2, "--limit"),
        (["sweep", "--policy", "{"], 2, "not JSON"),
        (["sweep", "--policy", "[" * 100_000], 2, "not JSON"),
        (["sweep", "--policy", "[1]"], 2, "JSON object"),
        (["sweep", "--policy", '{"archive_days": 1}'], 2, "archive_after_days"),
        (["sweep", "--policy", '{"min_sessions": "3"}'], 2, "min_sessions is '3'"),
        (["explain", "new", "--policy", '{"min_confidence": NaN}'], 2, "min_confidence is nan"),
        (["promote", "new", "task", "--reason", "r", "--policy", '{"min_uses": 0}'], 2, "min_uses is 0"),
    ],
)
def test_error_is_one_line_and_changes_nothing(filled: Cli, arguments: list[str], code: int, part: str) -> None:
    before = filled("list", "--archived", "--json").out, filled("log").out
    result = filled(*arguments)
    assert (result.code, result.out) == (code, "")
    assert result.err.startswith("rlm-memory: ")
    assert result.err.count("\n") == 1
    assert part in result.err
    assert (filled("list", "--archived", "--json").out, filled("log").out) == before


def test_bad_policy_in_the_environment_is_named(filled: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLM_MEMORY_POLICY", '{"min_uses": 0.5}')
    result = filled("sweep")
    assert (result.code, result.out) == (2, "")
    assert "RLM_MEMORY_POLICY" in result.err
    assert "min_uses is 0.5" in result.err


@pytest.mark.parametrize(
    "command",
    [
        "log",
        "log x",
        "explain x",
        "promote x task --reason r",
        "pin x",
        "unpin x",
        "restore x",
        "sweep",
        "sweep --dry-run",
        "sessions",
    ],
)
def test_store_that_is_not_there_is_not_made(cli: Cli, store_path: Path, command: str) -> None:
    result = cli(*command.split())
    assert (result.code, result.out) == (3, "")
    assert str(store_path) in result.err
    assert list(store_path.parent.iterdir()) == []


def test_other_namespaces_are_neither_seen_nor_moved(filled: Cli) -> None:
    other = ["--namespace", "other", "--json"]
    for command in (["log"], ["sessions"], ["sweep", "--dry-run"], ["sweep"]):
        assert (filled(*command, *other).code, filled(*command, *other).out) == (0, "")
    assert filled("promote", "new", "longterm", "--reason", "r", *other).code == 2
    assert filled("log", "old", *other).code == 2
    assert tiers(filled) == {"new": "task", "used": "session", "old": "longterm", "kept": "longterm"}


def test_text_of_the_log_cannot_give_orders_to_the_terminal(filled: Cli) -> None:
    filled("pin", "new", "--reason", "calm \x1b[2J\x07")
    assert filled("log", "new", "--json").documents[0]["reason"] == "calm \x1b[2J\x07"
    out = filled("log", "new").out
    assert "\x1b" not in out
    assert "\x07" not in out
