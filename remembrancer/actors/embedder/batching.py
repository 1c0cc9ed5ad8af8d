"""Which passages go through the model together, and when a job is whole. Pure: no model, no threads, no clock."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from remembrancer.protocol.work import Passage, PassagesEmbedded

TARGET_S: Final = 0.09
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
    """The passages in hand, by job. A batch holds one job's next passages, so that a long memory is done as a whole and
    not together with all others; what room is left goes to passages of like length, since the shorter are padded to the
    longest.

    Batches begin in turn with the job that has the least left and with the oldest: short memories do not wait for a
    long one that came before them, and none waits for ever.
    """

    def __init__(self) -> None:
        self._jobs: dict[int, deque[Row]] = {}
        """By job, in the order of their arrival; never empty."""
        self._left: dict[int, int] = {}
        """Tokens, by job."""
        self._arrivals = 0
        self._oldest_first = False

    def __len__(self) -> int:
        return sum(map(len, self._jobs.values()))

    def add(self, job_id: int, texts: Iterable[tuple[str, int]]) -> None:
        """Take a job's passages: each text with its number of tokens, marks included (so never none)."""
        rows = [Row(tokens, self._arrivals + place, job_id, place, text) for place, (text, tokens) in enumerate(texts)]
        if rows:
            self._arrivals += len(rows)
            self._jobs.setdefault(job_id, deque()).extend(rows)
            self._left[job_id] = self._left.get(job_id, 0) + sum(row.tokens for row in rows)

    def take(self, padded_tokens: int) -> list[Row]:
        """The next batch, shortest first; at least one row, if there is one."""
        if not self._jobs:
            return []
        first = next(iter(self._jobs)) if self._oldest_first else min(self._left, key=self._left.__getitem__)
        self._oldest_first = not self._oldest_first
        batch = [self._pop(first)]
        longest = batch[0].tokens
        while (job_id := self._next_for(first, longest)) is not None:
            longest = max(longest, self._jobs[job_id][0].tokens)
            if (len(batch) + 1) * longest > padded_tokens:
                break
            batch.append(self._pop(job_id))
        return sorted(batch)

    def discard(self, job_id: int) -> None:
        """Forget a job's passages."""
        self._jobs.pop(job_id, None)
        self._left.pop(job_id, None)

    def clear(self) -> None:
        """Forget everything."""
        self._jobs.clear()
        self._left.clear()

    def _next_for(self, first: int, longest: int) -> int | None:
        """Whose passage is next in a batch that began with job `first`: its own; then that of the nearest length."""
        if first in self._jobs:
            return first
        return min(self._jobs, key=lambda job_id: abs(self._jobs[job_id][0].tokens - longest), default=None)

    def _pop(self, job_id: int) -> Row:
        row = self._jobs[job_id].popleft()
        self._left[job_id] -= row.tokens
        if not self._jobs[job_id]:
            self.discard(job_id)
        return row


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
