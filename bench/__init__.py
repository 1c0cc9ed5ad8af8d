"""The sources of the figures in docs/benchmarks.md."""
