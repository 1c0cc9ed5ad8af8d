"""Records, the truth: one SQLite file for a project, one for the user."""
