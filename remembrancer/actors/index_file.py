"""File indexes: one for each project's notes and transcripts, and one for each tree of code. They are derived and can
be deleted safely. The indexer writes them; the store reads them and adds the vectors of notes."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import sqlite3
import zlib
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Sequence
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from remembrancer.actors.migrations import Schema, Step
from remembrancer.actors.sqlite_file import SqliteFile
from remembrancer.code.words import last_part
from remembrancer.memory.subword_tokens import subword_tokens
from remembrancer.protocol.errors import RecordsUnusable, SchemaTooNew, SchemaTooOld
from remembrancer.protocol.paths import delete_database

if TYPE_CHECKING:
    from remembrancer.code.reader import ReadFile
    from remembrancer.memory.chunks import Chunk
    from remembrancer.protocol.kinds import FileSource

PASSAGES: Final = """
    CREATE TABLE passages (
        number INTEGER PRIMARY KEY AUTOINCREMENT,
        space INTEGER NOT NULL REFERENCES spaces,
        memory INTEGER NOT NULL REFERENCES memories ON DELETE CASCADE,
        model TEXT NOT NULL,
        ordinal INTEGER NOT NULL,
        start INTEGER NOT NULL,
        end INTEGER NOT NULL,
        vector BLOB NOT NULL,
        UNIQUE (memory, model, ordinal)
    );
    -- Everything requested of passages other than their vectors, whose rows are long.
    CREATE INDEX passages_by_model ON passages (space, model, number, memory, ordinal);
    -- Whose a passage is, without its vector: the rows of passages are long.
    CREATE INDEX passages_owned ON passages (number, memory, ordinal);
    -- Texts that could not be embedded by a model (`died`: their embedders have died), how often, the last reason, and
    -- from when on a dead letter may be tried again.
    CREATE TABLE embedding_attempts (
        memory INTEGER NOT NULL REFERENCES memories ON DELETE CASCADE,
        model TEXT NOT NULL,
        attempts INTEGER NOT NULL,
        reason TEXT NOT NULL,
        until REAL NOT NULL,
        died INTEGER NOT NULL,
        PRIMARY KEY (memory, model)
    ) WITHOUT ROWID;
    -- How many memories have passages of each model, kept by triggers, and up to which passage near-duplicates were
    -- looked for.
    CREATE TABLE embedded (
        space INTEGER NOT NULL REFERENCES spaces,
        model TEXT NOT NULL,
        memories INTEGER NOT NULL,
        compared INTEGER NOT NULL DEFAULT 0,
        PRIMARY KEY (space, model)
    ) WITHOUT ROWID;
    CREATE TRIGGER embedded_insert AFTER INSERT ON passages WHEN new.ordinal = 0 BEGIN
        INSERT INTO embedded (space, model, memories) VALUES (new.space, new.model, 1)
            ON CONFLICT DO UPDATE SET memories = memories + 1;
    END;
    CREATE TRIGGER embedded_delete AFTER DELETE ON passages WHEN old.ordinal = 0 BEGIN
        UPDATE embedded SET memories = memories - 1 WHERE space = old.space AND model = old.model;
    END;
"""
PASSAGES_OF_TEXTS: Final = PASSAGES.replace("memories ON", "texts ON").replace(" REFERENCES spaces", " DEFAULT 0")
FIRST_CHUNK: Final = 2**40
"""The lowest number of a text from notes. Memories have lower numbers."""
SCHEMA: Final = Schema(
    *[Step("0.3.0", "")] * 3,  # never released
    Step(
        "0.3.0",
        """
    -- Facts about a root, or about the index itself ('').
    CREATE TABLE about (root TEXT NOT NULL, name TEXT NOT NULL, value, PRIMARY KEY (root, name)) WITHOUT ROWID;
    -- `kind` is the source of a note, or the language of code; `chunks` their number; `skipped` why there are none.
    CREATE TABLE files (
        number INTEGER PRIMARY KEY AUTOINCREMENT,
        root TEXT NOT NULL,
        path TEXT NOT NULL,
        kind TEXT NOT NULL,
        mtime_ns INTEGER NOT NULL,
        size INTEGER NOT NULL,
        digest BLOB NOT NULL,
        chunks INTEGER NOT NULL,
        skipped TEXT NOT NULL,
        UNIQUE (root, path)
    );
    -- `body` is where the text of the chunk begins, after its headings.
    CREATE TABLE texts (
        number INTEGER PRIMARY KEY AUTOINCREMENT,
        space INTEGER NOT NULL DEFAULT 0,
        content_digest BLOB NOT NULL UNIQUE,
        content TEXT NOT NULL,
        body INTEGER NOT NULL,
        parts TEXT NOT NULL
    );
    CREATE TABLE chunks (
        file INTEGER NOT NULL REFERENCES files ON DELETE CASCADE,
        ordinal INTEGER NOT NULL,
        text INTEGER NOT NULL REFERENCES texts,
        start_line INTEGER NOT NULL,
        end_line INTEGER NOT NULL,
        PRIMARY KEY (file, ordinal)
    ) WITHOUT ROWID;
    CREATE INDEX chunks_by_text ON chunks (text);
    CREATE VIRTUAL TABLE words USING fts5 (
        content, parts, content = 'texts', content_rowid = 'number', tokenize = 'porter unicode61'
    );
    CREATE TRIGGER words_insert AFTER INSERT ON texts BEGIN
        INSERT INTO words (rowid, content, parts) VALUES (new.number, new.content, new.parts);
    END;
    CREATE TRIGGER words_delete AFTER DELETE ON texts BEGIN
        INSERT INTO words (words, rowid, content, parts) VALUES ('delete', old.number, old.content, old.parts);
    END;
