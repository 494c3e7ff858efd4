"""The journal: what was acknowledged is there, half a line is not, a damaged line is told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings

from checkpoints.graphs import graphs
from checkpoints.same import difference
from rlm_memory.checkpoints import CheckpointWriteError, Journal
from rlm_memory.checkpoints.journal import from_document, to_document


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    journal = Journal(tmp_path / "journal.jsonl")
    for number in range(5):
        journal.append({"n": number, "text": "é\n"}, durable=True)
    return journal


def numbers(journal: Journal) -> list[int]:
    return [entry["n"] for entry in journal.entries()]


def test_every_truncation_keeps_the_lines_before_it(journal: Journal) -> None:
    content = journal.path.read_bytes()
    ends = [place + 1 for place, byte in enumerate(content) if byte == ord("\n")]
    for length in range(len(content)):
        journal.path.write_bytes(content[:length])
        assert numbers(journal) == list(range(sum(end <= length for end in ends)))
        assert journal.problems() == []
    journal.append({"n": 9}, durable=False)
    assert numbers(journal) == [0, 1, 2, 3, 9]


def test_every_flipped_bit_loses_its_own_line_and_is_told(journal: Journal) -> None:
    content = journal.path.read_bytes()
    for place in range(len(content) - 1):
        changed = bytearray(content)
        changed[place] ^= 0x01
        journal.path.write_bytes(changed)
        lost = content[:place].count(b"\n")
        expected = {lost, lost + 1} if content[place] == ord("\n") else {lost}  # two lines that became one
        assert set(range(5)) - set(numbers(journal)) == expected
        assert len(journal.problems()) >= 1


def test_entries_after_a_position_are_those_that_were_appended_since(journal: Journal) -> None:
    position = journal.position
    journal.append({"n": 9}, durable=False)
    assert journal.entries(after=position) == [{"n": 9}]


def test_a_disk_that_refuses_is_told(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr("os.fsync", refuse)
    with pytest.raises(CheckpointWriteError, match="Input/output"):
        journal.append({"n": 6}, durable=True)


@settings(max_examples=60)
@given(graphs())
def test_results_of_any_type_come_back(value: Any) -> None:
    assert difference(value, from_document(to_document(value))) is None


def test_plain_results_are_readable() -> None:
    assert to_document("the reply") == {"is": "the reply"}
