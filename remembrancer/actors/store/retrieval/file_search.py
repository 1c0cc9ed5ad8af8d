"""Searches files: the nearest chunks by words and by meaning, ranked as memories are."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from remembrancer.actors.store.file_index import ROWS, FileFilter, FileIndex, IndexedChunk
from remembrancer.actors.store.records.contract import EVERY, Phrase, Vectors
from remembrancer.actors.store.retrieval.candidates import compare
from remembrancer.actors.store.retrieval.keywords import numbered_of, phrases_of, units_of
from remembrancer.actors.store.vectors.exact_vectors import SpaceVectors
from remembrancer.config.settings import Settings
from remembrancer.memory.features import Asked, Candidates, coverage, rarity
from remembrancer.memory.ranking import fitted_for, weigh
from remembrancer.protocol.files import FoundChunk, SearchFiles, SearchMode

SCALE: Final = 0.4
"""The exponent that turns a probability into a chunk's score: one in sixty right chunks scores below 0.3, and half of
the others do."""
LOOKED_AT: Final = 4
"""The factor by which the first search exceeds the limit, if some chunks are of other workspaces."""
SNIPPET: Final = 700
"""The number of characters shown of a chunk."""

_SENTENCE: Final = re.compile(r"[^\s].*?(?:[.!?](?=\s)|(?=\n)|\Z)", re.DOTALL)


def by_words(index: FileIndex, request: SearchFiles, settings: Settings) -> dict[int, float]:
    """Return the BM25 of the texts with most of the query's words. Blocks."""
    counted: dict[Phrase, int] | None = {} if index.size() > ROWS else None
    return index.keyword_hits(phrases_of(request.query), *_wanted(request, settings), counted)


def by_meaning(
    index: FileIndex, passages: SpaceVectors, vector: Vectors, request: SearchFiles, settings: Settings
) -> dict[int, float]:
    """Return the cosines of the texts nearest to the query. Blocks."""
    wanted, count = _wanted(request, settings)
    allowed: Sequence[int] | None = None
    if wanted != FileFilter(wanted.root):
        allowed = index.matching(wanted, EVERY)
    elif not index.is_everything(wanted):
        near = passages.nearest(vector, LOOKED_AT * count)
        passing = index.passing(list(near), wanted)
        if len(passing) >= count or len(near) < LOOKED_AT * count:
            return dict([(number, cosine) for number, cosine in near.items() if number in passing][:count])
        allowed = index.matching(wanted, EVERY)
    return passages.nearest(vector, count, allowed)


def _wanted(request: SearchFiles, settings: Settings) -> tuple[FileFilter, int]:
    wanted = FileFilter(request.workspace.root, request.sources, request.path)
    return wanted, request.limit * settings.search_candidate_multiplier


def search_files(
    index: FileIndex,
    words: Mapping[int, float],
    near: Mapping[int, float] | None,
    passages: SpaceVectors | None,
    vector: Vectors | None,
    request: SearchFiles,
    settings: Settings,
) -> tuple[list[FoundChunk], SearchMode]:
    """Return the chunks that score at least `request.min_score`, best first, and the searches made. Blocks.

    `words` and `near` are the results of `by_words` and `by_meaning`.
    """
    wanted, _ = _wanted(request, settings)
    if near is not None and not settings.search_hybrid:
        words = {}
    cosines = dict(near or {})
    if near is not None and vector is not None and passages is not None:
        others = passages.of_memories([number for number in words if number not in near])
        compared = compare(others, vector, passages.scale)
        cosines |= zip(compared.memories, compared.cosines.tolist(), strict=True)
    mode: SearchMode = "keyword" if near is None else "hybrid" if settings.search_hybrid else "vector"
    model = passages.model if passages is not None and near is not None else None
    scores = _scores(index, cosines, words, request.query, model)
    best = sorted(
        (number for number in scores if scores[number] >= request.min_score), key=lambda number: -scores[number]
    )
    chunks: dict[int, list[IndexedChunk]] = {}
    for chunk in index.chunks(best[: request.limit], wanted):
        same = chunks.setdefault(chunk.text, [])
        if not (same and chunk.source == "sessions"):  # a resumed session may repeat all of an earlier one
            same.append(chunk)
    ordered = [chunk for number in best for chunk in chunks.get(number, ())]
    return [_shown(chunk, scores[chunk.text], request.query) for chunk in ordered[: request.limit]], mode


def _scores(
    index: FileIndex, cosines: Mapping[int, float], words: Mapping[int, float], query: str, model: str | None
) -> dict[int, float]:
    """Return the probability that each chunk answers, on the scale of the designs. `model` None: by words alone."""
    numbers = list(dict.fromkeys((*cosines, *words)))
    if not numbers:
        return {}
    units = units_of(query)
    postings = [set(having) for having in index.postings(units)]
    matched = np.array([[number in having for having in postings] for number in numbers], dtype=bool)
    matched = matched.reshape(len(numbers), len(units))
    numbered = numbered_of(units)
    candidates = Candidates.of(
        len(numbers),
        cosine=np.array([cosines.get(number, math.nan) for number in numbers]),
        bm25=np.array([words.get(number, 0.0) for number in numbers]),
        coverage=coverage(matched, np.array(rarity([len(having) for having in postings], index.size()))),
        names_missed=1.0 - matched[:, numbered].mean(axis=1) if numbered else np.zeros(len(numbers)),
    )
    probabilities = weigh(candidates, Asked(0.0), fitted_for(model)).probabilities.tolist()
    return {number: each**SCALE for number, each in zip(numbers, probabilities, strict=True)}


def _shown(chunk: IndexedChunk, score: float, query: str) -> FoundChunk:
    snippet = snippet_of(chunk.content[chunk.body :], query)
    return FoundChunk(
        chunk.path, chunk.source, chunk.start_line, chunk.end_line, chunk.heading, min(1.0, score), snippet
    )


def snippet_of(text: str, query: str) -> str:
    """Return the text to show: a long one begins at or a little before the sentence with most words of the query."""
    text = text.strip()
    if len(text) <= SNIPPET:
        return text
    asked = set(re.findall(r"\w+", query.casefold()))
    start, most = 0, 0
    for sentence in _SENTENCE.finditer(text):
        found = len(asked & set(re.findall(r"\w+", sentence.group().casefold())))
        if found > most:
            start, most = sentence.start(), found
    start = min(start, len(text) - SNIPPET)
    while start and not text[start - 1].isspace():
        start -= 1
    shown = text[start : start + SNIPPET]
    return f"{'… ' if start else ''}{shown.strip()}{' …' if start + SNIPPET < len(text) else ''}"
