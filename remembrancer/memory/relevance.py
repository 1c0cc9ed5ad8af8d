"""The words for the probability that a memory answers a query. Pure; without numpy, which the gateway need not load."""

from __future__ import annotations

from typing import Final

from remembrancer.protocol.reads import RecalledMemory

LIKELY: Final = 0.6
PERHAPS: Final = 0.2
"""The probabilities from which on a memory is called a likely or a possible answer."""


def is_given_whole(memory: RecalledMemory) -> bool:
    """True for a likely or possible answer, which is shown in full; others get one line."""
    return memory.scores.relevance >= PERHAPS
