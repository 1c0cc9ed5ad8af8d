"""Vectors (which are derived data): embedding, and the index."""
