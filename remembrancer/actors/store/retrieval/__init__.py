"""Finds and ranks memories, and follows the edges of their entities."""
