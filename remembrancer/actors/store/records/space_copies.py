"""Copies spaces to and from databases with a single space: record files of release 0.2.0, and snapshots of lanes."""

import sqlite3
from typing import Final

from remembrancer.actors.sqlite_file import Query
from remembrancer.actors.store.records.schema import MEMORY, OWNED, fill_full_texts, make_space

REFERRED: Final = ("memories", "entities", "turns", "tool_calls")
"""The tables whose rows other rows refer to, by their numbers."""
_TAKEN: Final = (
    *("memories", "entities", "aliases", "memory_tags", "memory_entities", "names_to_find", "found_names"),
    *("memory_links", "awaited_links", "memory_sessions", "embedding_attempts", "history", "erased"),
    *("applied_operations", "sessions", "proposals", "turns", "tool_calls", "promotion_log", "runs"),
    *("cross_project_patterns", "topics", "maintenance", "lane_erasures", "passages"),
)
"""The tables to copy, in an order in which rows come after those that they refer to."""
_DERIVED: Final = ("names_to_find", "found_names", "embedding_attempts", "passages")
_IN_SPACE: Final = "SELECT number FROM memories WHERE space = @SPACE"
_UNNAMED: Final = """DELETE FROM entities WHERE space = ?
    AND NOT EXISTS (SELECT 1 FROM memory_entities WHERE entity = number)
    AND NOT EXISTS (SELECT 1 FROM memory_entities WHERE subject = number)"""
"""Deletes a space's entities that no memory names. Release 0.2.0 may have left some."""
ROW_BATCH: Final = 2000


def take_in(connection: sqlite3.Connection, old: sqlite3.Connection, name: str) -> int:
    """Copy the only space of a database into a space here, and return its number. Missing columns get defaults."""
    space = make_space(connection, name)
    last = "SELECT coalesce(max(number), 0) FROM"
    offsets = {table: int(connection.execute(f"{last} {table}").fetchone()[0]) for table in REFERRED}
    for table in _TAKEN:
        _copy(old, connection, table, space, offsets)
    connection.execute(_UNNAMED, (space,))
    if old.execute("PRAGMA table_info (lane)").fetchall():
        marks = old.execute("SELECT journal, position, entry_id, applied_at FROM lane WHERE journal != ''")
        rows = [(space, *mark) for mark in marks]
        connection.executemany("INSERT OR REPLACE INTO lane VALUES (?, ?, ?, ?, ?)", rows)
    fill_full_texts(connection, space)
    return space


def numbered_columns(connection: sqlite3.Connection, table: str) -> dict[str, str]:
    """Return the columns that contain row numbers, with the tables that they refer to ("": the row is renumbered)."""
    columns = [row[1] for row in connection.execute(f"PRAGMA table_info ({table})")]
    own = {name: table if table in REFERRED else "" for name in columns if name in ("number", "sequence")}
    keys = reversed(connection.execute(f"PRAGMA foreign_key_list ({table})").fetchall())
    return own | {column: named for _, _, named, column, to, *_ in keys if to is None and named != "spaces"}


def _copy(old: sqlite3.Connection, new: sqlite3.Connection, table: str, space: int, offsets: dict[str, int]) -> None:
    known = {row[1] for row in new.execute(f"PRAGMA table_info ({table})")}
    numbered = numbered_columns(new, table)
    names = [
        name
        for _, name, *_ in old.execute(f"PRAGMA table_info ({table})")
        if name in known and name != "space" and numbered.get(name) != ""
    ]
    if not names:
        return
    if table == "names_to_find":  # triggers have queued all of these
        new.execute("DELETE FROM names_to_find WHERE memory > ?", (offsets["memories"],))
    shifted = ", ".join(f'"{name}" + {offsets[numbered[name]]}' if name in numbered else f'"{name}"' for name in names)
    columns, owner = ", ".join(f'"{name}"' for name in names), [space] if table in OWNED else []
    places = ", ".join("?" * (len(names) + len(owner)))
    into = f"INSERT INTO {table} ({'space, ' if owner else ''}{columns}) VALUES ({places})"  # noqa: S608 - our names
    order = "number" if "number" in numbered else "sequence" if "sequence" in numbered else "1"
    rows = old.execute(f"SELECT {shifted} FROM {table} ORDER BY {order}")  # noqa: S608 - our names
    while some := rows.fetchmany(ROW_BATCH):
        new.executemany(into, [[*owner, *row] for row in some])


def write_space(query: Query, target: sqlite3.Connection, name: str) -> None:
    """Write a space into an empty database, as its only space, without data derived from memories."""
    MEMORY.migrate(target, None)
    target.execute("PRAGMA foreign_keys = OFF")
    target.execute("BEGIN")
    target.execute("INSERT INTO spaces VALUES (1, ?)", (name,))
    for table in (*(table for table in _TAKEN if table not in _DERIVED), "lane"):
        columns = [f'"{row[1]}"' for row in target.execute(f"PRAGMA table_info ({table})") if row[1] != "space"]
        into, values = ", ".join(columns), ", ".join("?" * len(columns))
        condition = "space = @SPACE"
        if table in OWNED:
            into, values = f"space, {into}", f"1, {values}"
        else:
            condition = f"{next(iter(numbered_columns(target, table)))} IN ({_IN_SPACE})"
        if table == "memory_entities":
            condition += " AND NOT found"
        rows = query(f"SELECT {', '.join(columns)} FROM {table} WHERE {condition}", ())  # noqa: S608 - our names
        target.executemany(f"INSERT INTO {table} ({into}) VALUES ({values})", rows)  # noqa: S608 - our names
    target.execute(_UNNAMED, (1,))
    target.execute("COMMIT")
