"""The share of the truly nearest that an index finds: its answers against exact search over the vectors of the
records."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from remembrancer.actors.embedder.workers import load_engine
from remembrancer.actors.store.records.contract import Vectors
from remembrancer.actors.store.retrieval.candidates import CANDIDATES
from remembrancer.actors.store.vectors.chroma_index import ChromaIndex
from remembrancer.config.settings import Settings
from remembrancer.memory.ranking import NEAR_DUPLICATE_COSINE

NEAREST: Final = 10
COMPARED: Final = 500
"""Passages of which is looked whether another is nearly the same."""


class Exactness(NamedTuple):
    """`found`: the share of the true nearest ten that is among the index's first ten. `twins`: the share of passages
    that have another within the cosine of near-duplicates."""

    found: float
    twins: float
    passages: int


def exactness(home: Path, questions: list[str]) -> Exactness:
    """Search the largest project of a home that is not running, as a recall would, and once more exactly."""
    records = max((home / "projects").glob("*/memory.db"), key=lambda path: path.stat().st_size)
    model, numbers, vectors = _passages(records)
    engine = load_engine(Settings(), 2)
    queries = engine.embed_questions(questions)
    if not (home / "vectors").exists():  # small enough to be searched exactly
        return Exactness(1.0, _twins(vectors), len(numbers))
    index = ChromaIndex(home / "vectors")
    try:
        collection = index.collection(f"{records.parent.name}.{model}", vectors.shape[1])
        answers = [collection.search(query[None], CANDIDATES)[0][:NEAREST] for query in queries]
    finally:
        index.close()
    found = 0
    for query, hits in zip(queries, answers, strict=True):
        cosines = vectors @ query
        # By the cosine, not by the number: of equal passages one is as good as the other.
        least = np.partition(cosines, -NEAREST)[-NEAREST]
        places = np.searchsorted(numbers, [hit.passage for hit in hits])
        found += int(np.count_nonzero(cosines[places] >= least - 1e-6))
    return Exactness(found / (NEAREST * len(queries)), _twins(vectors), len(numbers))


def _passages(records: Path) -> tuple[str, np.ndarray[tuple[int], np.dtype[np.int64]], Vectors]:
    """The model, the passages' numbers in order, and their vectors (passages, dimensions)."""
    with closing(sqlite3.connect(f"{records.as_uri()}?mode=ro", uri=True)) as connection:
        ((model,),) = connection.execute("SELECT model FROM passages ORDER BY number DESC LIMIT 1")
        rows = connection.execute("SELECT number, vector FROM passages WHERE model = ? ORDER BY number", (model,))
        numbers, blobs = zip(*rows, strict=True)
    vectors = np.frombuffer(b"".join(blobs), dtype="<f4").reshape(len(numbers), -1)
    return model, np.array(numbers, dtype=np.int64), vectors


def _twins(vectors: Vectors) -> float:
    some = np.arange(0, len(vectors), max(1, len(vectors) // COMPARED))
    cosines = vectors[some] @ vectors.T
    cosines[np.arange(len(some)), some] = -1.0
    return float((cosines.max(axis=1) >= NEAR_DUPLICATE_COSINE).mean())
