"""Which parts of a long memory answer a question best: for whoever has no room for the whole of it."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Final

from remembrancer.actors.store.records.contract import Vectors
from remembrancer.actors.store.records.search import padded
from remembrancer.actors.store.retrieval.candidates import Source
from remembrancer.actors.store.retrieval.keywords import STOP_WORDS
from remembrancer.actors.store.retrieval.shortlist import Entry, Place

SHORT_CHARACTERS: Final = 400
"""A memory that is no longer than this has no parts."""
MOST_PASSAGES: Final = 200
"""Of one memory: more than an answer of 20,000 tokens has room for."""
STRETCH_CHARACTERS: Final = 400
"""The length that stretches of a text have where it has no passages yet, to the next place where it can be cut."""

Range = tuple[int, int]
"""Characters of a content: the first, and the one after the last."""

_WORD: Final = re.compile(r"[^\W_]+")
_CUT: Final = re.compile(r"\n\s*|[.!?…؟۔।]\s+|[。！？｡]|\s+")
_LONGEST_STRETCH: Final = 2 * STRETCH_CHARACTERS


def passages_of(
    query: str, vector: Vectors | None, sources: Sequence[Source], entries: Sequence[Entry]
) -> dict[Place, tuple[Range, ...]]:
    """The passages of the long ones among these memories, the best for the query first.

    By their cosine with the query's vector and by its words, half and half as memories are; by words alone where there
    is no such vector, or none of the memory.
    """
    long = {entry.place: entry.record.content for entry in entries if len(entry.record.content) > SHORT_CHARACTERS}
    found = {} if vector is None else _with_cosines(vector, sources, long)
    best: dict[Place, tuple[Range, ...]] = {}
    for place, content in long.items():
        ranges, cosines = found.get(place) or (stretches(content), [])
        best[place] = best_first(query, content, ranges, cosines)
    return best


def best_first(query: str, content: str, ranges: Sequence[Range], cosines: Sequence[float] = ()) -> tuple[Range, ...]:
    """The ranges that answer the query best first; those that answer it alike as they stand.

    `cosines` are those of the ranges with the query, or empty where they are not known.
    """
    by_words = _scaled(word_scores(query, [content[start:end] for start, end in ranges]))
    by_meaning = _scaled(cosines) or [0.0] * len(ranges)
    scores = [words + meaning for words, meaning in zip(by_words, by_meaning, strict=True)]
    best = sorted(range(len(ranges)), key=lambda place: (-scores[place], place))[:MOST_PASSAGES]
    return tuple(ranges[place] for place in best)


def word_scores(query: str, texts: Sequence[str]) -> list[float]:
    """How much of the query's words each text has, a rare word counting for more."""
    words = [word for word in dict.fromkeys(_WORD.findall(query.casefold())) if word not in STOP_WORDS]
    folded = [text.casefold() for text in texts]
    weights = {
        word: math.log(1 + len(texts) / having) for word in words if (having := sum(word in text for text in folded))
    }
    return [sum(weight for word, weight in weights.items() if word in text) for text in folded]


def _scaled(scores: Sequence[float]) -> list[float]:
    """Scores as shares of the best one; what is below nothing is nothing."""
    best = max(scores, default=0.0)
    return [max(score, 0.0) / best if best > 0.0 else 0.0 for score in scores]


def stretches(content: str) -> list[Range]:
    """A text in pieces of about `STRETCH_CHARACTERS`, cut where a line, a sentence or at least a word ends."""
    found: list[Range] = []
    start = 0
    while start < len(content):
        least, most = start + STRETCH_CHARACTERS, start + _LONGEST_STRETCH
        cuts = list(_CUT.finditer(content, least, most)) if most < len(content) else []
        better = [each for each in cuts if not each.group().isspace() or "\n" in each.group()]
        end = (better or cuts)[0].end() if cuts else min(most, len(content))
        found.append((start, end))
        start = end
    return found


def _with_cosines(
    vector: Vectors, sources: Sequence[Source], contents: dict[Place, str]
) -> dict[Place, tuple[list[Range], list[float]]]:
    """The ranges of the passages of each memory that has some, as they stand, and their cosines with the vector."""
    found: dict[Place, tuple[list[Range], list[float]]] = {}
    for place, source in enumerate(sources):
        numbers = [number for each, number in contents if each == place]
        if not numbers or source.passages is None:
            continue
        known = source.records.memory_vectors(source.passages.model, padded(numbers))
        ranges = source.records.passage_ranges(source.passages.model, padded(numbers))
        cosines = (known.vectors @ vector).tolist() if known.numbers else []
        for memory, passage, cosine in sorted(zip(known.memories, known.numbers, cosines, strict=True)):
            within = ranges.get(passage)
            # A memory may have been changed since it was read.
            if within is not None and within[1] <= len(contents[place, memory]):
                its_ranges, its_cosines = found.setdefault((place, memory), ([], []))
                its_ranges.append(within)
                its_cosines.append(cosine)
    return found
