"""Ranks chunks of code for a question, by words alone: BM25 of the chunk and of its file over weighted fields,
definitions of the names in the question, and the kind of the file. Pure."""

import math
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from remembrancer.code.languages import DATA, PROSE, language_of
from remembrancer.code.words import own_name, terms_in
from remembrancer.memory.wording import stem

K1: Final = 1.6
B: Final = 0.5
"""BM25 of chunks."""
FILE_K1: Final = 50.0
FILE_B: Final = 0.6
"""BM25 of whole files (Robertson and Zaragoza, 2009)."""
FILE_SHARE: Final = 0.6
"""The weight of the file's BM25, relative to its best chunk's; both are scaled to 1."""
SEVERAL_SHARE: Final = 0.6
"""The weight of several good chunks in one file."""
STEM_SHARE: Final = 0.7
"""The weight of the share of the file's own name that the question contains."""
GOOD: Final = 0.5
"""A chunk with this share of the best BM25 is a good one."""
DEFINES: Final = 0.5
"""The bonus for a chunk that defines a name in the question, as a share of the best score."""

_ASIDE: Final = {
    "test": r"(?:^|[/_.-])(?:tests?|__tests__|specs?|testing|testdata|fixtures?|mocks?|e2e)(?=$|[/_.-])"
    r"|(?<=[a-z])Tests?\.",
    "example": r"(?:^|[/_.-])(?:examples?|demos?|samples?|tutorials?|playground)(?=$|[/_.-])",
    "benchmark": r"(?:^|[/_.-])(?:bench|benchmarks?|perf)(?=$|[/_.-])",
    "doc": r"^(?:.*/)?docs?/",
    "legacy": r"(?:^|[/_.-])(?:legacy|compat|deprecated|obsolete)(?=$|[/_.-])",
    "locale": r"(?:^|/)(?:locales?|i18n|l10n|translations)/",
}
_ASIDE_PATTERNS: Final = {stem(word): re.compile(pattern) for word, pattern in _ASIDE.items()}
ASIDE: Final = 0.4
"""The factor for a file that is not the code proper, unless the question asks for it."""
PROSE_SHARE: Final = 0.5
"""The factor for prose and data."""


class Postings(NamedTuple):
    """The places of the chunks that contain a term of the question, and the weighted number of occurrences in each."""

    places: NDArray[np.int64]
    counts: NDArray[np.float64]


class Paths:
    """The paths of an index's files by their places: the terms of their names, and their kinds."""

    def __init__(self, paths: Sequence[str]) -> None:
        self._names = [frozenset(terms_in(own_name(path))) for path in paths]
        self._prior = np.array([PROSE_SHARE if language_of(path) in PROSE | DATA else 1.0 for path in paths])
        self._aside = {
            word: np.array([pattern.search(path) is not None for path in paths], np.bool_)
            for word, pattern in _ASIDE_PATTERNS.items()
        }

    def named(self, terms: Sequence[str]) -> NDArray[np.float64]:
        """The share of the terms of each file's name that are among these."""
        wanted = frozenset(terms)
        return np.array([len(name & wanted) / max(1, len(name)) for name in self._names])

    def priors(self, terms: Sequence[str]) -> NDArray[np.float64]:
        """The factor of each file for its kind: tests and the like rank lower, unless the question asks for them."""
        aside = np.zeros(len(self._names), np.bool_)
        for word, places in self._aside.items():
            if word not in terms:
                aside |= places
        return self._prior * np.where(aside, ASIDE, 1.0)


class Corpus(NamedTuple):
    """The chunks of an index by their places, with their lengths in terms, and its files."""

    files: NDArray[np.int64]
    lengths: NDArray[np.float64]
    file_lengths: NDArray[np.float64]
    paths: Paths


def rank(
    corpus: Corpus, terms: Mapping[str, Postings], defining: Collection[int], asked: Sequence[str]
) -> NDArray[np.float64]:
    """The score of each chunk; 0 for one without any term of the question. `terms` has the postings of the terms that
    occur, `asked` all terms, and `defining` the places of the chunks that define its names."""
    chunks, files = len(corpus.files), len(corpus.file_lengths)
    if not chunks:
        return np.zeros(0)
    own, whole = np.zeros(chunks), np.zeros(files)
    norms = _norms(corpus.lengths, K1, B)
    file_norms = _norms(corpus.file_lengths, FILE_K1, FILE_B)
    for places, counts in terms.values():
        own[places] += _rarity(chunks, len(places)) * counts / (counts + norms[places])
        in_files = np.bincount(corpus.files[places], weights=counts, minlength=files)
        having = np.flatnonzero(in_files)
        whole[having] += _rarity(files, len(having)) * in_files[having] / (in_files[having] + file_norms[having])
    own /= own.max() or 1.0
    whole /= whole.max() or 1.0
    several = np.log1p(np.bincount(corpus.files, weights=np.where(own > GOOD, own, 0), minlength=files))
    several /= several.max() or 1.0
    of_file = FILE_SHARE * whole + SEVERAL_SHARE * several + STEM_SHARE * corpus.paths.named(asked)
    scores = own + np.where(own > 0, of_file[corpus.files], 0)
    best = max(1.0, float(scores.max()))
    scores[list(defining)] += DEFINES * best
    return np.asarray(scores * corpus.paths.priors(asked)[corpus.files], np.float64)


def _norms(lengths: NDArray[np.float64], k1: float, b: float) -> NDArray[np.float64]:
    return np.asarray(k1 * (1 - b + b * lengths / max(1.0, float(lengths.mean()))), np.float64)


def _rarity(all_there_are: int, having: int) -> float:
    return math.log1p((all_there_are - having + 0.5) / (having + 0.5))
