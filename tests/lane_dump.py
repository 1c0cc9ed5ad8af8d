"""All that hosts have alike in the file of a shared lane, in a form that is compared byte by byte."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Final

DERIVED: Final = (
    "spaces",
    "tallies",
    "passages",
    "embedded",
    "names_to_find",
    "found_names",
    "entities",
    "memory_entities",
    "sqlite_sequence",
)
"""Tables of what each host makes of the memories by itself. Entities are compared by their names."""
_ENTITIES: Final = """SELECT memory, e.name, e.type, relationship, edge, ordinal, s.name FROM memory_entities
    JOIN entities AS e ON e.number = entity LEFT JOIN entities AS s ON s.number = subject
    WHERE NOT found ORDER BY memory, ordinal"""
_TO_SCRUB: Final = "memory_id IN (SELECT memory_id FROM erased)"
"""The entries of an erased memory, which each host has until it has taken them out of the journal."""


def dump_of(path: Path) -> list[str]:
    """The rows of a lane's file, in the order of its tables."""
    with closing(sqlite3.connect(path)) as connection:
        tables = [row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        rows = []
        is_words = re.compile("(words|names)_[0-9]+").match
        for table in sorted(name for name in tables if name not in DERIVED and not is_words(name)):
            but = f" WHERE NOT {_TO_SCRUB}" if table == "lane_entries" else ""
            rows += [f"{table} {row}" for row in connection.execute(f"SELECT * FROM {table}{but}")]
        return rows + [f"entities {row}" for row in connection.execute(_ENTITIES)]
