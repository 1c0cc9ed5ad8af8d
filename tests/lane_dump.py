"""All that hosts have alike of a shared lane, in a form that is compared byte by byte."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any, Final

from remembrancer.actors.store.records.schema import OWNED
from remembrancer.actors.store.records.space_copies import NUMBERED

DERIVED: Final = ("passages", "embedded", "tallies", "entities")
"""Tables of what each host makes of the memories by itself. Entities are compared by their names."""
OWN: Final = ("access_count", "last_accessed_at")
"""Columns of what each host counts by itself."""
_ENTITIES: Final = """SELECT m.id, e.name, e.type, relationship, edge, ordinal, s.name FROM memory_entities
    JOIN entities AS e ON e.number = entity LEFT JOIN entities AS s ON s.number = subject
    JOIN memories AS m ON m.number = memory WHERE NOT found AND m.space = ? ORDER BY memory, ordinal"""
_OF_MEMORIES: Final = {
    **dict.fromkeys(("aliases", "memory_tags"), "memory"),
    **dict.fromkeys(("memory_links", "awaited_links"), "source"),
}


def dump_of(database: Path, lane: str = "") -> list[str]:
    """The rows of a lane in a database, in the order of its tables; numbers count from its first row. Where it is not
    named there is one."""
    with closing(sqlite3.connect(database)) as connection:
        connection.row_factory = sqlite3.Row
        which = "SELECT space FROM lane JOIN spaces ON number = space WHERE ? IN ('', name)"
        ((space,),) = connection.execute(which, (lane,)).fetchall()
        ranks: dict[str, dict[Any, int]] = {
            table: {
                number: rank
                for rank, (number,) in enumerate(
                    connection.execute(f"SELECT number FROM {table} WHERE space = ? ORDER BY number", (space,))
                )
            }
            for table in {named for columns in NUMBERED.values() for named in columns.values() if named}
        }
        tables = [*(each for each in OWNED if each not in DERIVED), *_OF_MEMORIES]
        rows = []
        for table in sorted(tables):
            which = "space = ?"
            if table in _OF_MEMORIES:
                which = f"{_OF_MEMORIES[table]} IN (SELECT number FROM memories WHERE space = ?)"
            numbered = NUMBERED.get(table, {})
            for row in connection.execute(f"SELECT * FROM {table} WHERE {which}", (space,)):
                said = {
                    name: ranks[numbered[name]].get(row[name], row[name]) if numbered.get(name) else row[name]
                    for name in row.keys()  # noqa: SIM118 - a row is no dict
                    if name not in ("space", *OWN) and numbered.get(name) != ""
                }
                rows.append(f"{table} {tuple(said.values())}")
        return rows + [f"entities {tuple(row)}" for row in connection.execute(_ENTITIES, (space,))]
