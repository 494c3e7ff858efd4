"""The keyword leg: rare words find the candidates by the GIN index, all words score them.

The rules are those of the SQLite engine, so that the same nodes are found in the same order: see `matching.py` there.
How often each word stands in a text is kept with it, and in how many texts of the namespace, so that no text is read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import chain
from typing import Any, Final
from uuid import UUID

import numpy as np
from numpy.typing import NDArray

from rlm_memory.engines.postgres import statements
from rlm_memory.engines.postgres.connection import Connection
from rlm_memory.engines.postgres.heaviest import MOST_WORDS, Requirement, least_weight, requirements
from rlm_memory.engines.postgres.scored import Row, Scored
from rlm_memory.engines.postgres.values import rows_of
from rlm_memory.engines.texts import Tokenizer
from rlm_memory.errors import StoreCorruptError
from rlm_memory.scoring import bm25, inverse_document_frequency

_RARE_SHARE: Final = 0.05
_RARE_ROWS: Final = 500
"""A word is rare when it stands in at most this share of the texts, or in so few that all can be looked at."""

_ALL_ROWS: Final = 256
"""Up to so many matching texts are all scored exactly; of more, a ranking by the rare words picks the first."""

_MOST_REQUIREMENTS: Final = 16
"""To look for each takes .15 ms among 100,000 texts, and to look for each word by itself and add up about 3."""

_WEIGHT_STEPS: Final = 1_000_000
"""So many steps of a weight are told apart where the server adds them."""

COUNT: Final = np.dtype([("term", ">i8"), ("often", ">i4")])
"""How often a term stands in a text, as it is stored."""


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
        numbers: dict[str, int] = {}  # most words stand in several of the texts, and a hash takes 5 us
        total = 0
        with connection.cursor().copy(statements.COPY_NODE_TERMS) as copy:
            for node, text in texts:
                words = self._tokenizer.words(text)
                counts = Counter(words)
                for word in counts.keys() - numbers.keys():
                    numbers[word] = self._term(word)
                terms = [numbers[word] for word in counts]
                counted = np.empty(len(terms), dtype=COUNT)
                counted["term"], counted["often"] = terms, list(counts.values())
                copy.write_row((self._namespace, node, len(words), _array(terms), counted.tobytes()))
                texts_with.update(terms)
                total += len(words)
        self._add_to_terms(connection, texts_with, 1)
        return total

    def take(self, connection: Connection, nodes: Sequence[int]) -> int:
        """Take the texts of these nodes out of the index; return how many words they had."""
        if not nodes:
            return 0
        rows = rows_of(connection, statements.TAKE_NODE_TERMS, (self._namespace, list(nodes)))
        texts_with = Counter(term for _, terms in rows for term in terms)
        self._add_to_terms(connection, texts_with, -1)
        connection.execute(statements.DELETE_TERMS, (self._namespace, list(texts_with)))
        return sum(length for length, _ in rows)

    def _add_to_terms(self, connection: Connection, texts_with: Counter[int], sign: int) -> None:
        if texts_with:
            terms = sorted(texts_with)  # neighbours in the index are written one after the other
            counts = (sign * texts_with[term] for term in terms)
            connection.execute(statements.ADD_TO_TERMS, (self._namespace, _array(terms), _array(counts)))

    def _term(self, word: str) -> int:
        """Return the number of a word in the index: no other namespace has the same for it."""
        hashed = blake2b(word.encode("utf-8", "surrogatepass"), digest_size=8, key=self._namespace.bytes)
        return int.from_bytes(hashed.digest(), "big", signed=True)

    # -- the search ---------------------------------------------------------------------------------------------

    def asked(self, question: str) -> dict[int, str]:
        """Return the words of a question that are looked up, by their numbers in the index."""
        return {self._term(word): word for word in self._tokenizer.asked(question, self._stop_words)}

    @staticmethod
    def words(asked: Mapping[int, str], counts: Mapping[int, int], *, texts: int, length: int) -> Words:
        """Return the words of a question that can match.

        Args:
            asked: What `asked` has returned.
            counts: In how many texts of the namespace each of them stands.
            texts: The number of texts of the namespace.
            length: The number of words in all of them.
        """
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

    def candidates(
        self, connection: Connection, scored: Scored, words: Words, eligible: Eligible | None, n: int
    ) -> list[Row]:
        """Return rows of eligible nodes, `n` or more if so many match, that may hold the best `n`.

        Args:
            connection: A reader's snapshot.
            scored: What to read of each.
            words: What to look for.
            eligible: Which nodes may be found; None lets all be.
            n: How many are wanted.
        """
        rare = max(_RARE_ROWS, int(_RARE_SHARE * words.texts))
        count = int(np.count_nonzero(words.frequencies <= rare)) or 1
        found = self._found(connection, scored, words, count, eligible, n)
        while len(found) < n and count < len(words.terms):
            count += 1  # the rare words find too few: look for the next one too
            found = self._found(connection, scored, words, count, eligible, n)
        return found

    def _found(
        self, connection: Connection, scored: Scored, words: Words, count: int, eligible: Eligible | None, n: int
    ) -> list[Row]:
        """Return eligible nodes with one of the first `count` words: all of few, else the heaviest, `n` or more."""

        def rows(select: str, bound: Sequence[Any]) -> list[Row]:
            return scored.rows(connection, select, bound, known="terms").fetchall()

        terms = words.terms[:count]
        within, values = "", list[Any]()
        if eligible is not None:
            within, values = statements.ELIGIBLE.format(where=eligible.where), [self._namespace, *eligible.values]
        if int(words.frequencies[:count].sum()) <= _ALL_ROWS or (eligible is not None and eligible.few):
            return rows(statements.SELECT_MATCHING + within, (self._namespace, terms, *values))
        weights = np.rint(words.weights[:count] * _WEIGHT_STEPS).astype(int).tolist()
        wanted = max(2 * n, 100)
        expected = float(wanted)
        while count <= MOST_WORDS:
            least = least_weight(weights, words.frequencies[:count] / words.texts, expected / words.texts)
            required = list(requirements(weights, least))
            if len(required) > _MOST_REQUIREMENTS:
                break
            conditions, bound = _conditions(required, terms)
            weight = " + ".join([statements.WEIGHT_OF_TERM] * count)
            select = statements.SELECT_HEAVIEST.format(requirements=conditions, eligible=within, weight=weight)
            weighed = chain.from_iterable(zip(terms, weights, strict=True))
            found = rows(select, (self._namespace, *bound, *values, *weighed, wanted))
            if len(found) == wanted or least == weights[-1]:
                return found
            # Not so many, as words are that never come together, or few of their texts are eligible.
            expected *= 2.0 * wanted / max(len(found), 1)
        select = statements.SELECT_HEAVIEST_OF_ALL.format(eligible=within)
        return rows(select, (terms, weights, self._namespace, *values, wanted, self._namespace))

    @staticmethod
    def scores(rows: Sequence[Row], words: Words) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the bm25 of each text over all words, 0 where it has none, and the share of the words that it has."""
        _, lengths, counted, _ = zip(*rows, strict=True)
        counts = term_counts(counted)
        owners = np.repeat(np.arange(len(rows)), [len(each) // COUNT.itemsize for each in counted])
        frequencies = np.zeros((len(rows), len(words.terms)))
        every = counts["term"].astype(np.int64)
        for column, term in enumerate(words.terms):
            here = np.flatnonzero(every == term)
            frequencies[owners[here], column] = counts["often"][here]
        scores = bm25(frequencies, np.array(lengths, dtype=np.float64), words.average_length, words.weights)
        return scores, np.count_nonzero(frequencies, axis=1) / words.asked


def _conditions(required: Sequence[Requirement], terms: Sequence[int]) -> tuple[str, list[list[int]]]:
    """Return the condition that a text has one of what is required, and the terms that are bound to it."""
    conditions, bound = [], []
    for requirement in required:
        both = [(statements.HAS_EVERY, requirement.every), (statements.HAS_SOME, requirement.some)]
        parts = [(condition, [terms[place] for place in places]) for condition, places in both if places]
        conditions.append(f"({' AND '.join(condition for condition, _ in parts)})")
        bound += [some for _, some in parts]
    return " OR ".join(conditions), bound


def term_counts(counted: Sequence[bytes]) -> NDArray[np.void]:
    """Return the counts of several texts, one after the other, as rows of `COUNT`.

    Raises:
        StoreCorruptError: Those of a text are cut.
    """
    if any(len(each) % COUNT.itemsize for each in counted):
        raise StoreCorruptError("The counts of the words of a text are cut; see rlm-memory check, restore a backup.")
    return np.frombuffer(b"".join(counted), dtype=COUNT)


def _array(numbers: Any) -> str:
    """Return numbers as the server writes an array of them: three times as fast as the driver's own."""
    return "{" + ",".join(map(str, numbers)) + "}"
