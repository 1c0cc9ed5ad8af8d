"""Selects the memories of an answer from ranked candidates: removes duplicates, and moves replaced memories back."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from types import MappingProxyType
from typing import Final, NamedTuple

import msgspec
import numpy as np

from remembrancer.actors.store.records.browsing import doubted_in_review, doubts_in_review
from remembrancer.actors.store.records.types import MemoryRecord, Vectors, is_memory
from remembrancer.actors.store.retrieval.candidates import Search
from remembrancer.actors.store.retrieval.view import Ref, View
from remembrancer.memory.changes import SAME_EVENT_S
from remembrancer.memory.decay import has_ended, strength_of
from remembrancer.memory.open_ends import asks_about_open_ends, can_stand_for
from remembrancer.memory.relevance import LIKELY
from remembrancer.memory.replacement import PROBABLE
from remembrancer.memory.wording import normalised, same_in_words
from remembrancer.protocol.kinds import SCOPES, Scope
from remembrancer.protocol.reads import Recalled, RecalledMemory, Scores, Strategy

SPARE: Final = 10
"""The number of additional memories loaded, since some are removed as duplicates."""
MOST_LOADED: Final = 300
"""If this many memories are loaded, chains of replacements are not followed any further."""
SAME_COSINE: Final = 0.90
"""The cosine above which memories of different scopes are duplicates, if their words agree."""
NEAR_COSINE: Final = 0.95
"""The cosine above which memories of one scope are compared word by word."""
STRONGER: Final = 2.0
"""The memory in the narrower scope represents both if it is stronger by this factor."""
UNRANKED: Final = Scores(0.0, 0.0)
"""The scores of a memory that is shown only because it probably replaces a result, or is an open end."""
UNKNOWN: Final = Scores(-np.inf, 0.0)
COMPARED_CHARACTERS: Final = 2000
"""A longer text says more than one thing, so it is a duplicate only if the texts are identical."""
Scored = Sequence[tuple[Ref, Scores]]
"""Candidates, best first."""


class Ranking(NamedTuple):
    """The first `answering` candidates may be in the answer. The next `below` are used only if a request asks for
    omitted memories. `vectors` are the means of the candidates' passages, if known."""

    scored: Scored
    strategy: Strategy
    answering: int
    below: int = 0
    vectors: Mapping[Ref, Vectors] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Entry:
    """`vector` is the mean of the memory's passages, of unit length. The other fields are as in `RecalledMemory`."""

    ref: Ref
    record: MemoryRecord
    scores: Scores
    strength: float
    vector: Vectors | None = None
    found_in: tuple[Scope, ...] = ()
    stands_for: tuple[str, ...] = ()
    is_current: bool = True
    """True if the memory is neither forgotten nor expired."""
    doubts: Mapping[str, float] = field(default_factory=dict)
    """The ids of the memories in `possibly_superseded_by`, each with its probability."""


