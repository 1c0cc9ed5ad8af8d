"""Reflection: what memories have in common, and where they disagree. Pure functions of texts, vectors and times."""
