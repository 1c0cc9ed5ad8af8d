"""File indexes as read by the store: those of projects' notes, which are embedded like memories, and of code."""

import zlib
from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import count
from pathlib import Path
from typing import Any, Final, NamedTuple

from remembrancer.actors.index_file import SCHEMA
from remembrancer.actors.sqlite_file import AMONG, SqliteFile, json_list, places_for, where
from remembrancer.actors.store.records.passage_rows import EmbeddedTexts
from remembrancer.actors.store.records.search import SqliteWords, expression_of, hits_of_rare
from remembrancer.actors.store.records.types import Filters, Hits, MemoryRecord, Phrase, RankingFacts
from remembrancer.code.index import CodeSearch
from remembrancer.memory.chunks import shown_chunk
from remembrancer.protocol.code import CodeChunk
from remembrancer.protocol.files import ListedFile, SourceCounts
from remembrancer.protocol.kinds import FileSource
from remembrancer.protocol.reads import Order
from remembrancer.protocol.writes import SourceRef

NOTES: Final = 0
"""The space number of notes. No space has this number."""
IMPORTANCE: Final = 0.5
BM25: Final = "-bm25(words, 3.0, 1.5)"
"""The BM25 weights of content and parts: the same as in the records."""
_changes: Final = count()


INSIDE: Final = "(kind != 'notes' OR substr(path, 1, 1) != '/')"
"""SQL: the file is in its working tree, or is not a note."""


class FileFilter(NamedTuple):
    """Selects chunks by workspace root, source and path. With `is_inside`, notes outside the working tree (for example,
    an assistant's own notes) are excluded, because they belong to the user."""

    root: str
    sources: tuple[FileSource, ...] = ("notes",)
    path: str = ""
    is_inside: bool = False


class IndexedChunk(NamedTuple):
    """`text` is the row id of the chunk's text; `mtime_ns` is the modification time of its file."""

    text: int
    path: str
    source: FileSource
    start_line: int
    end_line: int
    content: str
    body: int
    mtime_ns: int


class OpenIndex:
    """An index of files. Raises the same errors as `SqliteFile`. Files written by other releases cannot be opened."""

    _listed = "TRUE"

    def __init__(self, path: Path) -> None:
        self.file = SqliteFile(path, SCHEMA, synchronous="NORMAL")  # lost rows are indexed again

    def close(self) -> None:
        self.file.close()

    def about(self, root: str) -> dict[str, Any]:
        return dict(self.file.read("SELECT name, value FROM about WHERE root = ?", (root,)))

    def listed(self, root: str, after: str, limit: int, *, is_inside: bool = False) -> list[ListedFile]:
        """Return up to `limit` of a root's files with paths after `after`, in path order."""
        outside = f"AND {INSIDE}" if is_inside else ""
        rows = self.file.read(
            f"""SELECT path, kind, chunks, size, mtime_ns, skipped FROM files
                WHERE root = ? AND path > ? AND {self._listed} {outside} ORDER BY path LIMIT ?""",  # noqa: S608 - our clause
            (root, after, limit),
        )
        return [ListedFile(*row) for row in rows]

    def counts(self, root: str) -> dict[Any, SourceCounts]:
        rows = self.file.read(
            "SELECT kind, count(*), sum(chunks) FROM files WHERE root = ? AND skipped = '' GROUP BY kind", (root,)
        )
        return {kind: SourceCounts(files, chunks) for kind, files, chunks in rows}

    def skipped(self, root: str) -> dict[str, int]:
        skipped = "SELECT skipped, count(*) FROM files WHERE root = ? AND skipped != '' GROUP BY skipped"
        return dict(self.file.read(skipped, (root,)))


class CodeIndex(OpenIndex):
    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._search = CodeSearch()

    def search(self, question: str, limit: int, tree_id: str = "") -> list[CodeChunk]:
        """Like `CodeSearch.search`, but all queries read one state of the file."""
        with self.file.reading() as connection:
            try:
                return self._search.search(connection, question, limit, tree_id)
            except (zlib.error, LookupError) as error:
                raise ValueError(str(error)) from error  # the file is damaged


