"""The command rlm-memory: what it stores, what it prints, and the codes it ends with."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("typer", reason="the command line needs the extra cli")
pytest.importorskip("rich", reason="the command line needs the extra cli")

from command_line import Cli, Result, process
from rlm_memory import Memory
from rlm_memory.cli import run

PARAGRAPHS = "The heron stands in the river.\n\nA fox crosses the frozen lake.\n\nBees sleep in winter."

COMMANDS = ["demo", "add", "search", "list", "show", "stats", "check", "upgrade", "backup", "export", "import", "copy"]
COMMANDS += ["reembed", "compact", "delete"]
COMMANDS += ["log", "explain", "promote", "pin", "unpin", "restore", "sweep", "sessions", "checkpoints"]


@pytest.fixture
def cli(store_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Cli:
    """Run a command on the test's store, without an embedder unless the arguments name one."""
    monkeypatch.setenv("RLM_MEMORY_DB", str(store_path))

    def call(*arguments: str, stdin: str = "") -> Result:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin.encode())))
        code = run(arguments if "--embedder" in arguments else ["--embedder", "none", *arguments])
        out, err = capfd.readouterr()
        return Result(code, out, err)

    return call


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    path = tmp_path / "notes.md"
    path.write_text(PARAGRAPHS)
    return path


# storing files


def test_added_file_is_found_by_its_words(cli: Cli, notes: Path) -> None:
    assert cli("add", str(notes), "--size", "40").out == f"{notes}: 3 passages, 3 stored, 0 unchanged, 0 removed\n"
    [hit] = cli("search", "frozen lakes", "-k", "1", "--json").documents
    assert hit["node"]["text"] == "A fox crosses the frozen lake."
    assert hit["node"]["metadata"] == {"source": str(notes), "position": 2, "start": 32}
    assert hit["keyword"] > 0
    assert hit["relevance"] == 1
    assert hit["semantic"] is None


def test_adding_a_file_again_changes_nothing(cli: Cli, notes: Path) -> None:
    cli("add", str(notes), "--size", "40")
    before = cli("list", "--json").documents
    [report] = cli("add", str(notes), "--size", "40", "--json").documents
    assert report == {"source": str(notes), "passages": 3, "added": 0, "unchanged": 3, "removed": 0}
    assert cli("list", "--json").documents == before


def test_adding_an_edited_file_replaces_what_changed_and_removes_what_is_gone(cli: Cli, notes: Path) -> None:
    cli("add", str(notes), "--size", "40")
    notes.write_text("The heron stands in the river.\n\nA wolf howls.")
    [report] = cli("add", str(notes), "--size", "30", "--json").documents
    assert report == {"source": str(notes), "passages": 2, "added": 1, "unchanged": 1, "removed": 1}
    assert [node["text"] for node in cli("list", "--json").documents] == [
        "The heron stands in the river.",
        "A wolf howls.",
    ]


def test_kept_passage_keeps_its_tier(cli: Cli, notes: Path) -> None:
    cli("add", str(notes), "--tier", "longterm")
    cli("add", str(notes))
    assert [node["tier"] for node in cli("list", "--json").documents] == ["longterm"]


def test_files_of_the_same_name_are_kept_apart(cli: Cli, notes: Path, tmp_path: Path) -> None:
    other = tmp_path / "deeper" / notes.name
    other.parent.mkdir()
    other.write_text("Another note.")
    cli("add", str(notes), str(other))
    assert {node["text"] for node in cli("list", "--json").documents} == {PARAGRAPHS, "Another note."}


