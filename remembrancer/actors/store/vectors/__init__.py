"""Vectors (derived data): embedding, and the index."""
