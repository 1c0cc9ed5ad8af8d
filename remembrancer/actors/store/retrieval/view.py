"""The memory that one session sees: the project's space with the session's own, its shared lane, the user's, and notes.

Whoever asks gets numbers and gives them back, and never learns in which space a memory lies. Rows of all spaces are
asked for together; words and vectors, of which each space has its own, one space after the other.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from typing import Final, TypeVar, cast

import msgspec

from remembrancer.actors.store.records.contract import (
    BrowsedRows,
    Filters,
    MemoryRecord,
    PassageFilter,
    RankingFacts,
    SessionStart,
    SessionStory,
    Surroundings,
    Vectors,
)
from remembrancer.actors.store.records.sqlite_records import Reader, Records
from remembrancer.actors.store.retrieval.candidates import (
    CANDIDATES,
    Row,
    SearchedTexts,
    Source,
    WordsFound,
    describe,
    find_candidates,
    find_words,
)
from remembrancer.actors.store.retrieval.joined_graph import JoinedGraph
from remembrancer.actors.store.retrieval.joined_graph import Ref as Ref
from remembrancer.actors.store.retrieval.question import Question
from remembrancer.code.index import CodeIndex
from remembrancer.memory.times.windows import TimeWindow
from remembrancer.protocol.browsing import BrowserRequest
from remembrancer.protocol.kinds import Scope
from remembrancer.protocol.reads import Counts, LinkedMemory, ListedMemory, ListMemories, Order, Proposal
from remembrancer.protocol.writes import PortableMemory

Rows = dict[Ref, Row]
"""Candidates."""
Range = tuple[int, int]
"""Characters of a content: the first, and the one after the last."""

TRUSTED_SIZE: Final = 10
"""Memories with which a lane's BM25 is measured half by the best of all lanes, and half by the best of its own."""
WORTH_A_THREAD: Final = 2000
"""Memories of a lane that is searched beside the first one; a smaller one is sooner done after it."""
LOADED_AT_ONCE: Final = 32
NOTES: Final = 0
"""The notes' place among spaces, which no space has for its number."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Words:
    """The knowledge of all lanes before the question's vector is there."""

    of: Mapping[int, WordsFound]
    sizes: Mapping[int, int]
    """The number of memories in each lane."""
    frequencies: Sequence[int] = ()
    """The number of memories, in all lanes, that have each of the question's units."""

    def comparable(self, rows: Rows) -> list[float]:
        """The candidates' BM25 on one scale.

        It weighs a word by its rarity in its own lane, which grows with the logarithm of the lane's size, and in a lane
        of three no word is rare. So it is divided by that logarithm and by what this makes of the best of all lanes;
        the smaller a lane, the more also by the best of its own alone, by which every lane has a perfect match,
        however bad it is.
        """
        sizes = self.sizes
        rare = {lane: math.log(2.0 + size) for lane, size in sizes.items()}
        bests = dict.fromkeys(sizes, 0.0)
        for row in rows.values():
            lane = row.facts.space
            bests[lane] = max(bests[lane], row.bm25 or 0.0)
        best = max((bests[lane] / rare[lane] for lane in sizes), default=0.0)
        found: list[float] = []
        for row in rows.values():
            lane, bm25 = row.facts.space, row.bm25 or 0.0
            if bm25 > 0.0:
                trust = sizes[lane] / (sizes[lane] + TRUSTED_SIZE)
                bm25 = trust * (bm25 / rare[lane] / best) + (1.0 - trust) * (bm25 / bests[lane])
            found.append(bm25)
        return found


@dataclass(frozen=True, slots=True)
class Candidates:
    """The candidates of all lanes. `by_meaning`: vectors were searched; `whole`: those of every lane that has any."""

    rows: Rows
    by_meaning: bool
    whole: bool


