"""How memories are found and ranked, and walks along the edges of their entities."""
