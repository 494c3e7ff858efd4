"""Documents, vectors and questions to measure stores with, made from a seed or taken from a corpus, kept in a folder.

Texts are 125 words of a vocabulary of 30,000 that Zipf's law rules, a fifth of them of the document's topic. Vectors
have length 1, and are of one of three kinds:

clustered  200 centres, noise of a falling spectrum around each: few effective dimensions, as embeddings of texts have
iso        the same centres, noise alike in all directions: within a cluster all are nearly equally far
uniform    no centres: nothing but noise alike in all directions, the hardest case for any index

A question has seven words of one document, and a vector between that document's and another one's of its cluster. The
ten nearest of all documents are known, and of one group, which is 1 % of them, by exact cosines.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any, Final, Literal

import corpora
import numpy as np
from numpy.typing import NDArray

Vectors = NDArray[np.float32]
Kind = Literal["clustered", "iso", "uniform"]

DIMENSIONS: Final = 1536
K: Final = 10
QUESTIONS: Final = 200
SPARE: Final = 500
"""Documents beyond those a store is filled with, to add one by one."""
_CENTRES: Final = 200
_GROUPS: Final = 100
_VOCABULARY: Final = 30_000
_WORDS: Final = 125
_AT_ONCE: Final = 10_000


@dataclass(frozen=True, slots=True)
class Batch:
    """Documents that are added at once."""

    ids: list[str]
    texts: list[str]
    metadatas: list[dict[str, Any]]
    vectors: Vectors


@dataclass(frozen=True, slots=True)
class Asked:
    """A question, the group that a filter narrows it to, and the ids of the nearest of all and of the group."""

    text: str
    group: str
    nearest: list[str]
    nearest_in_group: list[str]


@dataclass(frozen=True)
class Data:
    """What is in a folder: documents that are read as they are needed, and questions."""

    folder: Path

    @cached_property
    def count(self) -> int:
        """How many documents a store is filled with; `SPARE` more are there."""
        return int(json.loads((self.folder / "made.json").read_text("utf-8"))["count"])

    @cached_property
    def raw_bytes(self) -> int:
        """Bytes of the texts and of float32 vectors, of the documents a store is filled with."""
        return int(json.loads((self.folder / "made.json").read_text("utf-8"))["raw_bytes"])

    def batches(self, start: int, stop: int, size: int) -> Iterator[Batch]:
        """Yield the documents from `start` to before `stop`, `size` at once."""
        with (self.folder / "documents.jsonl").open(encoding="utf-8") as lines:
            for _ in islice(lines, start):
                pass
            for first in range(start, stop, size):
                documents = [json.loads(line) for line in islice(lines, min(size, stop - first))]
                yield Batch(
                    [document["id"] for document in documents],
                    [document["text"] for document in documents],
                    [document["metadata"] for document in documents],
                    np.fromfile(
                        self.folder / "vectors.f32",
                        np.float32,
                        count=len(documents) * DIMENSIONS,
                        offset=first * DIMENSIONS * 4,
                    ).reshape(-1, DIMENSIONS),
                )

    def questions(self) -> tuple[list[Asked], Vectors]:
        """Return the questions and their vectors."""
        listed = json.loads((self.folder / "questions.json").read_text("utf-8"))
        return [Asked(**entry) for entry in listed], np.load(self.folder / "questions.npy")


def made(root: Path, count: int, kind: Kind, seed: int = 7) -> Data:
    """Return `count` documents and 200 questions, from the folder under `root` where an earlier run has left them."""
    folder = root / f"{kind}-{count}-{seed}"
    if not (folder / "made.json").exists():
        folder.mkdir(parents=True, exist_ok=True)
        random = np.random.default_rng(seed)
        labels = random.integers(_CENTRES, size=count + SPARE)
        targets = random.choice(count, QUESTIONS, replace=False)
        space = _Space(kind, random)
        with (folder / "vectors.f32").open("wb") as file:
            for first in range(0, len(labels), _AT_ONCE):
                space.around(labels[first : first + _AT_ONCE]).tofile(file)
        vectors = np.memmap(folder / "vectors.f32", np.float32, "r").reshape(-1, DIMENSIONS)
        towards = _unit(vectors[targets] + space.around(labels[targets]))
        texts = _texts(labels, random)
        asked = [" ".join(random.choice(texts[target].split(), 7, replace=False)) for target in targets]
        _keep(folder, count, texts, vectors, asked, towards, random)
    return Data(folder)


def real(root: Path, source: Path, seed: int = 7) -> Data:
    """Return the turns and questions of LoCoMo, see quality.py, with their vectors turned into 1,536 dimensions."""
    folder = root / "locomo"
    if not (folder / "made.json").exists():
        folder.mkdir(parents=True, exist_ok=True)
        random = np.random.default_rng(seed)
        parts = corpora.locomo(source / "locomo")
        texts = [text for part in parts for text in part.texts.values()]
        turned = _rotation(random)[:, : _vectors_of(parts[0].vectors).shape[1]].T
        vectors = _unit(np.concatenate([_vectors_of(part.vectors) for part in parts]) @ turned)
        towards = _unit(np.concatenate([_vectors_of(part.question_vectors) for part in parts]) @ turned)
        # texts that are there twice have one vector, so that a stand-in for a model can look it up
        first = {text: i for i, text in reversed(list(enumerate(texts)))}
        vectors = vectors[[first[text] for text in texts]]
        asked = [question.text for part in parts for question in part.questions]
        some = random.choice(len(asked), QUESTIONS, replace=False)
        vectors.tofile(folder / "vectors.f32")
        _keep(folder, len(texts) - SPARE, texts, vectors, [asked[i] for i in some], towards[some], random)
    return Data(folder)


def _vectors_of(vectors: Vectors | None) -> Vectors:
    assert vectors is not None
    return vectors


class _Space:
    """Where vectors of a kind lie."""

    def __init__(self, kind: Kind, random: np.random.Generator) -> None:
        self._kind, self._random = kind, random
        falling = np.arange(1, DIMENSIONS + 1, dtype=np.float32) ** np.float32(-0.4)
        self._spectrum = falling / np.linalg.norm(falling)
        self._basis = _rotation(random)
        self._mean = _unit(random.standard_normal((1, DIMENSIONS), dtype=np.float32))
        self._centres = self._falling(_CENTRES)

    def _falling(self, count: int) -> Vectors:
        normal = self._random.standard_normal((count, DIMENSIONS), dtype=np.float32)
        return _unit((normal * self._spectrum) @ self._basis)

    def around(self, labels: NDArray[np.int64]) -> Vectors:
        """Return a unit vector near the centre with each of these numbers."""
        if self._kind == "clustered":
            noise = self._falling(len(labels))
        else:
            noise = _unit(self._random.standard_normal((len(labels), DIMENSIONS), dtype=np.float32))
        if self._kind == "uniform":
            return noise
        return _unit(0.45 * self._mean + 0.60 * self._centres[labels] + 0.66 * noise)


def _rotation(random: np.random.Generator) -> Vectors:
    basis, _ = np.linalg.qr(random.standard_normal((DIMENSIONS, DIMENSIONS), dtype=np.float32))
    return np.asarray(basis, dtype=np.float32)


def _unit(vectors: Vectors) -> Vectors:
    return np.asarray(vectors / np.linalg.norm(vectors, axis=1, keepdims=True), dtype=np.float32)


def _texts(labels: NDArray[np.int64], random: np.random.Generator) -> list[str]:
    syllables = np.array([a + b + c for a in "bdfgklmnprstvz" for b in "aeiou" for c in ("", "l", "n", "r", "s")])
    words: dict[str, None] = {}
    while len(words) < _VOCABULARY:
        length = 1 + (len(words) > 60) + (len(words) > 2000) + int(random.integers(2))
        words["".join(random.choice(syllables, length))] = None
    vocabulary = np.array(list(words), dtype=object)
    shares = 1 / (np.arange(1, _VOCABULARY + 1) + 2.7) ** 1.05
    upto = np.cumsum(shares / shares.sum())
    upto[-1] = 1.0
    topics = random.integers(300, _VOCABULARY, size=(_CENTRES, 80))
    texts: list[str] = []
    for first in range(0, len(labels), _AT_ONCE):
        some = labels[first : first + _AT_ONCE, np.newaxis]
        common = np.searchsorted(upto, random.random((len(some), _WORDS)))
        own = topics[some, random.integers(topics.shape[1], size=common.shape)]
        chosen = np.where(random.random(common.shape) < 0.2, own, common)
        texts.extend(" ".join(row) for row in vocabulary[chosen])
    return texts


def _keep(
    folder: Path,
    count: int,
    texts: list[str],
    vectors: Vectors,
    asked: list[str],
    towards: Vectors,
    random: np.random.Generator,
) -> None:
    """Write the documents, and the questions with their nearest."""
    groups = random.permutation(np.arange(len(texts)) % _GROUPS)
    years = random.integers(2015, 2027, size=len(texts))
    with (folder / "documents.jsonl").open("w", encoding="utf-8") as file:
        for i, text in enumerate(texts):
            metadata = {"group": f"g{groups[i]:02d}", "year": int(years[i]), "source": f"note-{i % 500}"}
            file.write(json.dumps({"id": f"n{i:07d}", "text": text, "metadata": metadata}) + "\n")
    cosines = np.concatenate([towards @ vectors[a : min(count, a + _AT_ONCE)].T for a in range(0, count, _AT_ONCE)], 1)
    narrowed = random.integers(_GROUPS, size=len(asked))
    listed = []
    for i, text in enumerate(asked):
        members = np.flatnonzero(groups[:count] == narrowed[i])
        listed.append(
            {
                # its number makes it the only one with these words, so that its vector can be looked up
                "text": f"{text} q{i}",
                "group": f"g{narrowed[i]:02d}",
                "nearest": [f"n{j:07d}" for j in _best(cosines[i])],
                "nearest_in_group": [f"n{members[j]:07d}" for j in _best(cosines[i, members])],
            }
        )
    np.save(folder / "questions.npy", towards)
    (folder / "questions.json").write_text(json.dumps(listed), "utf-8")
    raw = sum(len(text.encode()) for text in texts[:count]) + count * DIMENSIONS * 4
    (folder / "made.json").write_text(json.dumps({"count": count, "raw_bytes": raw}), "utf-8")


def _best(cosines: Vectors) -> list[int]:
    best = np.argpartition(-cosines, min(K, len(cosines) - 1))[:K]
    return [int(i) for i in best[np.argsort(-cosines[best])]]
