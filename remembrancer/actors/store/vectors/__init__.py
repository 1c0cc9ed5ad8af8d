"""Vectors, derived: embedding and the index."""
