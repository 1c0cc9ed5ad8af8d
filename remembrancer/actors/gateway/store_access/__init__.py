"""The way to the store, and what is answered and kept while it is away."""
