"""Simple baselines for recall: words only, vectors only, and the two fused."""

import re
import sqlite3
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from remembrancer.memory.stop_words import stop_words_of

DEPTH: Final = 50
"""The number of results of each ranking that are fused."""
RRF_K: Final = 60
"""The constant of reciprocal rank fusion (Cormack, Clarke and Büttcher, 2009)."""
_WORD: Final = re.compile(r"\w+")

Vectors = NDArray[np.float32]


class WordIndex:
    """A BM25 index of texts in SQLite's FTS5. Each text is one document, identified by its index."""

    def __init__(self, texts: Sequence[str]) -> None:
        self._connection = sqlite3.connect(":memory:", check_same_thread=False)  # created outside the event loop
        self._connection.execute("CREATE VIRTUAL TABLE texts USING fts5 (text, tokenize = 'porter unicode61')")
        self._connection.executemany("INSERT INTO texts (rowid, text) VALUES (?, ?)", enumerate(texts))

    def rank(self, question: str, depth: int = DEPTH) -> list[int]:
        """Return the indexes of the texts with any word of the question, best first."""
        return list(self.scores(question, depth))

    def scores(self, question: str, depth: int = DEPTH, *, without: Collection[str] = ()) -> dict[int, float]:
        """Return BM25 scores by text index, best first, counting no words in `without`. Other texts are left out."""
        words = [word for word in dict.fromkeys(_WORD.findall(question.lower())) if word not in without]
        if not words:
            return {}
        rows = self._connection.execute(
            "SELECT rowid, -bm25(texts) FROM texts WHERE texts MATCH ? ORDER BY bm25(texts), rowid LIMIT ?",
            (" OR ".join(f'"{word}"' for word in words), depth),
        )
        return dict(rows.fetchall())

    def close(self) -> None:
        self._connection.close()


class PassageVectors:
    """Passage vectors, one row of unit length each, with the index of each passage's text."""

    def __init__(self, rows: Vectors, owners: NDArray[np.int64], texts: int) -> None:
        self.texts = texts
        self._rows = rows
        self._owners = owners

    def rank(self, question: Vectors, depth: int = DEPTH) -> list[int]:
        """Rank the texts by their passage nearest to the question's vector. Returns indexes, best first."""
        best = self.cosines(question)
        order = np.argsort(-best, kind="stable")[:depth]
        return [int(place) for place in order if np.isfinite(best[place])]

    def cosines(self, question: Vectors) -> Vectors:
        """Return the cosine of each text's best passage; -inf if it has none."""
        best = np.full(self.texts, -np.inf, dtype=np.float32)
        np.maximum.at(best, self._owners, self._rows @ question)
        return best


def read_passages(database: Path, model: str, dimensions: int, places: Mapping[str, int], texts: int) -> PassageVectors:
    """Read the vectors of a model from the records of a running store. `places` maps memory ids, or their endings, to
    indexes."""
    lengths = {len(memory_id) for memory_id in places}
    joined = "passages AS p JOIN memories AS m ON m.number = p.memory"
    with closing(sqlite3.connect(f"{database.as_uri()}?mode=ro", uri=True)) as connection:
        rows = connection.execute(f"SELECT m.id, p.vector FROM {joined} WHERE p.model = ?", (model,)).fetchall()
    owned = [
        (places[end], vector)
        for memory_id, vector in rows
        if (end := next((end for length in lengths if (end := memory_id[-length:]) in places), None)) is not None
    ]
    matrix = np.frombuffer(b"".join(vector for _, vector in owned), dtype="<f4").reshape(-1, dimensions)
    owners = np.array([place for place, _ in owned], dtype=np.int64)
    return PassageVectors(matrix.astype(np.float32, copy=False), owners, texts)


def rank_all(
    question: str,
    vector: Vectors,
    words: WordIndex,
    vectors: PassageVectors,
    allowed: Callable[[int], bool] = lambda _: True,
) -> dict[str, list[int]]:
    """Return the first `DEPTH` of the allowed texts, best first, by BM25, by the cosine of the best passage, by their
    reciprocal ranks, and by the mean of both scores, with BM25 without stop words."""
    count = vectors.texts
    scores = words.scores(question, count, without=stop_words_of(question))
    rankings = {
        "bm25": words.rank(question, count),
        "vectors": vectors.rank(vector, count),
        "mean": mean_ranking(vectors.cosines(vector), scores),
    }
    first = {name: [place for place in ranking if allowed(place)][:DEPTH] for name, ranking in rankings.items()}
    return {**first, "rrf": fused([first["bm25"], first["vectors"]])}


def mean_ranking(cosines: Vectors, bm25: Mapping[int, float]) -> list[int]:
    """Rank all texts by the mean of both scores, each scaled by its minimum and maximum. A text without a passage, or
    without a word, gets the minimum."""
    words = np.array([bm25.get(place, 0.0) for place in range(len(cosines))])
    known = np.where(np.isfinite(cosines), cosines, cosines[np.isfinite(cosines)].min(initial=1.0))
    return [int(place) for place in np.argsort(-(_scaled(known) + _scaled(words)), kind="stable")]


def _scaled(scores: NDArray[Any]) -> NDArray[Any]:
    spread = float(np.ptp(scores)) if len(scores) else 0.0
    return (scores - scores.min()) / spread if spread else np.zeros_like(scores)


def fused(rankings: Sequence[Sequence[int]], depth: int = DEPTH) -> list[int]:
    """Fuse rankings by reciprocal rank: the sum of 1 / (60 + rank). Ties keep the order of first appearance."""
    scores: dict[int, float] = defaultdict(float)
    for ranking in rankings:
        for rank, place in enumerate(ranking, 1):
            scores[place] += 1 / (RRF_K + rank)
    return sorted(scores, key=lambda place: -scores[place])[:depth]