class View:
    """Spaces that may be read together, from the narrowest to the broadest, and perhaps notes. Its methods block, from
    any thread.

    A memory that is in two spaces is on its way to the broader one, which counts. Errors are as in `Records`.
    """

    def __init__(self, spaces: Iterable[Source], notes: Source | None = None) -> None:
        self._spaces = {_records(space).space: space for space in spaces}
        self._notes = notes
        self._sources = self._spaces if notes is None else {**self._spaces, NOTES: notes}
        self._reader = Reader([_records(space) for space in self._spaces.values()]) if self._spaces else None
        self.names = [source.records.name for source in self._sources.values()]
        """The names of the spaces, and of the notes' file."""
        models = (source.passages.model for source in self._sources.values() if source.passages is not None)
        self.model = next(models, None)
        """The model by whose vectors it is searched; None: by none."""

    def __bool__(self) -> bool:
        """True if there is anything to be read."""
        return bool(self._sources)

    def is_users(self, name: str) -> bool:
        """True if the space of that name has the user's memories."""
        return any(space.records.is_users for space in self._spaces.values() if space.records.name == name)

    def within(self, scopes: Collection[Scope]) -> View:
        """The part of it that memories of these scopes lie in."""
        return View([space for space in self._spaces.values() if not space.scopes.isdisjoint(scopes)], self._notes)

    def without(self, name: str) -> View:
        """The view without one space."""
        notes = self._notes if self._notes is not None and self._notes.records.name != name else None
        return View([space for space in self._spaces.values() if space.records.name != name], notes)

    def beside(self, notes: Source) -> View:
        """The view with notes."""
        return View(self._spaces.values(), notes)

    # Candidates of a recall.

    def find_words(self, question: Question) -> Words:
        """All of a recall that can be done without the question's vector."""
        found = {lane: find_words(each.records, question) for lane, each in self._sources.items()}
        sizes = {lane: each.survey.sizes.memories for lane, each in found.items()}
        of_each = zip(*(each.survey.frequencies for each in found.values()), strict=True)
        return Words(found, sizes, [sum(counts) for counts in of_each])

    def candidates(self, question: Question, words: Words, threads: Executor) -> Candidates:
        """The candidates with all that ranks them. A large lane is searched beside the first one: most of the work is
        SQLite's and the index's, which let others run."""
        first = next(iter(self._sources), None)
        begun = {
            lane: threads.submit(find_candidates, each, question, words.of[lane])
            for lane, each in self._sources.items()
            if lane != first and words.sizes[lane] > WORTH_A_THREAD
        }
        rows: Rows = {}
        searched: list[bool] = []
        for lane, each in self._sources.items():
            search = begun.get(lane)
            # What no thread has begun is done here: nobody waits for a thread that waits itself.
            if search is None or search.cancel():
                found = find_candidates(each, question, words.of[lane])
            else:
                found = search.result()
            if found.rows or found.by_meaning:
                searched.append(found.by_meaning)
            rows.update(found.rows if lane != NOTES else {-number: row for number, row in found.rows.items()})
        return Candidates(rows, any(searched), all(searched))

    def describe(self, question: Question, words: Words, facts: Mapping[Ref, RankingFacts]) -> Rows:
        """Other memories as candidates."""
        rows: Rows = {}
        for space, source in self._sources.items():
            of_notes = space == NOTES
            its = {abs(ref): each for ref, each in facts.items() if each.space == space}
            found = describe(source, question, words.of[space].survey.frequencies, its) if its else {}
            rows.update(((-number if of_notes else number), row) for number, row in found.items())
        return rows

    def happened_in(self, window: TimeWindow, filters: Filters) -> list[Ref]:
        """The memories that happened in a window; where these are many in a space, the most important of them."""
        after = max(window.start, -math.inf if filters.after is None else filters.after)
        before = min(math.nextafter(window.end, -math.inf), math.inf if filters.before is None else filters.before)
        within = msgspec.structs.replace(
            filters, after=None if math.isinf(after) else after, before=None if math.isinf(before) else before
        )
        found: list[Ref] = []
        for space, each in self._sources.items():
            all_of_it = each.records.matching(within, CANDIDATES)
            numbers = each.records.top(within, "important", CANDIDATES) if all_of_it is None else all_of_it
            found += [-number for number in numbers] if space == NOTES else numbers
        return found

    def graph(self, session_id: str, code: Iterable[CodeIndex] = ()) -> JoinedGraph:
        """The graph that a session sees, and beside it that of `code`."""
        own = (_records(space).graph for space in self._spaces.values() if "project" in space.scopes)
        return JoinedGraph(self._reader.graph if self._reader else None, session_id, next(own, None), code)

    # Memories by their references.

    def ranking_facts(self, refs: Iterable[Ref], filters: Filters) -> dict[Ref, RankingFacts]:
        """The facts that rank those of the memories that pass the filters."""
        return self._of_each(refs, lambda records, numbers: records.ranking_facts(numbers, filters))

    def load(self, refs: Iterable[Ref], filters: Filters | None) -> dict[Ref, MemoryRecord]:
        """Those of the memories that pass the filters; with None all, whosever they are."""
        return self._of_each(refs, lambda records, numbers: records.load(numbers, filters))

    def _of_each(self, refs: Iterable[Ref], ask: Callable[[SearchedTexts, list[int]], Mapping[int, T]]) -> dict[Ref, T]:
        """The answers of the memories and of the notes, in the order of the references."""
        asked = list(refs)
        memories, notes = [ref for ref in asked if ref > 0], [-ref for ref in asked if ref < 0]
        found: dict[Ref, T] = {}
        if memories and self._reader is not None:
            found.update(ask(cast(Records, self._reader), memories))
        if notes and self._notes is not None:
            found.update((-number, each) for number, each in ask(self._notes.records, notes).items())
        return found

    def find(self, memory_id: str, beside: Ref | None = None) -> Ref | None:
        """The memory of an id; in the space of another memory, if one is given."""
        if self._reader is None:
            return None
        return self._reader.number_of(memory_id) if beside is None else self._reader.number_beside(memory_id, beside)

    def records_of(self, ref: Ref) -> Records:
        """The records that a memory lies in: for what is kept by space, such as its vectors."""
        assert self._reader is not None
        return _records(self._spaces[self._reader.spaces_of([ref])[ref]])

    def by_file(self, refs: Iterable[Ref]) -> dict[str, list[int]]:
        """The numbers of memories, and of notes, by the names of their spaces and file."""
        asked, found = list(refs), dict[str, list[int]]()
        memories = [ref for ref in asked if ref > 0]
        spaces = self._reader.spaces_of(memories) if memories and self._reader is not None else {}
        for ref in asked:
            if (source := self._sources.get(spaces.get(ref, NOTES))) is not None:
                found.setdefault(source.records.name, []).append(abs(ref))
        return found

    def summaries_of(self, refs: Iterable[Ref]) -> dict[Ref, list[Ref]]:
        """Summaries that say what two or more of these memories say, and which of them."""
        memories = [ref for ref in refs if ref > 0]
        found = self._reader.summaries_of(memories) if self._reader is not None and len(memories) > 1 else {}
        return {summary: its for summary, its in found.items() if len(its) > 1}

    def passages_of(self, refs: Iterable[Ref], vector: Vectors) -> dict[Ref, list[tuple[Range, float]]]:
        """The passages of the memories that have some, as they stand, each with its cosine with the vector."""
        asked, found = list(refs), dict[Ref, list[tuple[Range, float]]]()
        for space, each in self._sources.items():
            sign = -1 if space == NOTES else 1
            numbers = [abs(ref) for ref in asked if ref * sign > 0]
            if each.passages is None or not numbers:
                continue
            known = each.records.passages(PassageFilter(each.passages.model, numbers, ranges=True))
            cosines = (known.vectors @ vector).tolist() if known.numbers else []
            of_each = zip(known.memories, known.numbers, cosines, known.ranges, strict=True)
            for memory, _, cosine, (start, end) in sorted(of_each):
                found.setdefault(sign * memory, []).append(((start, end), cosine))
            asked = [ref for ref in asked if ref not in found]
        return found

    # Lists.

    def first(self, filters: Filters, order: Order, limit: int, files: Sequence[str] | None = None) -> list[list[Ref]]:
        """The first memories in an order that pass the filters: `limit` of each space, a list for each. With `files`
        the latest of those in whose source a file's path holds one of them."""
        return [space.records.top(filters, order, limit, files) for space in self._spaces.values()]

    def listed(self, request: ListMemories) -> Iterator[ListedMemory]:
        """The memories of all lanes in the order asked for, from the request's offset on. They are read as they are
        taken: a page may end early."""
        lanes = [_records(space) for space in reversed(self._spaces.values())]
        if request.valid_at is not None and request.as_of is not None:
            return _known_as_of(request, lanes, request.valid_at, request.as_of)
        return _in_order(request, lanes)

    def follow(self, memory_ids: Sequence[str], session_id: str, depth: int, limit: int) -> dict[Ref, LinkedMemory]:
        """The memories of these ids and those related to them: up to `depth` links away, and `limit` of each lane."""
        found: dict[Ref, LinkedMemory] = {}
        for space in reversed(self._spaces.values()):
            found |= _records(space).follow(memory_ids, session_id, depth, limit)
        return found

    # What is known besides.

    def visible(self, memory_ids: Iterable[str], filters: Filters) -> dict[Ref, tuple[str, RankingFacts]]:
        """Those of the memories that are here and pass the filters, with their ids. One that is in two lanes is there
        twice."""
        if self._reader is None:
            return {}
        known = self._reader.numbers_of(set(memory_ids))
        facts = self._reader.ranking_facts(list(known), filters)
        return {ref: (known[ref][1], each) for ref, each in facts.items()}

    def ids_with(self, keys: Collection[str]) -> set[str]:
        """The ids, of whatever session, of which one of these keys is the first or the last four characters."""
        return set() if self._reader is None else set(self._reader.ids_with(keys))

    def merged_into(self, memory_ids: Sequence[str]) -> dict[str, str]:
        """For those of the memories that were merged into another one that one's id."""
        return {} if self._reader is None else self._reader.merged_into(memory_ids)

    def portable(self, memory_id: str, session_id: str, project_id: str) -> tuple[Ref, PortableMemory] | None:
        """A memory whole, forgotten or not; None when there is none that the session may see."""
        for space in reversed(self._spaces.values()):
            records = _records(space)
            memory, number = records.portable(memory_id, session_id, project_id), records.number_of(memory_id)
            if memory is not None and number is not None:
                return number, memory
        return None

    def surroundings(self, ref: Ref, memory: PortableMemory, session_id: str) -> Surroundings:
        """The knowledge of a memory that is not in it, with its copies in all lanes."""
        asked = memory.id, memory.content, session_id
        own = self.records_of(ref)
        found = own.surroundings(*asked)
        others = [_records(space) for space in reversed(self._spaces.values()) if space.records is not own]
        copies = [*found.copies, *(copy for each in others for copy in each.surroundings(*asked).copies)]
        return replace(found, copies=tuple(copies))

    def counts(self, session_id: str) -> Counts:
        """The counts of everything that a session sees."""
        return Counts() if self._reader is None else self._reader.counts(session_id)

    def session_stories(self, session_id: str) -> list[SessionStory]:
        """The knowledge that each lane has of a session, the broadest first."""
        return self._each(lambda records: records.session_story(session_id))

    def session_start(self, session_id: str) -> SessionStart:
        """The beginning of a session."""
        return SessionStart(None, 0) if self._reader is None else self._reader.session_start(session_id)

    def proposals(self) -> tuple[Proposal, ...]:
        """The memories that are proposed to go to the user."""
        return () if self._reader is None else self._reader.proposals()

    def browse(self, request: BrowserRequest) -> list[BrowsedRows]:
        """The findings of each space for the memory browser."""
        return self._each(lambda records: records.browse(request))

    def _each(self, ask: Callable[[Records], T]) -> list[T]:
        return [ask(_records(space)) for space in reversed(self._spaces.values())]


