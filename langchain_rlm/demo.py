"""A LangChain chain that answers from a store: `python -m langchain_rlm.demo STORE`.

STORE is a store that `rlm-memory demo` has made. The model is a stand-in that needs no key: it answers with the
sentence of its context that has most words of the question. In its place goes any chat model.
"""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Sequence
from typing import Any

from langchain_core.callbacks import CallbackManagerForLLMRun
from langchain_core.documents import Document
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.output_parsers import StrOutputParser
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import RunnablePassthrough

from langchain_rlm.vector_store import RLMVectorStore
from rlm_memory.cli.demo_part import run_part
from rlm_memory.cli.passages import best_sentence

QUESTION = "How do I print a number with thousands separators?"
TURNS = ("a number with thousands separators", "the comma option of a format")


class QuotingModel(BaseChatModel):
    """Answers with the sentence above the last line of the prompt that shares most words with that line."""

    @property
    def _llm_type(self) -> str:
        return "quoting"

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        context, _, question = str(messages[-1].content).rpartition("\n")
        return ChatResult(generations=[ChatGeneration(message=AIMessage(best_sentence(context, question)))])


def context_of(documents: Sequence[Document]) -> str:
    """Return the texts of documents, one after the other."""
    return "\n\n".join(document.page_content for document in documents)


def main(path: str) -> None:
    """Ask the chain a question, and let three sessions use a note until it is kept for good."""
    store = RLMVectorStore("wordllama", path=path)
    retriever = store.as_retriever(search_type="hybrid", search_kwargs={"k": 3})
    prompt = ChatPromptTemplate.from_template("{context}\n{question}")
    context = {"context": retriever | context_of, "question": RunnablePassthrough()}
    chain = context | prompt | QuotingModel() | StrOutputParser()
    print("LangChain: retriever | prompt | model")
    print(f"  question  {QUESTION}")
    print(textwrap.fill(chain.invoke(QUESTION), 80, initial_indent="  answer    ", subsequent_indent=" " * 12))

    note = "The reader prints numbers with a comma as thousands separator: f'{n:,}'."
    (id,) = store.add_texts([note], [{"source": "LangChain demo"}], ids=["demo-note"], confidence=0.9)
    print(f"\nA note is added, and used in three sessions:\n  {note}")
    for session_id in ("monday", "tuesday", "wednesday"):
        with store.memory.session(session_id) as session:
            for question in TURNS:
                store.similarity_search(question, k=1, filter={"source": "LangChain demo"}, session_id=session_id)
            session.outcome(True)
        print(f"  after {session_id:10} tier {store.memory.get(id)[0].tier}")
    for entry in store.memory.promotion_log(id):
        decision = entry.decision
        moved = f"{decision.from_tier} → {decision.to_tier}" if decision.moved else f"stays in {decision.from_tier}"
        begin = f"  log {entry.sequence:3}  {moved:20} "
        print(textwrap.fill(decision.reason, 80, initial_indent=begin, subsequent_indent=" " * len(begin)))
    store.memory.close()


if __name__ == "__main__":
    made_by = "rlm-memory --db STORE demo"
    sys.exit(
        run_part("langchain_rlm.demo", sys.argv[1:], main, needs="topic", value={"$exists": True}, made_by=made_by)
    )
