"""The databases of a home, as tests read and spoil them, and the tables of one space: they have its rows alone."""

from __future__ import annotations

import resource
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

from remembrancer.actors.store.records.schema import OWNED
from remembrancer.protocol.paths import RuntimePaths

_OF_MEMORIES = {
    "memory": ("aliases", "memory_tags", "memory_entities", "names_to_find", "found_names", "memory_sessions"),
    "source": ("memory_links", "awaited_links"),
}


def rows_of(file: Path, query: str, *parameters: object) -> list[tuple[Any, ...]]:
    """The answer of a database that others use to a query."""
    with closing(sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True)) as connection:
        return connection.execute(query, parameters).fetchall()


def rows_if_there(file: Path, query: str) -> list[tuple[Any, ...]]:
    """As `rows_of`; none while the file or its tables are being made."""
    with suppress(sqlite3.OperationalError):
        return rows_of(file, query)
    return []


@contextmanager
def locked(file: Path) -> Iterator[sqlite3.Connection]:
    """Another program has a database locked until the end, or until it rolls back."""
    with closing(sqlite3.connect(file, isolation_level=None)) as connection:
        connection.execute("BEGIN EXCLUSIVE")
        yield connection


@contextmanager
def full_disk(limit_bytes: int) -> Iterator[None]:
    """No file of this process may be larger meanwhile, as if no room were left."""
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit_bytes, limit[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)


def spoil_page(file: Path, table: str, *others: int, content: bytes = bytes(4096)) -> None:
    """Overwrite the page in which a table or an index of a database begins, and `others`."""
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        ((root,),) = connection.execute("SELECT rootpage FROM sqlite_schema WHERE name = ?", (table,))
    with file.open("r+b") as spoiled:
        for page in (root, *others):
            spoiled.seek((page - 1) * 4096)
            spoiled.write(content)


def has_space(paths: RuntimePaths, name: str) -> bool:
    """True if the database has the space of that name."""
    if not paths.database.exists():
        return False
    with closing(sqlite3.connect(paths.database)) as connection:
        return connection.execute("SELECT 1 FROM spaces WHERE name = ?", (name,)).fetchone() is not None


def connect_space(paths: RuntimePaths, name: str) -> sqlite3.Connection:
    """A connection that reads one space; `main.memories` are the memories of all."""
    connection = sqlite3.connect(f"{paths.database.absolute().as_uri()}?mode=rw", uri=True)
    known = connection.execute("SELECT number FROM spaces WHERE name = ?", (name,)).fetchone()
    number = -1 if known is None else known[0]
    there = {row[0] for row in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
    for table in there.intersection(OWNED):
        connection.execute(f"CREATE TEMP VIEW {table} AS SELECT * FROM main.{table} WHERE space = {number}")
    for column, tables in _OF_MEMORIES.items():
        for table in tables:
            connection.execute(
                f"""CREATE TEMP VIEW {table} AS SELECT * FROM main.{table}
                    WHERE {column} IN (SELECT number FROM main.memories WHERE space = {number})"""
            )
    return connection
