"""Logs which memories were shown to which session, in a separate file. A crash loses the latest entries."""

import logging
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final, NamedTuple

import anyio
import anyio.to_thread

from remembrancer.actors.migrations import Schema, Step, drop_copies
from remembrancer.actors.sqlite_file import as_error
from remembrancer.memory.credentials import masked
from remembrancer.memory.short_ids import part_of_id
from remembrancer.protocol.errors import RemembrancerError

FILE: Final = "shown.db"
BATCH_S: Final = 2.0
MAX_QUESTION: Final = 300
QUOTED: Final = 24
"""This many leading characters identify a quote."""
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
logger = logging.getLogger(__name__)


class Shown(NamedTuple):
    """A memory shown to a session, with the time and its position in the answer (from 1; 0: nothing was found). Parts
    of notes, transcripts and code have an empty id."""

    at: float
    project: str
    session_id: str
    memory_id: str
    place: int
    tool: str
    question: str


class ShownLog:
    """Writes the log. Run `run` as a task. Entries are kept for `kept_s`; if that is 0, nothing is logged."""

    def __init__(self, home: Path, kept_s: float) -> None:
        self._path = home / FILE
        self._kept_s = kept_s
        self._pending: deque[Shown] = deque()
        self._writing = threading.RLock()
        """Held by one writer at a time, so that a batch in progress does not restore erased words."""

    def note(self, project: str, session_id: str, memory_ids: Sequence[str], tool: str, question: str) -> None:
        """Log memories in the order of the answer. The entries are only queued, so a request may call this."""
        if self._kept_s:
            at, asked = time.time(), question[: 2 * MAX_QUESTION]
            shown = enumerate(memory_ids, 1) if memory_ids else [(0, "")]
            self._pending.extend(Shown(at, project, session_id, each, place, tool, asked) for place, each in shown)

    async def run(self) -> None:
        try:
            while True:
                await anyio.sleep(BATCH_S)
                if self._pending:
                    await anyio.to_thread.run_sync(self.flush)
        finally:
            if self._pending:
                with anyio.CancelScope(shield=True):
                    await anyio.to_thread.run_sync(self.flush)

    def flush(self) -> None:
        """Write the queued entries. Errors are only logged."""
        with self._writing:
            batch = [self._pending.popleft() for _ in range(len(self._pending))]  # others can only append
            try:
                with _opened(self._path) as connection:
                    rows = [each._replace(question=masked(each.question)[:MAX_QUESTION]) for each in batch]
                    connection.executemany("INSERT INTO shown VALUES (?, ?, ?, ?, ?, ?, ?)", rows)
                    connection.execute("DELETE FROM shown WHERE at < ?", (time.time() - self._kept_s,))
            except (OSError, RemembrancerError) as error:
                logger.warning("shown memories cannot be logged", extra={"reason": str(error)})

    def erase(self, memory_ids: Sequence[str], quotes: Sequence[str] = (), project: str = "") -> None:
        """Delete the entries of these memories, and a project's questions that contain the beginning of a quote."""
        with self._writing:
            if self._pending:
                self.flush()
            if self._path.exists():
                with _opened(self._path) as connection:
                    connection.executemany("DELETE FROM shown WHERE memory_id = ?", [(each,) for each in memory_ids])
                    beginnings = {(project, quote[:QUOTED]) for quote in quotes}  # a long question was cut
                    forget = "UPDATE shown SET question = '' WHERE project = ? AND instr(question, ?)"
                    connection.executemany(forget, beginnings)
            drop_copies(self._path)

    def move(self, old: str, new: str) -> None:
        """Move a project's entries to another project. Any process may call this. Raises the errors of `as_error`."""
        if self._path.exists():
            with _opened(self._path) as connection:
                connection.execute("UPDATE shown SET project = ? WHERE project = ?", (new, old))

    def read(
        self, *, project: str = "", memory_id: str = "", session_id: str = "", since: float = 0.0, limit: int = 100
    ) -> list[Shown]:
        """The entries of a project, a memory (by its id or part of it) or a session, or all entries, latest first."""
        with self._writing:  # waits for a batch that is being written
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


@contextmanager
def _opened(path: Path) -> Iterator[sqlite3.Connection]:
    if not path.exists():
        path.touch(mode=0o600)
    try:
        with closing(sqlite3.connect(path, timeout=1.0)) as connection, connection:
            connection.execute("PRAGMA secure_delete = ON")
            SCHEMA.migrate(connection, path)
            yield connection
    except sqlite3.Error as error:
        raise as_error(path, error, "delete it: it only logs which memories were shown") from error
