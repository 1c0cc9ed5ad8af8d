"""From ranked candidates to the memories of an answer: each thing is said once, and what was replaced comes later."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final

import numpy as np

from remembrancer.actors.store.records.contract import Filters, MemoryRecord, Vectors
from remembrancer.actors.store.retrieval.view import Range, Ref, View
from remembrancer.memory.decay import DAY_S, has_ended, memory_strength
from remembrancer.memory.stop_words import stop_words_of
from remembrancer.memory.wording import normalised, same_in_words
from remembrancer.protocol.kinds import SCOPES, Scope
from remembrancer.protocol.reads import RecalledMemory, Scores

SPARE: Final = 10
"""Memories loaded beyond the limit: some are left out because another one says the same."""
SAME_COSINE: Final = 0.90
"""Two memories of different scopes that are nearer to each other than this say the same, if their words do."""
NEAR_COSINE: Final = 0.95
"""Two memories of one scope that are not nearer than this are not compared word by word."""
STRONGER: Final = 2.0
"""A narrower scope's memory stands for both when it is more than so many times as strong."""
NAMED: Final = 5
"""Ids that an answer names; more would only cost tokens."""
COMPARED_CHARACTERS: Final = 2000
"""A longer text says more than one thing: it is the same as another one when they are equal, and not otherwise."""
SAME_EVENT_S: Final = DAY_S
"""The time within which an event can be the same: on another day it is another, in whatever words it is told."""

Ranked = Sequence[tuple[Ref, Scores]]
"""Candidates, best first."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A memory of an answer. `vector` is the mean of its passages, of unit length; None where there is none.

    `tags` are its own and those of what it stands for; see `RecalledMemory` for `found_in` and `stands_for`.
    """

    ref: Ref
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
    view: View,
    ranked: Ranked,
    filters: Filters,
    limit: int,
    now: float,
    vectors: Mapping[Ref, Vectors] = MappingProxyType({}),
    *,
    of_a_time: bool = False,
) -> tuple[list[Entry], int]:
    """The first `limit` memories of an answer, and how many of the candidates were left out on the way to them.

    `vectors` are the candidates' means, as far as they are known.
    `of_a_time`: the question names a time, and what held then is not put behind what replaced it.
    """
    loaded: list[Entry] = []
    taken = 0
    while True:
        page = ranked[taken : taken + limit + SPARE]
        taken += len(page)
        loaded += _loaded(view, page, filters, now, vectors)
        if not of_a_time:
            loaded += _loaded(view, _replacing(view, loaded, ranked), filters, now, vectors)
        kept = each_once(loaded)
        if taken >= len(ranked) or len(kept) >= limit:
            left_out = len({ref for ref, _ in ranked[:taken]} | {entry.ref for entry in loaded}) - len(kept)
            return (kept if of_a_time else replaced_last(kept))[:limit], left_out


def replaced_last(entries: Sequence[Entry]) -> list[Entry]:
    """The entries in their order, but each that others supersede, as a link says, right behind these."""
    known = {entry.record.id: entry for entry in entries}
    ordered: dict[str, Entry] = {}
    waiting: set[str] = set()

    def place(entry: Entry) -> None:
        if entry.record.id in ordered or entry.record.id in waiting:
            return
        waiting.add(entry.record.id)
        for newer in entry.record.superseded_by:
            if newer in known:
                place(known[newer])
        ordered[entry.record.id] = entry

    for entry in entries:
        place(entry)
    return list(ordered.values())


def _replacing(view: View, loaded: Sequence[Entry], ranked: Ranked) -> Ranked:
    """The memories that links put in the place of these and that are not among them, each with its own scores; one that
    was no candidate with those of what it replaces. Also the summaries of two or more of them, with the best scores of
    these."""
    known = {entry.ref: entry for entry in loaded}
    behind = [ref for ref, entry in known.items() if entry.record.status == "consolidated" and entry.is_current]
    found: dict[Ref, Scores] = {}
    for summary, refs in (
        view.reader.summaries_of([ref for ref in behind if ref > 0]).items() if len(behind) > 1 else ()
    ):
        if summary not in known and len(refs) > 1:
            found[summary] = max((known[each].scores for each in refs), key=lambda scores: scores.final)
    ids = {entry.record.id for entry in loaded}
    missing = {newer: entry for entry in loaded for newer in entry.record.superseded_by if newer not in ids}
    scores = dict(ranked) if missing else {}
    for newer, entry in missing.items():
        ref = view.find(newer, beside=entry.ref)
        if ref is not None:
            found[ref] = scores.get(ref, entry.scores)
    return list(found.items())


