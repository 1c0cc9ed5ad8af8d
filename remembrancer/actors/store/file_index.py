"""The index of a project's files: chunks, words and vectors. It is derived, and can be deleted.

A text is stored and embedded once, however many chunks have it. It is deleted with its last chunk.
"""

import logging
import sqlite3
import time
import zlib
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Final, NamedTuple

from remembrancer.actors.migrations import Schema, Step
from remembrancer.actors.store.records.memory_rows import digest_of
from remembrancer.actors.store.records.passage_rows import EmbeddedTexts
from remembrancer.actors.store.records.schema import PASSAGES
from remembrancer.actors.store.records.search import SqliteWords, expression_of, hits_of_rare
from remembrancer.actors.store.records.sqlite_file import (
    AMONG,
    SqliteFile,
    json_list,
    places_for,
    unusable,
)
from remembrancer.actors.store.records.subword_tokens import subword_tokens
from remembrancer.actors.store.records.types import (
    FIRST_CHUNK,
    Filters,
    Hits,
    MemoryRecord,
    Phrase,
    RankingFacts,
)
from remembrancer.protocol.errors import (
    RecordsUnusable,
    SchemaTooNew,
    SchemaTooOld,
)
from remembrancer.protocol.files import FilesIndexed, FileState, FileUpdate, ListedFile, SourceCounts
from remembrancer.protocol.kinds import FileSource
from remembrancer.protocol.paths import database_files, set_aside
from remembrancer.protocol.reads import Order
from remembrancer.protocol.writes import SourceRef

PASSAGES_OF_TEXTS: Final = PASSAGES.replace("memories ON", "texts ON").replace(" REFERENCES spaces", " DEFAULT 0")
SCHEMA: Final = Schema(
    *[Step("0.3.0", "")] * 2,  # never released
    Step(
        "0.3.0",
        """
    CREATE TABLE files (
        number INTEGER PRIMARY KEY,
        root TEXT NOT NULL,
        path TEXT NOT NULL,
        source TEXT NOT NULL,
        mtime_ns INTEGER NOT NULL,
        size INTEGER NOT NULL,
        digest BLOB NOT NULL,
        indexed_at REAL NOT NULL,
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
    """.replace("@FIRST", str(FIRST_CHUNK)).replace("@PASSAGES", PASSAGES_OF_TEXTS),
    ),
    derived=True,
)
NOTES: Final = 0
"""The notes' number among spaces, which no space has."""
IMPORTANCE: Final = 0.5
"""The default importance of a memory."""
ROWS: Final = 1500
"""The number of texts worth scoring; below it, every text with a word of the query is scored. In ten thousand chunks
the best eight are then the same in 99.9 of 100 searches, and the best 32 in 98.7."""
WIDE_ROWS: Final = 3750
"""As `search.WIDE_ROWS`."""
BM25: Final = "-bm25(words, 3.0, 1.5)"
"""The BM25 weights of content and parts, the same as for the records."""

logger = logging.getLogger(__name__)


class FileFilter(NamedTuple):
    """Selects chunks: of a workspace's root (empty: of all), of some sources, below a path."""

    root: str = ""
    sources: tuple[FileSource, ...] = ()
    path: str = ""


class IndexedChunk(NamedTuple):
    """A chunk as it is returned. `text` is the number of its text, `mtime_ns` the modification time of its file."""

    text: int
    path: str
    source: FileSource
    start_line: int
    end_line: int
    content: str
    body: int
    mtime_ns: int


