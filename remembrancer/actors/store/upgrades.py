"""Bringing the files of earlier releases to the present schema, off the thread that writes.

A large file takes its time: some 10 s of the processor for 100,000 memories. What is not that file's goes on meanwhile.
A process that ends in the middle leaves the file as it was.
"""

from __future__ import annotations

import logging
import sqlite3
import time
from functools import partial
from pathlib import Path

import anyio.to_thread

from remembrancer.actors.store.records.schema import SCHEMA_VERSION, version_of
from remembrancer.actors.store.records.sqlite_file import SqliteFile

logger = logging.getLogger(__name__)


class Upgrades:
    """The upgrades of one process, and which of them are under way."""

    def __init__(self) -> None:
        self._under_way: list[str] = []

    @property
    def under_way(self) -> tuple[str, ...]:
        """The names of the files that are being upgraded."""
        return tuple(self._under_way)

    async def upgrade(self, path: Path, name: str) -> None:
        """Bring a file to the present schema; one that is not there, newer or unreadable is left as it is.

        If it is cancelled, its thread goes on until it is done or the process ends.

        Raises:
            RecordsUnusable: it is damaged.
            StorageFull: the disk has no room for it.
        """
        try:
            found = version_of(path)
        except sqlite3.DatabaseError:  # whoever opens it is told
            return
        if not 0 < found < SCHEMA_VERSION:
            return
        began = time.monotonic()
        logger.info("upgrading records", extra={"file": name, "from": found, "to": SCHEMA_VERSION})
        self._under_way.append(name)
        try:
            await anyio.to_thread.run_sync(partial(_open_and_close, path), abandon_on_cancel=True)
        finally:
            self._under_way.remove(name)
        logger.info("records upgraded", extra={"file": name, "took_s": round(time.monotonic() - began, 3)})


def _open_and_close(path: Path) -> None:
    SqliteFile(path).close()
