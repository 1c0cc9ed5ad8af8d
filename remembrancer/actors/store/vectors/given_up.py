"""The memories that could not be embedded, why, and when each has another chance. Pure: times are passed in."""

from __future__ import annotations

from typing import Final, NamedTuple

Job = tuple[str, int]
"""A memory that needs vectors: the name of its file, its number there."""
REMEMBERED: Final = 1000
"""Of more, the oldest are forgotten: they are tried again with the next worker's arrival."""
DEADLY_S: Final = 3600.0
"""So long a text of which workers have died is kept from those that come after them."""


class _Entry(NamedTuple):
    reason: str
    again_at: float


class GivenUp:
    """What was given up. Each has another chance when its text is another, and at another worker's arrival (if workers
    have died of it: at one that is not too soon)."""

    def __init__(self) -> None:
        self._entries: dict[Job, _Entry] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, job: Job) -> bool:
        return job in self._entries

    @property
    def last_reason(self) -> str | None:
        """Why the last of them was given up."""
        last = next(reversed(self._entries.values()), None)
        return None if last is None else last.reason

    def reason_of(self, job: Job) -> str | None:
        """Why a memory has no vectors; None: it was not given up."""
        entry = self._entries.get(job)
        return None if entry is None else entry.reason

    def add(self, job: Job, reason: str, *, now: float, deadly: bool = False) -> None:
        """A memory was given up at `now`; `deadly`: workers have died of it."""
        self._entries.pop(job, None)
        self._entries[job] = _Entry(reason, now + DEADLY_S if deadly else now)
        if len(self._entries) > REMEMBERED:
            del self._entries[next(iter(self._entries))]

    def remove(self, job: Job) -> None:
        """Its text is another, or it has its vectors."""
        self._entries.pop(job, None)

    def try_again(self, job: Job, now: float) -> bool:
        """Another worker has come: whether the memory (given up or not) is to be handed out. If so, it is not given up
        any more."""
        entry = self._entries.get(job)
        if entry is not None and entry.again_at > now:
            return False
        self._entries.pop(job, None)
        return True
