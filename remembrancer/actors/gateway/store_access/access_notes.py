"""Telling the store what was shown, where that is less than it gave."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

import anyio.abc

from remembrancer.actors.gateway.store_access.store_link import StoreLink
from remembrancer.protocol.errors import RemembrancerError
from remembrancer.protocol.reads import NoteAccess
from remembrancer.protocol.writes import ProjectRef

NOTE_TIMEOUT_S: Final = 5.0
"""How long the store has to take note of what was shown. Nobody waits for it."""

logger = logging.getLogger(__name__)


class AccessNotes:
    """Notes that go out in the background of `tasks`. One that the store does not get is lost: it is a count."""

    def __init__(self, link: StoreLink, tasks: anyio.abc.TaskGroup) -> None:
        self._link = link
        self._tasks = tasks

    def note(self, project: ProjectRef, session_id: str, memory_ids: Sequence[str]) -> None:
        """These memories were shown to a session of a project: it counts as an access of each."""
        if memory_ids and self._link.usable:
            self._tasks.start_soon(self._send, NoteAccess(project, session_id, tuple(memory_ids)))

    async def _send(self, note: NoteAccess) -> None:
        try:
            await self._link.request(note, NOTE_TIMEOUT_S)
        except RemembrancerError as error:
            logger.debug("the store took no note of an access", extra={"code": error.code})
