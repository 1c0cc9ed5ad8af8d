"""Chooses the passages of each batch, and detects completed jobs. Pure: no model, no threads, no clock."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from remembrancer.actors.embedder.passages import MeasuredPassage
from remembrancer.protocol.work import Passage, PassagesEmbedded

TARGET_S: Final = 0.09
"""The desired time of a batch: long enough to be worth its fixed cost, short enough that others hardly wait for it."""
SMALLEST_BATCH_TOKENS: Final = 256
LARGEST_BATCH_TOKENS: Final = 8192
_SMOOTHING: Final = 0.2


class BatchSize:
    """The limit of padded tokens (rows times longest row) in a batch, learnt from the measured times."""

    def __init__(self, tokens: int = 2 * SMALLEST_BATCH_TOKENS) -> None:
        self.tokens = tokens
        self._rate = tokens / TARGET_S

    def observe(self, padded_tokens: int, duration_s: float) -> None:
        """Note the time of a batch with this many padded tokens. Small ones say little about the rate and are
        ignored."""
        if padded_tokens * 2 < self.tokens:
            return
        self._rate += _SMOOTHING * (padded_tokens / max(duration_s, 1e-6) - self._rate)
        self.tokens = int(min(max(self._rate * TARGET_S, SMALLEST_BATCH_TOKENS), LARGEST_BATCH_TOKENS))


class QueuedPassage(NamedTuple):
    """One passage on its way to the model: number `place` of its job. Ordered by length, then by arrival."""

    tokens: int
    order: int
    job_id: int
    place: int
    text: str


class _Job(NamedTuple):
    passages: tuple[Passage, ...]
    rows: deque[QueuedPassage]
    """The passages that no batch has taken yet, in the order of the text."""
    vectors: dict[int, NDArray[np.float32]]


class PassageQueue:
    """The jobs in hand, each open until its last vector has arrived. A batch takes one job's next passages, so that a
    long memory is completed as a whole, and then passages of similar length, since the shorter are padded to the
    longest.

    Batches start alternately with the job that has the least left and with the oldest: short memories do not wait for a
    long one before them, and no job waits for ever.
    """

    def __init__(self) -> None:
        self._jobs: dict[int, _Job] = {}
        self._taken = 0
        self._oldest_first = False

    def __len__(self) -> int:
        """The number of passages that no batch has taken yet."""
        return sum(len(job.rows) for job in self._jobs.values())

    def __contains__(self, job_id: int) -> bool:
        """True if a job is open."""
        return job_id in self._jobs

    def add(self, job_id: int, text: str, passages: Sequence[MeasuredPassage], marks: int = 0) -> None:
        """Add a job: the passages of its text, each with `marks` tokens around it."""
        rows = [
            QueuedPassage(tokens + marks, self._taken + place, job_id, place, text[start:end])
            for place, (start, end, tokens) in enumerate(passages)
        ]
        self._taken += len(rows)
        self._jobs[job_id] = _Job(tuple(Passage(start, end) for start, end, _ in passages), deque(rows), {})

    def take(self, padded_tokens: int, rows: int = 0) -> list[QueuedPassage]:
        """The next batch, shortest first: at least one row, if there is any, and at most `rows`; 0: as many as fit."""
        left = {job_id: len(job.rows) * job.rows[0].tokens for job_id, job in self._jobs.items() if job.rows}
        if not left:
            return []
        first = next(iter(left)) if self._oldest_first else min(left, key=left.__getitem__)
        self._oldest_first = not self._oldest_first
        batch: list[QueuedPassage] = []
        longest = 0
        for job_id in sorted(left, key=lambda each: (each != first, abs(left[each] - left[first]))):
            waiting = self._jobs[job_id].rows
            while waiting:
                longest = max(longest, waiting[0].tokens)
                if batch and ((len(batch) + 1) * longest > padded_tokens or len(batch) == rows):
                    return sorted(batch)
                batch.append(waiting.popleft())
        return sorted(batch)

    def put(self, row: QueuedPassage, vector: NDArray[np.float32]) -> PassagesEmbedded | None:
        """Store a row's vector. Returns the answer if it was the last of its job. A job that is not open is ignored."""
        job = self._jobs.get(row.job_id)
        if job is None:
            return None
        job.vectors[row.place] = vector
        if len(job.vectors) < len(job.passages):
            return None
        del self._jobs[row.job_id]
        matrix = np.stack([job.vectors[place] for place in range(len(job.passages))])
        return PassagesEmbedded(row.job_id, job.passages, matrix.astype("<f4").tobytes())

    def drop(self, job_id: int) -> None:
        """Drop a job."""
        self._jobs.pop(job_id, None)

    def clear(self) -> None:
        """Drop all jobs."""
        self._jobs.clear()
