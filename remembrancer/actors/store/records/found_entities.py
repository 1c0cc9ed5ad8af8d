"""Finds names in memories and makes them entities. This happens while no client is waiting, not during writes.

A trigger queues each memory that is new or has changed. Names are stored in `found_names`. A name becomes an entity,
with edges marked as found, if it is certain or occurs in enough memories. It stays an entity while any memory contains
it, unless it occurs in too many memories to distinguish them.
"""

from typing import Final

from remembrancer.actors.sqlite_file import SqliteFile
from remembrancer.actors.store.records.sqlite_edits import SqliteEdits
from remembrancer.memory.found_names import CERTAIN, FIRST, found_names
from remembrancer.memory.names import name_key
from remembrancer.protocol.kinds import SESSION_RECORD
from remembrancer.protocol.writes import MENTIONED_WITH, EntityRef

BATCH: Final = 20
"""The number of memories in one transaction, which takes a few milliseconds."""
ENOUGH: Final = 3
"""The number of memories that make a capitalised word a name, in a space with at least twice `SMALL` memories."""
SMALL: Final = 50
"""In a space with fewer memories than this, one memory is enough; in one with up to twice as many, two are."""
FEW: Final = 10
COMMON: Final = 1 / 3
"""A name is not an entity if more than this fraction of all memories, and more than `FEW`, contain it."""
MENTIONS: Final = "mentions"
"""The relation between a memory and an entity that was found in it."""
FOUND_ORDINAL: Final = -1
"""The ordinal of an edge that was found. Edges given by clients have other ordinals."""


def find_names(database: SqliteFile, now: float) -> bool:
    """Find names in a batch of new or changed memories, from any space. Returns True if there may be more."""
    if not database.read("SELECT 1 FROM names_to_find LIMIT 1"):
        return False
    with database.transaction(durable=False) as connection:  # derived, so clients do not wait for its commit
        noted = connection.execute(
            """SELECT n.memory, m.space, m.content, m.kind FROM names_to_find AS n
               CROSS JOIN memories AS m ON m.number = n.memory ORDER BY n.memory LIMIT ?""",
            (BATCH,),
        ).fetchall()
        touched: dict[tuple[int, str], None] = {}
        for memory, space, content, kind in noted:
            connection.execute("DELETE FROM names_to_find WHERE memory = ?", (memory,))
            former = connection.execute("DELETE FROM found_names WHERE memory = ? RETURNING key", (memory,))
            touched |= dict.fromkeys((space, key) for (key,) in former.fetchall())
            names = () if kind == SESSION_RECORD else found_names(content, is_entity=kind == "entity")
            for name in names:
                key = name_key(name.name)
                touched[space, key] = None
                row = (key, memory, name.name, name.type, name.certainty)
                connection.execute("INSERT OR REPLACE INTO found_names VALUES (?, ?, ?, ?, ?)", row)
        for space, key in touched:
            _link(SqliteEdits(connection, space, now), key)
    return len(noted) == BATCH


def _link(edits: SqliteEdits, key: str) -> None:
    """If a name is an entity, link all memories that contain the name to it, and no others."""
    is_entity = _is_entity(edits, key)
    former = edits.execute(
        """DELETE FROM memory_entities WHERE found AND entity IN (SELECT number FROM entities
           WHERE space = @SPACE AND key = ?1) AND NOT (?2 AND EXISTS (
           SELECT 1 FROM found_names AS f WHERE f.key = ?1 AND f.memory = memory_entities.memory)) RETURNING entity""",
        (key, is_entity),
    ).fetchall()
    edits.remove_unlinked(entity for (entity,) in former)
    if not is_entity:
        return
    unlinked = edits.execute(
        """SELECT memory, name, type FROM found_names AS f WHERE key = ?
               AND (SELECT space FROM memories WHERE number = f.memory) = @SPACE AND NOT EXISTS (
               SELECT 1 FROM memory_entities AS s JOIN entities AS e ON e.number = s.entity
               WHERE s.memory = f.memory AND e.key = f.key)""",
        (key,),
    ).fetchall()
    known = "SELECT number FROM entities WHERE space = @SPACE AND key = ? ORDER BY number LIMIT 1"
    for memory, name, kind in unlinked:
        entities = edits.query(known, (key,))  # from any source
        number = entities[0][0] if entities else edits.number_of_entity(EntityRef(name, kind, MENTIONS), edits.now)
        edits.execute(
            """INSERT INTO memory_entities (memory, entity, relationship, created_at, ordinal, subject, edge, found)
               VALUES (?1, ?2, ?3, ?4, ?5, nullif(coalesce(
                   (SELECT entity FROM memory_entities WHERE memory = ?1 ORDER BY found, ordinal, entity LIMIT 1), ?2),
                   ?2), ?6, 1)""",
            (memory, number, MENTIONS, edits.now, FOUND_ORDINAL, MENTIONED_WITH),
        )


def _is_entity(edits: SqliteEdits, key: str) -> bool:
    """True if a name does not occur in too many memories, and is certain, already an entity, or in enough memories, not
    counting session memories and those in which it only begins a sentence."""
    (having, is_certain, known) = edits.execute(
        """SELECT count(*), max(f.is_certain) = ?2 OR EXISTS (
               SELECT 1 FROM entities AS e JOIN memory_entities AS s ON s.entity = e.number
               WHERE e.space = @SPACE AND e.key = ?1 AND s.found), sum(m.scope != 'session' AND f.is_certain != ?3)
           FROM found_names AS f CROSS JOIN memories AS m ON m.number = f.memory WHERE key = ?1 AND m.space = @SPACE""",
        (key, CERTAIN, FIRST),
    ).fetchone()
    (total,) = edits.execute("SELECT coalesce(sum(count), 0) FROM tallies WHERE space = @SPACE").fetchone()
    is_name = having and (is_certain or known >= min(ENOUGH, 1 + total // SMALL))
    return bool(is_name and having <= max(FEW, COMMON * total))
