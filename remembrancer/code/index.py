"""The index of one tree of code: a SQLite file with its chunks and their terms in FTS5. Derived, and safe to delete.

One process writes it and others read. FTS5 says how often each chunk has a term; the ranking is in `code.ranking`.
"""

from __future__ import annotations

import sqlite3
import threading
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Literal, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from remembrancer.code.ranking import Corpus, Paths, Postings, rank
from remembrancer.code.read_files import ReadChunk, ReadFile
from remembrancer.code.words import names_in, question_words, terms_of
from remembrancer.protocol.code import CodeChunk
from remembrancer.protocol.files import ListedFile

VERSION: Final = 15
"""The version of the tables, and of cutting and counting. An index of another version is rebuilt."""
MOST_LOG_BYTES: Final = 32 * 1024 * 1024
"""A longer write-ahead log is checkpointed in the middle of the work."""
MOST_DEFINITIONS: Final = 200
"""Chunks defining one name that are considered."""
BUSY_S: Final = 5.0
SIGILS: Final = "_$@"

_SCHEMA: Final = """
    CREATE TABLE about (name TEXT PRIMARY KEY, value) WITHOUT ROWID;
    CREATE TABLE files (
        number INTEGER PRIMARY KEY AUTOINCREMENT,
        path TEXT NOT NULL UNIQUE,
        mtime_ns INTEGER NOT NULL,
        size INTEGER NOT NULL,
        language TEXT NOT NULL,
        skipped TEXT NOT NULL
    );
    CREATE TABLE chunks (
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
    CREATE INDEX chunks_by_file ON chunks (file);
    CREATE INDEX chunks_by_name ON chunks (last_name) WHERE last_name != '';
    -- Each token is a term and how often a chunk has it: `retry^3`. To delete tokens, FTS5 has to be told them again.
    CREATE VIRTUAL TABLE words USING fts5 (
        terms, content = '', columnsize = 0, detail = none,
        tokenize = "unicode61 remove_diacritics 0 categories 'L* M* N* P* S* Co'"
    );
    CREATE VIRTUAL TABLE occurrences USING fts5vocab (words, instance);
"""


Mode = Literal["make", "write", "read"]
UNDECODABLE: Final = (zlib.error, ValueError, TypeError, LookupError, msgspec.DecodeError)
"""The errors that a corrupt value raises."""