@PASSAGES
    -- Vectors in memory are keyed by these numbers, so numbers of a deleted index must not be reused; and no memory has
    -- such a number.
    INSERT INTO sqlite_sequence SELECT name, max(@FIRST, CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER))
        FROM (SELECT 'texts' AS name UNION ALL SELECT 'passages');
    -- The chunks of code.
    CREATE TABLE code (
        number INTEGER PRIMARY KEY AUTOINCREMENT,
        file INTEGER NOT NULL,
        start_line INTEGER NOT NULL,
        end_line INTEGER NOT NULL,
        kind TEXT NOT NULL,
        name TEXT NOT NULL,
        last_name TEXT NOT NULL,
        length INTEGER NOT NULL,
        text BLOB NOT NULL,
        terms BLOB NOT NULL
    );
    CREATE INDEX code_by_file ON code (file);
    CREATE INDEX code_by_name ON code (last_name) WHERE last_name != '';
    -- Each token is a term and how often a chunk has it: `retry^3`. To delete tokens, FTS5 needs them again.
    CREATE VIRTUAL TABLE code_words USING fts5 (
        terms, content = '', columnsize = 0, detail = none,
        tokenize = "unicode61 remove_diacritics 0 categories 'L* M* N* P* S* Co'"
    );
    CREATE VIRTUAL TABLE occurrences USING fts5vocab (code_words, instance);
    """.replace("@FIRST", str(FIRST_CHUNK)).replace("@PASSAGES", PASSAGES_OF_TEXTS),
    ),
    derived=True,
)
"""The tables. Indexes with other versions are rebuilt, so any change to how code is cut or counted needs a new step."""
BUSY_S: Final = 5.0
"""The maximum time an index waits for the store, which often writes vectors to it."""

logger = logging.getLogger(__name__)


class FileState(NamedTuple):
    """`digest` is the SHA-256 of a note's bytes; `skipped` says why the file has no chunks."""

    kind: str
    mtime_ns: int
    size: int
    digest: bytes
    skipped: str


class ReadNote(NamedTuple):
    """`path` is relative to the workspace, or absolute outside it. Without `chunks`, only the time has changed."""

    path: str
    mtime_ns: int
    size: int
    kind: FileSource
    chunks: tuple[Chunk, ...] | None = None
    skipped: str = ""
    digest: bytes = b""