class FileIndex(EmbeddedTexts, SqliteWords):
    """`EmbeddedTexts` of one project's files, where texts take the place of memories. Write only from its thread.

    An index that cannot be read, or is of another release, is deleted and rebuilt. `cut` describes the current
    chunking settings.
    """

    links_duplicates = False
    _table = "texts"
    _own = "space = 0"
    _count = "SELECT count(*) FROM texts"
    _file: SqliteFile
    _words = "words"

    def __init__(self, path: Path, name: str, cut: str = "") -> None:
        self.name = name
        self._path = path
        try:
            self._file = _opened(path)
        except (RecordsUnusable, SchemaTooNew, SchemaTooOld) as error:
            is_damaged = isinstance(error, RecordsUnusable)
            reason = error.message if is_damaged else "another release wrote it"
            level = logging.WARNING if is_damaged else logging.INFO
            logger.log(level, "a file index is rebuilt", extra={"file": name, "reason": reason})
            self.discard()
            self._file = _opened(path)
        self._note_cut(cut)

    # --- Files.

    def _note_cut(self, cut: str) -> None:
        """Mark files that were cut with other settings as changed. They stay as they are until they are read again."""
        mark = zlib.crc32(cut.encode()) & 0x7FFF_FFFF  # SQLite stores a signed 32-bit number
        with self._file.transaction() as connection:
            ((before,),) = connection.execute("PRAGMA application_id").fetchall()
            if before != mark:
                connection.execute("UPDATE files SET mtime_ns = 0, digest = x''")
                connection.execute(f"PRAGMA application_id = {mark}")

    def states(self, root: str) -> tuple[FileState, ...]:
        """Return a workspace's files."""
        rows = self._file.read("SELECT path, source, mtime_ns, size, digest FROM files WHERE root = ?", (root,))
        return tuple(FileState(*row) for row in rows)

    def change(self, root: str, updates: Sequence[FileUpdate], removed: Sequence[str]) -> FilesIndexed:
        """Index changed files and remove others, in one transaction."""
        with self._file.transaction() as connection:
            change = _Change(connection)
            for update in updates:
                change.update(root, update, time.time())
            for path in removed:
                change.remove(root, path)
            return change.finish()

    def listed(self, root: str, after: str, limit: int) -> list[ListedFile]:
        """Return a workspace's files with paths after `after`, in path order, at most `limit`."""
        rows = self._file.read(
            """SELECT path, source, (SELECT count(*) FROM chunks WHERE file = f.number), size, mtime_ns FROM files AS f
               WHERE root = ? AND path > ? ORDER BY path LIMIT ?""",
            (root, after, limit),
        )
        return [ListedFile(*row) for row in rows]

    def counts(self, root: str) -> dict[FileSource, SourceCounts]:
        """Return the number of files and chunks of each source in a workspace."""
        rows = self._file.read(
            """SELECT source, count(*), sum((SELECT count(*) FROM chunks WHERE file = number)) FROM files
               WHERE root = ? GROUP BY source""",
            (root,),
        )
        return {source: SourceCounts(files, chunks) for source, files, chunks in rows}

    def indexed_at(self, root: str) -> float | None:
        """Return the time at which a file of the workspace was last indexed."""
        ((at,),) = self._file.read("SELECT max(indexed_at) FROM files WHERE root = ?", (root,))
        return None if at is None else float(at)

    # --- The file itself.

    @property
    def file(self) -> SqliteFile:
        """The SQLite file."""
        return self._file

    def discard(self) -> None:
        """Delete the file; its content is read again. If it cannot be deleted, it is set aside.

        Raises:
            RecordsUnusable: neither is possible.
        """
        for path in database_files(self._path):
            try:
                path.unlink(missing_ok=True)
            except OSError as error:
                if set_aside(path) is None:
                    raise unusable(path, error) from error


def _opened(path: Path) -> SqliteFile:
    return SqliteFile(path, SCHEMA, synchronous="NORMAL")  # changes lost in a power failure are read again


