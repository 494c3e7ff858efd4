"""Splitting a text into passages."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlm_memory.cli.passages import split_text
from rlm_memory.errors import InvalidInputError

TEXTS = st.text(alphabet=st.sampled_from("ab.!?\n  \t。」é"), max_size=300)


def texts_of(text: str, **how: int) -> list[str]:
    return [passage.text for passage in split_text(text, **how)]


@pytest.mark.parametrize("blank", ["", " ", "\n\n \t\n"])
def test_blank_text_has_no_passages(blank: str) -> None:
    assert split_text(blank) == []


def test_short_text_is_one_passage() -> None:
    assert texts_of("  One paragraph.\n\nAnother one.\n") == ["One paragraph.\n\nAnother one."]


def test_passages_end_with_paragraphs_where_they_can() -> None:
    assert texts_of("First one.\n\nSecond one.\n\nThird one.", size=24) == ["First one.\n\nSecond one.", "Third one."]


def test_long_paragraph_is_divided_after_sentences() -> None:
    text = 'He said "no." She left (at once!) and never came back. Why?'
    assert texts_of(text, size=40) == ['He said "no." She left (at once!)', "and never came back. Why?"]


def test_long_sentence_is_divided_after_lines_then_words() -> None:
    assert texts_of("one two\nthree four", size=10) == ["one two", "three four"]
    assert texts_of("one two three four", size=9) == ["one two", "three", "four"]


def test_only_a_word_that_is_too_long_is_cut() -> None:
    assert texts_of("ab " + "x" * 7, size=3) == ["ab", "xxx", "xxx", "x"]


def test_sentences_of_scripts_without_spaces_are_found() -> None:
    assert texts_of("今日は晴れ。「そうですか。」明日は雨！", size=8) == [
        "今日は晴れ。",
        "「そうですか。」",
        "明日は雨！",
    ]


def test_overlap_repeats_whole_sentences() -> None:
    text = "One is here. Two is here. Three is here. Four is here."
    assert texts_of(text, size=30, overlap=15) == [
        "One is here. Two is here.",
        "Two is here. Three is here.",
        "Three is here. Four is here.",
    ]


def test_start_tells_where_a_passage_was() -> None:
    text = "\n\n  First.\n\n   Second."
    assert [(passage.start, passage.text) for passage in split_text(text, size=8)] == [(4, "First."), (15, "Second.")]


@pytest.mark.parametrize("how", [{"size": 0}, {"overlap": -1}, {"size": 10, "overlap": 10}])
def test_impossible_sizes_are_refused(how: dict[str, int]) -> None:
    with pytest.raises(InvalidInputError, match="size"):
        split_text("text", **how)


@given(TEXTS, st.integers(1, 40))
def test_without_overlap_every_letter_is_in_exactly_one_passage(text: str, size: int) -> None:
    passages = split_text(text, size=size)
    assert "".join("".join(passage.text.split()) for passage in passages) == "".join(text.split())


@given(TEXTS, st.integers(1, 40), st.data())
def test_passages_are_pieces_of_the_text_that_fit_and_go_forward(text: str, size: int, data: st.DataObject) -> None:
    passages = split_text(text, size=size, overlap=data.draw(st.integers(0, size - 1)))
    for passage in passages:
        assert text[passage.start :].startswith(passage.text)
        assert 0 < len(passage.text) <= size
        assert passage.text == passage.text.strip()
    starts = [passage.start for passage in passages]
    ends = [passage.start + len(passage.text) for passage in passages]
    assert starts == sorted(set(starts))
    assert ends == sorted(set(ends))


@given(TEXTS, st.integers(1, 40), st.data())
def test_no_letter_is_lost_by_overlap_and_no_more_repeated_than_asked(
    text: str, size: int, data: st.DataObject
) -> None:
    overlap = data.draw(st.integers(0, size - 1))
    covered = 0
    for passage in split_text(text, size=size, overlap=overlap):
        assert not text[covered : passage.start].strip()
        assert covered - passage.start <= overlap
        covered = passage.start + len(passage.text)
    assert not text[covered:].strip()
