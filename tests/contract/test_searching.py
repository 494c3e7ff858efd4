"""What a search finds, and that no question is too odd to be asked."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import numpy as np
import pytest

from rlm_memory import Hit, Memory, Node
from rlm_memory.records import TIERS

NOTES = {
    "agents": "A multi-agent system plans, an a-b test compares, a'b is a typo.",
    "safe": "Rust is memory:safe, and so they say",
    "python": "(python 3.12.1) came after AND before the others",
    "spec": "3GPP TS 38.101 tells the bands, -38.101 does not",
    "song": "Play 01. Intro.mp3 before 02. Outro.mp3",
    "flags": 'tox -- -W error, or "--error-on-warnings"',
    "gpu": "the gpu had two issues",
    "find": "do not use find /",
    "script": "重跑gen-itgc后50条，设备清单测试",
    "kana": "サンドボックス修正テスト",
    "korean": "설정을 바꿨다",
    "thai": "ที่นี่กินข้าว",
    "error": "It ended with ERR_4711.",
}


@pytest.fixture
def notes(memory: Memory) -> Memory:
    memory.add(list(NOTES.values()), ids=list(NOTES))
    return memory


def with_word(hits: list[Hit]) -> list[str]:
    """Return the ids of those that have a word of the question."""
    return [hit.id for hit in hits if hit.keyword]


# -- any text is a question -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("question", "found"),
    [
        pytest.param("multi-agent", ["agents"], id="B001-hyphen"),
        pytest.param("a-b", ["agents"], id="B001-short"),
        pytest.param("a'b", ["agents"], id="B001-apostrophe"),
        pytest.param("memory:safe", ["safe"], id="B003-colon"),
        pytest.param('say "hi', ["safe"], id="B003-quote"),
        pytest.param("(python", ["python"], id="B003-bracket"),
        pytest.param("38.101", ["spec"], id="B029-number"),
        pytest.param("python 3.12.1", ["python"], id="B029-version"),
        pytest.param("-38.101", ["spec"], id="B029-minus"),
        pytest.param("01. Intro.mp3", ["song"], id="B033"),
        pytest.param('"--error-on-warnings"', ["flags"], id="B036"),
        pytest.param("gpu issues", ["gpu"], id="B014"),
        pytest.param("设备", ["script"], id="B047-two"),
        pytest.param("设备清单", ["script"], id="B047-four"),
        pytest.param("试", ["script"], id="B047-one"),
        pytest.param("itgc", ["script"], id="B072"),
        pytest.param("サンドボックス", ["kana"], id="B086-kana"),
        pytest.param("설정", ["korean"], id="B086-hangul"),
        pytest.param("กิน", ["thai"], id="Thai"),
        pytest.param("ข", ["thai"], id="one Thai letter"),
        pytest.param("바", ["korean"], id="one Korean syllable"),
        pytest.param("err_4711", ["error"], id="B050"),
    ],
)
def test_text_is_found_by_its_words_whatever_stands_between_them(
    notes: Memory, question: str, found: list[str]
) -> None:
    assert with_word(notes.search(question, k=1, alpha=0)) == found
    assert {*found} <= {hit.id for hit in notes.search(question, k=2)}


@pytest.mark.parametrize(
    ("upper", "lower"),
    [
        ("DO NOT USE FIND /", "do not use find /"),
        ("AND", "and"),
        ("gpu AND two", "gpu and two"),
        ("gpu NOT issues", "gpu not issues"),
        ("NEAR(gpu two)", "near(gpu two)"),
        ("gpu OR spec", "gpu or spec"),
    ],
)
def test_words_of_a_query_language_are_words(notes: Memory, upper: str, lower: str) -> None:
    """B003 B009"""
    assert [(hit.id, hit.score) for hit in notes.search(upper)] == [(hit.id, hit.score) for hit in notes.search(lower)]


QUESTIONS = [
    "", " ", "\0", "hello\0world", '"', '""', "'", "*", "gpu*", "^gpu", "gpu ^ two", "{gpu two}: x", "text : gpu",
    "rowid:1", "-", "--", "(", ")", "((()))", "+ gpu +", "AND", "NOT", "OR OR", "NEAR", "NEAR(", "%", "\\",
    "x' OR 1=1 --", '"; DROP TABLE nodes; --', "\ud800", "half \udfff a pair", "👩\u200d👩\u200d👧", "\u202egpu",
    "e\u0301", "\ufffe\uffff", "？！。", "a" * 10**6, "word " * 20_000, " ".join(map(str, range(3_000))), "设" * 5_000,
]  # fmt: skip


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda text: ascii(text[:12]))
def test_no_question_is_refused(notes: Memory, question: str) -> None:
    """B003 B036 B127"""
    for alpha in (0, 0.5, 1):
        assert {hit.id for hit in notes.search(question, alpha=alpha, k=20)} == NOTES.keys()
    assert notes.count() == len(NOTES)


def test_a_question_whose_words_are_in_no_text_is_searched_by_its_vector(notes: Memory) -> None:
    """B003 B019"""
    hits = notes.search("(nonesuch")
    assert with_word(hits) == []
    assert all(hit.semantic is not None for hit in hits)
    assert hits[0].score == 0.5  # its share of the score, and no word adds to it


@pytest.mark.parametrize("session_id", ["00000000-0000-0000-0000-000000000001", "gpu OR spec", '"', "x' OR 1=1"])
def test_a_session_is_no_part_of_the_question(notes: Memory, session_id: str) -> None:
    """B137"""
    hits = notes.search("gpu", k=1, session=session_id)
    assert [hit.id for hit in hits] == ["gpu"]
    assert [access.session_id for access in notes.accesses("gpu")] == [session_id]


# -- how many -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("alpha", [0, 0.5, 1])
def test_k_nodes_come_back_if_there_are_so_many(notes: Memory, alpha: float) -> None:
    for k in (0, 1, 5, 12, 13, 14, 10**9, 2**70):
        assert len(notes.search("gpu issues", k=k, alpha=alpha)) == min(k, len(NOTES))


def test_legs_that_find_different_nodes_fill_k_together(memory: Memory) -> None:
    """B146"""
    words = [f"{'needle ' * n}in text {n}" for n in range(1, 11)]
    memory.add(words, ids=[f"word-{n}" for n in range(10)], compute_embedding=False)
    memory.add([f"other {n}" for n in range(10)], ids=[f"vector-{n}" for n in range(10)])
    for k in range(21):
        hits = memory.search("needle", embedding=np.ones(64), k=k)
        assert len(hits) == len({hit.id for hit in hits}) == k
    assert {hit.id.partition("-")[0] for hit in memory.search("needle", embedding=np.ones(64), k=5)} == {
        "word",
        "vector",
    }


@pytest.mark.parametrize("question", ["gpu", "", None])
@pytest.mark.parametrize("alpha", [None, 0, 1])
def test_an_empty_store_has_nothing_to_find(memory: Memory, question: str | None, alpha: float | None) -> None:
    """B019"""
    options: dict[str, Any] = {"alpha": alpha} if question is not None else {"embedding": np.ones(64)}
    assert memory.search(question, **options) == []
    memory.add("gpu", ids=["n"])
    assert [hit.id for hit in memory.search(question, **options)] == ["n"]
    memory.delete(["n"])
    assert memory.search(question, **options) == []


def test_a_filter_that_lets_nothing_through_finds_nothing(notes: Memory) -> None:
    """B019"""
    assert notes.search("gpu", where={"no": "such"}) == []
    assert notes.search("gpu", tiers=[]) == notes.search("gpu", types=[]) == []


@pytest.mark.parametrize("dimensions", [8, 200])
def test_more_than_4096_are_found_in_one_search(open_memory: Any, dimensions: int) -> None:
    """A vec0 table gives no more than 4,096 rows to one query."""
    memory = open_memory(embedder=None)
    count = 4_200
    rows = np.random.default_rng(5).standard_normal((count, dimensions)).astype(np.float32)
    memory.add([f"text {i}" for i in range(count)], ids=[str(i) for i in range(count)], embeddings=rows)
    cosines = (rows / np.linalg.norm(rows, axis=1, keepdims=True)) @ (rows[7] / np.linalg.norm(rows[7]))
    for k in (4_096, 4_097, count, 5_000):
        hits = memory.search(embedding=rows[7], k=k)
        assert len(hits) == min(k, count)
        assert [hit.semantic for hit in hits] == pytest.approx(np.sort(cosines)[::-1][:k], abs=1e-5)
    assert len(memory.search("text", k=4_200, alpha=0, where={"node.id": {"$ne": "7"}})) == count - 1


# -- what is weighed ------------------------------------------------------------------------------------------------


def test_tiers_share_one_scale_and_one_order(memory: Memory) -> None:
    """B160"""
    texts = ["needle", "needle hay", "needle hay hay hay", "hay hay hay hay hay hay"]
    nodes = [Node(text=text, id=f"{tier} {n}", tier=tier) for n, text in enumerate(texts) for tier in reversed(TIERS)]
    memory.add(nodes)
    hits = memory.search("needle", k=12)
    assert [hit.id.split()[1] for hit in hits] == ["0"] * 3 + ["1"] * 3 + ["2"] * 3 + ["3"] * 3
    assert {hit.node.tier for hit in hits} == {"task", "session", "longterm"}
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
    assert len({hit.score for hit in hits if hit.id.endswith("0")}) == 1
    for tier in TIERS:
        alone = memory.search("needle", k=4, tiers=[tier])
        assert [hit.id for hit in alone] == [f"{tier} {n}" for n in range(4)]
    assert len(memory.search("needle", k=20, include_archived=True)) == 16


def test_alpha_is_that_of_the_store_unless_a_call_has_its_own(open_memory: Any) -> None:
    memory = open_memory(alpha=0)
    memory.add(["a word", "another one"], ids=["word", "vector"])
    vector = memory.search("another one", k=1, alpha=1)[0]
    assert vector.id == "vector"
    by_words = memory.search("word", embedding=memory.embedder.embed_query("another one"), k=1)[0]
    assert (by_words.id, by_words.semantic) == ("word", None)
    by_vector = memory.search("word", embedding=memory.embedder.embed_query("another one"), k=1, alpha=1)[0]
    assert (by_vector.id, by_vector.keyword) == ("vector", None)


def test_equals_are_ordered_by_age_the_newest_first(memory: Memory, clock: Any) -> None:
    for id in ("b", "a", "d", "c"):
        memory.add("the same text", ids=[id])
        clock.now += timedelta(seconds=1)
    assert [hit.id for hit in memory.search("the same text")] == ["c", "d", "a", "b"]
    assert [hit.id for hit in memory.search("the same text", alpha=0, k=2)] == ["c", "d"]


@pytest.mark.parametrize("others", ["nobody else", "other tenants"])
def test_of_many_equals_the_newest_are_found(open_memory: Any, clock: Any, others: str) -> None:
    memory = open_memory()
    if others == "other tenants" and memory.location != ":memory:":  # there, each handle is a store of its own
        open_memory(namespace="other").add(["the same text of others"] * 20)
    for i in range(300):
        memory.add("the same text", ids=[str(i)])
        clock.now += timedelta(seconds=1)
    memory.update("299", metadata={"changed": True})
    for alpha in (0, 0.5, 1):
        assert [hit.id for hit in memory.search("the same text", k=3, alpha=alpha)] == ["299", "298", "297"]
        before = {"node.created_at": {"$lt": clock.now - timedelta(seconds=20)}}
        assert [hit.id for hit in memory.search("text", k=2, alpha=alpha, where=before)] == ["279", "278"]


def test_stop_words_are_those_of_the_language(open_memory: Any) -> None:
    german = open_memory(stop_words="de", embedder=None)
    german.add(["wer wo der die das", "Fluss"], ids=["stop", "river"])
    assert with_word(german.search("wo ist der Fluss", k=2)) == ["river"]
    assert with_word(german.search("wer wo", k=2)) == ["stop"]  # nothing else would be left


@pytest.mark.parametrize(
    ("tokenizer", "found"), [(None, True), ("porter unicode61", True), ("unicode61", False), ("trigram", True)]
)
def test_tokenizer_is_a_choice(open_memory: Any, tokenizer: str | None, found: bool) -> None:
    memory = open_memory(embedder=None, tokenizer=tokenizer)
    memory.add(["She was running and bought 设备清单", "other"], ids=["a", "b"])
    assert bool(with_word(memory.search("run", k=2))) is found
    assert with_word(memory.search("running", k=2)) == ["a"]
    if tokenizer != "trigram":  # which sees nothing shorter than three
        assert with_word(memory.search("设备", k=2)) == ["a"]
