"""Numbers and names that the tables derive from a node."""

from __future__ import annotations

import json
from typing import Final

from rlm_memory.engines.texts import text_hash as text_hash

DEFAULT_NAMESPACE: Final = "default"


def vector_key(namespace: str, id: str) -> str:
    """Return the node_id of a node in `node_embeddings`, which knows no namespaces: the id itself in the default one.

    Elsewhere it is the JSON list of both. An id of the default namespace that could be mistaken for such a list is
    written that way too, so that no two nodes share a key.

    >>> vector_key("default", "n1"), vector_key("tenant", "n1")
    ('n1', '["tenant", "n1"]')
    """
    if namespace == DEFAULT_NAMESPACE and not id.startswith("["):
        return id
    return json.dumps([namespace, id], ensure_ascii=False)


def length_of(size: bytes) -> int:
    """Return the number of tokens that FTS5 noted for a row: a big-endian integer, 7 bits a byte.

    >>> length_of(bytes([0x81, 0x00]))
    128
    """
    length = 0
    for byte in size:
        length = length << 7 | byte & 0x7F
    return length
