"""The record of what was shown to whom: a small SQLite file of its own, written in batches after the answers.

It is no part of the records: it can be deleted at any time, and the last moment before a crash is lost.
"""

from __future__ import annotations

import logging
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

import anyio
import anyio.to_thread
import msgspec

from remembrancer.actors.migrations import Schema, Step, drop_copies
from remembrancer.memory.credentials import masked
from remembrancer.memory.short_ids import part_of_id
from remembrancer.memory.tokens import estimate_tokens
from remembrancer.protocol.errors import RemembrancerError

FILE: Final = "shown.db"
BATCH_S: Final = 2.0
MAX_PENDING: Final = 10_000
"""More is not kept while the file cannot be written."""
MAX_QUESTION: Final = 300
SAMPLE: Final = 2000
"""Bytes of an answer of which the tokens are counted: those of a longer one are in proportion."""
MOST_TIMED: Final = 2000
"""The last answers of a project, of which the times are compared."""
QUOTED: Final = 24
"""Characters by which the beginning of a quote is known."""
PRUNE_S: Final = 3600.0
SCHEMA: Final = Schema(
    Step(
        "0.2.0",
        """
    CREATE TABLE shown (
        at REAL NOT NULL, project TEXT NOT NULL, session_id TEXT NOT NULL, memory_id TEXT NOT NULL,
        place INTEGER NOT NULL, tool TEXT NOT NULL, question TEXT NOT NULL
    );
    CREATE INDEX shown_by_memory ON shown (memory_id, at);
    CREATE INDEX shown_by_session ON shown (session_id, at);
    CREATE INDEX shown_by_time ON shown (at);
    CREATE INDEX shown_by_project ON shown (project, at, place);
    CREATE TABLE answers (
        at REAL NOT NULL, project TEXT NOT NULL, session_id TEXT NOT NULL, tool TEXT NOT NULL,
        tokens INTEGER NOT NULL, took_ms REAL NOT NULL
    );
    CREATE INDEX answers_by_project ON answers (project, at, tool, tokens, took_ms);
    CREATE INDEX answers_by_time ON answers (at);
    """,
    )
)
_HAS_PART: Final = """
    :memory_id IN (substr(memory_id, -length(:memory_id)), substr(memory_id, 8, length(:memory_id)))
"""
T = TypeVar("T")
logger = logging.getLogger(__name__)


class Shown(NamedTuple):
    """A memory was shown at a time to a session, at that place of an answer (from 1; 0: nothing was found)."""

    at: float
    project: str
    session_id: str
    memory_id: str
    place: int
    tool: str
    question: str


class _Answer(NamedTuple):
    """An answer as it is noted."""

    at: float
    project: str
    session_id: str
    tool: str
    answer: dict[str, Any]
    took_s: float

    @property
    def tokens(self) -> int:
        """Those of all of its text, about."""
        text = msgspec.json.encode(self.answer)
        counted = estimate_tokens(text[:SAMPLE].decode(errors="ignore"))
        return round(counted * len(text) / min(SAMPLE, len(text)))


class DayShown(NamedTuple):
    """The recalls of a day, those that were answered with nothing, and the memories and tokens that were given out."""

    recalls: int = 0
    nothing: int = 0
    memories: int = 0
    tokens: int = 0


class ToolAnswers(NamedTuple):
    """The answers of a tool, their tokens, and the milliseconds that the last ones took."""

    tool: str
    answers: int
    tokens: int
    p50_ms: float
    p95_ms: float