def _records(space: Source) -> Records:
    """The records of a space."""
    return cast(Records, space.records)


def _known_as_of(
    request: ListMemories, lanes: Sequence[Records], valid_at: float, as_of: float
) -> Iterator[ListedMemory]:
    """The page of what was known at a time."""
    known = request.session_id, request.project.id, valid_at, as_of
    end = request.offset + request.limit
    having = [records for records in lanes if records.known_as_of(*known, 1)]
    if len(having) == 1:  # nothing to merge it with: the page alone is read
        page = having[0].known_as_of(*known, request.limit, request.offset)
    else:
        found = [each for records in having for each in records.known_as_of(*known, end)]
        page = sorted(found, key=lambda each: (each[0], each[1].id), reverse=True)[request.offset : end]
    return (memory for _, memory in page)


def _in_order(request: ListMemories, lanes: Sequence[Records]) -> Iterator[ListedMemory]:
    """The page of what is known now."""

    def key(memory: ListedMemory) -> tuple[float, float, str]:
        return *memory.place_in(request.order), memory.id if request.order == "valid" else ""

    def loaded(records: Records, numbers: Sequence[int]) -> Iterator[ListedMemory]:
        """In that order, and not all at once."""
        for begin in range(0, len(numbers), LOADED_AT_ONCE):
            several = numbers[begin : begin + LOADED_AT_ONCE]
            found = records.load(several, request.filters)
            yield from (ListedMemory(**found[number].listed()) for number in several if number in found)

    end = request.offset + request.limit
    begin = request.offset
    tops = [(records, records.top(request.filters, request.order, end)) for records in lanes]
    if sum(bool(numbers) for _, numbers in tops) == 1:  # nothing to merge it with: the page alone is read
        begin, tops = 0, [(records, numbers[request.offset :]) for records, numbers in tops]
    merged = heapq.merge(*(loaded(*each) for each in tops), key=key, reverse=True)
    return itertools.islice(merged, begin, begin + request.limit)