class _Change:
    """A change of files in progress."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._left: set[int] = set()
        """Texts that lost a chunk."""
        self._counts: Counter[str] = Counter()

    def update(self, root: str, update: FileUpdate, now: float) -> None:
        state = update.state
        known = self._connection.execute(
            "SELECT number, digest FROM files WHERE root = ? AND path = ?", (root, state.path)
        ).fetchone()
        if update.chunks is None:
            if known is not None and known[1] == state.digest:
                self._connection.execute(
                    "UPDATE files SET mtime_ns = ?, size = ? WHERE number = ?", (state.mtime_ns, state.size, known[0])
                )
            return
        before: Counter[int] = Counter()
        if known is not None:
            before = self._let_go(known[0])
        ((number,),) = self._connection.execute(
            """INSERT INTO files (root, path, source, mtime_ns, size, digest, indexed_at) VALUES (?, ?, ?, ?, ?, ?, ?)
               ON CONFLICT DO UPDATE SET source = excluded.source, mtime_ns = excluded.mtime_ns, size = excluded.size,
               digest = excluded.digest, indexed_at = excluded.indexed_at RETURNING number""",
            (root, state.path, state.source, state.mtime_ns, state.size, state.digest, now),
        ).fetchall()
        after: Counter[int] = Counter()
        for ordinal, chunk in enumerate(update.chunks):
            text = self._text_of(chunk.heading, chunk.text)
            after[text] += 1
            self._connection.execute(
                "INSERT INTO chunks VALUES (?, ?, ?, ?, ?)", (number, ordinal, text, chunk.start_line, chunk.end_line)
            )
        came, went = (after - before).total(), (before - after).total()
        self._counts.update(updated=min(came, went), added=max(0, came - went), removed=max(0, went - came))

    def remove(self, root: str, path: str) -> None:
        known = self._connection.execute("SELECT number FROM files WHERE root = ? AND path = ?", (root, path))
        for (number,) in known.fetchall():
            self._counts["removed"] += self._let_go(number).total()
            self._connection.execute("DELETE FROM files WHERE number = ?", (number,))

    def finish(self) -> FilesIndexed:
        """Delete texts that are no longer in any file."""
        self._connection.execute(
            f"""DELETE FROM texts WHERE number IN {AMONG}
                AND NOT EXISTS (SELECT 1 FROM chunks WHERE text = texts.number)""",  # noqa: S608 - fixed
            (json_list(self._left),),
        )
        return FilesIndexed(**self._counts)

    def _let_go(self, file: int) -> Counter[int]:
        rows = self._connection.execute("DELETE FROM chunks WHERE file = ? RETURNING text", (file,))
        texts = Counter(text for (text,) in rows)
        self._left.update(texts)
        return texts

    def _text_of(self, heading: str, text: str) -> int:
        """Return the number of a chunk's text, storing the text if it is new."""
        above = "" if not heading or heading in text else f"{heading}\n"
        content = above + text
        digest = digest_of(content)
        known = self._connection.execute("SELECT number FROM texts WHERE content_digest = ?", (digest,)).fetchone()
        if known is not None:
            return int(known[0])
        number = self._connection.execute(
            "INSERT INTO texts (content_digest, content, body, parts) VALUES (?, ?, ?, ?)",
            (digest, content, len(above), subword_tokens(content)),
        ).lastrowid
        assert number is not None
        return number


# Forces the join order: SQLite would start with all files of a root even if only few texts are wanted.
_OF_FILES: Final = "files AS f CROSS JOIN chunks AS c ON c.file = f.number"
_OF_TEXTS: Final = "chunks AS c CROSS JOIN files AS f ON f.number = c.file"


