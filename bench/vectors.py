"""The time to find the nearest vectors, compared one by one and through Chroma: `python -m bench.vectors`.

Random unit vectors of 384 dimensions, the nearest fifty of each question, one thread. In turn, the median of each.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import Final

os.environ["OPENBLAS_NUM_THREADS"] = "1"  # as the launcher has it for every process

import numpy as np

from remembrancer.actors.store.records.contract import PassageVectors
from remembrancer.actors.store.vectors.chroma_index import ChromaIndex
from remembrancer.actors.store.vectors.passage_index import Collection, ExactCollection

SIZES: Final = (1_000, 5_000, 10_000, 20_000, 50_000)
DIMENSIONS: Final = 384
QUESTIONS: Final = 100
NEAREST: Final = 50


def measure(size: int, folder: Path) -> dict[str, float]:
    """Milliseconds of a search, the median, by the sort of collection."""
    rows = np.random.default_rng(size).standard_normal((size, DIMENSIONS)).astype(np.float32)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    numbers = list(range(1, size + 1))
    index = ChromaIndex(folder)
    collections: dict[str, Collection] = {"exact": ExactCollection(), "Chroma": index.collection("all", DIMENSIONS)}
    for collection in collections.values():
        collection.upsert(PassageVectors(numbers, numbers, [0] * size, rows))
    took: dict[str, list[float]] = {name: [] for name in collections}
    for place in range(QUESTIONS):
        for name, collection in collections.items():
            began = time.perf_counter()
            collection.search(rows[place : place + 1], NEAREST)
            took[name].append(time.perf_counter() - began)
    index.close()
    return {name: 1000 * statistics.median(times) for name, times in took.items()}


def main() -> None:
    """Measure and print."""
    for size in SIZES:
        with tempfile.TemporaryDirectory() as folder:
            found = measure(size, Path(folder))
        print(f"{size:>7,} vectors: " + ", ".join(f"{name} {ms:.2f} ms" for name, ms in found.items()))


if __name__ == "__main__":
    main()
