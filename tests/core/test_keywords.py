"""Scripts without spaces are found by their words, under the very tokenizer that the store uses by default."""

from __future__ import annotations

import unicodedata
from typing import Any

import apsw
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlm_memory.errors import InvalidInputError
from rlm_memory.keywords import keep_words, segment, segment_query, stop_words

HAN, KANA, HANGUL, THAI = "设备清单测试", "サンドボックス修正テスト", "설정을 바꿨다", "ที่นี่กินข้าว"
unspaced = [*"设备清单测试", *"サドッス修ー々", *"설정을", *"ทกนาแ", "\u0e48", "\u3099", "𠀀", "ｶ"]
letters = st.sampled_from([*unspaced, *"ab1 -.,é\0", "Ａ"])
texts = st.text(letters, max_size=30) | st.text(max_size=30)


def tokens(text: str) -> list[str]:
    tokenizer = apsw.Connection(":memory:").fts5_tokenizer("porter", ["unicode61"])
    return [token for _, _, token in tokenizer(text.encode(), apsw.FTS5_TOKENIZE_DOCUMENT, None)]


def indexed(text: str) -> list[str]:
    rewritten = segment(text)
    return tokens(text if rewritten is None else rewritten)


def asked(question: str) -> list[str]:
    return tokens(segment_query(question))


@pytest.mark.parametrize(
    ("text", "question"),
    [
        (HAN, "设备"),
        (HAN, "设备清单"),
        (HAN, "试"),
        (KANA, "サンドボックス"),
        (KANA, "修正"),
        (KANA, "ｻﾝﾄﾞﾎﾞｯｸｽ"),
        (HANGUL, "설정"),
        (HANGUL, unicodedata.normalize("NFD", "설정")),
        (THAI, "กิน"),
        (THAI, "ข้าว"),
        ("ພາສາລາວ", "ລາວ"),
        ("ភាសាខ្មែរ", "ខ្មែរ"),
        ("မြန်မာဘာသာ", "ဘာသာ"),
        ("古い𠮷野家です", "𠮷野家"),
        ("人々の時々", "時々"),
        ("データベース", "データ"),
        ("ガラス", "ｶﾞﾗｽ"),
        ("ガラス", unicodedata.normalize("NFD", "ガラス")),
        ("日本語の本", "\u2f47\u672c"),
        ("葛\U000e0100城市", "葛城"),
        ("ไทย\u200bกิน", "ไทยกิน"),
        ("重跑gen-itgc后50条", "itgc"),
        ("重跑gen-itgc后50条", "重跑"),
        ("重跑gen-itgc后50条", "50"),
        ("使用ＧＰＵ训练", "gpu"),
        ("The ＧＰＵ is hot", "GPU"),
        ("价格是100元", "100"),
    ],
)
def test_every_token_of_the_question_stands_in_the_text(text: str, question: str):
    """B047 B072 B086"""
    assert asked(question)
    assert set(asked(question)) <= set(indexed(text))


@pytest.mark.parametrize("question", ["db", "单设", "备份"])
def test_what_is_not_there_is_not_found(question: str):
    """B047"""
    assert not set(asked(question)) & set(indexed(HAN))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("设备清单", ["设", "备", "清", "单", "设备", "备清", "清单"]),
        ("条", ["条"]),
        ("重跑gen-itgc后50条", ["重", "跑", "重跑", "gen", "itgc", "后", "50", "条"]),
        ("サンド・ボックス", ["サ", "ン", "ド", "サン", "ンド", "ボ", "ッ", "ク", "ス", "ボッ", "ック", "クス"]),
        ("설정을 바꿨다", ["설", "정", "을", "설정", "정을", "바", "꿨", "다", "바꿨", "꿨다"]),
        ("กิน ๕๐", ["ก", "น", "กน", "๕๐"]),
        ("\u0e48", []),
    ],
)
def test_a_run_becomes_its_characters_and_its_pairs(text: str, expected: list[str]):
    assert indexed(text) == expected


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        ("设备清单 db", ["设备", "备清", "清单", "db"]),
        ("条", ["条"]),
        ("50条", ["50", "条"]),
        ("plain words", ["plain", "word"]),
    ],
)
def test_a_question_of_several_characters_asks_for_pairs_alone(question: str, expected: list[str]):
    assert asked(question) == expected


