"""A question, read once: its words, the times and names in it, and what it is about."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from remembrancer.actors.store.records.contract import Filters, Phrase, Vectors
from remembrancer.actors.store.retrieval.keywords import numbered_of, phrases_and_units
from remembrancer.memory.features import Asked
from remembrancer.memory.ranking import asks_of_the_user, is_message
from remembrancer.memory.times.period_questions import PeriodQuestion, asks_for_period
from remembrancer.memory.times.windows import TimeWindow, time_windows, zone_of
from remembrancer.protocol.reads import Recall, Strategy


@dataclass(frozen=True, slots=True)
class Question:
    """A question: what is looked for, and among what. `vector` (dimensions,) is of unit length; None: it is not to be
    had."""

    text: str
    strategy: Strategy
    filters: Filters
    phrases: Sequence[Phrase]
    """The phrases that find any of its words."""
    units: Sequence[Sequence[Phrase]]
    """Its words and names, each in all of its spellings."""
    numbered: frozenset[int]
    """The places of the units that are names with a number in them."""
    windows: Sequence[TimeWindow]
    """The times that it names."""
    asked: Asked
    period: PeriodQuestion | None
    """It asks for everything of those times."""
    vector: Vectors | None = None


def read_question(request: Recall, now: float) -> Question:
    """The question of a request. Pure."""
    asked_at = now if request.reference_time is None else request.reference_time
    filters: Filters = request
    if request.valid_only:
        filters = msgspec.structs.replace(filters, valid_at=asked_at)
    phrases, units = phrases_and_units(request.query)
    windows = time_windows(request.query, asked_at, zone_of(request.reference_time, request.utc_offset_s))
    return Question(
        request.query,
        request.strategy,
        filters,
        phrases,
        units,
        frozenset(numbered_of(units)),
        windows,
        Asked(asked_at, is_message(request.query), asks_of_the_user(request.query)),
        asks_for_period(request.query) if windows else None,
    )
