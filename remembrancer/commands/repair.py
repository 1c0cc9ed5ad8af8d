"""`remembrancer doctor --repair`: repairs damaged files of memories, and lists the losses."""

import os
import time
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Final

import msgspec

from remembrancer.actors.migrations import daily_copies
from remembrancer.actors.repair import Repaired, is_damaged, rebuild
from remembrancer.actors.store.daily_copies import made_at
from remembrancer.actors.store.records.schema import MEMORY, recount
from remembrancer.commands.backup import locked, put_in_place
from remembrancer.commands.output_files import PRIVATE_UMASK, stamp
from remembrancer.memory.text import count
from remembrancer.protocol.errors import FileUnusable
from remembrancer.protocol.paths import RuntimePaths

NAMED = "memories"
"""The table whose lost rows are named one by one; for the others their number is given."""
MOST_NAMED: Final = 20
"""The number of memories from a copy that are named to a person."""


class RepairedFile(msgspec.Struct, frozen=True):
    """The outcome for one file.

    `lost` and `as_of_copy` are ids of memories; `other_rows` counts such rows of other tables. `incomplete` names the
    tables that may lack unknown rows. `copy` is the source of the rows `as_of_copy`.
    """

    path: str
    rows: int
    lost: tuple[str, ...]
    as_of_copy: tuple[str, ...]
    other_rows: dict[str, int]
    incomplete: tuple[str, ...]
    copy: str | None
    damaged: str | None

    def lines(self) -> Iterator[str]:
        """The outcome for a person."""
        when = None if self.copy is None else datetime.fromtimestamp(made_at(Path(self.copy)), UTC)
        yield f"{self.path} is repaired: {self.rows:,} rows could be read"
        if self.as_of_copy:
            more = len(self.as_of_copy) - MOST_NAMED
            ids = ", ".join(self.as_of_copy[:MOST_NAMED]) + (f" and {more:,} more" if more > 0 else "")
            yield f"  {count(len(self.as_of_copy), 'memory')} as the copy of {when:%d %b %H:%M} UTC has them: {ids}"
        if self.lost:
            yield f"  {count(len(self.lost), 'memory')} lost: {', '.join(self.lost)}"
        if self.other_rows:
            counted = ", ".join(f"{count} of {table}" for table, count in self.other_rows.items())
            yield f"  other rows lost, or as the copy has them: {counted}"
        if self.incomplete:
            yield f"  perhaps lost (it cannot be known): rows of {', '.join(self.incomplete)}"
        if self.damaged is not None:
            yield f"  the damaged file is kept as {self.damaged}: delete it when you do not need it"


def repair_home(paths: RuntimePaths) -> RepairedFile | None:
    """Repair the database if necessary. (Old files are salvaged when a home is upgraded.)

    Raises:
        AlreadyRunning: a runtime is up.
        FileUnusable: a repaired file cannot be written, and the damaged one is as it was.
        RecordsUnusable: a file cannot be repaired.
    """
    os.umask(PRIVATE_UMASK)
    with locked(paths):
        path = paths.database
        is_needed = is_damaged(path) if path.exists() else bool(daily_copies(path))
        return repair(path, time.time()) if is_needed else None


def repair(path: Path, now: float) -> RepairedFile:
    """Replace a damaged or missing file by a sound one; only while no process has it open.

    After a kill, either the damaged file or the sound one is in place. Raises like `repair_home`.
    """
    copy = next((each for each in daily_copies(path) if not is_damaged(each)), None)
    fresh = path.with_name(f"{path.name}.repaired")
    try:
        done = (
            Repaired()
            if _was_made(fresh, path)
            else rebuild(path, copy, fresh, partial(MEMORY.migrate, path=None), recount)
        )
        aside = path.with_name(f"{path.name}.damaged-{stamp(now)}")
        put_in_place(path, fresh, aside)
    except OSError as error:
        raise FileUnusable(f"{fresh} cannot be written ({error}): {path} is as it was") from error
    others = Counter(row.table for row in (*done.lost, *done.from_copy) if row.table != NAMED)
    return RepairedFile(
        str(path),
        done.read,
        tuple(row.name for row in done.lost if row.table == NAMED),
        tuple(row.name for row in done.from_copy if row.table == NAMED),
        dict(others),
        tuple(done.incomplete),
        None if copy is None else str(copy),
        str(aside) if aside.exists() else None,
    )


def _was_made(fresh: Path, path: Path) -> bool:
    """True if a killed attempt had completed the sound file, and nothing was written since."""
    log = path.with_name(f"{path.name}-wal")
    if not fresh.exists() or (log.exists() and log.stat().st_size):  # opening a database leaves an empty log
        return False
    return not path.exists() or fresh.stat().st_mtime >= path.stat().st_mtime
