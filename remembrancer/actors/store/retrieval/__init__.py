"""How memories are found and ranked."""
