"""Models that run here: WordLlama, whose weights come with its package, and any model2vec model from a folder."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlm_memory.embedding
from rlm_memory.embedding import Model2VecEmbedder, WordLlamaEmbedder
from rlm_memory.errors import (
    EmbeddingRequestError,
    EmbeddingUnavailableError,
    InvalidInputError,
    MissingExtraError,
)
from rlm_memory.ports import Embedder

WORDS = ["[UNK]", "key", "door", "lock", "dog", "cat", "where", "is", "the"]


@pytest.fixture(scope="module")
def wordllama() -> WordLlamaEmbedder:
    pytest.importorskip("wordllama", reason="the extra rlm-memory[offline] is not installed")
    return WordLlamaEmbedder()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a model2vec model of eight words; its vectors are the axes, near for related words."""
    model2vec = pytest.importorskip("model2vec", reason="the extra rlm-memory[local] is not installed")
    tokenizers = pytest.importorskip("tokenizers")
    model = tokenizers.models.WordLevel({word: number for number, word in enumerate(WORDS)}, unk_token="[UNK]")
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    vectors = np.eye(len(WORDS), dtype=np.float32)
    path = tmp_path_factory.mktemp("model2vec")
    model2vec.StaticModel(vectors, tokenizer, normalize=True).save_pretrained(path)
    return path


@pytest.fixture
def model2vec(folder: Path) -> Model2VecEmbedder:
    return Model2VecEmbedder(folder)


def cosine(left: np.ndarray, right: np.ndarray) -> float:
    return float(left @ right / np.linalg.norm(left) / np.linalg.norm(right))


# -- both --------------------------------------------------------------------------------------------------------------


@pytest.fixture(params=["wordllama", "model2vec"])
def embedder(request: pytest.FixtureRequest) -> Embedder:
    embedder: Embedder = request.getfixturevalue(request.param)
    return embedder


def test_each_text_has_its_own_vector_in_order(embedder: Embedder) -> None:
    texts = ["where is the key", "the dog", "where is the key"]
    vectors = embedder.embed(texts)
    assert vectors.shape == (3, embedder.dimensions)
    assert vectors.dtype == np.float32
    assert vectors.flags.c_contiguous
    assert np.array_equal(vectors[0], vectors[2])
    assert all(np.allclose(vector, embedder.embed_query(text)) for vector, text in zip(vectors, texts, strict=True))


def test_no_texts_have_no_vectors(embedder: Embedder) -> None:
    assert embedder.embed([]).shape == (0, embedder.dimensions)


@pytest.mark.parametrize("blank", ["", " \n", "\u3000"])
def test_a_blank_text_is_refused_not_made_nan(embedder: Embedder, blank: str) -> None:
    """B028"""
    with pytest.raises(InvalidInputError, match="Item 1 is blank"):
        embedder.embed(["key", blank])


@pytest.mark.parametrize("thing", [None, 3, b"key"])
def test_what_is_no_text_is_refused(embedder: Embedder, thing: Any) -> None:
    """B110"""
    with pytest.raises(InvalidInputError, match="Item 0 is no text"):
        embedder.embed([thing])


def test_a_text_is_read_to_its_end(embedder: Embedder) -> None:
    short = embedder.embed_query("dog " * 20_000)
    longer = embedder.embed_query("dog " * 20_000 + "key " * 20_000)
    assert cosine(short, longer) < 0.95


def test_long_and_short_texts_go_together(embedder: Embedder) -> None:
    texts = ["key", "dog " * 40_000, "the cat"]
    together = embedder.embed(texts)
    assert np.allclose(together, np.stack([embedder.embed_query(text) for text in texts]), atol=1e-5)


def test_threads_share_a_model(embedder: Embedder) -> None:
    texts = [f"{'where is the ' * 600} {word}" for word in ("key", "dog", "door", "cat")] * 8  # none may be cut short
    with ThreadPoolExecutor(8) as pool:
        vectors = list(pool.map(embedder.embed_query, texts))
    assert np.allclose(np.stack(vectors), embedder.embed(texts), atol=1e-6)
    assert not np.allclose(vectors[0], vectors[1], rtol=0, atol=1e-6)


# -- WordLlama ---------------------------------------------------------------------------------------------------------


def test_wordllama_has_its_name_and_length_before_it_is_loaded() -> None:
    embedder = WordLlamaEmbedder()
    assert (embedder.model, embedder.dimensions, repr(embedder)) == ("wordllama", 256, "WordLlamaEmbedder()")