def show(search: Search, ranking: Ranking) -> Recalled:
    """Select the results. If the question names a time, replaced memories stay in place: replacements may be later."""
    question, request = search.question, search.question.request
    ranked, limit, of_a_time = ranking.scored[: ranking.answering], request.limit, bool(question.windows)
    if is_about_open_ends := asks_about_open_ends(request.query):
        open_ends = (ref for each in search.view.records for ref in each.top(question.filters, "due", limit))
        scored = dict(ranked)
        ranked = [*(scored | {ref: UNRANKED for ref in open_ends if ref not in scored}).items()]
    loaded: list[Entry] = []
    kept: list[Entry] = []
    taken = 0
    while taken < len(ranked) and len(kept) < limit:
        page = ranked[taken : taken + (len(ranked) if is_about_open_ends else limit + SPARE)]
        taken += len(page)
        loaded += _loaded(search, ranking, page)
        more = loaded
        while more and not of_a_time and len(loaded) < MOST_LOADED:  # to the end of each chain of replacements
            more = _loaded(search, ranking, _replacing(search.view, loaded, ranked))
            loaded += more
        kept = deduplicate(loaded)
    left_out = len({ref for ref, _ in ranked[:taken]} | {entry.ref for entry in loaded}) - len(kept)
    found, shown = {ref for ref, _ in ranked}, {entry.record.id for entry in kept}
    ordered = kept if of_a_time else demote_replaced(kept)
    with_words = {each.ref for each in ordered if each.record.is_open and "words" in each.scores.shares}
    if is_about_open_ends and with_words:  # then come likely answers and the other open ends
        ordered.sort(key=lambda each: not each.record.is_open and (each.record.done or each.scores.relevance < LIKELY))
        ordered.sort(key=lambda each: each.ref not in with_words)
    entries = [each for each in ordered if each.ref in found or shown.isdisjoint(each.record.superseded_by)][:limit]
    memories = tuple(
        RecalledMemory(
            **entry.record.listed(),
            scores=entry.scores,
            strength=entry.strength,
            found_in=entry.found_in,
            expired=has_ended(entry.record.valid_until, question.asked.asked_at),
            stands_for=entry.stands_for,
        )
        for entry in entries
    )
    ids = {memory_id for each in entries if is_memory(each.ref) for memory_id in (each.record.id, *each.stands_for)}
    for name in ("near_duplicates", "derived_from", "superseded_by", "possibly_superseded_by"):
        ids.update(*(getattr(each.record, name) for each in entries if is_memory(each.ref)))
    return Recalled(
        memories=doubted_in_review(search.view.reader, request.session_id, memories),
        total_matched=len(ranked) - left_out,
        below_threshold=ranking.below,
        strategy_used=ranking.strategy,
        left_out=_left_out(search, ranking, {entry.ref for entry in entries}),
        short_ids={} if request.scopes else search.view.reader.short_forms(ids),
    )


def _left_out(search: Search, ranking: Ranking, shown: Collection[Ref]) -> tuple[RecalledMemory, ...]:
    """Return the best candidates that are not shown and, if requested, the memory that the request is about."""
    view, request = search.view, search.question.request
    if not request.left_out:
        return ()
    about = view.reader.number_of(request.about) if request.about else None
    others = [each for each in ranking.scored if each[0] not in shown]
    best = [each for place, each in enumerate(others) if place < request.left_out or each[0] == about]
    records = view.load([ref for ref, _ in best], search.question.filters)
    return tuple(as_recalled(records[ref], scores) for ref, scores in best if ref in records)


def demote_replaced(entries: Sequence[Entry]) -> list[Entry]:
    """Move each entry to just behind the entries that supersede it, and those that possibly do and answer at least as
    probably; others that possibly supersede it come just behind it. An entry inherits the better scores of the entry
    that it replaces, since it is the valid answer to the same questions. If it replaces it with a probability, it
    inherits this share of the other's relevance, and the other keeps the rest."""
    known = {entry.record.id: entry for entry in entries}
    inherited = {newer: old.scores for old in reversed(entries) for newer in old.record.superseded_by}
    ordered: list[Entry] = []
    begun: set[str] = set()

    def place(entry: Entry, replaced: Scores) -> None:
        if entry.record.id in begun:
            return
        begun.add(entry.record.id)
        scores = _raised(_raised(entry.scores, replaced), inherited.get(entry.record.id, replaced))
        for newer in entry.record.superseded_by:
            if newer in known:
                place(known[newer], scores)
        doubts = {newer: chance for newer, chance in entry.doubts.items() if newer in known}
        rest = scores.relevance * (1.0 - max(doubts.values(), default=0.0))
        for newer, chance in doubts.items():
            answers = max(known[newer].scores.relevance, scores.relevance * chance)
            if answers >= rest:
                place(known[newer], msgspec.structs.replace(scores, relevance=answers))
        ordered.append(replace(entry, scores=msgspec.structs.replace(scores, relevance=rest)))
        for newer in (*entry.record.superseded_by, *doubts):
            if newer in known:
                place(known[newer], known[newer].scores)

    for entry in entries:
        place(entry, entry.scores)
    return ordered