class FileIndex(OpenIndex, EmbeddedTexts, SqliteWords):
    """`EmbeddedTexts` of a project's files: texts take the place of memories. Written only on its own thread."""

    links_duplicates = False
    _listed = "skipped = ''"
    _table = "texts"
    _own = "space = 0"
    _count = "SELECT count(*) FROM texts"
    _words = "words"

    def __init__(self, path: Path, name: str) -> None:
        super().__init__(path)
        self.name = name
        self._file = self.file

    @property
    def commits(self) -> int:
        """A different value on every read, since the indexer also writes."""
        return next(_changes)


# Forces the join order. Otherwise SQLite would start with all files of a root, even for only a few texts.
_OF_FILES: Final = "files AS f CROSS JOIN chunks AS c ON c.file = f.number"
_OF_TEXTS: Final = "chunks AS c CROSS JOIN files AS f ON f.number = c.file"


class FileMemories:
    """The chunks of an index that pass a filter. Recalls search them like memories. Time filters apply to the times of
    files; other filters apply only to memories. Methods without a docstring work as in `Records`."""

    is_users = False
    space = NOTES

    def __init__(self, index: FileIndex, wanted: FileFilter) -> None:
        self.name = index.name
        self._index = index
        self._read = index.file.read
        self.postings = index.postings
        self._wanted = wanted

    @cached_property
    def size(self) -> int:
        ((count,),) = self._read("SELECT count(*) FROM texts")
        return int(count)

    def files(self) -> int:
        condition, arguments = self._condition()
        ((count,),) = self._read(f"SELECT count(*) FROM files AS f WHERE skipped = '' AND {condition}", arguments)  # noqa: S608
        return int(count)

    def keyword_hits(
        self,
        phrases: Sequence[Phrase],
        filters: Filters,
        limit: int,
        counted: Mapping[Phrase, int] | None = None,
        numbers: Sequence[int] = (),
    ) -> Hits:
        condition, arguments = self._condition(filters)
        among = f"AND EXISTS (SELECT 1 FROM {_OF_TEXTS} WHERE c.text = words.rowid AND {condition})"  # noqa: S608

        def hits(match: str) -> Hits:
            rows = self._read(
                f"""SELECT rowid, {BM25} AS score FROM words WHERE words MATCH ? {among}
                    ORDER BY score DESC, rowid DESC LIMIT ?""",  # noqa: S608 - fixed clauses
                (match, *arguments, limit),
            )
            return dict(rows)

        if counted is None:
            return hits(expression_of(phrases))
        return hits_of_rare(self._index, hits, phrases, limit, counted)

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
        """Return the chunks of the files modified last, regardless of `order`."""
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
        if not numbers:
            return []
        condition, arguments = self._condition(filters)
        rows = self._read(
            f"""SELECT c.text, f.path, f.kind, c.start_line, c.end_line, t.content, t.body, f.mtime_ns
                FROM {_OF_TEXTS} JOIN texts AS t ON t.number = c.text
                WHERE c.text IN {AMONG} AND {condition} ORDER BY f.path, c.ordinal""",  # noqa: S608
            (json_list(numbers), *arguments),
        )
        return [IndexedChunk(*row) for row in rows]

    def _condition(self, filters: Filters | None = None) -> tuple[str, list[object]]:
        wanted = self._wanted
        path = wanted.path.strip().removeprefix("./").rstrip("/")
        path = "" if path == "." else path
        times = () if filters is None else ((filters.after, ">="), (filters.before, "<="))
        return where(
            ("f.root = ?", wanted.root),
            (f"f.kind IN {places_for(wanted.sources)}", *wanted.sources),
            (INSIDE if wanted.is_inside else "",),
            ("(f.path = ? OR substr(f.path, 1, ?) = ?)" if path else "", path, len(path) + 1, f"{path}/"),
            *((f"f.mtime_ns / 1e9 {comparison} ?", at) for at, comparison in times),
        )


def _record(chunk: IndexedChunk) -> MemoryRecord:
    """A chunk as a memory record. Its id is its location."""
    at = chunk.mtime_ns / 1e9
    return MemoryRecord(
        number=chunk.text,
        id=f"{chunk.path}#L{chunk.start_line}-{chunk.end_line}",
        content=shown_chunk(chunk.content, chunk.body),
        type="semantic",
        scope="project",
        importance=IMPORTANCE,
        source=SourceRef(file=chunk.path),
        created_at=at,
        updated_at=at,
        origin=chunk.source,
        lines=(chunk.start_line, chunk.end_line),
    )
