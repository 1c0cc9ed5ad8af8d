"""The finding and ranking of memories, and walks along the edges of their entities."""
