"""Lists of memories by what they are and not by their words: the first of an order, all that pass filters, a file's.

The memories of the project or the user are read sort by sort (scope and type), each in the order of an index, so that
a list costs what it shows, and not what the file holds. A session's own are few, and are sorted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from typing import Final, NamedTuple

import msgspec

from remembrancer.actors.store.records.contract import Filters, Order
from remembrancer.actors.store.records.history import Query
from remembrancer.actors.store.records.sqlite_filters import condition_of, narrowing_of, places_for
from remembrancer.protocol.kinds import MEMORY_TYPES, SCOPES

TAGGED: Final = 2000
"""Memories with a tag that are looked at one by one: ten milliseconds at the most."""
SOURCE_FILE: Final = "CASE WHEN json_valid(m.source) THEN json_extract(m.source, '$.file') END"
"""As the index `memories_from_files` has it."""
_HAPPENED: Final = "coalesce(m.occurred_at, m.created_at)"
_ORDERS: Final[dict[Order, tuple[str, tuple[str, ...]]]] = {
    "important": ("memories_by_sort", ("m.importance", _HAPPENED, "m.number")),
    "latest": ("memories_by_time", (_HAPPENED, "m.number")),
}
"""The index that is read backwards, and what is in it."""


class _Part(NamedTuple):
    """Some of the memories that pass filters: a FROM and a WHERE, of fixed clauses and places, with the arguments."""

    table: str
    condition: str
    arguments: list[object]


def read_top(query: Query, filters: Filters, order: Order, limit: int) -> list[int]:
    """As `Records.top`."""
    index, keys = _ORDERS[order]
    descending = ", ".join(f"{key} DESC" for key in keys)
    first: list[tuple[float, ...]] = []
    for part in _parts(filters, index):
        first += query(
            f"""SELECT {", ".join(keys)} FROM {part.table} WHERE {part.condition}
                ORDER BY {descending} LIMIT ?""",  # noqa: S608 - fixed clauses
            (*part.arguments, limit),
        )
    return [int(row[-1]) for row in sorted(first, reverse=True)[:limit]]


def read_matching(query: Query, filters: Filters, limit: int) -> list[int] | None:
    """As `Records.matching`."""
    timed = filters.after is not None or filters.before is not None
    parts: Iterator[_Part] = _parts(filters, "memories_by_time" if timed else "memories_by_sort")
    if filters.tags and _are_few(query, filters.tags):
        parts = iter([_tagged(filters)])
    found: list[int] = []
    for part in parts:
        rows = query(
            f"SELECT m.number FROM {part.table} WHERE {part.condition} LIMIT ?",  # noqa: S608 - fixed clauses
            (*part.arguments, limit + 1 - len(found)),
        )
        found += [number for (number,) in rows]
        if len(found) > limit:
            return None
    return found


def read_from_files(query: Query, names: Sequence[str], filters: Filters, limit: int) -> list[int]:
    """As `Records.from_files`. Each file is held against the names once, however many memories are from it."""
    if not names:
        return []
    condition, arguments = condition_of(filters)
    named = " OR ".join(["instr(file, ?)"] * len(names))
    rows = query(
        f"""WITH files AS (SELECT DISTINCT {SOURCE_FILE} AS file FROM memories AS m INDEXED BY memories_from_files
                           WHERE {SOURCE_FILE} IS NOT NULL),
                named AS MATERIALIZED (SELECT file FROM files WHERE {named})
            SELECT m.number FROM named CROSS JOIN memories AS m INDEXED BY memories_from_files
            WHERE {SOURCE_FILE} IS NOT NULL AND {SOURCE_FILE} = named.file AND {condition}
            ORDER BY {_HAPPENED} DESC, m.number DESC LIMIT ?""",  # noqa: S608 - fixed clauses
        (*names, *arguments, limit),
    )
    return [number for (number,) in rows]


def _parts(filters: Filters, index: str) -> Iterator[_Part]:
    """All that passes the filters: the session's own memories, and each sort of the others in the order of an index."""
    scopes = filters.scopes or SCOPES
    if "session" in scopes:
        condition, arguments = condition_of(msgspec.structs.replace(filters, scopes=()))
        own = f"m.scope = 'session' AND m.session_id = ? AND {condition}"
        yield _Part("memories AS m INDEXED BY memories_by_session", own, [filters.session_id, *arguments])
    condition, arguments = narrowing_of(filters)
    for scope, kind in dict.fromkeys(product(scopes, filters.types or MEMORY_TYPES)):
        if scope != "session":
            sort = f"m.scope != 'session' AND m.scope = ? AND m.type = ? AND {condition}"
            yield _Part(f"memories AS m INDEXED BY {index}", sort, [scope, kind, *arguments])


def _tagged(filters: Filters) -> _Part:
    condition, arguments = condition_of(msgspec.structs.replace(filters, tags=()))
    its = f"SELECT memory FROM memory_tags WHERE tag IN {places_for(filters.tags)}"  # noqa: S608 - only "?"
    return _Part("memories AS m", f"m.number IN ({its}) AND {condition}", [*filters.tags, *arguments])


def _are_few(query: Query, tags: Sequence[str]) -> bool:
    """Whether the tags are on so few memories that these are looked at one by one."""
    ((count,),) = query(
        f"SELECT count(*) FROM (SELECT 1 FROM memory_tags WHERE tag IN {places_for(tags)} LIMIT ?)",  # noqa: S608
        (*tags, TAGGED + 1),
    )
    return bool(count <= TAGGED)
