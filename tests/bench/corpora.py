"""The texts and questions of LoCoMo and SciFact, read from a folder of the user's; see quality.py for what is in it."""

from __future__ import annotations

import ast
import csv
import io
import json
import re
import zipfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Question:
    """A question, its kind, and the ids of the texts that answer it."""

    text: str
    kind: str
    relevant: frozenset[str]


@dataclass(frozen=True, slots=True)
class Corpus:
    """Texts with their ids, and questions about them; vectors where the data brings its own."""

    name: str
    texts: dict[str, str]
    metadatas: list[dict[str, str]]
    questions: list[Question]
    vectors: NDArray[np.float32] | None = None
    question_vectors: NDArray[np.float32] | None = None


def locomo(folder: Path) -> list[Corpus]:
    """Return a corpus for each of the conversations, with MiniLM vectors."""
    vectors = np.load(folder / "minilm_f16.npz")
    turns, questions = vectors["turns"].astype(np.float32), vectors["questions"].astype(np.float32)
    corpora, turn, question = [], 0, 0
    for conversation in json.loads((folder / "flat.json").read_text("utf-8")):
        texts = {entry["id"]: entry["text"] for entry in conversation["turns"]}
        asked = [Question(q["text"], q["category"], frozenset(q["evidence"])) for q in conversation["questions"]]
        corpora.append(
            Corpus(
                conversation["conversation"],
                texts,
                [{} for _ in texts],
                asked,
                turns[turn : turn + len(texts)],
                questions[question : question + len(asked)],
            )
        )
        turn, question = turn + len(texts), question + len(asked)
    return corpora


def scifact(folder: Path) -> Corpus:
    """Return the abstracts, and the claims of the validation part with the abstracts they cite."""
    with zipfile.ZipFile(folder / "scifact.zip") as archive:
        abstracts, claims = (_rows(archive, name) for name in ("corpus_train.csv", "claims_validation.csv"))
    texts = {row["doc_id"]: f"{row['title']} {' '.join(_sentences(row['abstract']))}" for row in abstracts}
    cited = {row["id"]: (row["claim"], frozenset(re.findall(r"\d+", row["cited_doc_ids"]))) for row in claims}
    titles = [{"title": row["title"], "structured": row["structured"]} for row in abstracts]
    return Corpus("scifact", texts, titles, [Question(claim, "claims", relevant) for claim, relevant in cited.values()])


def _rows(archive: zipfile.ZipFile, name: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.TextIOWrapper(archive.open(name), "utf-8")))


def _sentences(printed: str) -> list[str]:
    """Return the strings of a printed array, which has line breaks and no commas between them."""
    return list(ast.literal_eval(re.sub(r"(['\"])\n\s*(?=['\"])", r"\1, ", printed)))
