"""Which memories were told just before and after others, in one session and close in time: read from rows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any, Final

from remembrancer.actors.store.records.contract import Filters, RankingFacts, Told
from remembrancer.actors.store.records.history import Query
from remembrancer.actors.store.records.sqlite_filters import condition_of, padded, places_for

TOGETHER_S: Final = 600.0
"""Memories of one session belong to one conversation when what they tell happened within ten minutes."""
REACH: Final = 2
"""How many before and how many after count."""
INTERLEAVED: Final = 4
"""Numbers looked at on each side: other sessions may have stored theirs in between."""


def read_neighbours(read: Query, numbers: Sequence[int], filters: Filters) -> Told:
    """For each of the memories those that pass the filters and were told within `REACH` before or after it.

    What happened has a before and an after; facts and procedures stand for themselves, however they follow each other.
    """
    if not numbers:
        return Told({}, {})
    condition, arguments = condition_of(filters)
    rows = read(
        f"""SELECT its.number, m.number, m.importance, coalesce(m.occurred_at, m.created_at), m.status, m.scope,
                   m.valid_until
            FROM memories AS its CROSS JOIN memories AS m ON m.number BETWEEN its.number - ? AND its.number + ?
                AND m.number != its.number AND m.session_id = its.session_id AND m.scope = its.scope
                AND abs(coalesce(m.occurred_at, m.created_at) - coalesce(its.occurred_at, its.created_at)) <= ?
            WHERE its.number IN {places_for(padded(numbers))} AND its.session_id != '' AND its.type = 'episodic'
                AND m.type = 'episodic' AND {condition}
            ORDER BY its.number, m.number""",  # noqa: S608 - fixed clauses
        (INTERLEAVED, INTERLEAVED, TOGETHER_S, *padded(numbers), *arguments),
    )
    around: defaultdict[int, list[tuple[Any, ...]]] = defaultdict(list)
    for row in rows:
        around[row[0]].append(row[1:])
    steps: dict[int, dict[int, int]] = {}
    facts: dict[int, RankingFacts] = {}
    for number, others in around.items():
        before = [row for row in others if row[0] < number][::-1][:REACH]
        after = [row for row in others if row[0] > number][:REACH]
        steps[number] = {row[0]: step for side in (before, after) for step, row in enumerate(side, 1)}
        facts |= {row[0]: RankingFacts(*row[1:]) for row in (*before, *after)}
    return Told(steps, facts)
