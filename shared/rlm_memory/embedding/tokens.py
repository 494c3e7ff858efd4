"""How many tokens a text has: exactly where that is possible offline, else an estimate from above."""

from __future__ import annotations

import hashlib
import math
import os
import re
import tempfile
from bisect import bisect_right
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

TokenCount: TypeAlias = Callable[[str], int]
"""Tells the number of tokens of a text; at most one a byte of its UTF-8 form."""

# tiktoken names a cached vocabulary by a hash of its address and checks it by a hash of its content. A file that passes
# both is read from the disk alone; anything else would make tiktoken reach for the network, without a time limit.
_VOCABULARY = "cl100k_base"
_CACHED_NAME = "9b5ad71b2ce5302211f9c61530b329a4922fc6a4"
_CACHED_SHA256 = "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7"

# In one piece, a million spaces between two words make tiktoken panic, past every `except Exception`.
_CHARACTERS_AT_ONCE = 100_000

_PIECES = re.compile(
    r"[A-Z]?[a-z]{1,4}|[A-Z]{1,3}"  # a word of a Latin script, four letters at a time
    r"|[0-9]{1,3}"
    r"|[^\sA-Za-z0-9\x80-\U0010ffff]"  # any other sign of ASCII
    r"|[^\S ]+|  +| (?=[0-9])"  # the space before a word or a sign belongs to it
)


def estimate_tokens(text: str) -> int:
    """Return a number of tokens that texts people write seldom exceed, without a vocabulary.

    Four letters of a word, three digits or one other sign count as a token, and so do five thirds of a byte outside
    ASCII: a Chinese character counts 1.8. Held against `cl100k_base`, that is 1.0 to 2.4 times the truth for prose,
    code, JSON and tables (English 1.4, Chinese 1.8, Russian 2), and less than it for emoji, Georgian, Burmese (0.85),
    base64 (0.8) and random letters (0.6).

    >>> estimate_tokens("Where is the key?"), estimate_tokens("钥匙在哪里")
    (5, 9)
    """
    in_ascii = len(text.encode("ascii", "ignore"))
    outside = len(text.encode("utf-8", "surrogatepass")) - in_ascii
    return len(_PIECES.findall(text)) + math.ceil(outside * 0.6)


def token_count() -> TokenCount:
    """Return the best count there is without the network.

    It is exact with the vocabulary of OpenAI's embedding models if tiktoken is installed (`rlm-memory[tokens]`) and
    holds that vocabulary in its cache (`TIKTOKEN_CACHE_DIR`), else `estimate_tokens`. Special tokens in a text are
    counted as the plain text they are. Texts over 100,000 characters are counted in pieces, which may add a token or
    two for each.
    """
    if not _vocabulary_is_cached():
        return estimate_tokens
    try:
        import tiktoken
    except ImportError:
        return estimate_tokens
    vocabulary = tiktoken.get_encoding(_VOCABULARY)

    def count(text: str) -> int:
        starts = range(0, len(text), _CHARACTERS_AT_ONCE)
        return sum(len(vocabulary.encode_ordinary(text[start : start + _CHARACTERS_AT_ONCE])) for start in starts)

    return count


def cut_to_tokens(text: str, limit: int, count: TokenCount) -> str:
    """Return the longest beginning of the text that has at most `limit` tokens, and at most 32 characters for each."""
    text = text[: limit * 32]  # a token of prose has four or five: more is a run of blanks, slow to count
    longest = limit
    while longest < len(text) and count(text[:longest]) <= limit:
        longest *= 2
    lengths = range(min(longest, len(text)) + 1)
    return text[: bisect_right(lengths, limit, key=lambda length: count(text[:length])) - 1]


def _vocabulary_is_cached() -> bool:
    default = Path(tempfile.gettempdir()) / "data-gym-cache"
    folder = os.environ.get("TIKTOKEN_CACHE_DIR", os.environ.get("DATA_GYM_CACHE_DIR", str(default)))
    try:
        content = (Path(folder) / _CACHED_NAME).read_bytes() if folder else b""
    except OSError:
        return False
    return hashlib.sha256(content).hexdigest() == _CACHED_SHA256