def _loaded(view: View, page: Ranked, filters: Filters, now: float, vectors: Mapping[Ref, Vectors]) -> list[Entry]:
    """The memories of ranked candidates, but those that are gone."""
    records = view.load([ref for ref, _ in page], filters) if page else {}
    return [
        Entry(
            ref,
            record,
            scores,
            strength_of(record, now),
            vectors.get(ref),
            record.tags,
            # What is forgotten or over must not stand for what is not: it is known by its id alone.
            is_current=not record.forgotten and not has_ended(record.valid_until, now),
        )
        for ref, scores in page
        if (record := records.get(ref)) is not None
    ]


def strength_of(record: MemoryRecord, now: float) -> float:
    """See `memory_strength`."""
    accessed_at = record.created_at if record.last_accessed_at is None else record.last_accessed_at
    known = record.importance, record.confidence, record.access_count, accessed_at, record.scope
    return memory_strength(*known, now, is_open=record.is_open)


def each_once(entries: Sequence[Entry]) -> list[Entry]:
    """The entries by their final scores, each thing said once. Pure.

    Of memories that say the same one stands for all, with the scores of the first of them; of equal scores the one that
    was updated last is the first. Of one scope that is the first of them; of several see `_is_kept`. Where two or more
    are found that a summary stands for, it is shown in their place. Else a memory that was derived from others is left
    out where one of these comes before it: that says better what is asked for (unless it stands for something else).
    """
    ordered = _summed_up(sorted(entries, key=lambda entry: (-entry.scores.final, -entry.record.updated_at)))
    alike = _alike(ordered)
    groups: dict[int, list[int]] = {}
    """For the place of each that is kept those of all that it stands for, the first of which is their rank."""
    for place, entry in enumerate(ordered):
        rivals = sorted((each for each in alike.get(place, ()) if each in groups), key=lambda each: min(groups[each]))
        better = next((each for each in rivals if _is_kept(ordered[each], entry)), None)
        if better is not None:
            groups[better].append(place)
        else:
            groups[place] = [place, *(member for each in rivals for member in groups.pop(each))]
    kept: list[Entry] = []
    said: set[str] = set()
    for place, members in sorted(groups.items(), key=lambda item: min(item[1])):
        entry = _standing_for(ordered, place, members) if len(members) > 1 else ordered[place]
        sources = entry.record.derived_from
        if said.isdisjoint(sources) or not set(sources).issuperset(entry.stands_for):
            said.update((entry.record.id, *entry.stands_for))
            kept.append(entry)
    return kept


def _summed_up(ordered: Sequence[Entry]) -> list[Entry]:
    """Entries, best first, with a summary of several of them in the place of the first of these."""
    hidden = {each.record.id: each for each in ordered if each.record.status == "consolidated" and each.is_current}
    left: set[str] = set()
    best: dict[str, Scores] = {}
    for entry in ordered:
        sources = [each for each in entry.record.derived_from if each in hidden and each not in left]
        if entry.record.type == "semantic" and entry.is_current and len(sources) > 1:
            left.update(sources)
            first = max((hidden[each] for each in sources), key=lambda each: each.scores.final)
            best[entry.record.id] = max(entry.scores, first.scores, key=lambda scores: scores.final)
    kept = [
        replace(each, scores=best.get(each.record.id, each.scores)) for each in ordered if each.record.id not in left
    ]
    return sorted(kept, key=lambda entry: (-entry.scores.final, -entry.record.updated_at))


def _standing_for(ordered: Sequence[Entry], place: int, members: Sequence[int]) -> Entry:
    """The entry that is kept of a group, with what the others of it had."""
    entry = ordered[place]
    group = [entry, *(ordered[each] for each in sorted(members) if each != place)]
    scopes = {each.record.scope for each in group}
    return replace(
        entry,
        scores=ordered[min(members)].scores,
        tags=tuple(dict.fromkeys(tag for each in group for tag in each.record.tags)),
        found_in=tuple(scope for scope in SCOPES if scope in scopes) if len(scopes) > 1 else (),
        stands_for=tuple(dict.fromkeys(each.record.id for each in group if each.record.id != entry.record.id)),
    )


def _is_kept(earlier: Entry, later: Entry) -> bool:
    """True if the earlier of two that say the same is kept, and not the later.

    Of one scope it is. Of two scopes the broader's is, unless the other is more than twice as strong; if both are
    records of one memory, unless the other was updated later.
    """
    one, other = earlier.record, later.record
    if one.scope == other.scope and one.id != other.id:
        return True
    is_broader = SCOPES.index(one.scope) >= SCOPES.index(other.scope)
    broader, narrower = (earlier, later) if is_broader else (later, earlier)
    if one.id == other.id:
        narrower_wins = narrower.record.updated_at > broader.record.updated_at
    else:
        narrower_wins = narrower.strength > broader.strength * STRONGER
    return is_broader != narrower_wins


