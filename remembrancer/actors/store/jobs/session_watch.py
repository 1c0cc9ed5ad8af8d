"""Which sessions have been left without a word: pure, with both clocks passed in."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

FORGOTTEN_S: Final = 86_400.0
"""A session that nobody was connected to in this life of the store is over when it has done nothing for so long."""

SessionKey = tuple[str, str]
"""A project's id and a session's."""


@dataclass(frozen=True, slots=True)
class OpenSession:
    """A session of the registry that has no end. `last_active_at` is seconds since the epoch."""

    key: SessionKey
    last_active_at: float


class SessionWatch:
    """Remembers when each session was last heard of, by a clock that only goes forward."""

    def __init__(self, grace_s: float) -> None:
        self._grace_s = grace_s
        self._seen_at: dict[SessionKey, float] = {}

    @property
    def watched(self) -> int:
        """How many sessions something is remembered of."""
        return len(self._seen_at)

    def note(self, present: Iterable[SessionKey], now: float) -> None:
        """These sessions are connected, begin, or do something."""
        for key in present:
            self._seen_at[key] = now

    def lost(self, sessions: Iterable[OpenSession], now: float, wall_now: float) -> list[OpenSession]:
        """Those of the open sessions that have been abandoned. What else was seen and is over is let go.

        A session that was heard of and has not been for the grace time is; so is one that was not seen at all, and
        was last active a day ago by the wall clock `wall_now` (one that is ahead of it counts as active now).
        """
        known = list(sessions)
        of_registry = {session.key for session in known}
        self._seen_at = {
            key: at for key, at in self._seen_at.items() if key in of_registry or now - at <= self._grace_s
        }
        return [session for session in known if self._is_lost(session, now, wall_now)]

    def _is_lost(self, session: OpenSession, now: float, wall_now: float) -> bool:
        seen_at = self._seen_at.get(session.key)
        if seen_at is not None:  # which the registry may not have been read since
            return now - seen_at > self._grace_s
        return max(0.0, wall_now - session.last_active_at) > FORGOTTEN_S
