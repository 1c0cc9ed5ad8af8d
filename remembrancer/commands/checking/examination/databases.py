"""The SQLite files of a home, read only: the records, the catalogue, the write queue, the index's own database."""

from __future__ import annotations

import contextlib
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from remembrancer.actors.gateway.store_access.queue_file import SCHEMA_VERSION as QUEUE_VERSION
from remembrancer.actors.store.catalog import CATALOG_VERSION
from remembrancer.actors.store.records.schema import SCHEMA_VERSION
from remembrancer.commands.checking.data_checks import FileFacts, QueueFacts
from remembrancer.commands.home_files import opened
from remembrancer.protocol.control import IndexFigures
from remembrancer.protocol.locks import FileLock
from remembrancer.protocol.paths import RuntimePaths

CHECK_LIMIT_S: Final = 30.0
"""For one file: quick_check reads all of it."""
FAULTS: Final = 5
TOLD_CHARACTERS: Final = 160
_COLLECTIONS: Final = """
    SELECT collections.name, (SELECT count(*) FROM embeddings WHERE segment_id = segments.id)
    FROM segments JOIN collections ON collections.id = segments.collection WHERE segments.scope = 'METADATA'
"""


def record_files(paths: RuntimePaths) -> list[FileFacts]:
    """Every file of records, and the catalogue, each checked whole."""
    memories = [paths.user_database, *sorted(paths.projects.glob("p_*/memory.db"))]
    found = [_twice(path, SCHEMA_VERSION) for path in memories if path.exists()]
    return found + ([_twice(paths.catalog, CATALOG_VERSION)] if paths.catalog.exists() else [])


def _twice(path: Path, known: int) -> FileFacts:
    """A store may have opened the file, and moved its pages, while it was being read: bad news is looked at again."""
    facts = file_facts(path, known)
    return file_facts(path, known) if facts.faults or facts.error else facts


def file_facts(path: Path, known: int) -> FileFacts:
    """See `FileFacts`. What SQLite says of damage names pages and rows, never what is in them."""
    size_bytes = 0
    try:
        size_bytes = path.stat().st_size
        with opened(path, limit_s=CHECK_LIMIT_S) as connection:
            version = connection.execute("PRAGMA user_version").fetchone()[0]
            if version > known:
                return FileFacts(path, size_bytes, version, known)
            said = [str(row[0]) for row in connection.execute(f"PRAGMA quick_check({FAULTS})")]
            broken = sum(1 for _ in connection.execute("PRAGMA foreign_key_check"))
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode == sqlite3.SQLITE_INTERRUPT:
            return FileFacts(path, size_bytes, known=known, unfinished=True)
        return FileFacts(path, size_bytes, known=known, error=f"cannot be read: {error}")
    except (sqlite3.Error, OSError) as error:
        return FileFacts(path, size_bytes, known=known, error=f"cannot be read: {error}")
    faults = tuple(each for each in said if each != "ok")
    return FileFacts(path, size_bytes, version, known, faults, broken)


def queue_facts(paths: RuntimePaths, now: float | None = None) -> QueueFacts:
    """See `QueueFacts`. The operations themselves are not read."""
    damaged = tuple(sorted(paths.home.glob("queue.damaged-*")))
    if not paths.write_queue.exists():
        return QueueFacts(damaged=damaged)
    try:
        with opened(paths.write_queue) as connection:
            version = connection.execute("PRAGMA user_version").fetchone()[0]
            if version > QUEUE_VERSION:
                return QueueFacts(error=f"{paths.write_queue} is of a newer release (version {version})")
            if version == 0:
                return QueueFacts(damaged=damaged)
            depth, oldest = connection.execute("SELECT count(*), min(queued_at) FROM queued").fetchone()
            rejected = connection.execute("SELECT code, message, count(*) FROM rejected GROUP BY 1, 2").fetchall()
    except sqlite3.Error as error:
        return QueueFacts(error=f"{paths.write_queue} cannot be read: {error}", damaged=damaged)
    age_s = max(0.0, (time.time() if now is None else now) - oldest) if oldest is not None else 0.0
    told = tuple((code, message[:TOLD_CHARACTERS], count) for code, message, count in rejected)
    return QueueFacts(depth, age_s, told, damaged)


def index_figures(paths: RuntimePaths) -> tuple[IndexFigures, ...]:
    """The index against the records when nothing runs; empty when that cannot be told without a change."""
    database = paths.vectors / "chroma.sqlite3"
    model = last_model_key(paths)
    if model is None or not database.exists():
        return ()
    with _store_kept_away(paths) as alone:
        if not alone:
            return ()
        try:
            with opened(database) as connection:
                indexed = dict(connection.execute(_COLLECTIONS).fetchall())
            return tuple(
                IndexFigures(name, recorded, indexed.get(f"{name}.{model}", 0), ready=True)
                for name, recorded in _recorded(paths, model)
            )
        except sqlite3.Error:
            return ()  # the records' own check says what is wrong with them; an index is made again at the next start


def last_model_key(paths: RuntimePaths) -> str | None:
    """The key of the model that made vectors last; None when none has, or it cannot be read."""
    if not paths.catalog.exists():
        return None
    try:
        with opened(paths.catalog) as connection:
            row = connection.execute("SELECT key FROM models ORDER BY last_used_at DESC LIMIT 1").fetchone()
    except sqlite3.Error:
        return None
    return None if row is None else str(row[0])


def _recorded(paths: RuntimePaths, model: str) -> Iterator[tuple[str, int]]:
    files = [("user", paths.user_database)]
    files += [(path.parent.name, path) for path in sorted(paths.projects.glob("p_*/memory.db"))]
    for name, path in files:
        if path.exists():
            with opened(path) as connection:
                query = "SELECT count(*) FROM passages WHERE model = ?"
                yield name, connection.execute(query, (model,)).fetchone()[0]


@contextlib.contextmanager
def _store_kept_away(paths: RuntimePaths) -> Iterator[bool]:
    """Hold the store's lock, so that none starts meanwhile; it waits. False when there is no lock to hold."""
    lock = FileLock(paths.store_lock)
    try:
        alone = paths.store_lock.exists() and lock.try_acquire()
    except OSError:
        alone = False
    try:
        yield alone
    finally:
        lock.release()
