"""From ranked candidates to the memories of an answer: each thing is said once, and what is over comes later."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from remembrancer.actors.store.records.contract import Filters, MemoryRecord, Vectors
from remembrancer.actors.store.records.materials import mean_vectors
from remembrancer.actors.store.records.search import padded
from remembrancer.actors.store.retrieval.candidates import Source
from remembrancer.actors.store.retrieval.deduplication import KeptMemory, ScopedMemory, deduplicate
from remembrancer.actors.store.retrieval.ranking import has_ended
from remembrancer.actors.store.retrieval.repetition import COMPARED_CHARACTERS, Said, repetitions, same_when_near
from remembrancer.memory.decay import memory_strength
from remembrancer.protocol.kinds import Scope
from remembrancer.protocol.reads import Scores

SPARE: Final = 6
"""Memories loaded beyond the limit: some are left out because another one says the same."""

Place = tuple[int, int]
"""A candidate among several files: the file's place in the list of sources, the memory's number in it."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A memory of an answer. `vector` is the mean of its passages, of unit length; None where there is none.

    `tags` are its own and those of what it stands for; see `RecalledMemory` for `found_in` and `stands_for`.
    """

    place: Place
    record: MemoryRecord
    scores: Scores
    strength: float
    vector: Vectors | None = None
    tags: tuple[str, ...] = ()
    found_in: tuple[Scope, ...] = ()
    stands_for: tuple[str, ...] = ()
    is_current: bool = True
    """Neither forgotten nor over."""


def shortlist(
    sources: Sequence[Source], ranked: Sequence[tuple[Place, Scores]], filters: Filters, limit: int, now: float
) -> tuple[list[Entry], int]:
    """The first `limit` memories of an answer, and how many of the candidates were left out on the way to them."""
    loaded: list[Entry] = []
    taken = 0
    while True:
        page = ranked[taken : taken + limit + SPARE]
        taken += len(page)
        loaded += _loaded(sources, page, filters, now)
        kept = each_once(loaded)
        if taken >= len(ranked) or len(kept) >= limit:
            return kept[:limit], taken - len(kept)


def each_once(entries: Sequence[Entry]) -> list[Entry]:
    """The entries by their final scores, each thing said once.

    Of memories that say the same one stands for all, with the scores of the first of them; of equal scores the one that
    was updated last is the first. A memory that was derived from others is left out where one of these comes before it:
    that says better what is asked for (unless it stands for something else). Its sources always keep their places.
    """
    ordered = sorted(entries, key=lambda entry: (-entry.scores.final, -entry.record.updated_at))
    says = [_said(entry) for entry in ordered]
    repeated = repetitions(says)

    def is_same(one: int, other: int, cosine: float) -> bool:
        a, b = says[one], says[other]
        return a is not None and b is not None and same_when_near(a, b, cosine)

    scoped = [
        ScopedMemory(entry.record.id, entry.record.scope, entry.strength, entry.record.updated_at, entry.record.tags)
        for entry in ordered
    ]
    kept: list[Entry] = []
    said: set[str] = set()
    for group in deduplicate(scoped, [entry.vector for entry in ordered], repeated=repeated, is_same=is_same):
        entry = ordered[group.place]
        sources = entry.record.derived_from
        if said.isdisjoint(sources) or not set(sources).issuperset(group.stands_for):
            said.update((entry.record.id, *group.stands_for))
            kept.append(_standing_for(group, entry, ordered[group.best_place].scores))
    return kept


def _said(entry: Entry) -> Said | None:
    """What an entry says, to be compared with the others. None: it is not to stand for another, nor another for it."""
    record = entry.record
    if not entry.is_current:
        return None
    happened_at = record.created_at if record.occurred_at is None else record.occurred_at
    return Said(record.id, record.scope, record.type, record.content, happened_at, entry.vector, record.derived_from)


def _standing_for(group: KeptMemory, entry: Entry, scores: Scores) -> Entry:
    """The entry that is kept of a group, with what the others of it had."""
    found_in = group.found_in if len(group.found_in) > 1 else ()
    return replace(entry, scores=scores, tags=group.tags, found_in=found_in, stands_for=group.stands_for)


def is_over(record: MemoryRecord, now: float) -> bool:
    """Whether what a memory says has ceased to be valid."""
    return has_ended(record.valid_until, now)


def strength_of(record: MemoryRecord, now: float) -> float:
    """See `memory_strength`."""
    accessed_at = record.created_at if record.last_accessed_at is None else record.last_accessed_at
    return memory_strength(record.importance, record.confidence, record.access_count, accessed_at, record.scope, now)


def _loaded(
    sources: Sequence[Source], page: Sequence[tuple[Place, Scores]], filters: Filters, now: float
) -> list[Entry]:
    """The memories of ranked candidates, with their vectors where these are needed to tell them apart."""
    numbers: dict[int, list[int]] = {}
    for (source, number), _ in page:
        numbers.setdefault(source, []).append(number)
    records = {
        (source, number): record
        for source, wanted in numbers.items()
        for number, record in sources[source].records.load(padded(wanted), filters).items()
    }
    # What is forgotten or over must not stand for what is not: it is known by its id alone.
    current = {place: record for place, record in records.items() if _is_current(record, now)}
    vectors = _vectors(sources, current)
    return [
        Entry(
            place,
            record,
            scores,
            strength_of(record, now),
            vectors.get(place),
            record.tags,
            is_current=place in current,
        )
        for place, scores in page
        if (record := records.get(place)) is not None
    ]


def _is_current(record: MemoryRecord, now: float) -> bool:
    return not record.forgotten and not is_over(record, now)


def _vectors(sources: Sequence[Source], records: dict[Place, MemoryRecord]) -> dict[Place, Vectors]:
    """The mean vectors of the memories that are told apart by them: of one scope the short ones."""
    if len({record.scope for record in records.values()}) < 2:
        records = {place: each for place, each in records.items() if len(each.content) <= COMPARED_CHARACTERS}
    if len(records) < 2:
        return {}
    models = [source.passages.model for source in sources if source.passages is not None]
    found: dict[Place, Vectors] = {}
    for place, source in enumerate(sources):
        numbers = [number for each, number in records if each == place]
        if numbers and source.passages is not None and source.passages.model == models[0]:
            means = mean_vectors(source.records.memory_vectors(models[0], padded(numbers)))
            found |= {(place, number): mean for number, mean in zip(*means, strict=True)}
    return found