class CodeIndex:
    """An index file, opened for reading or writing, or created if it does not exist.

    Raises:
        sqlite3.Error: the file does not exist, is not an index, or has another version.
    """

    def __init__(self, path: Path, mode: Mode = "read") -> None:
        self._log = path.with_name(f"{path.name}-wal")
        opening = {"make": "rwc", "write": "rw", "read": "ro"}[mode]
        self._connection = sqlite3.connect(
            f"{path.absolute().as_uri()}?mode={opening}",
            uri=True,
            timeout=BUSY_S,
            isolation_level=None,
            check_same_thread=False,
        )
        try:
            if mode != "read":
                self._connection.executescript("PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL")
                if self._connection.execute("PRAGMA user_version").fetchone() == (0,):
                    self._connection.executescript(
                        f"BEGIN IMMEDIATE; {_SCHEMA} PRAGMA user_version = {VERSION}; COMMIT"
                    )
            ((version,),) = self._connection.execute("PRAGMA user_version")
            if version != VERSION:
                raise sqlite3.DatabaseError(f"an index of version {version}, and not {VERSION}")
        except sqlite3.Error:
            self._connection.close()
            raise
        self._loaded = _NOTHING
        self._lock = threading.RLock()

    def close(self) -> None:
        """Close. May be called twice."""
        with self._lock:
            self._connection.close()

    # --- Writing

    def known(self) -> dict[str, tuple[int, int]]:
        """All files that were read, including skipped ones, with their time of modification and size then."""
        rows = self._connection.execute("SELECT path, mtime_ns, size FROM files")
        return {path: (mtime_ns, size) for path, mtime_ns, size in rows}

    def take(self, files: Sequence[ReadFile], removed: Sequence[str] = ()) -> None:
        """Index new and changed files and remove others, in one transaction."""
        connection = self._connection
        connection.execute("BEGIN IMMEDIATE")
        with connection:
            for path in (*removed, *(file.path for file in files)):
                for (place,) in connection.execute("SELECT number FROM files WHERE path = ?", (path,)).fetchall():
                    self._drop_content(place)
            connection.executemany("DELETE FROM files WHERE path = ?", ((path,) for path in removed))
            for file in files:
                ((place,),) = connection.execute(
                    """INSERT INTO files (path, mtime_ns, size, language, skipped) VALUES (?, ?, ?, ?, ?)
                       ON CONFLICT DO UPDATE SET mtime_ns = excluded.mtime_ns, size = excluded.size,
                       language = excluded.language, skipped = excluded.skipped RETURNING number""",
                    (file.path, file.mtime_ns, file.size, file.language, file.skipped),
                ).fetchall()
                self._put_chunks(place, file.chunks)
        if self._log.stat().st_size > MOST_LOG_BYTES:  # with a permanent reader, SQLite never truncates it by itself
            self.checkpoint()
        self._loaded = self._loaded._replace(version=-1)  # `data_version` does not count own changes

    def _drop_content(self, file: int) -> None:
        rows = self._connection.execute("DELETE FROM chunks WHERE file = ? RETURNING number, terms", (file,)).fetchall()
        self._connection.executemany(
            "INSERT INTO words (words, rowid, terms) VALUES ('delete', ?, ?)",
            ((number, zlib.decompress(terms).decode()) for number, terms in rows),
        )

    def _put_chunks(self, file: int, chunks: Sequence[ReadChunk]) -> None:
        for c in chunks:
            last_name = "" if c.kind == "block" else _last(c.name)
            place = (file, c.start_line, c.end_line, c.kind, c.name, last_name, c.length, c.text, c.terms)
            number = self._connection.execute(
                "INSERT INTO chunks VALUES (NULL, ?, ?, ?, ?, ?, ?, ?, ?, ?)", place
            ).lastrowid
            self._connection.execute(
                "INSERT INTO words (rowid, terms) VALUES (?, ?)", (number, zlib.decompress(c.terms).decode())
            )

    def note(self, **about: object) -> None:
        """Store facts about the index itself."""
        self._connection.execute("BEGIN IMMEDIATE")
        with self._connection:
            self._connection.executemany("INSERT OR REPLACE INTO about VALUES (?, ?)", about.items())

    def about(self) -> dict[str, object]:
        """The stored facts about the index."""
        return dict(self._connection.execute("SELECT name, value FROM about"))

    def counts(self) -> tuple[int, int]:
        """The number of indexed files and of their chunks."""
        row = self._connection.execute(
            "SELECT (SELECT count(*) FROM files WHERE skipped = ''), (SELECT count(*) FROM chunks)"
        ).fetchone()
        return row[0], row[1]

    def skipped(self) -> dict[str, int]:
        """The number of skipped files for each reason."""
        return dict(
            self._connection.execute("SELECT skipped, count(*) FROM files WHERE skipped != '' GROUP BY skipped")
        )

    def files(self, after: str, limit: int) -> list[ListedFile]:
        """The files after a path, in the order of their paths."""
        rows = self._connection.execute(
            """SELECT path, language, (SELECT count(*) FROM chunks WHERE file = f.number), size, mtime_ns, skipped
               FROM files AS f WHERE path > ? ORDER BY path LIMIT ?""",
            (after, limit),
        )
        return [ListedFile(*row) for row in rows]

    def checkpoint(self) -> None:
        """Checkpoint the write-ahead log as far as readers allow, and truncate it."""
        self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    # --- Searching

    def search(self, question: str, limit: int, tree_id: str = "") -> list[CodeChunk]:
        """The best chunk of each of the best files, best first, as of the tree with that id."""
        with self.at_one_moment():
            loaded = self._load()
            scores = self._scores(question, loaded)
            best = _best_of_files(scores, loaded.corpus.files, limit)
            first = f"{_SHOWN} c.number IN (SELECT value FROM json_each(?)) ORDER BY start_line LIMIT 1"  # noqa: S608
            numbers = [msgspec.json.encode(loaded.numbers[places].tolist()).decode() for places in best]
            rows = [self._connection.execute(first, (alike,)).fetchone() for alike in numbers]
            return [
                CodeChunk(*(tree_id, *row, zlib.decompress(text).decode("utf-8", "replace"), scores[at].item()))
                for (at, *_), (*row, text) in zip(best, rows, strict=True)
            ]

    def _scores(self, question: str, loaded: _Loaded) -> NDArray[np.float64]:
        asked = list(dict.fromkeys(term for word in question_words(question) for term in terms_of(word)))
        postings = {term: self._postings(term, loaded) for term in asked}
        defining = {place for name in names_in(question) for place in self._definitions(name, loaded)}
        return rank(loaded.corpus, {term: each for term, each in postings.items() if each is not None}, defining, asked)

    def _postings(self, term: str, loaded: _Loaded) -> Postings | None:
        rows = self._connection.execute(_OF_TERM, (term,)).fetchall()
        if not rows:
            return None
        numbers, counts = np.array(rows, np.int64).T
        return Postings(np.searchsorted(loaded.numbers, numbers), counts.astype(np.float64))

    def _definitions(self, name: str, loaded: _Loaded) -> set[int]:
        """The places of the chunks that define a name."""
        rows = self._connection.execute(  # without the second condition, SQLite would not use the partial index
            "SELECT number FROM chunks WHERE last_name = ? AND last_name != '' LIMIT ?", (_last(name), MOST_DEFINITIONS)
        )
        return set(np.searchsorted(loaded.numbers, [number for (number,) in rows]).tolist())

    @contextmanager
    def at_one_moment(self) -> Iterator[None]:
        """Answer all questions inside the block, which one thread enters at a time, from one snapshot of the index.

        Raises:
            sqlite3.OperationalError: it cannot be read now.
            sqlite3.DatabaseError: it is damaged.
        """
        with self._lock:
            if self._connection.in_transaction:
                yield
                return
            try:
                self._connection.execute("BEGIN")
                try:
                    yield
                finally:
                    self._connection.execute("COMMIT")
            except (sqlite3.Error, *UNDECODABLE) as error:
                if isinstance(error, sqlite3.OperationalError | sqlite3.ProgrammingError):  # the latter: it was closed
                    raise
                raise sqlite3.DatabaseError(f"the code index is damaged ({error}), and will be rebuilt") from error

    def _load(self) -> _Loaded:
        ((version,),) = self._connection.execute("PRAGMA data_version")
        if self._loaded.version == version:
            return self._loaded
        known = self._connection.execute("SELECT number, path FROM files ORDER BY number").fetchall()
        rows = self._connection.execute("SELECT number, file, length, kind != 'block' FROM chunks ORDER BY number")
        table = np.array(rows.fetchall(), np.int64).reshape(-1, 4)
        of_files = np.searchsorted([number for number, _ in known], table[:, 1])
        lengths = table[:, 2].astype(np.float64)
        file_lengths = np.bincount(of_files, weights=lengths, minlength=len(known)).astype(np.float64)
        paths = Paths([path for _, path in known])
        corpus = Corpus(of_files, lengths, table[:, 3].astype(np.bool_), file_lengths, paths)
        self._loaded = _Loaded(version, table[:, 0], corpus)
        return self._loaded