def test_file_is_the_same_from_every_working_directory(cli: Cli, notes: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cli("add", str(notes))
    monkeypatch.chdir(notes.parent)
    [report] = cli("add", notes.name, "--json").documents
    assert report["unchanged"] == 1


def test_texts_from_standard_input_do_not_replace_each_other(cli: Cli) -> None:
    for text in ("First text.", "Second text.", "First text."):
        cli("add", "-", stdin=text)
    assert {node["text"] for node in cli("list", "--json").documents} == {"First text.", "Second text."}


def test_named_text_from_standard_input_replaces_itself(cli: Cli) -> None:
    for text in ("First draft.", "Second draft."):
        cli("add", "-", "--name", "draft", stdin=text)
    [node] = cli("list", "--json").documents
    assert (node["text"], node["metadata"]["source"]) == ("Second draft.", "draft")


def test_options_of_add_reach_the_nodes(cli: Cli, notes: Path) -> None:
    cli("add", str(notes), "--type", "fact", "--tier", "session", "--confidence", "0.9")
    [node] = cli("list", "--json").documents
    assert (node["type"], node["tier"], node["confidence"]) == ("fact", "session", 0.9)


def test_overlap_repeats_sentences(cli: Cli) -> None:
    cli("add", "-", "--size", "30", "--overlap", "15", stdin="One is here. Two is here. Three is here.")
    assert sorted(node["text"] for node in cli("list", "--json").documents) == [
        "One is here. Two is here.",
        "Two is here. Three is here.",
    ]


def test_byte_order_mark_and_windows_line_ends_are_no_text(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "windows.txt"
    path.write_bytes(b"\xef\xbb\xbfOne.\r\nTwo.")
    cli("add", str(path))
    assert [node["text"] for node in cli("list", "--json").documents] == ["One.\nTwo."]


def test_file_without_text_is_no_error(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "empty.txt"
    path.write_text(" \n")
    assert cli("add", str(path)).out == f"{path}: 0 passages, 0 stored, 0 unchanged, 0 removed\n"


@pytest.mark.parametrize("name", ["missing.txt", "latin.txt", ""])
def test_unreadable_file_stops_add_before_anything_is_stored(cli: Cli, notes: Path, name: str) -> None:
    path = notes.parent / name
    if name == "latin.txt":
        path.write_bytes("Käse".encode("latin-1"))
    result = cli("add", str(notes), str(path))
    assert result.code == 2
    assert str(path) in result.err
    assert cli("list", "--json").documents == []


# finding and showing


@pytest.fixture
def filled(cli: Cli) -> Cli:
    for name, type, tier in [("heron", "fact", "task"), ("fox", "snippet", "longterm"), ("bees", "fact", "archive")]:
        cli("add", "-", "--name", name, "--type", type, "--tier", tier, stdin=f"The {name} of winter.")
    return cli


def names(result: Result) -> list[str]:
    assert result.code == 0, result.err
    return sorted((document.get("node") or document)["metadata"]["source"] for document in result.documents)


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        ([], ["fox", "heron"]),
        (["--archived"], ["bees", "fox", "heron"]),
        (["--tier", "longterm"], ["fox"]),
        (["--tier", "longterm", "--tier", "task"], ["fox", "heron"]),
        (["--type", "fact"], ["heron"]),
        (["--where", '{"source": {"$in": ["fox", "bees"]}}'], ["fox"]),
        (["--where", '{"source": "nobody"}'], []),
        (["-k", "0"], []),
        (["--alpha", "0"], ["fox", "heron"]),
    ],
)
def test_search_takes_filters(filled: Cli, arguments: list[str], found: list[str]) -> None:
    assert names(filled("search", "winter", "--json", *arguments)) == found


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        ([], ["fox", "heron"]),
        (["--archived"], ["bees", "fox", "heron"]),
        (["--tier", "archive"], ["bees"]),
        (["--archived", "--where", '{"source": {"$ne": "fox"}}'], ["bees", "heron"]),
    ],
)
def test_list_takes_filters(filled: Cli, arguments: list[str], found: list[str]) -> None:
    assert names(filled("list", "--json", *arguments)) == found


def test_list_goes_on_where_the_last_page_ended(filled: Cli) -> None:
    first = filled("list", "--archived", "--limit", "2", "--json")
    last = first.documents[-1]["id"]
    assert first.err == f"There are more: go on with --after {last}\n"
    second = filled("list", "--archived", "--limit", "2", "--after", last, "--json")
    assert second.err == ""
    assert sorted(names(first) + names(second)) == ["bees", "fox", "heron"]


def test_namespaces_do_not_see_each_other(filled: Cli) -> None:
    assert names(filled("list", "--namespace", "other", "--json")) == []
    assert names(filled("search", "winter", "--namespace", "other", "--json")) == []


