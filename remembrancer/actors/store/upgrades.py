"""Bringing the files of earlier releases to the present schema, off the thread that writes.

A large file takes its time: some 10 s of the processor for 100,000 memories. What is not that file's goes on meanwhile.
A process that ends in the middle leaves the file as it was.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import time
from functools import partial
from pathlib import Path
from typing import Final

import anyio.to_thread

from remembrancer.actors.store.records.schema import SCHEMA_VERSION, version_of
from remembrancer.actors.store.records.sqlite_file import SqliteFile

PATIENCE_S: Final = 0.2
"""So long whoever needs a file waits for its upgrade: most take less, and a gateway gives a call a second."""

logger = logging.getLogger(__name__)


class Upgrades:
    """The upgrades of one process, and which of them are under way."""

    def __init__(self) -> None:
        self._tasks: dict[Path, asyncio.Task[None]] = {}
        self._since: dict[str, float] = {}

    @property
    def under_way(self) -> tuple[str, ...]:
        """The names of the files that are being upgraded."""
        return tuple(self._since)

    def patience_s(self, name: str) -> float:
        """How long whoever needs a file may still wait for its upgrade."""
        began = self._since.get(name)
        return PATIENCE_S if began is None else max(0.0, began + PATIENCE_S - time.monotonic())

    async def upgrade(self, path: Path, name: str) -> None:
        """Bring a file to the present schema; one that is not there, newer or unreadable is left as it is.

        An upgrade of it that is under way is joined. If this is cancelled, the upgrade goes on until it is done or the
        process ends.

        Raises:
            RecordsUnusable: it is damaged.
            StorageFull: the disk has no room for it.
        """
        task = self._tasks.get(path)
        if task is None:
            try:
                found = version_of(path)
            except sqlite3.DatabaseError:  # whoever opens it is told
                return
            if not 0 < found < SCHEMA_VERSION:
                return
            self._since[name] = time.monotonic()
            self._tasks[path] = task = asyncio.create_task(self._upgrade(path, name, found))
        await asyncio.shield(task)

    async def _upgrade(self, path: Path, name: str, found: int) -> None:
        logger.info("upgrading records", extra={"file": name, "from": found, "to": SCHEMA_VERSION})
        began = self._since[name]
        try:
            await anyio.to_thread.run_sync(partial(_open_and_close, path), abandon_on_cancel=True)
        finally:
            del self._since[name], self._tasks[path]
        logger.info("records upgraded", extra={"file": name, "took_s": round(time.monotonic() - began, 3)})


def _open_and_close(path: Path) -> None:
    SqliteFile(path).close()