class _Loaded(NamedTuple):
    """The searchable chunks of one version of the file (SQLite's `data_version`), in the order of their numbers."""

    version: int
    numbers: NDArray[np.int64]
    corpus: Corpus


_NONE: Final = np.zeros(0, np.int64)
_NOTHING: Final = _Loaded(-1, _NONE, Corpus(_NONE, np.zeros(0), np.zeros(0, np.bool_), np.zeros(0), Paths(())))
_OF_TERM: Final = """SELECT doc, CAST(substr(term, length(?1) + 2) AS INTEGER) FROM occurrences
    WHERE term >= ?1 || '^' AND term < ?1 || '_'"""
_SHOWN: Final = """
    SELECT f.path, c.start_line, c.end_line, f.language, c.kind, c.name, c.text
    FROM chunks AS c JOIN files AS f ON f.number = c.file WHERE
"""


def _best_of_files(scores: NDArray[np.float64], files: NDArray[np.int64], limit: int) -> list[NDArray[np.int64]]:
    """The places of the best chunks of the best files, best first. A file has several places if they tie; chunks that
    score 0 are left out."""
    places = np.flatnonzero(scores > 0)
    best = np.zeros(int(files.max(initial=-1)) + 1)
    np.maximum.at(best, files[places], scores[places])
    depth = min(limit, len(best))
    chosen = np.argpartition(-best, depth - 1)[:depth] if depth else np.zeros(0, np.int64)
    chosen = chosen[np.lexsort((chosen, -best[chosen]))]
    own = (places[files[places] == file] for file in chosen.tolist() if best[file] > 0)
    return [each[scores[each] == scores[each].max()] for each in own]


def _last(name: str) -> str:
    """The last part of a name, in lower case and without the sigils that mark private names or variables."""
    return name.rpartition(".")[2].strip(SIGILS).lower()
