"""The limits of a memory, shared by tools, hooks and imports."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Final, TypeVar

from remembrancer.protocol.errors import InvalidInput
from remembrancer.protocol.writes import ShownFields

MAX_ANSWER_BYTES: Final = 1_000_000
"""Larger answers would delay other requests. A single memory is always returned in full."""
LISTED_BYTES: Final = MAX_ANSWER_BYTES * 4 // 5
MAX_QUERY_BYTES: Final = 16_384
MAX_TAGS: Final = 100
MAX_TAG: Final = 100
MAX_ENTITIES: Final = 100
MAX_LINKS: Final = 100
MAX_NAME: Final = 200
MAX_SESSION_ID: Final = 200
MAX_PATH: Final = 4096
MAX_SUMMARY: Final = 2000
MAX_REASON: Final = 2000
MAX_KEPT_LINKS: Final = 10_000
"""The maximum number of links in an imported memory, including links to near-duplicates."""
EARLIEST_S: Final = datetime.min.replace(tzinfo=UTC).timestamp()
LATEST_S: Final = datetime.max.replace(tzinfo=UTC, microsecond=0).timestamp()

Shown = TypeVar("Shown", bound=ShownFields)


def first_that_fit(memories: Iterable[Shown]) -> tuple[tuple[Shown, ...], bool]:
    """Return the memories that fit into an answer (at least one), and True if any are left over."""
    page: list[Shown] = []
    room = LISTED_BYTES
    for memory in memories:
        room -= len(memory.content.encode()) + len(memory.summary or "")
        if page and room < 0:
            return tuple(page), True
        page.append(memory)
    return tuple(page), False


def moment(seconds: float) -> datetime:
    """Times beyond the calendar's range become its first or last second."""
    return datetime.fromtimestamp(min(max(seconds, EARLIEST_S), LATEST_S) if seconds == seconds else 0.0, UTC)


def check_count(items: Sequence[object], *, field: str, most: int) -> None:
    if len(items) > most:
        raise InvalidInput(f"{field} may have at most {most} items, but has {len(items)}", field=field)


def check_time(seconds: float | None, field: str) -> None:
    """Raises `InvalidInput` for a time beyond the calendar's range, such as one in milliseconds."""
    if seconds is not None and not EARLIEST_S <= seconds <= LATEST_S:
        raise InvalidInput(
            f"{field} must be a time between the years 1 and 9999 in seconds, not {seconds:g}", field=field
        )
