"""The sessions that have begun in projects without a file: kept here until their project gets one. Pure."""

from __future__ import annotations

from typing import Final

from remembrancer.protocol.session_life import EndSession, StartSession
from remembrancer.protocol.writes import Operation

MOST: Final = 256
"""Beyond it the oldest are let go: a project that nothing was ever stored in has little to register."""


class WaitingStarts:
    """Remembers the last start of each session that has not ended. A store that stops forgets them."""

    def __init__(self) -> None:
        self._starts: dict[tuple[str, str], Operation] = {}

    def __len__(self) -> int:
        """How many there are."""
        return len(self._starts)

    def note(self, operation: Operation) -> None:
        """A project without a file was told this: a session that ends before there is one leaves nothing behind."""
        match operation.change:
            case StartSession(session_id=session_id):
                self._starts.pop((operation.project.id, session_id), None)
                self._starts[operation.project.id, session_id] = operation
                while len(self._starts) > MOST:
                    del self._starts[next(iter(self._starts))]
            case EndSession(session_id=session_id):
                self._starts.pop((operation.project.id, session_id), None)

    def take(self, project_id: str) -> list[Operation]:
        """The starts of a project's sessions, the first one first: its file has been made."""
        taken = [key for key in self._starts if key[0] == project_id]
        return [self._starts.pop(key) for key in taken]