def test_show_prints_the_whole_text(cli: Cli, notes: Path) -> None:
    cli("add", str(notes))
    [node] = cli("list", "--json").documents
    shown = cli("show", node["id"])
    assert PARAGRAPHS in shown.out
    assert f"id\t{node['id']}\n" in shown.out
    assert cli("show", node["id"], "--json").documents == [node]


def test_text_cannot_give_orders_to_the_terminal(cli: Cli) -> None:
    cli("add", "-", stdin="calm \x1b[2J\x07 text [red]markup[/red]")
    [node] = cli("list", "--json").documents
    assert node["text"] == "calm \x1b[2J\x07 text [red]markup[/red]"
    for command in (["list"], ["search", "calm"], ["show", node["id"]]):
        out = cli(*command).out
        assert "\x1b" not in out
        assert "\x07" not in out
        assert "[red]markup[/red]" in out


# the store as a whole


def test_stats_counts_nodes_and_bytes(filled: Cli, store_path: Path) -> None:
    [stats] = filled("stats", "--json").documents
    assert stats["nodes"] == 3
    assert {tier: count for tier, count in stats["by_tier"].items() if count} == {
        "task": 1,
        "longterm": 1,
        "archive": 1,
    }
    assert stats["location"] == str(store_path)
    assert stats["file_bytes"] > 0
    assert "nodes\t3\n" in filled("stats").out


def test_stats_tells_when_much_of_the_file_is_free(cli: Cli, store_path: Path) -> None:
    with Memory.open(store_path, embedder=None) as memory:
        memory.add(["long " * 1000] * 500)
        assert "compact" not in cli("stats").out
        memory.clear()
    assert "rlm-memory compact gives it back" in cli("stats").out
    cli("compact")
    assert "compact" not in cli("stats").out


def test_check_of_a_sound_store_ends_with_0(filled: Cli) -> None:
    assert filled("check").out == "The store is sound.\n"
    assert filled("check", "--json").documents == [{"ok": True, "problems": []}]


def test_check_of_a_faulty_store_ends_with_1(filled: Cli, store_path: Path) -> None:
    apsw = pytest.importorskip("apsw")
    connection = apsw.Connection(str(store_path))
    connection.execute("INSERT INTO nodes_fts(nodes_fts) VALUES ('delete-all')")
    connection.close()
    result = filled("check", "--json")
    assert result.code == 1
    [report] = result.documents
    assert report["ok"] is False
    assert report["problems"]
    assert filled("check").code == 1


def test_backup_is_a_whole_store(filled: Cli, tmp_path: Path) -> None:
    copy = tmp_path / "copy.db"
    [report] = filled("backup", str(copy), "--json").documents
    assert report == {"path": str(copy), "bytes": copy.stat().st_size}
    assert names(filled("list", "--archived", "--db", str(copy), "--json")) == ["bees", "fox", "heron"]


@pytest.mark.parametrize("through_pipe", [False, True])
def test_export_comes_back_by_import(filled: Cli, tmp_path: Path, through_pipe: bool) -> None:
    before = filled("list", "--archived", "--json").documents
    path = tmp_path / "nodes.jsonl"
    other = str(tmp_path / "other.db")
    if through_pipe:
        lines = filled("export", "-").out
        assert len([line for line in lines.splitlines() if "text" in json.loads(line)]) == 3
        result = filled("import", "-", "--db", other, stdin=lines)
    else:
        assert filled("export", str(path)).out == f"3 nodes written to {path}.\n"
        result = filled("import", str(path), "--db", other)
    assert result.out == "3 nodes stored.\n"
    after = filled("list", "--archived", "--db", other, "--json").documents
    for field in ("id", "text", "metadata", "tier", "type", "created_at"):
        assert [node[field] for node in after] == [node[field] for node in before]


def test_compact_tells_the_size_before_and_after(filled: Cli, store_path: Path) -> None:
    [report] = filled("compact", "--json").documents
    assert 0 < report["bytes_after"] <= report["bytes_before"]


# deleting


def ids(cli: Cli) -> dict[str, str]:
    return {node["metadata"]["source"]: node["id"] for node in cli("list", "--archived", "--json").documents}


def test_delete_takes_ids(filled: Cli) -> None:
    assert filled("delete", "--yes", ids(filled)["fox"], "unknown").out == "1 node deleted.\n"
    assert names(filled("list", "--archived", "--json")) == ["bees", "heron"]


