"""What a reranker costs: counted where it is asked, whether that is a cross-encoder or the client's own model."""

from __future__ import annotations

import statistics
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

import msgspec

from remembrancer.protocol.control import RerankerFigures

REMEMBERED: Final = 128
"""Answers of which the median is made."""


class RerankerTally:
    """How often it was asked since the start, how often in vain, and how long its last answers took.

    `clock` gives seconds that never run backwards.
    """

    def __init__(self, failure: type[Exception], clock: Callable[[], float] = time.perf_counter) -> None:
        self._failure = failure
        self._clock = clock
        self._took_ms: deque[float] = deque(maxlen=REMEMBERED)
        self._asked = 0
        self._failed = 0

    @contextmanager
    def asking(self) -> Iterator[None]:
        """Ask it in here. A `failure` that gets out counts as one, and has no time; so has what is broken off."""
        self._asked += 1
        began = self._clock()
        try:
            yield
        except self._failure:
            self._failed += 1
            raise
        self._took_ms.append((self._clock() - began) * 1000)

    def added_to(self, figures: RerankerFigures) -> RerankerFigures:
        """The figures, with what is counted here."""
        return msgspec.structs.replace(
            figures,
            asked=self._asked,
            failed=self._failed,
            last_ms=self._took_ms[-1] if self._took_ms else None,
            median_ms=statistics.median(self._took_ms) if self._took_ms else None,
        )
