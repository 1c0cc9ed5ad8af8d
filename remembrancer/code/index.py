"""Searches an index of code. FTS5 counts the terms in each chunk; `code.ranking` ranks the chunks."""

from __future__ import annotations

import sqlite3
import zlib
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from remembrancer.code.ranking import Corpus, Paths, Postings, rank
from remembrancer.code.words import last_part, names_in, question_words, terms_of
from remembrancer.protocol.code import CodeChunk

MOST_DEFINITIONS: Final = 200
"""The maximum number of definitions of one name that are considered."""


class CodeSearch:
    """Searches one index. It rereads its statistics of all chunks after the index has changed."""

    def __init__(self) -> None:
        self._loaded = _NOTHING

    def search(self, connection: sqlite3.Connection, question: str, limit: int, tree_id: str = "") -> list[CodeChunk]:
        """The best chunk of each of the best files, best first. Raises `zlib.error` if the index is damaged."""
        loaded = self._loaded = _loaded(connection, self._loaded)
        asked = list(dict.fromkeys(term for word in question_words(question) for term in terms_of(word)))
        postings = {term: each for term in asked if (each := _postings(connection, term, loaded)) is not None}
        defining = {place for name in names_in(question) for place in _definitions(connection, name, loaded)}
        scores = rank(loaded.corpus, postings, defining, asked)
        best = _best_of_files(scores, loaded.corpus.files, limit)
        rows = [connection.execute(_SHOWN, (int(loaded.numbers[place]),)).fetchall()[0] for place in best]
        return [
            CodeChunk(*(tree_id, *row, zlib.decompress(text).decode("utf-8", "replace"), scores[place].item()))
            for place, (*row, text) in zip(best, rows, strict=True)
        ]


def _postings(connection: sqlite3.Connection, term: str, loaded: _Loaded) -> Postings | None:
    rows = connection.execute(_OF_TERM, (term,)).fetchall()
    if not rows:
        return None
    numbers, counts = np.array(rows, np.int64).T
    return Postings(np.searchsorted(loaded.numbers, numbers), counts.astype(np.float64))


def _definitions(connection: sqlite3.Connection, name: str, loaded: _Loaded) -> set[int]:
    """The places of the chunks that define a name."""
    rows = connection.execute(  # without the second condition, SQLite would not use the partial index
        "SELECT number FROM code WHERE last_name = ? AND last_name != '' LIMIT ?", (last_part(name), MOST_DEFINITIONS)
    )
    return set(np.searchsorted(loaded.numbers, [number for (number,) in rows]).tolist())


class _Loaded(NamedTuple):
    """The searchable chunks of an index, ordered by number, as of this count of its changes."""

    changes: int
    numbers: NDArray[np.int64]
    corpus: Corpus


_NONE: Final = np.zeros(0, np.int64)
_NOTHING: Final = _Loaded(0, _NONE, Corpus(_NONE, np.zeros(0), np.zeros(0), Paths(())))
_OF_TERM: Final = """SELECT doc, CAST(substr(term, length(?1) + 2) AS INTEGER) FROM occurrences
    WHERE term >= ?1 || '^' AND term < ?1 || '_'"""
_SHOWN: Final = """
    SELECT f.path, c.start_line, c.end_line, f.kind, c.kind, c.name, c.text
    FROM code AS c JOIN files AS f ON f.number = c.file WHERE c.number = ?
"""


def _loaded(connection: sqlite3.Connection, before: _Loaded) -> _Loaded:
    noted = connection.execute("SELECT value FROM about WHERE root = '' AND name = 'changes'")
    changes = sum(value for (value,) in noted)
    if before.changes == changes:
        return before
    known = connection.execute("SELECT number, path FROM files ORDER BY number").fetchall()
    rows = connection.execute("SELECT number, file, length FROM code ORDER BY number")
    table = np.array(rows.fetchall(), np.int64).reshape(-1, 3)
    of_files = np.searchsorted([number for number, _ in known], table[:, 1])
    lengths = table[:, 2].astype(np.float64)
    file_lengths = np.bincount(of_files, weights=lengths, minlength=len(known)).astype(np.float64)
    paths = Paths([path for _, path in known])
    return _Loaded(changes, table[:, 0], Corpus(of_files, lengths, file_lengths, paths))


def _best_of_files(scores: NDArray[np.float64], files: NDArray[np.int64], limit: int) -> list[int]:
    """The places of the best chunk of each of the best files, best first."""
    places = np.flatnonzero(scores > 0)
    best = np.zeros(int(files.max(initial=-1)) + 1)
    np.maximum.at(best, files[places], scores[places])
    depth = min(limit, len(best))
    chosen = np.argpartition(-best, depth - 1)[:depth] if depth else np.zeros(0, np.int64)
    chosen = chosen[np.lexsort((chosen, -best[chosen]))]
    own = (places[files[places] == file] for file in chosen.tolist() if best[file] > 0)
    return [int(each[scores[each].argmax()]) for each in own]
