"""Filters as SQL: fixed clauses, and a place for each value."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from remembrancer.actors.store.records.contract import Filters

T = TypeVar("T")


def places_for(values: Sequence[object]) -> str:
    """`(?,?,…)`, one for each value."""
    return f"({','.join('?' * len(values))})"


def padded(values: Sequence[T], filler: T | None = None) -> list[T]:
    """The values for an `IN`, of which the last (or `filler`) is repeated until there are a power of two.

    Statements of few different lengths stay prepared: to prepare one takes longer than to run it.
    """
    if not values:
        return []
    missing = (1 << (len(values) - 1).bit_length()) - len(values)
    return [*values, *[values[-1] if filler is None else filler] * missing]


def condition_of(filters: Filters) -> tuple[str, list[object]]:
    """The WHERE clause of filters over `memories AS m`, of fixed clauses and places, with its arguments."""
    clauses = ["(m.scope != 'session' OR m.session_id = ?)"]
    arguments: list[object] = [filters.session_id]
    if filters.scopes:
        clauses.append(f"m.scope IN {places_for(filters.scopes)}")
        arguments.extend(filters.scopes)
    if filters.types:
        clauses.append(f"m.type IN {places_for(filters.types)}")
        arguments.extend(filters.types)
    narrowing, more = narrowing_of(filters)
    return " AND ".join([*clauses, narrowing]), [*arguments, *more]


def narrowing_of(filters: Filters) -> tuple[str, list[object]]:
    """As `condition_of`, of what filters say besides the session, the scopes and the types."""
    clauses = ["m.forgotten_at IS NULL" if not filters.include_forgotten else "TRUE"]
    arguments: list[object] = []
    if filters.kinds:
        clauses.append(f"m.kind IN {places_for(filters.kinds)}")
        arguments.extend(filters.kinds)
    if filters.min_importance > 0:
        clauses.append("m.importance >= ?")
        arguments.append(filters.min_importance)
    if filters.after is not None:
        clauses.append("coalesce(m.occurred_at, m.created_at) >= ?")
        arguments.append(filters.after)
    if filters.before is not None:
        clauses.append("coalesce(m.occurred_at, m.created_at) <= ?")
        arguments.append(filters.before)
    if filters.tags:
        places = places_for(filters.tags)
        clauses.append(f"EXISTS (SELECT 1 FROM memory_tags WHERE memory = m.number AND tag IN {places})")  # noqa: S608
        arguments.extend(filters.tags)
    return " AND ".join(clauses), arguments
