"""The records, which are the source of truth: spaces of one SQLite database."""