def test_delete_takes_a_filter(filled: Cli) -> None:
    result = filled("delete", "--yes", "--where", '{"source": {"$ne": "fox"}}', "--json")
    assert result.documents == [{"deleted": 2}]
    assert names(filled("list", "--archived", "--json")) == ["fox"]


def test_nothing_to_delete_is_no_error(filled: Cli) -> None:
    result = filled("delete", "unknown")
    assert (result.code, result.out) == (0, "0 nodes deleted.\n")


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--yes"],
        ["--yes", "--where", "{}"],
        ["--where", '{"source": "fox"}'],
        ["a", "--yes", "--where", '{"a": 1}'],
    ],
)
def test_delete_takes_nothing_away_by_accident(filled: Cli, arguments: list[str]) -> None:
    assert filled("delete", *arguments).code == 2
    assert names(filled("list", "--archived", "--json")) == ["bees", "fox", "heron"]


@pytest.mark.parametrize(("answer", "left"), [("n", ["bees", "fox", "heron"]), ("y", ["bees", "heron"])])
def test_delete_asks_on_a_terminal(filled: Cli, answer: str, left: list[str]) -> None:
    pty = pytest.importorskip("pty", reason="there are no pseudo-terminals here")
    terminal, end = pty.openpty()
    os.write(terminal, f"{answer}\n".encode())
    result = process("delete", ids(filled)["fox"], stdin=end)
    os.close(terminal)
    os.close(end)
    assert "Delete 1 node?" in result.stderr
    assert result.stdout == f"{3 - len(left)} node{'s' * (len(left) == 3)} deleted.\n"
    assert names(filled("list", "--archived", "--json")) == left


# the embedder


def test_store_is_searched_with_the_embedder_it_was_filled_with(cli: Cli, notes: Path) -> None:
    pytest.importorskip("wordllama", reason="needs the extra offline")
    cli("add", str(notes), "--size", "40", "--embedder", "wordllama")
    result = process("search", "a bird near water", "--alpha", "1", "-k", "1", "--json")
    assert result.returncode == 0, result.stderr
    hit = json.loads(result.stdout)
    assert hit["node"]["text"] == "The heron stands in the river."
    assert hit["semantic"] > 0


@pytest.mark.parametrize("command", ["reembed --to wordllama", "reembed --pending --embedder wordllama"])
def test_a_bar_on_a_terminal_shows_what_is_embedded(cli: Cli, command: str) -> None:
    pytest.importorskip("wordllama", reason="needs the extra offline")
    pending = "--pending" in command
    cli("add", "-", "--size", "20", *([] if pending else ["--embedder", "wordllama"]), stdin="Words to embed now. " * 9)
    shown = process(*command.split(), FORCE_COLOR="1")
    assert shown.stdout == "9 nodes embedded.\n"
    assert re.search(r"Embedding.*9/9", shown.stderr)


def test_reembed_pending_fills_in_missing_vectors_alone(cli: Cli, notes: Path) -> None:
    pytest.importorskip("wordllama", reason="needs the extra offline")
    cli("add", str(notes), "--size", "40")
    assert cli("stats", "--json").documents[0]["pending"] == 3
    assert cli("reembed", "--pending", "--embedder", "wordllama", "--json").documents == [{"embedded": 3}]
    assert cli("reembed", "--pending", "--embedder", "wordllama", "--json").documents == [{"embedded": 0}]
    assert cli("stats", "--json").documents[0]["with_vector"] == 3


# the command line itself


