"""Reading what has words: BM25 over the full text of a SQLite file of records.

Where a question's words are in a great part of many memories, a narrower expression is scored instead (`narrowing`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from remembrancer.actors.store.records.contract import Filters, KeywordHit
from remembrancer.actors.store.records.narrowing import ENOUGH, ROWS, TIMES, narrowed, phrases_of
from remembrancer.actors.store.records.sqlite_filters import condition_of, places_for
from remembrancer.protocol.kinds import SCOPES

BM25: Final = "-bm25(memories_text, 3.0, 1.5, 0.9, 1.5)"
"""The weights of content, tags, summary and parts.

FTS5 multiplies the number of times a word occurs by the weight before that saturates, so three times the weight is a k1
of 0.4 in place of 1.2: that a word occurs counts, less how often, and less how long the memory is. Of 495 questions of
LoCoMo 61.6 in 100 have evidence among the first five then by words alone, and 59.4 before.
"""
APART: Final = """LEFT JOIN memories AS a INDEXED BY memories_apart
    ON a.number = memories_text.rowid AND (a.forgotten_at IS NOT NULL OR a.scope = 'session')"""

Read = Callable[[str, Sequence[object]], list[Any]]


def read_keyword_hits(read: Read, match: str, filters: Filters, limit: int) -> list[KeywordHit]:
    """As `Records.keyword_hits`."""
    return _among_few(read, match, _narrowed(read, match), _Among(_passing(filters)), limit)


def read_hits_apart(read: Read, match: str, filters: Filters, limit: int) -> tuple[list[KeywordHit], list[KeywordHit]]:
    """As `Records.keyword_hits_apart`."""
    passing = _passing(filters)
    narrow = _narrowed(read, match)
    if narrow is not None:
        own = _hits(read, match, _Among(passing, passing.is_own, _numbers_of(read, filters.session_id)), limit)
        return own, _among_few(read, match, narrow, _Among(passing, f"NOT ({passing.is_own})"), limit)
    rows = read(
        f"""WITH hits AS MATERIALIZED (
                SELECT memories_text.rowid AS number, {BM25} AS score, {passing.is_own} AS own
                FROM memories_text {passing.join} WHERE memories_text MATCH ? AND {passing.condition})
            SELECT * FROM (SELECT * FROM hits WHERE own ORDER BY score DESC, number DESC LIMIT ?)
            UNION ALL
            SELECT * FROM (SELECT * FROM hits WHERE NOT own ORDER BY score DESC, number DESC LIMIT ?)""",  # noqa: S608
        (match, *passing.arguments, limit, limit),
    )
    own, others = ([KeywordHit(number, score) for number, score, its in rows if its == side] for side in (1, 0))
    return own, others


def read_words_in(read: Read, expressions: Sequence[str], numbers: Sequence[int]) -> dict[int, int]:
    """As `Records.words_in`."""
    found: dict[int, int] = {}
    for expression in expressions:
        rows = read(
            f"SELECT rowid FROM memories_text WHERE memories_text MATCH ? AND rowid IN {places_for(numbers)}",  # noqa: S608
            (expression, *numbers),
        )
        for (number,) in rows:
            found[number] = found.get(number, 0) + 1
    return found


@dataclass(frozen=True, slots=True)
class _Among:
    """The rows that are searched: what passes filters, on one side, and within a range of numbers (first, last)."""

    passing: _Passing
    side: str = "TRUE"
    numbers: tuple[int, int] | None = None


def _among_few(read: Read, match: str, narrow: str | None, among: _Among, limit: int) -> list[KeywordHit]:
    """The best hits, from a narrower expression if there is one and the filters leave enough of what it finds."""
    if narrow is not None:
        hits = _hits(read, narrow, among, limit)
        if len(hits) >= min(limit, ENOUGH):
            return [KeywordHit(hit.number, hit.bm25 / TIMES) for hit in hits]
    return _hits(read, match, among, limit)


def _hits(read: Read, match: str, among: _Among, limit: int) -> list[KeywordHit]:
    passing, numbers = among.passing, among.numbers or ()
    within = "AND memories_text.rowid BETWEEN ? AND ?" if numbers else ""
    rows = read(
        f"""SELECT memories_text.rowid, {BM25} AS score FROM memories_text {passing.join}
            WHERE memories_text MATCH ? {within} AND {among.side} AND {passing.condition}
            ORDER BY score DESC, memories_text.rowid DESC LIMIT ?""",  # noqa: S608 - fixed clauses
        (match, *numbers, *passing.arguments, limit),
    )
    return [KeywordHit(number, score) for number, score in rows]


def _narrowed(read: Read, match: str) -> str | None:
    """A narrower expression for one that would be scored in many memories. In a small file none is looked for."""
    phrases = phrases_of(match)
    ((last,),) = read("SELECT max(number) FROM memories", ())
    if not phrases or (last or 0) <= ROWS:
        return None
    counts = " UNION ALL ".join(["SELECT ?, count(*) FROM memories_text WHERE memories_text MATCH ?"] * len(phrases))
    rows = dict(read(counts, [phrase for each in phrases for phrase in (each, each)]))
    return narrowed(phrases, rows)


def _numbers_of(read: Read, session_id: str) -> tuple[int, int]:
    """The first and the last of a session's own memories, which usually are close together."""
    ((first, last),) = read(
        "SELECT min(number), max(number) FROM memories WHERE session_id = ? AND scope = 'session'", (session_id,)
    )
    return first or 0, last or 0


class _Passing(NamedTuple):
    """How the rows of `memories_text` are held against filters. `is_own` tells the session's own from all others."""

    join: str
    condition: str
    is_own: str
    arguments: list[object]


def _passing(filters: Filters) -> _Passing:
    """Where only forgetting and sessions count, a short index of what they concern answers, and no memory is read.

    A word may be in thousands of memories: for a question in 10,000 of them this saves a quarter of the time.
    """
    if filters == Filters(filters.session_id, filters.scopes) and not {"project", "user"}.difference(
        filters.scopes or SCOPES
    ):
        own, arguments = "a.forgotten_at IS NULL AND a.session_id = ?", [filters.session_id]
        if filters.scopes and "session" not in filters.scopes:
            own, arguments = "FALSE", []
        return _Passing(APART, f"(a.number IS NULL OR ({own}))", "a.number IS NOT NULL", [*arguments])
    condition, given = condition_of(filters)
    return _Passing("JOIN memories AS m ON m.number = memories_text.rowid", condition, "m.scope = 'session'", given)
