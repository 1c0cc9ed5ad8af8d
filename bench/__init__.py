"""The programs behind the figures in docs/benchmarks.md."""
