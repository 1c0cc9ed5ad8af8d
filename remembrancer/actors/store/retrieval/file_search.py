"""Shows what a recall of files has found: their chunks, and of each the part that the query is about. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

from remembrancer.actors.store.file_index import IndexedChunk
from remembrancer.protocol.files import FoundChunk, SearchFiles
from remembrancer.protocol.reads import RecalledMemory

SCALE: Final = 0.4
"""The exponent that turns a probability into a chunk's score: one in sixty right chunks scores below 0.3, and half of
the others do."""
SNIPPET: Final = 700
"""The number of characters shown of a chunk."""

_SENTENCE: Final = re.compile(r"[^\s].*?(?:[.!?](?=\s)|(?=\n)|\Z)", re.DOTALL)


def scores_of(texts: Iterable[int], found: Iterable[RecalledMemory], least: float) -> dict[int, float]:
    """Return the scores of the texts that a recall has found, at least `least`, best first."""
    scores = {text: each.scores.relevance**SCALE for text, each in zip(texts, found, strict=True)}
    return {text: score for text, score in scores.items() if score >= least}


def found_chunks(
    scores: dict[int, float], chunks: Sequence[IndexedChunk], request: SearchFiles
) -> tuple[FoundChunk, ...]:
    """Return the chunks of these texts in the order of the scores. A text has one for each file that says it; of
    transcripts only one, since a resumed session may repeat all of an earlier one."""
    of_text: dict[int, list[IndexedChunk]] = {text: [] for text in scores}
    for chunk in chunks:
        if not (of_text[chunk.text] and chunk.source == "sessions"):
            of_text[chunk.text].append(chunk)
    ordered = [chunk for same in of_text.values() for chunk in same]
    return tuple(_shown(chunk, scores[chunk.text], request.query) for chunk in ordered[: request.limit])


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
