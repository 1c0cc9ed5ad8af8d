"""When a workspace is to be read again: what the system tells of its files, and how long they have to be still."""

from __future__ import annotations

import logging
import math
from collections.abc import AsyncIterator, Callable, Collection
from pathlib import Path
from typing import Final

import anyio
from watchfiles import Change, awatch

STILL_S: Final = 1.5
"""A file that changed a shorter time ago is perhaps being written: it is left for the next time."""
LONGEST_S: Final = 4.0
"""So much longer after the first change they are read although others still change."""
GROUPED_MS: Final = 200
"""Changes that come together within so many milliseconds are told together."""

logger = logging.getLogger(__name__)


class Quiet:
    """Waits until nothing has changed for `quiet_s`. Pure; times are seconds of any clock that only goes forward."""

    def __init__(self, quiet_s: float) -> None:
        self._quiet_s = quiet_s
        self._changed_at: dict[str, float] = {}
        self._first_at = math.inf
        self._last_at = math.inf

    @property
    def due_at(self) -> float:
        """When the files are to be read; never, if nothing has changed since they were."""
        return min(self._last_at + self._quiet_s, self._first_at + self._quiet_s + LONGEST_S)

    def note(self, path: str, now: float) -> None:
        """A file has changed."""
        self._changed_at[path] = self._last_at = now
        self._first_at = min(self._first_at, now)

    def take(self, now: float) -> None:
        """The files are about to be read: what has been still for long enough is forgotten."""
        self._changed_at = {path: at for path, at in self._changed_at.items() if now - at < STILL_S}
        self._first_at = self._last_at = math.inf

    def is_still(self, path: str, now: float) -> bool:
        """Whether nothing was heard of a file for long enough."""
        return now - self._changed_at.get(path, -math.inf) >= STILL_S


async def changes(root: Path, inside: Collection[Path], is_wanted: Callable[[Path], bool]) -> AsyncIterator[set[str]]:
    """The paths that change: those of a workspace's root itself that are wanted, and all in some directories.

    Ends when one of these directories comes or goes: then other ones have to be watched. Raises what the system does
    where it cannot watch.
    """
    there = {path for path in inside if path.is_dir()}
    send, receive = anyio.create_memory_object_stream[set[str]](100)

    async def watch(path: Path, recursive: bool) -> None:
        def passes(_: Change, changed: str) -> bool:
            return recursive or is_wanted(Path(changed))

        watched = awatch(path, watch_filter=passes, debounce=GROUPED_MS, step=50, recursive=recursive)
        async for told in watched:
            await send.send({changed for _, changed in told})

    async with send, receive, anyio.create_task_group() as tasks:
        tasks.start_soon(watch, root, False)
        for path in there:
            tasks.start_soon(watch, path, True)
        async for told in receive:
            yield told
            if there != {path for path in inside if path.is_dir()}:
                tasks.cancel_scope.cancel()
