"""Records, the truth: spaces of one SQLite database."""
