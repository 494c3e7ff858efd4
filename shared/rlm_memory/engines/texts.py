"""What every engine derives from a text in the same way: its hash, and the words by which it is found."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable
from itertools import islice
from typing import Any, Final

import apsw

from rlm_memory.errors import InvalidInputError
from rlm_memory.keywords import keep_words, segment, segment_query

BLANKS: Final = "".join(character for character in map(chr, range(0x3001)) if character.isspace())
"""What `str.strip` takes away: a text of these alone is not sent to an embedder, though it may be given a vector."""

_MOST_WORDS: Final = 256
"""Of a longer question, only so many different words are looked up, the first ones."""


def text_hash(text: str) -> int:
    """Return 64 bits that tell one text from another, as a signed integer."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big", signed=True)


class Tokenizer:
    """Cuts texts into words as FTS5 does, without a database: words are the same on every engine. Thread-safe."""

    def __init__(self, name: str) -> None:
        """Take one of FTS5's tokenizers, such as "porter unicode61".

        Raises:
            InvalidInputError: There is no such tokenizer.
        """
        self._name, *arguments = name.split() or [""]
        self._arguments = [argument.strip("'\"") for argument in arguments]
        self._local = threading.local()
        try:
            self.words("")
        except (apsw.Error, ValueError) as error:
            raise InvalidInputError(
                f"Unknown tokenizer {name!r}; expected one of SQLite's FTS5, such as 'porter unicode61', "
                "'unicode61' or 'trigram'."
            ) from error

    def words(self, text: str) -> list[str]:
        """Return the words of a text that is stored, in their order."""
        cut = segment(text)
        stored = (text if cut is None else cut).encode("utf-8", "replace")
        words: list[str] = self._tokenizer()(
            stored, flags=apsw.FTS5_TOKENIZE_DOCUMENT, locale=None, include_offsets=False, include_colocated=False
        )
        return words

    def asked(self, question: str, stop_words: frozenset[str]) -> list[str]:
        """Return the different words of a question that are looked up, no stop words unless there are no others."""
        # The tokenizer takes a NUL for a separator, as FTS5 would not in a MATCH expression.
        cut = segment_query(question.replace("\0", " ")).encode("utf-8", "replace")
        tokens = self._tokenizer()(
            cut, flags=apsw.FTS5_TOKENIZE_QUERY, locale=None, include_offsets=True, include_colocated=False
        )
        written = {term: cut[start:end].decode("utf-8", "replace") for start, end, term in tokens}
        kept = set(keep_words(list(written.values()), stop_words))
        return list(islice((term for term, word in written.items() if word in kept), _MOST_WORDS))

    def _tokenizer(self) -> Callable[..., Any]:
        """Return this thread's own: a connection serves one thread at a time."""
        tokenizer: Callable[..., Any] | None = getattr(self._local, "tokenizer", None)
        if tokenizer is None:
            self._local.connection = apsw.Connection(":memory:")
            tokenizer = self._local.connection.fts5_tokenizer(self._name, self._arguments)
            self._local.tokenizer = tokenizer
        return tokenizer
