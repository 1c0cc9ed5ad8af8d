"""How much there is in a file, as one session sees it."""

from __future__ import annotations

from collections import Counter

from remembrancer.actors.store.records.history import Query
from remembrancer.protocol.reads import Counts


def read_counts(query: Query, session_id: str | None) -> Counts:
    """The counts; of session memories, and of what these name, only those of `session_id` (None: all of them)."""
    by_scope: Counter[str] = Counter()
    by_type: Counter[str] = Counter()
    forgotten = 0
    if session_id is None:
        sorts = query("SELECT scope, type, forgotten, count FROM tallies WHERE count > 0", ())
    else:
        sorts = query(
            """SELECT scope, type, forgotten, count FROM tallies WHERE scope != 'session' AND count > 0
               UNION ALL SELECT scope, type, forgotten_at IS NOT NULL, count(*) FROM memories
               WHERE session_id = ? AND scope = 'session' GROUP BY 1, 2, 3""",
            (session_id,),
        )
    for scope, kind, is_forgotten, count in sorts:
        if is_forgotten:
            forgotten += count
        else:
            by_scope[scope] += count
            by_type[kind] += count
    entities, relationships = _count_graph(query, session_id)
    return Counts(by_scope.total(), dict(by_scope), dict(by_type), forgotten, entities, relationships)


def _count_graph(query: Query, session_id: str | None) -> tuple[int, int]:
    """Entities and what memories say of them: all, less what only hidden memories say."""
    ((entities, relationships),) = query(
        "SELECT (SELECT count(*) FROM entities), (SELECT count(*) FROM memory_entities)", ()
    )
    if session_id is None:
        return entities, relationships
    ((hidden_entities, hidden_relationships),) = query(
        """WITH hidden AS MATERIALIZED (  -- few index entries are read where other sessions have few memories
               SELECT number FROM memories WHERE scope = 'session' AND session_id != ?),
           named AS MATERIALIZED (
               SELECT link.entity, count(*) AS said FROM hidden
               CROSS JOIN memory_entities AS link ON link.memory = hidden.number GROUP BY link.entity)
           SELECT coalesce(sum(NOT EXISTS (SELECT 1 FROM memory_entities AS other
                                           WHERE other.entity = named.entity AND other.memory NOT IN hidden)), 0),
               coalesce(sum(said), 0) FROM named""",
        (session_id,),
    )
    return entities - hidden_entities, relationships - hidden_relationships
