"""Which passages go through the model together, and when a job is whole. Pure: no model, no threads, no clock."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from remembrancer.protocol.work import Passage, PassagesEmbedded

TARGET_S: Final = 0.045
"""How long a batch should take: long enough to be worth its fixed cost, short enough not to be waited for."""
SMALLEST_BATCH_TOKENS: Final = 256
LARGEST_BATCH_TOKENS: Final = 8192
_SMOOTHING: Final = 0.2


class BatchSize:
    """How many padded tokens (rows times longest row) a batch may have, learnt from how long the batches took."""

    def __init__(self, tokens: int = 2 * SMALLEST_BATCH_TOKENS) -> None:
        self.tokens = tokens
        self._rate = tokens / TARGET_S

    def observe(self, padded_tokens: int, duration_s: float) -> None:
        """A batch of so many padded tokens took so long. Small ones say little about the rate and are passed over."""
        if padded_tokens * 2 < self.tokens:
            return
        self._rate += _SMOOTHING * (padded_tokens / max(duration_s, 1e-6) - self._rate)
        self.tokens = int(min(max(self._rate * TARGET_S, SMALLEST_BATCH_TOKENS), LARGEST_BATCH_TOKENS))


class Row(NamedTuple):
    """One passage on its way to the model: number `place` of its job. Ordered by length, then by arrival."""

    tokens: int
    arrival: int
    job_id: int
    place: int
    text: str


class RowQueue:
    """The passages in hand. A batch holds passages of like length, since the shorter are padded to the longest.

    Batches begin in turn with the shortest passage and with the oldest: short memories do not wait for a long one that
    came before them, and no passage waits for ever.
    """

    def __init__(self) -> None:
        self._sorted: list[Row] = []
        self._by_arrival: dict[int, Row] = {}
        self._arrivals = 0
        self._oldest_first = False

    def __len__(self) -> int:
        return len(self._sorted)

    def add(self, job_id: int, texts: Iterable[tuple[str, int]]) -> None:
        """Take a job's passages: each text with its number of tokens, marks included (so never none)."""
        for place, (text, tokens) in enumerate(texts):
            row = Row(tokens, self._arrivals, job_id, place, text)
            self._arrivals += 1
            self._by_arrival[row.arrival] = row
            insort(self._sorted, row)

    def take(self, padded_tokens: int) -> list[Row]:
        """The next batch, shortest first; at least one row, if there is one."""
        if not self._sorted:
            return []
        first = bisect_left(self._sorted, next(iter(self._by_arrival.values()))) if self._oldest_first else 0
        self._oldest_first = not self._oldest_first
        low, high = _neighbours(self._sorted, first, padded_tokens)
        batch = self._sorted[low:high]
        del self._sorted[low:high]
        for row in batch:
            del self._by_arrival[row.arrival]
        return batch

    def discard(self, job_id: int) -> None:
        """Forget a job's passages."""
        self._sorted = [row for row in self._sorted if row.job_id != job_id]
        self._by_arrival = {row.arrival: row for row in self._by_arrival.values() if row.job_id != job_id}

    def clear(self) -> None:
        """Forget everything."""
        self._sorted.clear()
        self._by_arrival.clear()


def _neighbours(rows: Sequence[Row], first: int, padded_tokens: int) -> tuple[int, int]:
    """Widen [first, first + 1) to the nearest lengths on either side while the padded batch stays within its bound."""
    low, high = first, first + 1
    while True:
        longest = rows[high - 1].tokens
        wider: list[tuple[int, int, int]] = []
        if low > 0:
            wider.append((longest - rows[low - 1].tokens, low - 1, high))
        if high < len(rows):
            wider.append((rows[high].tokens - longest, low, high + 1))
        fitting = [each for each in wider if (each[2] - each[1]) * rows[each[2] - 1].tokens <= padded_tokens]
        if not fitting:
            return low, high
        _, low, high = min(fitting)


class _OpenJob:
    def __init__(self, passages: tuple[Passage, ...]) -> None:
        self.passages = passages
        self.vectors: dict[int, NDArray[np.float32]] = {}


class JobTable:
    """The jobs in hand, each open until its last vector has come."""

    def __init__(self) -> None:
        self._open: dict[int, _OpenJob] = {}

    def __contains__(self, job_id: int) -> bool:
        return job_id in self._open

    def begin(self, job_id: int, passages: Iterable[Passage]) -> None:
        """Take a job in hand."""
        self._open[job_id] = _OpenJob(tuple(passages))

    def put(self, row: Row, vector: NDArray[np.float32]) -> PassagesEmbedded | None:
        """Keep a row's vector; the answer when it was the last of its job. A job that is not open is passed over."""
        job = self._open.get(row.job_id)
        if job is None:
            return None
        job.vectors[row.place] = vector
        if len(job.vectors) < len(job.passages):
            return None
        del self._open[row.job_id]
        matrix = np.stack([job.vectors[place] for place in range(len(job.passages))])
        return PassagesEmbedded(row.job_id, job.passages, matrix.astype("<f4").tobytes())

    def drop(self, job_id: int) -> None:
        """Forget a job."""
        self._open.pop(job_id, None)

    def clear(self) -> None:
        """Forget everything."""
        self._open.clear()