class IndexWriter(ABC):
    """An index that is open for writing. The first write creates its file. If `cut` (the rules for cutting files into
    chunks) has changed, all files count as changed. Raises the same errors as `SqliteFile`."""

    def __init__(self, path: Path, cut: str = "") -> None:
        self._path = path
        self._cut = cut
        self._file: SqliteFile | None = None
        if os.path.lexists(path):
            self._file = self._opened()

    def _opened(self) -> SqliteFile:
        open_file = partial(SqliteFile, self._path, SCHEMA, synchronous="NORMAL", wait_s=BUSY_S)  # it can be rebuilt
        try:
            file = open_file()
        except (RecordsUnusable, SchemaTooNew, SchemaTooOld) as error:
            if isinstance(error.__cause__, sqlite3.OperationalError):  # may be temporary
                raise
            is_damaged = isinstance(error, RecordsUnusable)
            level, reason = (logging.WARNING, str(error)) if is_damaged else (logging.INFO, "another release wrote it")
            logger.log(level, "a file index is rebuilt", extra={"file": str(self._path), "reason": reason})
            delete_database(self._path)
            file = open_file()
        ((cut,),) = file.read("SELECT coalesce(max(value), '') FROM about WHERE root = '' AND name = 'cut'")
        if cut != self._cut:
            with file.transaction() as connection:
                connection.execute("UPDATE files SET mtime_ns = 0, digest = x''")
                connection.execute("INSERT OR REPLACE INTO about VALUES ('', 'cut', ?)", (self._cut,))
        return file

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

    def known(self, root: str) -> dict[str, FileState]:
        rows = self._read("SELECT path, kind, mtime_ns, size, digest, skipped FROM files WHERE root = ?", root)
        return {path: FileState(*state) for path, *state in rows}

    def about(self, root: str) -> dict[str, Any]:
        return dict(self._read("SELECT name, value FROM about WHERE root = ?", root))

    def _read(self, query: str, root: str) -> list[Any]:
        return [] if self._file is None else self._file.read(query, (root,))

    def note(self, root: str, **about: object) -> None:
        with self._transaction() as connection:
            facts = ((root, *fact) for fact in about.items())
            connection.executemany("INSERT OR REPLACE INTO about VALUES (?, ?, ?)", facts)

    def take(self, root: str, files: Sequence[ReadFile | ReadNote], removed: Sequence[str] = ()) -> Counter[str]:
        """Index new and changed files and remove others, in one transaction. Returns the numbers of notes' chunks that
        were `updated`, `added` and `removed`; the first two need new vectors."""
        counts, left = Counter[str](), set[int]()
        with self._transaction() as connection:
            for path in removed:
                which = "FROM files WHERE root = ? AND path = ?"
                for (number,) in connection.execute(f"SELECT number {which}", (root, path)).fetchall():
                    gone = self._let_go(connection, number)
                    left.update(gone)
                    counts["removed"] += gone.total()
                connection.execute(f"DELETE {which}", (root, path))
            for file in files:
                if file.chunks is None:
                    touched = "UPDATE files SET mtime_ns = ?, size = ? WHERE root = ? AND path = ? AND digest = ?"
                    connection.execute(touched, (file.mtime_ns, file.size, root, file.path, file.digest))
                    continue
                ((number,),) = connection.execute(
                    """INSERT INTO files (root, path, kind, mtime_ns, size, digest, chunks, skipped)
                       VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET kind = excluded.kind,
                       mtime_ns = excluded.mtime_ns, size = excluded.size, digest = excluded.digest,
                       chunks = excluded.chunks, skipped = excluded.skipped RETURNING number""",
                    (root, file.path, file.kind, file.mtime_ns, file.size, file.digest, len(file.chunks), file.skipped),
                ).fetchall()
                before = self._let_go(connection, number)
                after = self._put(connection, number, file.chunks)
                left.update(before)
                came, went = (after - before).total(), (before - after).total()
                counts.update(updated=min(came, went), added=max(0, came - went), removed=max(0, went - came))
            connection.execute(
                """DELETE FROM texts WHERE number IN (SELECT value FROM json_each(?))
                   AND NOT EXISTS (SELECT 1 FROM chunks WHERE text = texts.number)""",
                (json.dumps(list(left)),),
            )
            change = "INSERT INTO about VALUES ('', 'changes', 1) ON CONFLICT DO UPDATE SET value = value + 1"
            connection.execute(change)
        return counts

    @abstractmethod
    def _let_go(self, connection: sqlite3.Connection, file: int) -> Counter[int]:
        """Delete the chunks of a file and return the numbers of their texts."""

    @abstractmethod
    def _put(self, connection: sqlite3.Connection, file: int, chunks: Sequence[Any]) -> Counter[int]:
        """Store the chunks of a file and return the numbers of their texts."""

    def _transaction(self) -> AbstractContextManager[sqlite3.Connection]:
        if self._file is None:
            self._file = self._opened()
        return self._file.transaction()


class CodeWriter(IndexWriter):
    def _let_go(self, connection: sqlite3.Connection, file: int) -> Counter[int]:
        rows = connection.execute("DELETE FROM code WHERE file = ? RETURNING number, terms", (file,)).fetchall()
        connection.executemany(
            "INSERT INTO code_words (code_words, rowid, terms) VALUES ('delete', ?, ?)",
            ((number, zlib.decompress(terms).decode()) for number, terms in rows),
        )
        return Counter()

    def _put(self, connection: sqlite3.Connection, file: int, chunks: Sequence[Any]) -> Counter[int]:
        for c in chunks:
            last_name = "" if c.kind == "block" else last_part(c.name)
            place = (file, c.start_line, c.end_line, c.kind, c.name, last_name, c.length, c.text, c.terms)
            number = connection.execute("INSERT INTO code VALUES (NULL, ?, ?, ?, ?, ?, ?, ?, ?, ?)", place).lastrowid
            terms = zlib.decompress(c.terms).decode()
            connection.execute("INSERT INTO code_words (rowid, terms) VALUES (?, ?)", (number, terms))
        return Counter()


class NotesWriter(IndexWriter):
    def _let_go(self, connection: sqlite3.Connection, file: int) -> Counter[int]:
        return Counter(
            text for (text,) in connection.execute("DELETE FROM chunks WHERE file = ? RETURNING text", (file,))
        )

    def _put(self, connection: sqlite3.Connection, file: int, chunks: Sequence[Any]) -> Counter[int]:
        texts: Counter[int] = Counter()
        for ordinal, chunk in enumerate(chunks):
            above = "" if not chunk.heading or chunk.heading in chunk.text else f"{chunk.heading}\n"
            content = above + chunk.text
            digest = hashlib.sha256(content.encode()).digest()
            known = connection.execute("SELECT number FROM texts WHERE content_digest = ?", (digest,)).fetchone()
            if known is None:
                known = connection.execute(
                    "INSERT INTO texts (content_digest, content, body, parts) VALUES (?, ?, ?, ?) RETURNING number",
                    (digest, content, len(above), subword_tokens(content)),
                ).fetchone()
            texts.update(known)
            place = (file, ordinal, *known, chunk.start_line, chunk.end_line)
            connection.execute("INSERT INTO chunks VALUES (?, ?, ?, ?, ?)", place)
        return texts