def _replacing(view: View, loaded: Sequence[Entry], ranked: Scored) -> Scored:
    """Return the missing memories that replace loaded ones. One that was not a candidate gets the scores of the memory
    it replaces, or `UNRANKED` if the replacement is only probable. Also return summaries of two or more loaded
    memories, with the best of their scores."""
    known = {entry.ref: entry for entry in loaded}
    behind = [ref for ref, entry in known.items() if entry.record.status == "consolidated" and entry.is_current]
    found: dict[Ref, Scores] = {}
    for summary, refs in view.reader.summaries_of(list(filter(is_memory, behind))).items() if len(behind) > 1 else ():
        is_outdated = any(known[each].record.possibly_superseded_by for each in refs)
        if summary not in known and len(refs) > 1 and not is_outdated:
            found[summary] = reduce(_raised, (known[each].scores for each in refs), UNKNOWN)
    ids = {entry.record.id for entry in loaded}
    missing = {
        newer: entry
        for entry in loaded
        for newer in (*entry.record.possibly_superseded_by, *entry.record.superseded_by)
        if newer not in ids
    }
    scores = dict(ranked)
    for ref, (space, newer) in view.reader.numbers_of(missing).items() if missing else ():
        entry = missing[newer]
        if entry.record.space == space:
            replaces = newer in entry.record.superseded_by
            found[ref] = scores.get(ref, _raised(UNKNOWN, entry.scores) if replaces else UNRANKED)
    return list(found.items())


def _raised(own: Scores, better: Scores) -> Scores:
    """Return the better scores, but with the memory's own shares, if shares are known; `stands_for` is the rest."""
    rest = round(better.final - sum(share for name, share in own.shares.items() if name != "stands_for"), 3)
    shares = own.shares | {"stands_for": rest} if better.shares else {}
    return own if own.final >= better.final else msgspec.structs.replace(better, shares=shares)


def _loaded(search: Search, ranking: Ranking, page: Scored) -> list[Entry]:
    question, request, refs = search.question, search.question.request, [ref for ref, _ in page]
    records = search.view.load(refs, question.filters) if refs else {}
    least, every = max(PROBABLE, request.replaced_from), doubts_in_review(search.view.reader, request.session_id)
    entries = []
    for ref, scores in page:
        if (record := records.get(ref)) is not None:
            doubts = {newer: chance for newer, chance in every.get(record.id, {}).items() if chance >= least}
            entries.append(
                Entry(
                    ref,
                    msgspec.structs.replace(record, possibly_superseded_by=tuple(doubts)),
                    scores,
                    strength_of(record, question.now),
                    ranking.vectors.get(ref),
                    # A forgotten or expired memory must not represent a current one, so it matches only by id.
                    is_current=not record.forgotten and not has_ended(record.valid_until, question.now),
                    doubts=doubts,
                )
            )
    return entries


def deduplicate(entries: Sequence[Entry]) -> list[Entry]:
    """Sort the entries by final score, and let one of several duplicates (see `_is_kept`) represent them all, with the
    best scores. A summary replaces its sources if two or more are found. Otherwise, a derived memory is omitted if one
    of its sources comes before it, since the source fits the question better."""
    ordered = _summed_up(sorted(entries, key=lambda entry: (-entry.scores.final, -entry.record.updated_at)))
    cosines = _cosines(ordered)
    groups: dict[int, list[int]] = {}
    """The places of the kept entries, each with the places of all entries that it represents."""
    for place, entry in enumerate(ordered):
        rivals = [each for each in groups if _say_the_same(ordered[each], entry, cosines[each][place])]
        rivals.sort(key=lambda each: min(groups[each]))
        better = next((each for each in rivals if _is_kept(ordered[each], entry)), None)
        if better is not None:
            groups[better].append(place)
        else:
            groups[place] = [place, *(member for each in rivals for member in groups.pop(each))]
    kept: list[Entry] = []
    represented: set[str] = set()
    for place, members in sorted(groups.items(), key=lambda item: min(item[1])):
        entry = _standing_for(ordered, place, members)
        sources = entry.record.derived_from
        if represented.isdisjoint(sources) or not set(sources).issuperset(entry.stands_for):
            represented.update((entry.record.id, *entry.stands_for))
            kept.append(entry)
    return kept


