"""Which passages go through the model together, and when a job is whole. Pure: no model, no threads, no clock."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from remembrancer.actors.embedder.passages import MeasuredPassage
from remembrancer.protocol.work import Passage, PassagesEmbedded

TARGET_S: Final = 0.09
"""The time that a batch should take: long enough to be worth its fixed cost, short enough not to be waited for."""
SMALLEST_BATCH_TOKENS: Final = 256
LARGEST_BATCH_TOKENS: Final = 8192
_SMOOTHING: Final = 0.2


class BatchSize:
    """The limit of padded tokens (rows times longest row) in a batch, learnt from the time that batches took."""

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
    """One passage on its way to the model: number `place` of its job. Ordered by length, then by their order."""

    tokens: int
    order: int
    job_id: int
    place: int
    text: str


class JobQueue:
    """The jobs in hand, each open until its last vector has come. A batch holds one job's next passages, so that a long
    memory is done as a whole; what space is left goes to passages of like length, since the shorter are padded to the
    longest.

    Batches begin in turn with the job that has the least left and with the oldest: short memories do not wait for a
    long one that came before them, and none waits for ever.
    """

    def __init__(self) -> None:
        self._rows: dict[int, deque[Row]] = {}
        """By job, in the order of their arrival; never empty."""
        self._left: dict[int, int] = {}
        """Tokens, by job."""
        self._open: dict[int, tuple[tuple[Passage, ...], dict[int, NDArray[np.float32]]]] = {}
        """The passages of each job, and those of their vectors that have come."""
        self._taken = 0
        self._oldest_first = False

    def __len__(self) -> int:
        """Passages that no batch has taken yet."""
        return sum(map(len, self._rows.values()))

    def __contains__(self, job_id: int) -> bool:
        """True if a job is open."""
        return job_id in self._open

    def add(self, job_id: int, text: str, passages: Sequence[MeasuredPassage], marks: int = 0) -> None:
        """Take a job in hand: the passages of its text, each with `marks` tokens around it."""
        rows = [
            Row(tokens + marks, self._taken + place, job_id, place, text[start:end])
            for place, (start, end, tokens) in enumerate(passages)
        ]
        self._taken += len(rows)
        self._open[job_id] = (tuple(Passage(start, end) for start, end, _ in passages), {})
        self._rows[job_id] = deque(rows)
        self._left[job_id] = sum(row.tokens for row in rows)

    def take(self, padded_tokens: int, rows: int = 0) -> list[Row]:
        """The next batch, shortest first: at least one row, if there is one, and at most `rows`; 0: as many as fit."""
        if not self._rows:
            return []
        first = next(iter(self._rows)) if self._oldest_first else min(self._left, key=self._left.__getitem__)
        self._oldest_first = not self._oldest_first
        batch = [self._pop(first)]
        longest = batch[0].tokens
        while self._rows and len(batch) != rows:
            job_id = first  # its own; then that of the nearest length
            if first not in self._rows:
                job_id = min(self._rows, key=lambda each: abs(self._rows[each][0].tokens - longest))
            longest = max(longest, self._rows[job_id][0].tokens)
            if (len(batch) + 1) * longest > padded_tokens:
                break
            batch.append(self._pop(job_id))
        return sorted(batch)

    def put(self, row: Row, vector: NDArray[np.float32]) -> PassagesEmbedded | None:
        """Keep a row's vector; the answer when it was the last of its job. A job that is not open is passed over."""
        if row.job_id not in self._open:
            return None
        passages, vectors = self._open[row.job_id]
        vectors[row.place] = vector
        if len(vectors) < len(passages):
            return None
        del self._open[row.job_id]
        matrix = np.stack([vectors[place] for place in range(len(passages))])
        return PassagesEmbedded(row.job_id, passages, matrix.astype("<f4").tobytes())

    def drop(self, job_id: int) -> None:
        """Forget a job."""
        for table in (self._rows, self._left, self._open):
            table.pop(job_id, None)

    def clear(self) -> None:
        """Forget everything."""
        for table in (self._rows, self._left, self._open):
            table.clear()

    def _pop(self, job_id: int) -> Row:
        row = self._rows[job_id].popleft()
        self._left[job_id] -= row.tokens
        if not self._rows[job_id]:
            del self._rows[job_id], self._left[job_id]
        return row
