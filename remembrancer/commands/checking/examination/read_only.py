"""A SQLite file looked at without a byte of it, or a file beside it, being changed."""

from __future__ import annotations

import contextlib
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

BUSY_S: Final = 2.0
STEPS_BETWEEN_LOOKS: Final = 100_000


@contextlib.contextmanager
def opened(path: Path, *, limit_s: float | None = None) -> Iterator[sqlite3.Connection]:
    """A connection that cannot write. After `limit_s` a statement is interrupted (`sqlite3.OperationalError`).

    A file in WAL mode that nobody has open is opened as immutable: SQLite would leave an empty log beside it else.

    Raises:
        sqlite3.Error: from here, and from what is done with the connection.
    """
    address = address_of(path, immutable=is_at_rest(path))
    with contextlib.closing(sqlite3.connect(address, uri=True, timeout=BUSY_S)) as connection:
        if limit_s is not None:
            give_up_at = time.monotonic() + limit_s
            connection.set_progress_handler(lambda: time.monotonic() > give_up_at, STEPS_BETWEEN_LOOKS)
        yield connection


def is_at_rest(path: Path) -> bool:
    """Whether all of a database is in the file itself, and nobody has it open: a log says otherwise."""
    log = path.with_name(path.name + "-wal")
    return not log.exists() or (log.stat().st_size == 0 and not log.with_name(path.name + "-shm").exists())


def address_of(path: Path, *, immutable: bool) -> str:
    """The URI that opens a database for reading. `immutable`: without a log or a lock, while nobody writes."""
    return f"{path.absolute().as_uri()}?mode=ro{'&immutable=1' if immutable else ''}"