def test_wordllama_finds_what_means_the_same(wordllama: WordLlamaEmbedder) -> None:
    question, fitting, other = wordllama.embed(
        ["How do I repair a broken car?", "Fixing the engine of an automobile", "A recipe for apple cake"]
    )
    assert cosine(question, fitting) > cosine(question, other) + 0.1


def test_wordllama_gives_what_its_package_gives(wordllama: WordLlamaEmbedder) -> None:
    package = pytest.importorskip("wordllama")
    model = package.WordLlama.load(cache_dir=Path(package.__file__).parent, disable_download=True)
    texts = ["one", "a longer text, with signs: {}", "日本語 🎉", "word " * 300]
    assert np.allclose(wordllama.embed(texts), model.embed(texts), atol=1e-6)


def test_wordllama_leaves_the_programs_logging_alone() -> None:
    pytest.importorskip("wordllama", reason="the extra rlm-memory[offline] is not installed")
    program = (
        "import logging, rlm_memory.embedding as e; e.WordLlamaEmbedder().embed_query('key');"
        "print(logging.getLogger().handlers, logging.getLogger().level)"
    )
    path = str(Path(rlm_memory.embedding.__file__).parents[2])
    run = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        capture_output=True, text=True, check=True, env={**os.environ, "PYTHONPATH": path},
    )  # fmt: skip
    assert (run.stdout.strip(), run.stderr) == (f"[] {logging.WARNING}", "")


def test_wordllama_without_its_weights_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    package = pytest.importorskip("wordllama", reason="the extra rlm-memory[offline] is not installed")
    resolve = sys.modules[package.WordLlama.__module__]
    monkeypatch.setattr(resolve, "__file__", str(tmp_path / "wordllama.py"))
    monkeypatch.setattr(package, "__file__", str(tmp_path / "__init__.py"))
    with pytest.raises(EmbeddingUnavailableError, match="without its weights"):
        WordLlamaEmbedder().embed_query("key")


# -- model2vec ---------------------------------------------------------------------------------------------------------


def test_model2vec_has_its_name_before_it_is_loaded() -> None:
    assert Model2VecEmbedder("someone/something").model == "model2vec:someone/something"
    assert repr(Model2VecEmbedder("someone/something")) == "Model2VecEmbedder('someone/something')"


def test_model2vec_reads_a_folder(model2vec: Model2VecEmbedder) -> None:
    assert model2vec.dimensions == len(WORDS)
    vector = model2vec.embed_query("key door")
    assert [word for word, number in zip(WORDS, vector, strict=True) if number > 0] == ["key", "door"]


def test_a_text_of_words_the_model_does_not_know_is_named(model2vec: Model2VecEmbedder) -> None:
    with pytest.raises(EmbeddingRequestError, match=r"item 1 .* is zero.* know none of the text's words"):
        model2vec.embed(["key", "xylophone"])


def a_missing_folder(folder: Path) -> Path:
    return folder / "nothing here"


def an_empty_folder(folder: Path) -> Path:
    return folder


def a_folder_with_a_torn_file(folder: Path) -> Path:
    (folder / "config.json").write_text("{}")
    (folder / "tokenizer.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(b"torn")
    return folder


@pytest.mark.parametrize("prepare", [a_missing_folder, an_empty_folder, a_folder_with_a_torn_file])
def test_a_model_that_cannot_be_loaded_is_said(tmp_path: Path, prepare: Callable[[Path], Path]) -> None:
    pytest.importorskip("model2vec", reason="the extra rlm-memory[local] is not installed")
    with pytest.raises(EmbeddingUnavailableError, match=r"model2vec:.* could not be loaded: .*Expected a folder"):
        Model2VecEmbedder(prepare(tmp_path)).embed_query("key")


@pytest.mark.parametrize("name", ["", " "])
def test_model2vec_needs_a_name(name: str) -> None:
    with pytest.raises(InvalidInputError, match="model2vec:NAME_OR_PATH"):
        Model2VecEmbedder(name)


# -- without the packages ----------------------------------------------------------------------------------------------


def test_without_wordllama_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "wordllama", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'rlm-memory\[offline\]'"):
        WordLlamaEmbedder().embed_query("key")


def test_without_model2vec_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "model2vec", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'rlm-memory\[local\]'"):
        Model2VecEmbedder("someone/something").embed_query("key")
