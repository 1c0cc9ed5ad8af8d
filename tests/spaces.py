"""The databases of a home, as tests read and spoil them, and the tables of one space: they have its rows alone."""

import resource
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from remembrancer.actors.store.records.schema import OWNED
from remembrancer.actors.store.records.space_copies import REFERRED, numbered_columns
from remembrancer.protocol.paths import RuntimePaths

_OF_MEMORIES = {
    "memory": ("aliases", "memory_tags", "memory_entities", "names_to_find", "found_names", "memory_sessions"),
    "source": ("memory_links", "awaited_links"),
}
DERIVED: Final = ("passages", "embedded", "tallies", "entities")
"""Tables of what each host of a lane makes of the memories by itself. Entities are compared by their names."""
OWN: Final = ("access_count", "last_accessed_at")
"""Columns of what each host counts by itself."""
_ENTITIES: Final = """SELECT m.id, e.name, e.type, relationship, edge, ordinal, s.name FROM memory_entities
    JOIN entities AS e ON e.number = entity LEFT JOIN entities AS s ON s.number = subject
    JOIN memories AS m ON m.number = memory WHERE NOT found ORDER BY memory, ordinal"""
_DUMPED: Final = ({*OWNED} - {*DERIVED}) | {"aliases", "memory_tags", "memory_links", "awaited_links"}


def rows_of(file: Path, query: str, *parameters: object) -> list[tuple[Any, ...]]:
    """The answer of a database that others use to a query."""
    with closing(sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True)) as connection:
        return connection.execute(query, parameters).fetchall()


def write_rows(file: Path, *statements: str) -> None:
    """Write into a database as another program does, each statement by itself."""
    with closing(sqlite3.connect(file, isolation_level=None)) as connection:
        for statement in statements:
            connection.execute(statement)


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
    overwrite_pages(file, root, *others, content=content)


def overwrite_pages(file: Path, *pages: int, content: bytes = bytes(4096)) -> None:
    """Overwrite pages of a database, which are counted from 1."""
    with file.open("r+b") as spoiled:
        for page in pages:
            spoiled.seek((page - 1) * 4096)
            spoiled.write(content)


def has_space(paths: RuntimePaths, name: str) -> bool:
    if not paths.database.exists():
        return False
    with closing(sqlite3.connect(paths.database)) as connection:
        return connection.execute("SELECT 1 FROM spaces WHERE name = ?", (name,)).fetchone() is not None


def connect_space(paths: RuntimePaths, name: str) -> sqlite3.Connection:
    """A connection that reads one space; `main.memories` are the memories of all."""
    connection = sqlite3.connect(f"{paths.database.absolute().as_uri()}?mode=rw", uri=True)
    known = connection.execute("SELECT number FROM spaces WHERE name = ?", (name,)).fetchone()
    _read_alone(connection, -1 if known is None else known[0])
    return connection


def _read_alone(connection: sqlite3.Connection, space: int) -> None:
    """Put views of one space's rows before the tables."""
    there = {row[0] for row in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
    where = dict.fromkeys(there.intersection(OWNED), f"space = {space}")
    for column, tables in _OF_MEMORIES.items():
        where |= dict.fromkeys(tables, f"{column} IN (SELECT number FROM main.memories WHERE space = {space})")
    for table, condition in where.items():
        connection.execute(f"CREATE TEMP VIEW {table} AS SELECT * FROM main.{table} WHERE {condition}")


def dump_of(database: Path, lane: str = "") -> list[str]:
    """All that hosts have alike of a shared lane in a database, to be compared byte by byte: its rows, in the order of
    its tables; numbers count from its first row. Where it is not named there is one."""
    with closing(sqlite3.connect(database)) as connection:
        connection.row_factory = sqlite3.Row
        which = "SELECT space FROM lane JOIN spaces ON number = space WHERE ? IN ('', name)"
        ((space,),) = connection.execute(which, (lane,)).fetchall()
        numbered_in = {table: numbered_columns(connection, table) for table in sorted(_DUMPED)}  # views have no keys
        _read_alone(connection, space)
        ranks: dict[str, dict[Any, int]] = {}
        for table in REFERRED:
            numbers = connection.execute(f"SELECT number FROM {table} ORDER BY number")
            ranks[table] = {number: rank for rank, (number,) in enumerate(numbers)}
        rows = []
        for table, numbered in numbered_in.items():
            for row in connection.execute(f"SELECT * FROM {table}"):
                said = {
                    name: ranks[numbered[name]].get(row[name], row[name]) if numbered.get(name) else row[name]
                    for name in row.keys()  # noqa: SIM118 - a row is no dict
                    if name not in ("space", *OWN) and numbered.get(name) != ""
                }
                rows.append(f"{table} {tuple(said.values())}")
        return rows + [f"entities {tuple(row)}" for row in connection.execute(_ENTITIES)]
