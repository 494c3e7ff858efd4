"""The keyword leg: rare words find the candidates by the GIN index, all words score them.

The rules are those of the SQLite engine, so that the same nodes are found in the same order: see `matching.py` there.
How often each word stands in a text is kept with it, and in how many texts of the namespace, so that no text is read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Final
from uuid import UUID

import numpy as np
from numpy.typing import NDArray

from rlm_memory.engines.postgres import statements
from rlm_memory.engines.postgres.connection import Connection
from rlm_memory.engines.postgres.values import row_of, rows_of
from rlm_memory.engines.texts import Tokenizer
from rlm_memory.scoring import bm25, inverse_document_frequency

_RARE_SHARE: Final = 0.05
_RARE_ROWS: Final = 500
"""A word is rare when it stands in at most this share of the texts, or in so few that all can be looked at."""

_ALL_ROWS: Final = 256
"""Up to so many matching texts are all scored exactly; of more, a ranking by the rare words picks the first."""


@dataclass(frozen=True, slots=True)
class Words:
    """The words of a question that count, the rarest first, each as its number in the index and with its weight.

    A word that stands in no text of the namespace is not among them, but in `asked`, the number of all.
    """

    terms: list[int]
    frequencies: NDArray[np.int64]
    weights: NDArray[np.float64]
    texts: int
    average_length: float
    asked: int


@dataclass(frozen=True, slots=True)
class Eligible:
    """Which nodes may be found, as a condition on `rlm_nodes n`; `few` if they are few enough to look at them all."""

    where: str
    values: list[Any]
    few: bool


class KeywordLeg:
    """Keyword search in one namespace, and the index it needs."""

    def __init__(self, namespace: UUID, tokenizer: Tokenizer, stop_words: frozenset[str]) -> None:
        self._namespace = namespace
        self._tokenizer = tokenizer
        self._stop_words = stop_words

    # -- the index ----------------------------------------------------------------------------------------------

    def add(self, connection: Connection, texts: Sequence[tuple[int, str]]) -> int:
        """Put the texts of these nodes, given as (node, text), into the index; return how many words they have."""
        texts_with: Counter[int] = Counter()
        total = 0
        with connection.cursor().copy(statements.COPY_WORDS) as copy:
            for node, text in texts:
                words = self._tokenizer.words(text)
                counts = Counter(words)
                terms = [self._term(word) for word in counts]
                copy.write_row((self._namespace, node, len(words), _array(terms), _array(counts.values())))
                texts_with.update(terms)
                total += len(words)
        self._add_to_terms(connection, texts_with, 1)
        return total

    def take(self, connection: Connection, nodes: Sequence[int]) -> int:
        """Take the texts of these nodes out of the index; return how many words they had."""
        if not nodes:
            return 0
        rows = rows_of(connection, statements.TAKE_WORDS, (self._namespace, list(nodes)))
        texts_with = Counter(term for _, terms in rows for term in terms)
        self._add_to_terms(connection, texts_with, -1)
        connection.execute(statements.DELETE_TERMS, (self._namespace, list(texts_with)))
        return sum(length for length, _ in rows)

    def _add_to_terms(self, connection: Connection, texts_with: Counter[int], sign: int) -> None:
        if texts_with:
            terms = sorted(texts_with)  # neighbours in the index are written one after the other
            counts = [sign * texts_with[term] for term in terms]
            connection.execute(statements.ADD_TO_TERMS, (self._namespace, terms, counts))

    def _term(self, word: str) -> int:
        """Return the number of a word in the index: no other namespace has the same for it."""
        hashed = blake2b(word.encode("utf-8", "surrogatepass"), digest_size=8, key=self._namespace.bytes)
        return int.from_bytes(hashed.digest(), "big", signed=True)

    # -- the search ---------------------------------------------------------------------------------------------

    def words(self, connection: Connection, question: str, *, texts: int, length: int) -> Words:
        """Return the words of the question that can match.

        Args:
            connection: A reader's snapshot.
            question: What is asked.
            texts: The number of texts of the namespace.
            length: The number of words in all of them.
        """
        asked = {self._term(word): word for word in self._tokenizer.asked(question, self._stop_words)}
        counts = dict(rows_of(connection, statements.SELECT_TERMS, (self._namespace, list(asked)))) if asked else {}
        terms = sorted(counts, key=lambda term: (counts[term], asked[term]))
        frequencies = np.array([counts[term] for term in terms], dtype=np.int64)
        return Words(
            terms=terms,
            frequencies=frequencies,
            weights=inverse_document_frequency(texts, frequencies),
            texts=texts,
            average_length=length / texts if texts else 0.0,
            asked=len(asked),
        )

    def candidates(self, connection: Connection, words: Words, eligible: Eligible | None, n: int) -> list[int]:
        """Return eligible nodes, `n` or more if so many match, that may hold the best `n`; None lets all be found."""
        if not words.terms:
            return []
        rare = max(_RARE_ROWS, int(_RARE_SHARE * words.texts))
        count = int(np.count_nonzero(words.frequencies <= rare)) or 1
        found = self._found(connection, words, count, eligible, n)
        while len(found) < n and count < len(words.terms):
            count += 1  # the rare words find too few: look for the next one too
            found = self._found(connection, words, count, eligible, n)
        return found

    def _found(self, connection: Connection, words: Words, count: int, eligible: Eligible | None, n: int) -> list[int]:
        terms = words.terms[:count]
        within, values = "", list[Any]()
        if eligible is not None:
            within, values = statements.ELIGIBLE.format(where=eligible.where), [self._namespace, *eligible.values]
        if int(words.frequencies[:count].sum()) <= _ALL_ROWS or (eligible is not None and eligible.few):
            rows = rows_of(connection, statements.SELECT_MATCHING + within, (self._namespace, terms, *values))
        else:
            select = statements.SELECT_BEST_MATCHING.format(eligible=within)
            ranked = (words.average_length or 1.0, terms, words.weights[:count].tolist(), max(2 * n, 100))
            rows = rows_of(connection, select, (self._namespace, terms, *values, *ranked))
        return [node for (node,) in rows]

    def scores(
        self, connection: Connection, nodes: Sequence[int], words: Words
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the bm25 of each node over all words, 0 where it has none, and the share of the words that it has."""
        rows = rows_of(connection, statements.SELECT_FREQUENCIES, (words.terms, list(nodes), self._namespace))
        frequencies = np.array([found for _, found in rows], dtype=np.float64).reshape(len(nodes), len(words.terms))
        lengths = np.array([length for length, _ in rows], dtype=np.float64)
        scores = bm25(frequencies, lengths, words.average_length, words.weights)
        return scores, np.count_nonzero(frequencies, axis=1) / words.asked


def _array(numbers: Any) -> str:
    """Return numbers as the array that COPY reads: three times as fast as the driver's own."""
    return "{" + ",".join(map(str, numbers)) + "}"


def sums(connection: Connection, namespace: UUID) -> tuple[int, int]:
    """Return how many texts a namespace has, and how many words are in them."""
    row = row_of(connection, statements.SELECT_SUMS, (namespace,))
    return (0, 0) if row is None else (row[0], row[1])