@pytest.mark.parametrize(
    ("arguments", "code", "part"),
    [
        (["frobnicate"], 2, "frobnicate"),
        (["search"], 2, "Missing argument"),
        (["list", "--frob"], 2, "--frob"),
        (["search", "x", "-k", "-1"], 2, "-k"),
        (["search", "x", "--alpha", "2"], 2, "--alpha"),
        (["search", "x", "--tier", "attic"], 2, "attic"),
        (["search", "x", "--where", "{"], 2, "not JSON"),
        (["search", "x", "--where", "[1]"], 2, "JSON object"),
        (["search", "x", "--where", '{"a": {"$frob": 1}}'], 2, "$frob"),
        (["add", "-", "--type", "poem"], 2, "poem"),
        (["add", "-", "--confidence", "7"], 2, "--confidence"),
        (["add", "-", "--size", "10", "--overlap", "10"], 2, "overlap"),
        (["search", "x", "--embedder", "frob:x"], 2, "frob:x"),
        (["show", "unknown"], 2, "unknown"),
        (["import", "/nowhere/nodes.jsonl"], 2, "/nowhere/nodes.jsonl"),
        (["list", "--db", "/nowhere/memory.db"], 3, "/nowhere/memory.db"),
    ],
)
def test_error_is_one_line_with_its_exit_code(filled: Cli, arguments: list[str], code: int, part: str) -> None:
    result = filled(*arguments)
    assert result.code == code
    assert result.out == ""
    assert result.err.startswith("rlm-memory: ")
    assert result.err.count("\n") == 1
    assert part in result.err


def test_foreign_file_is_refused(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "letter.txt"
    path.write_text("This is a letter, and no database. " * 200)
    result = cli("list", "--db", str(path))
    assert (result.code, result.out) == (3, "")
    assert str(path) in result.err
    assert path.read_text().startswith("This is a letter")


@pytest.mark.parametrize("command", ["list", "stats", "check", "export -", "search x", "show x", "backup copy.db"])
def test_reading_a_store_that_is_not_there_creates_none(cli: Cli, store_path: Path, command: str) -> None:
    result = cli(*command.split())
    assert result.code == 3
    assert str(store_path) in result.err
    assert list(store_path.parent.iterdir()) == []


@pytest.mark.parametrize(
    "arguments",
    [
        ["--json", "--db", "{db}", "search", "winter"],
        ["search", "--json", "winter", "--db={db}"],
        ["search", "--db", "{db}", "--json", "--", "winter"],
    ],
)
def test_options_of_every_command_may_stand_anywhere(
    filled: Cli, store_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str]
) -> None:
    monkeypatch.delenv("RLM_MEMORY_DB")
    assert names(filled(*(argument.format(db=store_path) for argument in arguments))) == ["fox", "heron"]


def test_words_behind_two_dashes_are_no_options(cli: Cli) -> None:
    cli("add", "-", stdin="Pass --json to the command.")
    assert cli("search", "--", "--json").out.splitlines()[1].endswith("Pass --json to the command.")


@pytest.mark.parametrize(
    "command",
    [
        "add -",
        "search winter",
        "list",
        "stats",
        "check",
        "backup {tmp}/copy.db",
        "export {tmp}/nodes.jsonl",
        "export -",
        "import -",
        "compact",
        "delete nobody",
    ],
)
def test_json_is_all_that_json_prints(filled: Cli, tmp_path: Path, command: str) -> None:
    lines = filled("export", "-").out
    result = filled("--json", *command.format(tmp=tmp_path).split(), stdin=lines)
    assert result.code == 0, result.err
    assert result.err == ""
    assert result.documents


def test_tables_on_a_terminal_shorten_the_text_and_no_id(filled: Cli) -> None:
    filled("add", "-", "--name", "long", stdin="[bold]word[/bold] " * 50)
    result = process("list", "--archived", FORCE_COLOR="1", COLUMNS="72")
    assert result.returncode == 0, result.stderr
    assert "\x1b[1m" in result.stdout
    assert "[bold]word[/bold]" in result.stdout
    assert "…" in result.stdout
    assert all(id in result.stdout for id in ids(filled).values())


def test_output_that_is_no_utf8_escapes_json_and_replaces_letters(cli: Cli) -> None:
    cli("add", "-", stdin="naïve")
    [node] = process("list", "--json", PYTHONIOENCODING="ascii").stdout.splitlines()
    assert json.loads(node)["text"] == "naïve"
    assert "na?ve" in process("list", PYTHONIOENCODING="ascii", PYTHONUTF8="0").stdout


