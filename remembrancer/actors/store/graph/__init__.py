"""Entities, their edges, and walks along them."""
