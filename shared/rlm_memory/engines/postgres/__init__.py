"""The engine on a server: PostgreSQL with pgvector. Needs the extra `postgres`."""
