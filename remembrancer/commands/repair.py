"""`remembrancer doctor --repair`: repairs damaged files of memories, and lists the losses."""

import os
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Final

from remembrancer.actors.migrations import daily_copies
from remembrancer.actors.repair import Repaired, rebuild
from remembrancer.actors.snapshots import damage_of
from remembrancer.actors.store.daily_copies import made_at
from remembrancer.actors.store.records.schema import MEMORY, recount
from remembrancer.commands.backup import locked, put_in_place
from remembrancer.commands.output_files import PRIVATE_UMASK, stamp
from remembrancer.memory.text import count
from remembrancer.protocol.errors import FileUnusable
from remembrancer.protocol.paths import RuntimePaths

NAMED = "memories"
"""Lost rows of this table are listed by id; those of other tables are only counted."""
MOST_NAMED: Final = 20
"""The number of memories restored from a copy that are listed for the user."""


def lines_of(repaired: Mapping[str, Any]) -> Iterator[str]:
    yield f"{repaired['path']} is repaired: {repaired['rows']:,} rows could be read"
    if ids := repaired["as_of_copy"]:
        when = datetime.fromtimestamp(made_at(Path(repaired["copy"])), UTC)
        more = f" and {len(ids) - MOST_NAMED:,} more" if len(ids) > MOST_NAMED else ""
        named = ", ".join(ids[:MOST_NAMED]) + more
        yield f"  {count(len(ids), 'memory')} restored from the copy of {when:%d %b %H:%M} UTC: {named}"
    if ids := repaired["lost"]:
        yield f"  {count(len(ids), 'memory')} lost: {', '.join(ids)}"
    if others := repaired["other_rows"]:
        counted = ", ".join(f"{number} of {table}" for table, number in others.items())
        yield f"  other rows lost, or restored from the copy: {counted}"
    if repaired["incomplete"]:
        yield f"  perhaps lost (this cannot be determined): rows of {', '.join(repaired['incomplete'])}"
    if damaged := repaired["damaged"]:
        yield f"  the damaged file is kept as {damaged}; delete it when you no longer need it"


def repair_home(paths: RuntimePaths) -> dict[str, Any] | None:
    """Files of release 0.2.0 are not repaired: the import waits until a damaged file is restored or moved away."""
    os.umask(PRIVATE_UMASK)
    with locked(paths):
        path = paths.database
        is_needed = damage_of(path) is not None if path.exists() else bool(daily_copies(path))
        return repair(path, time.time()) if is_needed else None


def repair(path: Path, now: float) -> dict[str, Any]:
    """Replace a database with a sound copy. If the process is killed, one of the two files is in place."""
    copy = next((copy for copy in daily_copies(path) if damage_of(copy) is None), None)
    fresh = path.with_name(f"{path.name}.repaired")
    try:
        migrate = partial(MEMORY.migrate, path=None)
        done = Repaired() if _was_made(fresh, path) else rebuild(path, copy, fresh, migrate, recount)
        aside = path.with_name(f"{path.name}.damaged-{stamp(now)}")
        put_in_place(path, fresh, aside)
    except OSError as error:
        raise FileUnusable(f"{fresh} cannot be written ({error}): {path} is unchanged") from error
    others = Counter(row.table for row in (*done.lost, *done.from_copy) if row.table != NAMED)
    return {
        "path": str(path),
        "rows": done.read,
        "lost": [row.name for row in done.lost if row.table == NAMED],
        "as_of_copy": [row.name for row in done.from_copy if row.table == NAMED],
        "other_rows": dict(others),
        "incomplete": done.incomplete,
        "copy": copy and str(copy),
        "damaged": str(aside) if aside.exists() else None,
    }


def _was_made(fresh: Path, path: Path) -> bool:
    log = path.with_name(f"{path.name}-wal")
    if not fresh.exists() or (log.exists() and log.stat().st_size):  # opening a database leaves an empty log
        return False
    return not path.exists() or fresh.stat().st_mtime >= path.stat().st_mtime
