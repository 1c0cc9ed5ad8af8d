"""Where the figures of docs/benchmarks.md come from."""