@pytest.mark.parametrize(
    "text", ["", "plain ASCII", "déjà vu, straße", "Привет мир", "שלום", "नमस्ते दुनिया", "😀", "\ud800", "a\0b"]
)
def test_other_text_is_left_alone(text: str):
    assert segment(text) is None
    assert segment_query(text) == text


@given(texts)
def test_a_text_is_found_by_each_of_its_words(text: str):
    """B047 B086"""
    text = text.encode("utf-8", "ignore").decode()
    words = set(indexed(text))
    for word in text.split():
        assert set(asked(word)) <= words


@given(st.text(st.sampled_from(unspaced), min_size=1, max_size=20), st.data())
def test_a_run_is_found_by_every_stretch_of_it(run: str, data: st.DataObject):
    """B047 B086"""
    start = data.draw(st.integers(0, len(run) - 1))
    stretch = run[start : data.draw(st.integers(start + 1, len(run)))]
    assert set(asked(stretch)) <= set(indexed(run))


@given(texts, texts)
def test_what_stands_beside_a_run_keeps_its_own_tokens(before: str, after: str):
    """B072"""
    before, after = (unicodedata.normalize("NFC", side).encode("ascii", "ignore").decode() for side in (before, after))
    assert [t for t in indexed(f"{before}清单{after}") if t.isascii()] == tokens(f"{before} {after}")


@given(st.text(max_size=30))
def test_any_text_is_cut_without_an_error(text: str):
    """B127"""
    assert isinstance(segment_query(text), str)
    assert segment(text) is None or isinstance(segment(text), str)


# --- stop words ---


def test_english_has_the_words_of_questions_and_of_contractions():
    english = stop_words("en")
    assert {"what", "when", "where", "did", "does", "how", "who", "which", "why", "the", "is", "not"} <= english
    assert {"s", "t", "don", "ll", "ve", "re", "d", "didn", "isn"} <= english
    assert len(english) >= 170
    assert english.isdisjoint({"may", "gpu", "memory", "agent", "one", "time"})


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("de", "der die das und wer wann wurde für fur über uber nicht"),
        ("fr", "le la les et qui où quand l d qu est été ete"),
        ("es", "el la los y quién quien dónde donde está esta"),
        ("it", "il la che chi è e perché perche dell l"),
        ("pt", "o a os e quem onde não nao está"),
        ("nl", "de het een en wie wanneer één een waarom"),
    ],
)
def test_other_languages_come_with_and_without_accents(code: str, words: str):
    assert set(words.split()) <= stop_words(code)


def test_own_words_are_taken_and_none_means_none():
    assert stop_words(["Foo", "Été"]) == {"foo", "été", "ete"}
    assert stop_words(None) == stop_words([]) == frozenset()


@pytest.mark.parametrize("wrong", ["xx", "EN", "", "english", 5, [1], [b"the"]])
def test_unknown_languages_and_other_things_are_refused(wrong: Any):
    with pytest.raises(InvalidInputError):
        stop_words(wrong)


def test_the_refusal_names_the_known_languages():
    with pytest.raises(InvalidInputError, match="de, en, es, fr, it, nl, pt"):
        stop_words("xx")


@pytest.mark.parametrize(
    ("words", "kept"),
    [
        (["what", "did", "Ada", "say"], ["Ada", "say"]),
        (["DO", "NOT", "USE", "FIND"], ["USE", "FIND"]),
        (["do", "not", "use", "find"], ["use", "find"]),
        (["to", "be", "or", "not", "to", "be"], ["to", "be", "or", "not", "to", "be"]),
        (["who"], ["who"]),
        ([], []),
    ],
)
def test_stop_words_are_dropped_but_never_all_of_them(words: list[str], kept: list[str]):
    """B009 B014"""
    assert keep_words(words, stop_words("en")) == kept


@given(st.lists(st.text(max_size=4) | st.sampled_from(["the", "Is", "gpu"])))
def test_dropping_stop_words_keeps_the_order_and_never_empties(words: list[str]):
    kept = keep_words(words, stop_words("en"))
    assert bool(kept) == bool(words)
    remaining = iter(words)
    assert all(word in remaining for word in kept)
    assert keep_words(kept, stop_words("en")) == kept
