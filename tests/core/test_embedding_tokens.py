"""Tokens are counted without the network: exactly where tiktoken has its vocabulary at hand, else from above."""

from __future__ import annotations

import importlib.util
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlm_memory.embedding import OpenAIEmbedder, estimate_tokens, token_count
from rlm_memory.embedding.tokens import cut_to_tokens
from rlm_memory.errors import InvalidInputError

VOCABULARY = "9b5ad71b2ce5302211f9c61530b329a4922fc6a4"


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """tiktoken's cache, empty."""
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))
    return tmp_path


@pytest.fixture
def vocabulary(cache: Path) -> Path:
    """The vocabulary of OpenAI's embedding models, in tiktoken's cache."""
    pytest.importorskip("tiktoken", reason="the extra rlm-memory[tokens] is not installed")
    package = importlib.util.find_spec("llama_index.core") if importlib.util.find_spec("llama_index") else None
    if package is None or package.origin is None:
        pytest.skip("llama-index-core, which brings the vocabulary along, is not installed")
    file = Path(package.origin).parent / "_static" / "tiktoken_cache" / VOCABULARY
    if not file.exists():
        pytest.skip("this llama-index-core brings no vocabulary along")
    return Path(shutil.copy(file, cache))


# What the vocabulary cl100k_base makes of them.
TRUE_COUNTS = {
    "Memory is the residue of thought, and thought leaves little else behind.": 14,
    "def fuse(semantic, keyword, alpha):\n    return alpha * semantic + (1 - alpha) * keyword\n": 23,
    '{"id": 17, "score": 0.8125, "tags": ["a", "b"], "ok": true}': 29,
    "设备清单测试，昨天修好了沙盒里的错误。": 20,
    "昨日サンドボックスのテストを修正しました。": 19,
    "어제 샌드박스 테스트를 고쳤습니다.": 20,
    "เมื่อวานนี้เราแก้ไขการทดสอบ": 24,
    "Вчера мы исправили неустойчивый тест.": 17,
    "Hier haben wir den flatterhaften Test repariert.": 12,
    "2026-01-31 12:30:00,17.25,3.1415926": 22,
    "🎉🚀👩\u200d🚀": 14,
}


@pytest.mark.parametrize(("text", "truth"), TRUE_COUNTS.items(), ids=[text[:12] for text in TRUE_COUNTS])
def test_the_estimate_is_near_the_truth_and_seldom_below(text: str, truth: int) -> None:
    assert truth * 0.85 <= estimate_tokens(text) <= truth * 2.4


def test_the_true_counts_are_true(vocabulary: Path) -> None:
    count = token_count()
    assert {text: count(text) for text in TRUE_COUNTS} == TRUE_COUNTS


def test_each_chinese_character_counts_at_least_one() -> None:
    """B110"""
    assert estimate_tokens("钥" * 12_000) >= 12_000


@given(st.text(st.characters(codec="utf-8")))
def test_no_text_is_estimated_above_its_bytes(text: str) -> None:
    assert estimate_tokens(text) <= len(text.encode())


@given(st.text(), st.text())
def test_more_text_has_no_fewer_tokens(text: str, more: str) -> None:
    assert estimate_tokens(text) <= estimate_tokens(text + more)


@given(st.text(max_size=80), st.integers(1, 40))
def test_a_text_is_cut_at_the_last_place_that_fits(text: str, limit: int) -> None:
    cut = cut_to_tokens(text, limit, estimate_tokens)
    assert text.startswith(cut)
    assert estimate_tokens(cut) <= limit
    assert cut == text or len(cut) == 32 * limit or estimate_tokens(text[: len(cut) + 1]) > limit


def test_special_tokens_are_plain_text(vocabulary: Path) -> None:
    """B094"""
    assert token_count()("Hello<|endoftext|>world") > 5


def test_a_long_text_is_counted_in_pieces(vocabulary: Path) -> None:
    assert token_count()("word " * 100_000) == pytest.approx(100_000, abs=10)


def test_a_million_spaces_between_two_words_are_counted(vocabulary: Path) -> None:
    assert 1_000 < token_count()("a" + " " * 1_000_000 + "b") < 100_000


def test_an_exact_count_refuses_no_text_that_fits(vocabulary: Path) -> None:
    fits = "internationalization " * 4_000
    embedder = OpenAIEmbedder(max_input_tokens=8192)
    assert estimate_tokens(fits) > 8192 > token_count()(fits)
    with pytest.raises(InvalidInputError, match=r"Item 1 has \d+ tokens, .* reads 8192 at most\. Split"):
        embedder.embed([fits, fits * 3])


def no_file(cache: Path) -> None:
    pass


def a_damaged_file(cache: Path) -> None:
    (cache / VOCABULARY).write_bytes(b"IQ== 0\n")


def a_folder(cache: Path) -> None:
    (cache / VOCABULARY).mkdir()


@pytest.mark.parametrize("prepare", [no_file, a_damaged_file, a_folder])
def test_without_a_sound_vocabulary_nothing_is_downloaded(cache: Path, prepare: Callable[[Path], None]) -> None:
    prepare(cache)
    before = sorted(cache.iterdir())
    assert token_count() is estimate_tokens
    assert sorted(cache.iterdir()) == before


def test_without_a_cache_nothing_is_downloaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", "")  # how tiktoken is told to keep no cache
    assert token_count() is estimate_tokens


def test_the_cache_is_found_under_its_other_name(vocabulary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TIKTOKEN_CACHE_DIR")
    monkeypatch.setenv("DATA_GYM_CACHE_DIR", str(vocabulary.parent))
    assert token_count()("internationalization") == 2


def test_without_tiktoken_tokens_are_estimated(vocabulary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tiktoken", None)
    assert token_count() is estimate_tokens
