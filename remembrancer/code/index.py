"""Searches a code index by words alone. FTS5 counts the terms in each chunk. Chunks are ranked by their own and their
file's BM25 over weighted fields, by definitions of names in the question, and by the kind of file."""

import re
import sqlite3
import zlib
from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from remembrancer.code.languages import DATA, PROSE, language_of
from remembrancer.code.words import last_part, names_in, own_name, question_words, terms_in, terms_of
from remembrancer.memory.wording import stem
from remembrancer.protocol.code import CodeChunk

MOST_DEFINITIONS: Final = 200
"""The maximum number of definitions considered for one name."""
K1: Final = 1.6
B: Final = 0.5
FILE_K1: Final = 50.0
FILE_B: Final = 0.6
"""BM25's b for whole files (Robertson and Zaragoza, 2009)."""
FILE_SHARE: Final = 0.6
"""The weight of the file's BM25, relative to that of its best chunk; both are scaled to 1."""
SEVERAL_SHARE: Final = 0.6
"""The weight of having several good chunks in one file."""
STEM_SHARE: Final = 0.7
"""The weight of the share of a file's own name that occurs in the question."""
GOOD: Final = 0.5
"""A chunk with at least this share of the best BM25 counts as good."""
DEFINES: Final = 0.5
"""The bonus for a chunk that defines a name in the question, as a share of the best score."""
ASIDE: Final = 0.4
"""The factor for files that are not actual code, unless the question asks for them."""
PROSE_SHARE: Final = 0.5
"""The factor for prose and data."""
_ASIDE: Final = {
    "test": r"(?:^|[/_.-])(?:tests?|__tests__|specs?|testing|testdata|fixtures?|mocks?|e2e)(?=$|[/_.-])"
    r"|(?<=[a-z])Tests?\.",
    "example": r"(?:^|[/_.-])(?:examples?|demos?|samples?|tutorials?|playground)(?=$|[/_.-])",
    "benchmark": r"(?:^|[/_.-])(?:bench|benchmarks?|perf)(?=$|[/_.-])",
    "doc": r"^(?:.*/)?docs?/",
    "legacy": r"(?:^|[/_.-])(?:legacy|compat|deprecated|obsolete)(?=$|[/_.-])",
    "locale": r"(?:^|/)(?:locales?|i18n|l10n|translations)/",
}

Numbers = NDArray[np.float64]

_OF_TERM: Final = """SELECT doc, CAST(substr(term, length(?1) + 2) AS INTEGER) FROM occurrences
    WHERE term >= ?1 || '^' AND term < ?1 || '_'"""
_DEFINING: Final = "SELECT number FROM code WHERE last_name = ? AND last_name != '' LIMIT ?"
"""Without the second condition, SQLite would not use the partial index."""
_SHOWN: Final = """
    SELECT f.path, c.start_line, c.end_line, f.kind, c.kind, c.name, c.text
    FROM code AS c JOIN files AS f ON f.number = c.file WHERE c.number = ?
"""


class CodeSearch:
    """Reads the statistics of all chunks again when the index has changed."""

    def __init__(self) -> None:
        self._corpus = _Corpus(0, (), ())

    def search(self, connection: sqlite3.Connection, question: str, limit: int, tree_id: str = "") -> list[CodeChunk]:
        """Return the best chunk from each of the best files. Raises `zlib.error` if the index is damaged."""
        noted = connection.execute("SELECT value FROM about WHERE root = '' AND name = 'changes'")
        changes = sum(value for (value,) in noted)
        if self._corpus.changes != changes:
            files = connection.execute("SELECT number, path FROM files ORDER BY number").fetchall()
            chunks = connection.execute("SELECT number, file, length FROM code ORDER BY number").fetchall()
            self._corpus = _Corpus(changes, files, chunks)
        corpus = self._corpus
        scores = corpus.scores(connection, question)
        places = np.flatnonzero(scores > 0)
        ranked = places[np.lexsort((corpus.files[places], -scores[places]))]
        _, best_of_files = np.unique(corpus.files[ranked], return_index=True)
        chosen = []
        for place in ranked[np.sort(best_of_files)[:limit]].tolist():
            ((*row, text),) = connection.execute(_SHOWN, (int(corpus.numbers[place]),))
            text = zlib.decompress(text).decode("utf-8", "replace")
            chosen.append(CodeChunk(*(tree_id, *row, text, scores[place].item())))
        return chosen