def _summed_up(ordered: Sequence[Entry]) -> list[Entry]:
    """Replace several sources of a summary with the summary, at the rank of the first one. If one of the sources is
    probably replaced and all of them are present, the summary is omitted instead, and the first source inherits its
    better scores."""
    hidden = {each.record.id: each for each in ordered if each.record.status == "consolidated" and each.is_current}
    left: set[str] = set()
    best: dict[str, Scores] = {}
    for entry in ordered:
        derived = entry.record.derived_from
        if entry.record.type != "semantic" or not entry.is_current:
            continue
        is_outdated = any(each in hidden and hidden[each].record.possibly_superseded_by for each in derived)
        sources = [each for each in derived if each in hidden and (is_outdated or each not in left)]
        if len(sources) < (len(derived) if is_outdated else 2):
            continue
        left.update((entry.record.id,) if is_outdated else sources)
        first = max((hidden[each] for each in sources), key=lambda each: each.scores.final)
        stays, other = (first, entry) if is_outdated else (entry, first)
        best[stays.record.id] = _raised(stays.scores, other.scores)
    kept = [
        replace(each, scores=best[each.record.id]) if each.record.id in best else each
        for each in ordered
        if each.record.id not in left
    ]
    return sorted(kept, key=lambda entry: (-entry.scores.final, -entry.record.updated_at))


def _standing_for(ordered: Sequence[Entry], place: int, members: Sequence[int]) -> Entry:
    """Return the entry that is kept from a group, with the tags, scopes and ids of the others."""
    entry = ordered[place]
    group = [entry, *(ordered[each] for each in sorted(members) if each != place)]
    scopes = {each.record.scope for each in group}
    tags = tuple(dict.fromkeys(tag for each in group for tag in each.record.tags))
    return replace(
        entry,
        record=msgspec.structs.replace(entry.record, tags=tags),
        scores=_raised(entry.scores, ordered[min(members)].scores),
        found_in=tuple(scope for scope in SCOPES if scope in scopes) if len(scopes) > 1 else (),
        stands_for=tuple(dict.fromkeys(each.record.id for each in group if each.record.id != entry.record.id)),
    )


def _is_kept(earlier: Entry, later: Entry) -> bool:
    """True if the earlier of two duplicates is kept. An open end is kept rather than a done one. Within one scope, the
    earlier duplicate is kept. Between two scopes, the entry of the broader one is kept, unless the other is more than
    twice as strong or, if both are records of one memory, was updated later."""
    one, other = earlier.record, later.record
    if one.is_open != other.is_open:
        return one.is_open
    if one.scope == other.scope and one.id != other.id:
        return True
    is_broader = SCOPES.index(one.scope) >= SCOPES.index(other.scope)
    broader, narrower = (earlier, later) if is_broader else (later, earlier)
    if one.id == other.id:
        narrower_wins = narrower.record.updated_at > broader.record.updated_at
    else:
        narrower_wins = narrower.strength > broader.strength * STRONGER
    return is_broader != narrower_wins


def _cosines(entries: Sequence[Entry]) -> list[list[float]]:
    """The cosines of all pairs; 0 if a vector is missing."""
    nowhere = np.zeros(next((len(each.vector) for each in entries if each.vector is not None), 0))
    matrix = np.array([nowhere if each.vector is None else each.vector for each in entries])
    return (matrix @ matrix.T).tolist() if entries else []


def _say_the_same(one: Entry, other: Entry, cosine: float) -> bool:
    """True for records of one memory, and for texts with the same words. Vectors only select the texts to compare: they
    do not distinguish "the threshold is 5" from "the threshold is 7"."""
    a, b = one.record, other.record
    if a.id == b.id:
        return True
    in_one_scope = a.scope == b.scope
    is_near = cosine > (NEAR_COSINE if in_one_scope else SAME_COSINE)
    if not (is_near or in_one_scope) or not (one.is_current and other.is_current):
        return False
    if in_one_scope:
        if a.id in b.derived_from or b.id in a.derived_from:
            return False  # `deduplicate` decides about these
        if "episodic" in (a.type, b.type) and abs(a.happened_at - b.happened_at) >= SAME_EVENT_S:
            return False
    if max(len(a.content), len(b.content)) > COMPARED_CHARACTERS:
        return a.content == b.content and a.kind == b.kind
    is_same = same_in_words(a.content, b.content) if is_near else normalised(a.content) == normalised(b.content)
    return is_same and can_stand_for(a, b)


def as_recalled(record: MemoryRecord, scores: Scores, now: float | None = None) -> RecalledMemory:
    return RecalledMemory(**record.listed(), scores=scores, strength=None if now is None else strength_of(record, now))