def test_reader_that_goes_away_ends_the_command_quietly(cli: Cli) -> None:
    cli("add", "-", "--size", "20", stdin="Many words to print. " * 800)
    with subprocess.Popen(
        [sys.executable, "-m", "rlm_memory.cli", "list", "--json", "--limit", "800"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as reading:
        assert reading.stdout is not None
        assert reading.stderr is not None
        reading.stdout.readline()
        reading.stdout.close()
        assert reading.stderr.read() == b""
        assert reading.wait(timeout=60) == 141


@pytest.mark.parametrize("arguments", [[], ["--help"]])
def test_help_names_every_command(cli: Cli, arguments: list[str]) -> None:
    result = cli(*arguments)
    assert result.code == 0
    missing = [command for command in COMMANDS if f" {command} " not in result.out]
    assert not missing


# the demonstration


def test_demo_finds_the_answers_in_the_language_reference(tmp_path: Path) -> None:
    pytest.importorskip("wordllama", reason="needs the extra offline")
    path = str(tmp_path / "demo.db")
    result = process("demo", "--db", path)
    assert (result.returncode, result.stderr) == (0, "")
    assert f'--db {path} search "what is garbage collected"\n' in result.stdout
    assert all(len(line) <= 80 for line in result.stdout.splitlines() if path not in line)
    assert "✓" in result.stdout
    with Memory.open(path, embedder=None) as memory:
        count = memory.count()
    assert f"{count} passages" in result.stdout

    again = process("demo", "--db", path, "--json")
    document = json.loads(again.stdout)
    assert document["nodes"] == count
    for question in document["questions"]:
        assert all(len(question[leg]) == 3 for leg in ("keywords alone", "vectors alone", "hybrid"))
    with Memory.open(path, embedder=None) as memory:
        assert memory.count() == count


# -- copies


def test_a_store_is_copied_and_told(filled: Cli, store_path: Path, tmp_path: Path) -> None:
    target = tmp_path / "copied.db"
    result = filled("copy", str(store_path), str(target))
    assert result.code == 0
    assert re.fullmatch(r"default: log \d, node 3: the same on both sides\.\n", result.out)
    again = filled("copy", str(store_path), str(target), "--json")
    [report] = again.documents
    assert report["counts"]["node"] == 3
    assert names(filled("list", "--archived", "--db", str(target), "--json")) == ["bees", "fox", "heron"]


def test_a_copy_into_another_store_tells_so_and_fails(filled: Cli, store_path: Path, tmp_path: Path) -> None:
    target = tmp_path / "copied.db"
    filled("copy", str(store_path), str(target))
    filled("delete", "--where", '{"source": "fox"}', "--yes", "--db", str(target))
    result = filled("copy", str(store_path), str(target))
    assert result.code == 2
    assert "has a finished copy in it that was written to since" in result.err
    assert "Traceback" not in result.err


def test_only_the_namespaces_that_are_named_are_copied(filled: Cli, store_path: Path, tmp_path: Path) -> None:
    filled("add", "-", "--namespace", "other", stdin="A text.")
    target = str(tmp_path / "copied.db")
    assert filled("copy", str(store_path), target, "--only", "other").out.startswith("other: node 1")
    assert filled("copy", str(store_path), target, "--only", "nobody").code == 2
    assert filled("list", "--db", target, "--json").documents == []


@pytest.mark.parametrize(
    "command",
    [
        "delete x --yes", """delete --where {"a":1} --yes""", "compact", "reembed --pending", "reembed --to wordllama",
        "copy {db} {db}.copy",
    ],
)  # fmt: skip
def test_a_mistyped_path_makes_no_store(cli: Cli, store_path: Path, command: str) -> None:
    result = cli(*command.replace("{db}", str(store_path)).split())
    assert result.code == 3
    assert str(store_path) in result.err
    assert list(store_path.parent.iterdir()) == []


def test_nodes_alone_are_taken_into_a_store_with_a_log_of_its_own(filled: Cli, tmp_path: Path) -> None:
    path, other = str(tmp_path / "nodes.jsonl"), str(tmp_path / "other.db")
    filled("export", path)
    filled("add", "-", "--tier", "longterm", "--db", other, stdin="Mine.")
    refused = filled("import", path, "--db", other)
    assert refused.code == 2
    assert "--nodes-only" in refused.err
    assert filled("import", path, "--nodes-only", "--db", other).out == "3 nodes stored.\n"
    assert filled("check", "--db", other).code == 0