class ShownLog:
    """Run `run` as a task. It keeps what was shown for `kept_s`; with 0 nothing is noted."""

    def __init__(self, home: Path, kept_s: float, clock: Callable[[], float] = time.time) -> None:
        self._path = home / FILE
        self._kept_s = kept_s
        self._clock = clock
        self._pending: deque[Shown] = deque()
        self._answers: deque[_Answer] = deque()
        self._pruned_at = 0.0
        self._writing = threading.Lock()
        """Held by one writer at a time: a batch on its way must not bring back words that were erased."""

    def note(self, project: str, session_id: str, memory_ids: Sequence[str], tool: str, question: str) -> None:
        """These were shown, in that order. To be called in the middle of a request: it only remembers."""
        if self._kept_s and len(self._pending) < MAX_PENDING:
            at, said = self._clock(), question[: 2 * MAX_QUESTION]
            shown = enumerate(memory_ids, 1) if memory_ids else [(0, "")]
            self._pending.extend(Shown(at, project, session_id, each, place, tool, said) for place, each in shown)

    def note_answer(self, project: str, session_id: str, tool: str, answer: dict[str, Any], took_s: float) -> None:
        """A tool gave this answer. It only remembers, as `note` does."""
        if self._kept_s and len(self._answers) < MAX_PENDING:
            self._answers.append(_Answer(self._clock(), project, session_id, tool, answer, took_s))

    async def run(self) -> None:
        """Write what was noted, a batch at a time. Ends when it is cancelled, with the last batch written."""
        try:
            while True:
                await anyio.sleep(BATCH_S)
                if self._pending or self._answers:
                    await anyio.to_thread.run_sync(self.flush)
        finally:
            if self._pending or self._answers:
                with anyio.CancelScope(shield=True):
                    await anyio.to_thread.run_sync(self.flush)

    def flush(self) -> None:
        """Write what was noted so far. What cannot be written is logged, and lost."""
        with self._writing:
            self._flush()

    def _flush(self) -> None:
        batch, answers = list(_taken(self._pending)), list(_taken(self._answers))
        now = self._clock()
        try:
            with _opened(self._path) as connection:
                rows = [each._replace(question=masked(each.question)[:MAX_QUESTION]) for each in batch]
                connection.executemany("INSERT INTO shown VALUES (?, ?, ?, ?, ?, ?, ?)", rows)
                given = [(*each[:4], each.tokens, each.took_s * 1000) for each in answers]
                connection.executemany("INSERT INTO answers VALUES (?, ?, ?, ?, ?, ?)", given)
                if now - self._pruned_at > PRUNE_S:
                    connection.execute("DELETE FROM shown WHERE at < ?", (now - self._kept_s,))
                    connection.execute("DELETE FROM answers WHERE at < ?", (now - self._kept_s,))
                    self._pruned_at = now
        except (sqlite3.Error, OSError, RemembrancerError) as error:
            logger.warning("what was shown cannot be noted", extra={"reason": str(error)})

    def erase(self, memory_ids: Sequence[str], quotes: Sequence[str], project: str) -> None:
        """Forget that memories were ever shown, and all questions of a project in which one of the quotes begins.

        Raises:
            sqlite3.Error, RemembrancerError: it cannot be done, or not all of it.
        """
        with self._writing:
            if self._pending:
                self._flush()
            self._erase(memory_ids, quotes, project)

    def _erase(self, memory_ids: Sequence[str], quotes: Sequence[str], project: str) -> None:
        if self._path.exists():
            with _opened(self._path) as connection:
                connection.executemany("DELETE FROM shown WHERE memory_id = ?", [(each,) for each in memory_ids])
                beginnings = {(project, quote[:QUOTED]) for quote in quotes}  # a long question has lost its end
                forget = "UPDATE shown SET question = '' WHERE project = ? AND instr(question, ?)"
                connection.executemany(forget, beginnings)
        drop_copies(self._path, *memory_ids, *(quote[:QUOTED] for quote in quotes))

    def read(
        self, *, project: str = "", memory_id: str = "", session_id: str = "", since: float = 0.0, limit: int = 100
    ) -> list[Shown]:
        """The latest showings first: of a project, a memory (by its id or a part of it), a session, or all."""
        if self._pending:
            self.flush()
        if not self._path.exists():
            return []
        given = {"project": project, "memory_id": memory_id, "session_id": session_id}
        wanted = {name: value for name, value in given.items() if value}
        clauses = " AND ".join([*(f"{name} = :{name}" for name in wanted), "at >= :since"])
        if part_of_id(memory_id):
            clauses = clauses.replace("memory_id = :memory_id", _HAS_PART)
        with _opened(self._path) as connection:
            asked = f"SELECT * FROM shown WHERE {clauses} ORDER BY at DESC, place LIMIT :limit"  # noqa: S608 - our names
            return [Shown(*row) for row in connection.execute(asked, {**wanted, "since": since, "limit": limit})]

    def by_day(self, project: str, since: float) -> dict[int, DayShown]:
        """The figures of a project, by the day since the epoch (UTC)."""
        if self._pending or self._answers:
            self.flush()
        if not self._path.exists():
            return {}
        with _opened(self._path) as connection:
            shown = connection.execute(  # each answer has one row of place 0 or 1
                """SELECT CAST(at / 86400 AS INTEGER), sum(place <= 1), sum(place = 0), sum(place > 0)
                   FROM shown WHERE project = ? AND at >= ? GROUP BY 1""",
                (project, since),
            ).fetchall()
            tokens = connection.execute(
                "SELECT CAST(at / 86400 AS INTEGER), sum(tokens) FROM answers WHERE project = ? AND at >= ? GROUP BY 1",
                (project, since),
            ).fetchall()
        days = {day: DayShown(*counts) for day, *counts in shown}
        return days | {day: days.get(day, DayShown())._replace(tokens=count) for day, count in tokens}

    def by_tool(self, project: str, since: float) -> list[ToolAnswers]:
        """The tools that gave answers in a project, those with the most answers first."""
        if not self._path.exists():
            return []
        with _opened(self._path) as connection:
            rows = connection.execute(
                """SELECT tool, count(*), sum(tokens) FROM answers WHERE project = ? AND at >= ?
                   GROUP BY 1 ORDER BY 2 DESC, 1""",
                (project, since),
            ).fetchall()
            last: dict[str, list[float]] = {}
            for tool, took_ms in connection.execute(
                "SELECT tool, took_ms FROM answers WHERE project = ? AND at >= ? ORDER BY at DESC LIMIT ?",
                (project, since, MOST_TIMED),
            ):
                last.setdefault(tool, []).append(took_ms)
        return [ToolAnswers(tool, answers, tokens, *_spread(last.get(tool, []))) for tool, answers, tokens in rows]


def _spread(values: list[float]) -> tuple[float, float]:
    """The median and the 95th percentile; 0 of nothing."""
    ranked = sorted(values) or [0.0]
    return ranked[len(ranked) // 2], ranked[min(len(ranked) - 1, len(ranked) * 95 // 100)]


def _taken(pending: deque[T]) -> Iterator[T]:
    """All that waits, each once, though other threads take and add meanwhile."""
    while pending:
        with suppress(IndexError):
            yield pending.popleft()


@contextmanager
def _opened(path: Path) -> Iterator[sqlite3.Connection]:
    """The file for one transaction, made if it is not there."""
    if not path.exists():
        path.touch(mode=0o600)
    with closing(sqlite3.connect(path, timeout=1.0)) as connection, connection:
        connection.execute("PRAGMA secure_delete = ON")
        SCHEMA.migrate(connection, path)
        yield connection
