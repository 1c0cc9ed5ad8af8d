"""A parsed question: its words, its times and names, and its subject."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import msgspec

from remembrancer.actors.store.records.types import Filters, Phrase, Vectors
from remembrancer.actors.store.retrieval.keywords import numbered_of, phrases_and_units
from remembrancer.memory.features import Asked
from remembrancer.memory.ranking import asks_of_the_user, is_message
from remembrancer.memory.times.period_questions import PeriodQuestion, asks_for_period
from remembrancer.memory.times.phrases import WEEKDAYS
from remembrancer.memory.times.windows import TimeWindow, read_query, time_windows
from remembrancer.protocol.reads import Recall, Strategy


@dataclass(frozen=True, slots=True)
class Question:
    """A question, and the memories to search. `vector` (dimensions,) is of unit length; None if it is unavailable."""

    strategy: Strategy
    filters: Filters
    phrases: Sequence[Phrase]
    """The phrases that match any of its words."""
    units: Sequence[Sequence[Phrase]]
    """Its words and names, each in all of its spellings."""
    numbered: frozenset[int]
    """The positions of the units that are names with a number."""
    windows: Sequence[TimeWindow]
    """The times that it names."""
    asked: Asked
    period: PeriodQuestion | None
    """Set if it asks for everything from those times."""
    vector: Vectors | None = None


def read_question(request: Recall, now: float) -> Question:
    """Parse the question of a request. Pure."""
    asked_at = now if request.reference_time is None else request.reference_time
    filters: Filters = request
    if request.valid_only:
        filters = msgspec.structs.replace(filters, valid_at=asked_at)
    phrases, units = phrases_and_units(request.query)
    zone = None if request.reference_time is None else UTC
    windows = time_windows(request.query, asked_at, zone)
    period = asks_for_period(request.query) if windows else None
    if period is not None:
        today = WEEKDAYS[datetime.fromtimestamp(asked_at, zone).weekday()]
        if re.search(rf"\bon {today}\b", read_query(request.query), re.IGNORECASE):  # today's, or a week ago
            windows = (*windows, *time_windows("today", asked_at, zone))
    return Question(
        request.strategy,
        filters,
        phrases,
        units,
        frozenset(numbered_of(units)),
        windows,
        Asked(asked_at, is_message(request.query), asks_of_the_user(request.query)),
        period,
    )
