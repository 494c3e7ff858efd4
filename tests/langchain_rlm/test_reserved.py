"""What `RLMStore` and the other adapter keep in the metadata is neither shown to documents nor taken from them."""

from __future__ import annotations

import pytest
from langchain_core.documents import Document

from langchain_rlm import RLMVectorStore
from rlm_memory import Memory
from rlm_memory.errors import InvalidNodeError

pytest.importorskip("langgraph", reason="RLMStore needs the extra langgraph")


def test_an_item_of_the_store_is_a_document_without_what_the_store_keeps() -> None:
    from langchain_rlm import RLMStore

    with Memory.open(":memory:", embedder=None) as memory:
        RLMStore(memory).put(("user", "ada"), "k", {"likes": "tea"})
        (document,) = RLMVectorStore(memory=memory).similarity_search("tea")
        assert document.metadata == {"likes": "tea"}


@pytest.mark.parametrize("key", ["_langgraph", "_langgraph_more", "_llamaindex"])
def test_reserved_keys_are_refused(key: str) -> None:
    with Memory.open(":memory:", embedder=None) as memory:
        with pytest.raises(InvalidNodeError, match=key):
            RLMVectorStore(memory=memory).add_documents([Document(page_content="x", metadata={key: 1})])
        assert memory.count() == 0