class FileMemories:
    """The chunks of an index that pass a filter, as a recall searches them beside memories. Time filters apply to the
    files' times; other filters concern only memories. Methods without a docstring are as in `Records`."""

    is_users = False
    space = NOTES

    def __init__(self, index: FileIndex, wanted: FileFilter) -> None:
        self.name = index.name
        self._index = index
        self._read = index._file.read
        self._wanted = wanted

    @cached_property
    def size(self) -> int:
        """The number of texts in all workspaces, counted on first use."""
        ((count,),) = self._read("SELECT count(*) FROM texts")
        return int(count)

    def files(self) -> int:
        """Return the number of files."""
        condition, arguments = self._condition()
        ((count,),) = self._read(f"SELECT count(*) FROM files AS f WHERE {condition}", arguments)  # noqa: S608
        return int(count)

    def keyword_hits(
        self,
        phrases: Sequence[Phrase],
        filters: Filters,
        limit: int,
        counted: Mapping[Phrase, int] | None = None,
        numbers: Sequence[int] = (),
    ) -> Hits:
        if not phrases:
            return {}
        condition, arguments = self._condition(filters)
        among = f"AND EXISTS (SELECT 1 FROM {_OF_TEXTS} WHERE c.text = words.rowid AND {condition})"  # noqa: S608

        def hits(match: str) -> Hits:
            rows = self._read(
                f"""SELECT rowid, {BM25} AS score FROM words WHERE words MATCH ? {among}
                    ORDER BY score DESC, rowid DESC LIMIT ?""",  # noqa: S608 - fixed clauses
                (match, *arguments, limit),
            )
            return dict(rows)

        if self.size <= ROWS:
            return hits(expression_of(phrases))
        return hits_of_rare(self._index, hits, phrases, limit, counted or {}, ROWS, WIDE_ROWS)

    def postings(self, groups: Sequence[Sequence[Phrase]]) -> list[list[int]]:
        return self._index.postings(groups)

    def matching(self, filters: Filters, limit: int) -> list[int] | None:
        if filters.scopes == ("session",):
            return []
        condition, arguments = self._condition(filters)
        rows = self._read(
            f"SELECT DISTINCT c.text FROM {_OF_FILES} WHERE {condition} LIMIT ?",  # noqa: S608 - fixed clauses
            (*arguments, limit + 1),
        )
        return None if len(rows) > limit else [number for (number,) in rows]

    def top(self, filters: Filters, order: Order, limit: int) -> list[int]:
        """Return the chunks of the most recently modified files, whatever the order."""
        if filters.tags:
            return []
        condition, arguments = self._condition(filters)
        rows = self._read(
            f"""SELECT c.text FROM {_OF_FILES} WHERE {condition}
                ORDER BY f.mtime_ns DESC, f.path, c.ordinal LIMIT ?""",  # noqa: S608 - fixed clauses
            (*arguments, limit),
        )
        return list(dict.fromkeys(number for (number,) in rows))

    def ranking_facts(self, numbers: Sequence[int], filters: Filters) -> dict[int, RankingFacts]:
        chunks = reversed(self.chunks(numbers, filters))
        return {chunk.text: RankingFacts(IMPORTANCE, chunk.mtime_ns / 1e9) for chunk in chunks}

    def load(self, numbers: Sequence[int], filters: Filters | None) -> dict[int, MemoryRecord]:
        return {chunk.text: _record(chunk) for chunk in reversed(self.chunks(numbers, filters))}

    def chunks(self, numbers: Sequence[int], filters: Filters | None = None) -> list[IndexedChunk]:
        """Return the chunks of the given texts, ordered by path and line."""
        if not numbers:
            return []
        condition, arguments = self._condition(filters)
        rows = self._read(
            f"""SELECT c.text, f.path, f.source, c.start_line, c.end_line, t.content, t.body, f.mtime_ns
                FROM {_OF_TEXTS} JOIN texts AS t ON t.number = c.text
                WHERE c.text IN {AMONG} AND {condition} ORDER BY f.path, c.ordinal""",  # noqa: S608
            (json_list(numbers), *arguments),
        )
        return [IndexedChunk(*row) for row in rows]

    def _condition(self, filters: Filters | None = None) -> tuple[str, list[object]]:
        """Return the WHERE clause of the filters over files, with its arguments. The clauses are fixed strings."""
        wanted, clauses, arguments = self._wanted, ["TRUE"], list[object]()
        if wanted.root:
            clauses.append("f.root = ?")
            arguments.append(wanted.root)
        if wanted.sources:
            clauses.append(f"f.source IN {places_for(wanted.sources)}")
            arguments += wanted.sources
        path = wanted.path.strip().removeprefix("./").rstrip("/")
        if path and path != ".":
            clauses.append("(f.path = ? OR substr(f.path, 1, ?) = ?)")
            arguments += [path, len(path) + 1, path + "/"]
        times = () if filters is None else ((filters.after, ">="), (filters.before, "<="))
        for at, comparison in times:
            if at is not None:
                clauses.append(f"f.mtime_ns / 1e9 {comparison} ?")
                arguments.append(at)
        return " AND ".join(clauses), arguments


def _record(chunk: IndexedChunk) -> MemoryRecord:
    """Present a chunk as a memory record. Its id is its location, not a memory's id."""
    at = chunk.mtime_ns / 1e9
    return MemoryRecord(
        number=chunk.text,
        id=f"{chunk.path}#L{chunk.start_line}-{chunk.end_line}",
        content=chunk.content,
        type="semantic",
        scope="project",
        importance=IMPORTANCE,
        source=SourceRef(file=chunk.path),
        created_at=at,
        updated_at=at,
        origin=chunk.source,
        lines=(chunk.start_line, chunk.end_line),
    )
