"""The memories near one that is being stored: whoever stores it may want to update or supersede one of them."""

from __future__ import annotations

import heapq
import math
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final, cast

import msgspec

from remembrancer.actors.store.committer import Appliable
from remembrancer.actors.store.moves import Move
from remembrancer.actors.store.records.contract import (
    Filters,
    MemoryRecord,
    Outcome,
    PassageFilter,
    Records,
)
from remembrancer.actors.store.records.materials import mean_vectors
from remembrancer.actors.store.retrieval.keywords import phrases_of
from remembrancer.actors.store.vectors.exact_vectors import IndexLost, SpaceVectors
from remembrancer.protocol.kinds import SESSION_RECORD
from remembrancer.protocol.writes import Applied, NearMemory, Operation, StoreMemory

NAMED: Final = 3
FIRST_WORDS: Final = 12
TOGETHER: Final = 2
"""Operations that are committed together, beside which others are looked for: nobody reads what is near an import."""
READ: Final = 2000
"""Characters of a text whose words are looked for."""
WORDS: Final = 32
"""Words of it that are looked for, the longest of them: names are long."""
ROWS: Final = 60
"""Memories that may have a word which tells anything."""
LOOKED_AT: Final = 8
"""Hits that are looked at, since some are not to be named."""
LENGTH: Final = 0.6
"""The share by which words tell less in a memory of the usual length, and the longer it is."""
SHARED: Final = 2
"""Words that a memory has to share, of a text that has so many."""
SHARE_OF_BEST: Final = 0.45
"""Of the best memory's score."""
LEAST_COSINE: Final = 0.4
NEAREST: Final = 24
"""Memories that are looked at: some are not to be named."""


def name_near(target: Appliable, operations: Sequence[Operation], outcomes: list[Outcome]) -> list[Outcome]:
    """The outcomes of operations that were committed together, those of new memories with what is near each.

    On the thread that has committed them: on another one the two would wait for each other.
    """
    if len(operations) > TOGETHER or isinstance(target, Move):
        return outcomes
    named = list(outcomes)
    for place, (operation, outcome) in enumerate(zip(operations, outcomes, strict=True)):
        change = operation.change
        if isinstance(change, StoreMemory) and isinstance(outcome.reply, Applied):
            found = near_by_words(cast(Records, target), change.content, operation.session_id)
            near = tuple(each for each in found if each.memory_id != change.supersedes)
            named[place] = replace(outcome, reply=msgspec.structs.replace(outcome.reply, near=near))
    return named


def near_by_words(records: Records, content: str, session_id: str) -> tuple[NearMemory, ...]:
    """The memories of a file that share telling words with a text, best first: of what a session sees and is valid.

    They are scored much as by BM25, in one question: FTS5's own would count the rows of each word once more.
    """
    phrases = sorted(dict.fromkeys(phrases_of(content[:READ])), key=lambda each: -len(each.words))[:WORDS]
    scores: defaultdict[int, float] = defaultdict(float)
    total, having = records.with_rare(phrases, ROWS)
    for numbers in having:
        telling = _telling(len(numbers), total)
        for number in numbers:
            scores[number] += telling
    first = heapq.nlargest(LOOKED_AT, scores, scores.__getitem__)
    best = [number for number in first if sum(number in each for each in having) >= min(SHARED, len(phrases))]
    seen = list(records.ranking_facts(best, Filters(session_id)))
    found = _nameable(records.load(seen, None), content)  # without links, which are not wanted
    usual = sum(len(each.content) for each in found.values()) / max(1, len(found))
    rank = {number: scores[number] / (1 + LENGTH * len(each.content) / usual) for number, each in found.items()}
    near = heapq.nlargest(NAMED, rank, rank.__getitem__)
    return tuple(_named(found[each]) for each in near if rank[each] >= SHARE_OF_BEST * rank[near[0]])


def near_by_meaning(
    records: Records, vectors: SpaceVectors, model: str, number: int, session_id: str
) -> tuple[NearMemory, ...]:
    """The memories of a file with the nearest vectors to a memory's, as `near_by_words`."""
    own = records.load([number], Filters(session_id)).get(number)
    _, means = mean_vectors(records.passages(PassageFilter(model, [number])))
    if own is None or not len(means):
        return ()
    try:
        (near,) = vectors.nearest_each(means, NEAREST)
    except IndexLost:
        return ()
    cosines = {memory: cosine for memory, cosine in near.items() if cosine >= LEAST_COSINE and memory != number}
    found = _nameable(records.load(list(cosines), Filters(session_id)), own.content)
    return tuple(_named(found[each]) for each in sorted(found, key=lambda each: -cosines[each])[:NAMED])


def _nameable(memories: Mapping[int, MemoryRecord], content: str) -> dict[int, MemoryRecord]:
    """Those that are worth naming beside a text: another one, which is valid, and no record of a session's work."""
    now = time.time()
    return {
        number: memory
        for number, memory in memories.items()
        if memory.content != content
        and not memory.forgotten
        and memory.kind != SESSION_RECORD
        and (memory.valid_until is None or memory.valid_until > now)
    }


def _named(memory: MemoryRecord) -> NearMemory:
    words = memory.content[: 20 * FIRST_WORDS].split()
    return NearMemory(memory.id, " ".join(words[:FIRST_WORDS]) + (" …" if len(words) > FIRST_WORDS else ""))


def _telling(having: int, total: int) -> float:
    """The weight of a word that so many of all memories have: that of BM25, but never below 0.

    Memories that are forgotten meanwhile are counted among those that have it."""
    return max(0.0, math.log((max(0, total - having) + 0.5) / (having + 0.5)))
