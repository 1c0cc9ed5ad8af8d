"""Reads the system's answers for benchmarks. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Final

from bench.client import Json

IN_PART: Final = frozenset({"partial_results", "embedding_failed", "query_timeout", "memory_unavailable"})
"""Warnings of an incomplete search."""

TOLD_CHARACTERS: Final = 400
"""The length to which an answer is cut when it is reported as a problem."""


def is_whole(answer: Json) -> bool:
    """True if a recall searched everything."""
    codes = {warning.get("code") for warning in answer.get("warnings", ())}
    return "memories" in answer and not answer.get("degraded") and not codes & IN_PART


def told(answer: Json) -> str:
    """Return the parts of an answer other than its memories, shortened."""
    said = json.dumps({key: value for key, value in answer.items() if key != "memories"}, ensure_ascii=False)
    return said if len(said) <= TOLD_CHARACTERS else f"{said[:TOLD_CHARACTERS]}…"


def shown_places(memories: Sequence[Json], places: Mapping[str, int]) -> list[int]:
    """Return the indexes of the texts that an answer shows, best first, without repetitions.

    A memory that represents duplicates (`stands_for`) also shows their text: they follow right after it with ranks of
    their own, as in a list without deduplication.
    """
    ids = (each for memory in memories for each in (memory["id"], *memory.get("stands_for", ())))
    return list(dict.fromkeys(places[each] for each in ids if each in places))
