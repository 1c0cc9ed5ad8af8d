"""The time to find the nearest vectors, in memory and through Chroma: `python -m bench.vectors [--sizes 1000,10000]`.

Unit vectors of 384 dimensions, each a mixture of two of 500 themes, in real records; the nearest fifty memories of each
question, among all and among every tenth; one thread. In turn, the median of each.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import Final

os.environ["OPENBLAS_NUM_THREADS"] = "1"  # as the launcher has it for every process

import numpy as np

from remembrancer.actors.store.records.contract import EmbeddedMemory, Vectors
from remembrancer.actors.store.records.memory_rows import digest_of
from remembrancer.actors.store.records.sqlite_records import SqliteRecords
from remembrancer.actors.store.vectors.chroma import Chroma
from remembrancer.actors.store.vectors.chroma_vectors import ChromaVectors
from remembrancer.actors.store.vectors.exact_vectors import ExactVectors, SpaceVectors
from remembrancer.protocol.work import Passage
from remembrancer.protocol.writes import Operation, ProjectRef, StoreMemory

SIZES: Final = (1_000, 10_000, 50_000, 100_000)
DIMENSIONS: Final = 384
THEMES: Final = 500
QUESTIONS: Final = 100
NEAREST: Final = 50
TOGETHER: Final = 500
MODEL: Final = f"bench.float32.0123456789ab.{DIMENSIONS}"


def mixtures(count: int, seed: int) -> Vectors:
    """Vectors that lie in clumps, as those of texts do."""
    chance = np.random.default_rng(seed)
    themes = np.random.default_rng(0).standard_normal((THEMES, DIMENSIONS)).astype(np.float32)
    rows = themes[chance.integers(0, THEMES, count)] + themes[chance.integers(0, THEMES, count)]
    rows += chance.standard_normal((count, DIMENSIONS), dtype=np.float32)
    scaled: Vectors = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return scaled


def fill(records: SqliteRecords, size: int) -> None:
    """Store so many memories of one passage each."""
    rows = mixtures(size, 1)
    for start in range(0, size, TOGETHER):
        texts = [f"memory {number}" for number in range(start, min(start + TOGETHER, size))]
        operations = [
            Operation(
                text,
                ProjectRef("p_0123456789ab", "/bench"),
                "s",
                1.0,
                StoreMemory(memory_id=text, content=text, type="semantic", scope="project", session_id="s"),
            )
            for text in texts
        ]
        made = [
            EmbeddedMemory(outcome.to_embed or 0, digest_of(text), (Passage(0, len(text)),), rows[start + place][None])
            for place, (text, outcome) in enumerate(zip(texts, records.apply(operations), strict=True))
        ]
        records.save_embeddings(MODEL, made)


def measure(size: int, folder: Path) -> dict[str, float]:
    """Milliseconds, by what was done."""
    records = SqliteRecords(folder / "memory.db", "p_0123456789ab", time.time)
    fill(records, size)
    chroma = Chroma(folder / "vectors")
    in_chroma = ChromaVectors(records, MODEL)
    in_chroma.tend(chroma, DIMENSIONS, lambda: True)
    engines: dict[str, SpaceVectors] = {"in memory": ExactVectors(records, MODEL), "Chroma": in_chroma}
    some = list(range(10, size, 10))
    questions = mixtures(QUESTIONS, 2)
    took: dict[str, list[float]] = {}
    began = time.perf_counter()
    engines["in memory"].nearest(questions[0], NEAREST)
    took["loaded"] = [time.perf_counter() - began]
    for question in questions:
        for name, engine in engines.items():
            for what, allowed in ((name, None), (f"{name}, every tenth", some)):
                began = time.perf_counter()
                engine.nearest(question + (0 if allowed is None else 1e-9), NEAREST, allowed)
                took.setdefault(what, []).append(time.perf_counter() - began)
    chroma.close()
    records.close()
    return {name: 1000 * statistics.median(times) for name, times in took.items()}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)))
    for size in map(int, parser.parse_args().sizes.split(",")):
        with tempfile.TemporaryDirectory() as folder:
            found = measure(size, Path(folder))
        print(f"{size:>7,} vectors: " + ", ".join(f"{name} {ms:.2f} ms" for name, ms in found.items()), flush=True)


if __name__ == "__main__":
    main()
