"""rlm-memory for LangChain and LangGraph."""