class _Corpus:
    """The chunks of an index by number, with their files and lengths in terms, at a given count of changes."""

    def __init__(self, changes: int, files: Sequence[tuple[int, str]], chunks: Sequence[tuple[int, int, int]]) -> None:
        table = np.array(chunks, np.int64).reshape(-1, 3)
        paths = [path for _, path in files]
        lengths = table[:, 2].astype(np.float64)
        self.changes = changes
        self.numbers = table[:, 0]
        self.files = np.searchsorted([number for number, _ in files], table[:, 1])
        self._norms = _norms(lengths, K1, B)
        self._names = [frozenset(terms_in(own_name(path))) for path in paths]
        self._file_norms = _norms(self._in_files(np.arange(len(chunks)), lengths), FILE_K1, FILE_B)
        self._priors = np.array([PROSE_SHARE if language_of(path) in PROSE | DATA else 1.0 for path in paths])
        self._aside = {
            stem(word): np.array([re.search(pattern, path) is not None for path in paths], np.bool_)
            for word, pattern in _ASIDE.items()
        }

    def scores(self, connection: sqlite3.Connection, question: str) -> Numbers:
        """The score of each chunk: 0 without any term of the question, unless the chunk defines a name in it."""
        asked = dict.fromkeys(term for word in question_words(question) for term in terms_of(word))
        chunks, files = len(self._norms), len(self._names)
        own, whole = np.zeros(chunks), np.zeros(files)
        for term in asked:
            rows = np.array(connection.execute(_OF_TERM, (term,)).fetchall(), np.int64).reshape(-1, 2)
            places, counts = np.searchsorted(self.numbers, rows[:, 0]), rows[:, 1].astype(np.float64)
            own[places] += _rarity(chunks, len(places)) * counts / (counts + self._norms[places])
            in_files = self._in_files(places, counts)
            whole += _rarity(files, int((in_files > 0).sum())) * in_files / (in_files + self._file_norms)
        own, whole = _scaled(own), _scaled(whole)
        good = np.flatnonzero(own > GOOD)
        several = np.log1p(self._in_files(good, own[good]))
        named = np.array([len(name & asked.keys()) / max(1, len(name)) for name in self._names])
        of_file = FILE_SHARE * whole + SEVERAL_SHARE * _scaled(several) + STEM_SHARE * named
        scores = own + np.where(own > 0, of_file[self.files], 0)
        defining = {
            number
            for name in names_in(question)
            for (number,) in connection.execute(_DEFINING, (last_part(name), MOST_DEFINITIONS))
        }
        scores[np.searchsorted(self.numbers, list(defining))] += DEFINES * scores.max(initial=1.0)
        is_aside = np.any([places for word, places in self._aside.items() if word not in asked], axis=0)
        return np.asarray(scores * (self._priors * np.where(is_aside, ASIDE, 1.0))[self.files])

    def _in_files(self, places: NDArray[np.int64], amounts: Numbers) -> Numbers:
        sums = np.bincount(self.files[places], weights=amounts, minlength=len(self._names))
        return sums.astype(np.float64)


def _scaled(values: Numbers) -> Numbers:
    return values / (values.max(initial=0.0) or 1.0)


def _norms(lengths: Numbers, k1: float, b: float) -> Numbers:
    mean = lengths.sum() / max(1, len(lengths))
    return np.asarray(k1 * (1 - b + b * lengths / max(1.0, mean)), np.float64)


def _rarity(all_there_are: int, having: int) -> float:
    return float(np.log1p((all_there_are - having + 0.5) / (having + 0.5)))
