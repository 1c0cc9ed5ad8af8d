"""Which parts of a long memory answer a question best: for whoever has no room for the whole of it."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Final

from remembrancer.actors.store.records.contract import PassageVectors, Vectors
from remembrancer.actors.store.records.sqlite_filters import padded
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

    By their cosine with the query's vector; by its words where there is no such vector, or none of the memory.
    """
    long = {entry.place: entry.record.content for entry in entries if len(entry.record.content) > SHORT_CHARACTERS}
    found = {} if vector is None else _by_meaning(vector, sources, long)
    return {place: found.get(place) or by_words(query, content, stretches(content)) for place, content in long.items()}


def by_words(query: str, content: str, ranges: Sequence[Range]) -> tuple[Range, ...]:
    """The ranges that have most of the query's words first, a rare word counting for more; then as they stand."""
    words = [word for word in dict.fromkeys(_WORD.findall(query.casefold())) if word not in STOP_WORDS]
    texts = [content[start:end].casefold() for start, end in ranges]
    weights = {
        word: math.log(1 + len(texts) / having) for word in words if (having := sum(word in text for text in texts))
    }
    scores = [sum(weight for word, weight in weights.items() if word in text) for text in texts]
    best = sorted(range(len(ranges)), key=lambda place: (-scores[place], place))[:MOST_PASSAGES]
    return tuple(ranges[place] for place in best)


def by_cosine(vector: Vectors, known: PassageVectors, ranges: dict[int, Range]) -> dict[int, tuple[Range, ...]]:
    """The ranges of each memory's passages, the nearest to `vector` first. `ranges` are by the passages' numbers."""
    cosines = (known.vectors @ vector).tolist() if known.numbers else []
    ranked = sorted(zip(cosines, known.numbers, known.memories, strict=True), key=lambda each: (-each[0], each[1]))
    found: dict[int, list[Range]] = {}
    for _, number, memory in ranked:
        if number in ranges:
            found.setdefault(memory, []).append(ranges[number])
    return {memory: tuple(each[:MOST_PASSAGES]) for memory, each in found.items()}


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


def _by_meaning(
    vector: Vectors, sources: Sequence[Source], contents: dict[Place, str]
) -> dict[Place, tuple[Range, ...]]:
    found: dict[Place, tuple[Range, ...]] = {}
    for place, source in enumerate(sources):
        numbers = [number for each, number in contents if each == place]
        if not numbers or source.passages is None:
            continue
        known = source.records.memory_vectors(source.passages.model, padded(numbers))
        ranges = source.records.passage_ranges(source.passages.model, padded(numbers))
        for number, passages in by_cosine(vector, known, ranges).items():
            length = len(contents[place, number])
            # A memory may have been changed since it was read.
            found[place, number] = tuple(each for each in passages if each[1] <= length)
    return found
