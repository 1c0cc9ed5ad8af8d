"""Finds and ranks memories, and walks along the edges of their entities."""
