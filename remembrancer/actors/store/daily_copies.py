"""Makes a checked copy of the database each day, from which `remembrancer doctor --repair` restores missing data."""

import logging
import sqlite3
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import anyio
import anyio.to_thread

from remembrancer.actors.migrations import BACKUPS, STAMP, daily_copies, damage_in, write_checked_copy
from remembrancer.actors.snapshots import opened, unreadable
from remembrancer.protocol.errors import RecordsUnusable, RemembrancerError

DAY_S: Final = 86_400.0
FIRST_S: Final = 5.0
"""The delay before the first check, since a starting store has more urgent work."""
LOOK_S: Final = 600.0
REPAIR: Final = "run 'remembrancer down', then 'remembrancer doctor --repair'"

logger = logging.getLogger(__name__)


class DailyCopies:
    """Copies a database once its last copy is a day old and it has changed since, on a thread that ends with the store.

    `kept` is the number of copies to keep; if it is 0, none are made. If there is a write-ahead log at the start, the
    last store crashed, so the database is checked, and `report` is called if it is damaged.
    """

    def __init__(self, path: Path, kept: int, report: Callable[[RemembrancerError], None]) -> None:
        self._path = path
        self._kept = kept
        self._report = report
        self._has_crashed = _size(path.with_name(f"{path.name}-wal")) > 0

    async def run(self) -> None:
        await anyio.sleep(FIRST_S)
        if self._has_crashed:
            await anyio.to_thread.run_sync(self._tolerantly, self.check, abandon_on_cancel=True)
        while self._kept:
            await anyio.to_thread.run_sync(self._tolerantly, self.copy_if_due, abandon_on_cancel=True)
            await anyio.sleep(LOOK_S)

    def _tolerantly(self, work: Callable[[], object]) -> None:
        try:
            work()
        except RemembrancerError as error:
            if isinstance(error, RecordsUnusable):
                logger.error("the database is damaged", extra={"reason": error.message})
                self._report(error)
            else:
                logger.warning("the daily copy was not made", extra={"code": error.code, "reason": error.message})

    def check(self) -> None:
        try:
            with opened(self._path) as connection:
                found = damage_in(connection)
        except sqlite3.Error as error:
            raise unreadable(self._path, error) from error
        if found is not None:
            raise RecordsUnusable(f"{self._path} is damaged ({found}): {REPAIR}")

    def copy_if_due(self) -> Path | None:
        """Copy the database if its last copy is a day old and it has changed since. Returns the copy, or None. If the
        database is damaged, raises `RecordsUnusable` and keeps the earlier copies."""
        path, now = self._path, time.time()
        if not is_due(path, now):
            return None
        stamp = datetime.fromtimestamp(now, UTC).strftime(STAMP)
        copy = path.parent / BACKUPS / f"{path.name}.{stamp}"
        copy.parent.mkdir(mode=0o700, exist_ok=True)
        for unfinished in copy.parent.glob(f"{path.name}.*Z.new*"):  # the store was killed while writing it
            unfinished.unlink(missing_ok=True)
        try:
            write_checked_copy(path, copy, f"there is no room for the daily copy of {path}; make room")
        except sqlite3.Error as error:
            raise unreadable(path, error) from error
        for old in daily_copies(path)[self._kept :]:
            old.unlink(missing_ok=True)
        return copy


def is_due(path: Path, now: float, age_s: float = DAY_S) -> bool:
    """True if a database has changed since its last copy, and that copy is `age_s` old at `now` (seconds since the
    epoch), or dated in the future because the clock was ahead."""
    changed_at = max(
        (each.stat().st_mtime for each in (path, path.with_name(f"{path.name}-wal")) if _size(each)), default=None
    )
    newest = next(iter(daily_copies(path)), None)
    if changed_at is None or newest is None:
        return changed_at is not None
    age = now - made_at(newest)
    return age < 0 or (changed_at >= made_at(newest) and age >= age_s)


def made_at(copy: Path) -> float:
    return datetime.strptime(copy.name.rpartition(".")[2], STAMP).replace(tzinfo=UTC).timestamp()


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
