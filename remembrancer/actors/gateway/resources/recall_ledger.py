"""How often each session recalled, and what it was shown. Pure; kept here only, so it begins anew with the gateway."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

MAX_SESSIONS: Final = 512
MAX_MEMORIES: Final = 10_000
"""Ids that are kept of one session, to count each once."""


@dataclass(slots=True)
class Served:
    """What one session was given. `memories` has the one last shown at its end, and stops growing at `MAX_MEMORIES`."""

    queries: int = 0
    memories: dict[str, None] = field(default_factory=dict)


class RecallLedger:
    """Counts for the sessions that recalled last. `since` is when counting began (seconds since the epoch)."""

    def __init__(self, since: float) -> None:
        self.since = since
        self._served: OrderedDict[tuple[str, str], Served] = OrderedDict()

    def note(self, project_id: str, session_id: str, memory_ids: Sequence[str]) -> None:
        """A query of a session was answered with these memories."""
        key = (project_id, session_id)
        served = self._served.setdefault(key, Served())
        self._served.move_to_end(key)
        served.queries += 1
        for memory_id in reversed(memory_ids):
            if memory_id in served.memories or len(served.memories) < MAX_MEMORIES:
                served.memories.pop(memory_id, None)
                served.memories[memory_id] = None
        if len(self._served) > MAX_SESSIONS:
            self._served.popitem(last=False)

    def served(self, project_id: str, session_id: str) -> tuple[int, int]:
        """How many queries a session had answered, and how many different memories it was shown."""
        found = self._served.get((project_id, session_id), Served())
        return found.queries, len(found.memories)

    def last_shown(self, project_id: str, session_id: str) -> list[str]:
        """The memories that a session was shown, the last and best first."""
        found = self._served.get((project_id, session_id))
        return list(reversed(found.memories)) if found is not None else []
