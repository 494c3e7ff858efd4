"""The engine that keeps a store in one SQLite file."""
