"""Entities and their edges as rows: the one place where they are made and unmade. Inside the caller's transaction."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from remembrancer.memory.names import name_key, name_words
from remembrancer.protocol.writes import EntityRef


def link_entities(connection: sqlite3.Connection, memory: int, entities: Sequence[EntityRef], now: float) -> int:
    """Make a memory's edges to its entities, and the entities that are new. Returns how many edges were made.

    The first entity is the subject, to which the others are related.
    """
    return _link(connection, memory, entities, {}, now)


def relink_entities(connection: sqlite3.Connection, memory: int, entities: Sequence[EntityRef], now: float) -> None:
    """Make these the entities of a memory. Those that nothing is linked to any more are gone."""
    rows = connection.execute(
        "DELETE FROM memory_entities WHERE memory = ? RETURNING entity, relationship, created_at", (memory,)
    ).fetchall()
    _link(connection, memory, entities, {(entity, relation): at for entity, relation, at in rows}, now)
    remove_unlinked(connection, {entity for entity, _, _ in rows})


def entities_of(connection: sqlite3.Connection, memory: int) -> set[int]:
    """The numbers of the entities that a memory is linked to."""
    return {row[0] for row in connection.execute("SELECT entity FROM memory_entities WHERE memory = ?", (memory,))}


def remove_unlinked(connection: sqlite3.Connection, entities: set[int]) -> None:
    """Delete those of the entities that no memory is linked to."""
    connection.executemany(
        "DELETE FROM entities WHERE number = ? AND NOT EXISTS (SELECT 1 FROM memory_entities WHERE entity = number)",
        [(entity,) for entity in entities],
    )


def _link(
    connection: sqlite3.Connection,
    memory: int,
    entities: Sequence[EntityRef],
    made_at: dict[tuple[int, str], float],
    now: float,
) -> int:
    edges = 0
    subject: int | None = None
    for ordinal, entity in enumerate(entities):
        number = _number_of(connection, entity, now)
        subject = number if subject is None else subject
        edges += connection.execute(
            """INSERT OR IGNORE INTO memory_entities (memory, entity, relationship, created_at, ordinal, subject)
               VALUES (?, ?, ?, ?, ?, nullif(?, ?))""",
            (
                memory,
                number,
                entity.relationship,
                made_at.get((number, entity.relationship), now),
                ordinal,
                subject,
                number,
            ),
        ).rowcount
    return edges


def _number_of(connection: sqlite3.Connection, entity: EntityRef, now: float) -> int:
    """The number of an entity, which is made when it is new."""
    found = connection.execute(
        "SELECT number FROM entities WHERE name = ? AND type = ?", (entity.name, entity.type)
    ).fetchone()
    if found is not None:
        return int(found[0])
    number = connection.execute(
        "INSERT INTO entities (name, type, created_at, key) VALUES (?, ?, ?, ?)",
        (entity.name, entity.type, now, name_key(entity.name)),
    ).lastrowid
    assert number is not None
    connection.execute("INSERT INTO entities_text (rowid, words) VALUES (?, ?)", (number, name_words(entity.name)))
    return number