def _alike(entries: Sequence[Entry]) -> dict[int, set[int]]:
    """For each place those before it that say the same: records of one memory, and what is told in the same words.

    Vectors alone do not tell "the threshold is 5" from "the threshold is 7": they say which texts are worth comparing,
    and the words decide. Entries that are not current are known by their ids alone.
    """
    alike: dict[int, set[int]] = {}
    before: dict[tuple[str, ...], list[int]] = {}
    for place, entry in enumerate(entries):
        content, keys = entry.record.content, [("id", entry.record.id)]
        if entry.is_current:
            keys.append((entry.record.scope, content if len(content) > COMPARED_CHARACTERS else normalised(content)))
        for key in keys:
            same = before.setdefault(key, [])
            for other in same:
                if key[0] == "id" or _are_of_one_thing(entries[other].record, entry.record):
                    alike.setdefault(place, set()).add(other)
            same.append(place)
    with_vectors = [
        (place, each.vector) for place, each in enumerate(entries) if each.vector is not None and each.is_current
    ]
    if len(with_vectors) < 2:
        return alike
    matrix = np.stack([vector for _, vector in with_vectors])
    cosines = matrix @ matrix.T
    for later, earlier in np.argwhere(np.tril(cosines > SAME_COSINE, -1)).tolist():
        place, other, cosine = with_vectors[later][0], with_vectors[earlier][0], float(cosines[later, earlier])
        one, two = entries[other].record, entries[place].record
        is_near = one.scope != two.scope or (cosine > NEAR_COSINE and _are_of_one_thing(one, two))
        if is_near and other not in alike.get(place, ()) and _same_when_near(one.content, two.content, cosine):
            alike.setdefault(place, set()).add(other)
    return alike


def _same_when_near(one: str, other: str, cosine: float) -> bool:
    if max(len(one), len(other)) > COMPARED_CHARACTERS:
        return one == other
    return same_in_words(one, other, cosine)


def _are_of_one_thing(one: MemoryRecord, other: MemoryRecord) -> bool:
    """True if two memories of one scope are not two events, nor one of them made of the other (which of these is shown
    is decided elsewhere)."""
    if one.id in other.derived_from or other.id in one.derived_from:
        return False
    happened = [each.created_at if each.occurred_at is None else each.occurred_at for each in (one, other)]
    return "episodic" not in (one.type, other.type) or abs(happened[0] - happened[1]) < SAME_EVENT_S


def as_recalled(record: MemoryRecord, scores: Scores, now: float | None = None) -> RecalledMemory:
    """A record as an answer shows it; with how strong it is `now`, if that is given."""
    return RecalledMemory(**record.listed(), scores=scores, strength=None if now is None else strength_of(record, now))


SHORT_CHARACTERS: Final = 400
"""A memory that is no longer than this has no parts."""
MOST_PASSAGES: Final = 200
"""Of one memory: more than an answer of 20,000 tokens has room for."""
STRETCH_CHARACTERS: Final = 400
"""The length that stretches of a text have where it has no passages yet, to the next place where it can be cut."""

_WORD: Final = re.compile(r"[^\W_]+")
_CUT: Final = re.compile(r"\n\s*|[.!?…؟۔।]\s+|[。！？｡]|\s+")
_LONGEST_STRETCH: Final = 2 * STRETCH_CHARACTERS


def passages_of(
    query: str, vector: Vectors | None, view: View, records: Mapping[Ref, MemoryRecord]
) -> dict[Ref, tuple[Range, ...]]:
    """The passages of the long ones among these memories, the best for the query first: for whoever has no room for the
    whole of them.

    By their cosine with the query's vector and by its words, half and half as memories are; by words alone where there
    is no such vector, or none of the memory.
    """
    long = {ref: each.content for ref, each in records.items() if len(each.content) > SHORT_CHARACTERS}
    found = {} if vector is None else view.passages_of(long, vector)
    best: dict[Ref, tuple[Range, ...]] = {}
    for ref, content in long.items():
        # A memory may have been changed since it was read.
        known = [each for each in found.get(ref, ()) if each[0][1] <= len(content)]
        ranges = [within for within, _ in known] or stretches(content)
        best[ref] = best_first(query, content, ranges, [cosine for _, cosine in known])
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
    """The share of the query's words that each text has, a rare word counting for more."""
    ignored = stop_words_of(query)
    words = [word for word in dict.fromkeys(_WORD.findall(query.casefold())) if word not in ignored]
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
