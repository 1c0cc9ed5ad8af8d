"""The system's answers, as benchmarks read them. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Final

from bench.client import Json

IN_PART: Final = frozenset({"partial_results", "embedding_failed", "query_timeout", "memory_unavailable"})
"""Warnings of an answer that was not searched for as it should be."""

TOLD_CHARACTERS: Final = 400
"""Of an answer that is told as a problem."""


def is_whole(answer: Json) -> bool:
    """True if a recall searched all that there is."""
    codes = {warning.get("code") for warning in answer.get("warnings", ())}
    return "memories" in answer and not answer.get("degraded") and not codes & IN_PART


def told(answer: Json) -> str:
    """The parts of an answer beside its memories, in short."""
    said = json.dumps({key: value for key, value in answer.items() if key != "memories"}, ensure_ascii=False)
    return said if len(said) <= TOLD_CHARACTERS else f"{said[:TOLD_CHARACTERS]}…"


def shown_places(memories: Sequence[Json], places: Mapping[str, int]) -> list[int]:
    """The places of what an answer shows, best first, each once.

    A memory that stands for others which say the same (`stands_for`) shows their text as well: they come right after
    it, as a list that left nothing out would have them, and take a rank of their own each.
    """
    ids = (each for memory in memories for each in (memory["id"], *memory.get("stands_for", ())))
    return list(dict.fromkeys(places[each] for each in ids if each in places))
