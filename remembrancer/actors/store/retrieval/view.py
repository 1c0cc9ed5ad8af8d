"""The memory that one session sees: the project's lane with the session's own, the user's, and the project's notes.

Each lane is a file of its own with rows of its own. Whoever asks gets references and gives them back, and never learns
in which lane a memory lies, nor how many there are.
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
    GraphRecords,
    MemoryRecord,
    PassageFilter,
    RankingFacts,
    SearchedTexts,
    SessionStart,
    SessionStory,
    Surroundings,
    Vectors,
)
from remembrancer.actors.store.records.sqlite_records import Records
from remembrancer.actors.store.retrieval.candidates import (
    CANDIDATES,
    Row,
    Source,
    WordsFound,
    describe,
    find_candidates,
    find_words,
)
from remembrancer.actors.store.retrieval.code_graph import CodeGraph
from remembrancer.actors.store.retrieval.joined_graph import JoinedGraph, by_lane
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
        for (lane, _), row in rows.items():
            bests[lane] = max(bests[lane], row.bm25 or 0.0)
        best = max((bests[lane] / rare[lane] for lane in sizes), default=0.0)
        found: list[float] = []
        for (lane, _), row in rows.items():
            bm25 = row.bm25 or 0.0
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
    """Lanes that may be read together, from the narrowest to the broadest. Its methods block, from any thread.

    A memory that is in two lanes is on its way to the broader one, which counts. Errors are as in `Records`.
    """

    def __init__(self, lanes: Iterable[Source]) -> None:
        self._lanes = dict(enumerate(lanes))
        self.names = [lane.records.name for lane in self._lanes.values()]
        """The lanes' names."""
        models = (lane.passages.model for lane in self._lanes.values() if lane.passages is not None)
        self.model = next(models, None)
        """The model by whose vectors it is searched; None: by none."""

    def __bool__(self) -> bool:
        """True if there is a lane at all."""
        return bool(self._lanes)

    def is_users(self, name: str) -> bool:
        """True if the lane of that name has the user's memories."""
        return any(lane.records.is_users for lane in self._lanes.values() if lane.records.name == name)

    def within(self, scopes: Collection[Scope]) -> View:
        """The part of it that memories of these scopes lie in."""
        return self._of({lane: each for lane, each in self._lanes.items() if not each.scopes.isdisjoint(scopes)})

    def without(self, name: str) -> View:
        """The view without one lane."""
        return self._of({lane: each for lane, each in self._lanes.items() if each.records.name != name})

    def beside(self, other: Source) -> View:
        """The view with one more lane."""
        return View([*self._lanes.values(), other])

    def _of(self, lanes: Mapping[int, Source]) -> View:
        """A part of it, in which memories keep their references."""
        part = View(lanes.values())
        part._lanes = dict(lanes)
        return part

    # Candidates of a recall.

    def find_words(self, question: Question) -> Words:
        """All of a recall that can be done without the question's vector."""
        found = {lane: find_words(each.records, question) for lane, each in self._lanes.items()}
        sizes = {lane: each.survey.sizes.memories for lane, each in found.items()}
        of_each = zip(*(each.survey.frequencies for each in found.values()), strict=True)
        return Words(found, sizes, [sum(counts) for counts in of_each])

    def candidates(self, question: Question, words: Words, threads: Executor) -> Candidates:
        """The candidates with all that ranks them. A large lane is searched beside the first one: most of the work is
        SQLite's and the index's, which let others run."""
        first = next(iter(self._lanes), None)
        begun = {
            lane: threads.submit(find_candidates, each, question, words.of[lane])
            for lane, each in self._lanes.items()
            if lane != first and words.sizes[lane] > WORTH_A_THREAD
        }
        rows: Rows = {}
        searched: list[bool] = []
        for lane, each in self._lanes.items():
            search = begun.get(lane)
            # What no thread has begun is done here: nobody waits for a thread that waits itself.
            if search is None or search.cancel():
                found = find_candidates(each, question, words.of[lane])
            else:
                found = search.result()
            if found.rows or found.by_meaning:
                searched.append(found.by_meaning)
            rows.update(((lane, number), row) for number, row in found.rows.items())
        return Candidates(rows, any(searched), all(searched))

    def describe(self, question: Question, words: Words, facts: Mapping[Ref, RankingFacts]) -> Rows:
        """Other memories as candidates."""
        rows: Rows = {}
        for lane, numbers in by_lane(facts).items():
            its = {number: facts[lane, number] for number in numbers}
            found = describe(self._lanes[lane], question, words.of[lane].survey.frequencies, its)
            rows.update(((lane, number), row) for number, row in found.items())
        return rows

    def happened_in(self, window: TimeWindow, filters: Filters) -> list[Ref]:
        """The memories that happened in a window; where these are many in a lane, the most important of them."""
        after = max(window.start, -math.inf if filters.after is None else filters.after)
        before = min(math.nextafter(window.end, -math.inf), math.inf if filters.before is None else filters.before)
        within = msgspec.structs.replace(
            filters, after=None if math.isinf(after) else after, before=None if math.isinf(before) else before
        )
        found: list[Ref] = []
        for lane, each in self._lanes.items():
            all_of_it = each.records.matching(within, CANDIDATES)
            numbers = each.records.top(within, "important", CANDIDATES) if all_of_it is None else all_of_it
            found += [(lane, number) for number in numbers]
        return found

    def graph(self, session_id: str, words: Words | None = None, code: Iterable[CodeIndex] = ()) -> JoinedGraph:
        """The graph that a session sees; with `words` of those lanes alone in which there is something of it. Beside it
        that of `code`."""
        graphs: dict[int, GraphRecords] = {
            lane: graph
            for lane, each in self._lanes.items()
            if (graph := each.graph) is not None and (words is None or words.of[lane].survey.has_graph)
        }
        own = [lane for lane in graphs if "project" in self._lanes[lane].scopes]
        memories = tuple(graphs.values())
        graphs |= {len(self._lanes) + place: CodeGraph(index, memories) for place, index in enumerate(code)}
        return JoinedGraph(graphs, session_id, own)

    # Memories by their references.

    def ranking_facts(self, refs: Iterable[Ref], filters: Filters) -> dict[Ref, RankingFacts]:
        """The facts that rank those of the memories that pass the filters."""
        return self._of_each(refs, lambda records, numbers: records.ranking_facts(numbers, filters))

    def load(self, refs: Iterable[Ref], filters: Filters | None) -> dict[Ref, MemoryRecord]:
        """Those of the memories that pass the filters; with None all, whosever they are."""
        return self._of_each(refs, lambda records, numbers: records.load(numbers, filters))

    def find(self, memory_id: str, beside: Ref | None = None) -> Ref | None:
        """The memory of an id; in the lane of another memory, if one is given."""
        for lane in reversed(self._lanes) if beside is None else (beside[0],):
            number = self._lanes[lane].records.number_of(memory_id)
            if number is not None:
                return lane, number
        return None

    def lane_of(self, ref: Ref) -> tuple[Records, int]:
        """The records that a memory lies in, and its number there: for what is kept by file, such as its vectors."""
        return _records(self._lanes[ref[0]]), ref[1]

    def by_file(self, refs: Iterable[Ref]) -> dict[str, list[int]]:
        """The memories' numbers by the names of the files that they lie in."""
        return {self._lanes[lane].records.name: numbers for lane, numbers in by_lane(refs).items()}

    def summaries_of(self, refs: Iterable[Ref]) -> dict[Ref, list[Ref]]:
        """Summaries that say what two or more of these memories say, and which of them."""
        found: dict[Ref, list[Ref]] = {}
        for lane, numbers in by_lane(refs).items():
            summaries = self._lanes[lane].records.summaries_of(numbers) if len(numbers) > 1 else {}
            for summary, its in summaries.items():
                if len(its) > 1:
                    found[lane, summary] = [(lane, number) for number in its]
        return found

    def passages_of(self, refs: Iterable[Ref], vector: Vectors) -> dict[Ref, list[tuple[Range, float]]]:
        """The passages of the memories that have some, as they stand, each with its cosine with the vector."""
        found: dict[Ref, list[tuple[Range, float]]] = {}
        for lane, numbers in by_lane(refs).items():
            each = self._lanes[lane]
            if each.passages is None:
                continue
            known = each.records.passages(PassageFilter(each.passages.model, numbers, ranges=True))
            cosines = (known.vectors @ vector).tolist() if known.numbers else []
            of_each = zip(known.memories, known.numbers, cosines, known.ranges, strict=True)
            for memory, _, cosine, (start, end) in sorted(of_each):
                found.setdefault((lane, memory), []).append(((start, end), cosine))
        return found

    # Lists.

    def first(self, filters: Filters, order: Order, limit: int, files: Sequence[str] | None = None) -> list[list[Ref]]:
        """The first memories in an order that pass the filters: `limit` of each lane, a list for each. With `files` the
        latest of those in whose source a file's path holds one of them."""
        return [
            [(lane, number) for number in each.records.top(filters, order, limit, files)]
            for lane, each in self._lanes.items()
        ]

    def listed(self, request: ListMemories) -> Iterator[ListedMemory]:
        """The memories of all lanes in the order asked for, from the request's offset on. They are read as they are
        taken: a page may end early."""
        lanes = [_records(self._lanes[lane]) for lane in reversed(self._lanes)]
        if request.valid_at is not None and request.as_of is not None:
            return _known_as_of(request, lanes, request.valid_at, request.as_of)
        return _in_order(request, lanes)

    def follow(self, memory_ids: Sequence[str], session_id: str, depth: int, limit: int) -> dict[Ref, LinkedMemory]:
        """The memories of these ids and those related to them: up to `depth` links away, and `limit` of each lane."""
        return {
            (lane, number): memory
            for lane in reversed(self._lanes)
            for number, memory in _records(self._lanes[lane]).follow(memory_ids, session_id, depth, limit).items()
        }

    # What is known besides.

    def visible(self, memory_ids: Iterable[str], filters: Filters) -> dict[Ref, tuple[str, RankingFacts]]:
        """Those of the memories that are here and pass the filters, with their ids. One that is in two lanes is there
        twice."""
        ids = list(memory_ids)
        found: dict[Ref, tuple[str, RankingFacts]] = {}
        for lane, each in self._lanes.items():
            numbers = {number: known for known in ids if (number := each.records.number_of(known)) is not None}
            facts = each.records.ranking_facts(list(numbers), filters)
            found |= {(lane, number): (numbers[number], its) for number, its in facts.items()}
        return found

    def ids_with(self, keys: Collection[str]) -> set[str]:
        """The ids, of whatever session, of which one of these keys is the first or the last four characters."""
        return {memory_id for its in self._each(lambda records: records.ids_with(keys)) for memory_id in its}

    def merged_into(self, memory_ids: Sequence[str]) -> dict[str, str]:
        """For those of the memories that were merged into another one that one's id."""
        return {
            merged: target
            for each in self._lanes.values()
            for merged, target in each.records.merged_into(memory_ids).items()
        }

    def portable(self, memory_id: str, session_id: str, project_id: str) -> tuple[Ref, PortableMemory] | None:
        """A memory whole, forgotten or not; None when there is none that the session may see."""
        for lane in reversed(self._lanes):
            records = _records(self._lanes[lane])
            memory, number = records.portable(memory_id, session_id, project_id), records.number_of(memory_id)
            if memory is not None and number is not None:
                return (lane, number), memory
        return None

    def surroundings(self, ref: Ref, memory: PortableMemory, session_id: str) -> Surroundings:
        """The knowledge of a memory that is not in it, with its copies in all lanes."""
        asked = memory.id, memory.content, session_id
        found = _records(self._lanes[ref[0]]).surroundings(*asked)
        others = [_records(self._lanes[lane]) for lane in reversed(self._lanes) if lane != ref[0]]
        copies = [*found.copies, *(copy for each in others for copy in each.surroundings(*asked).copies)]
        return replace(found, copies=tuple(copies))

    def counts(self, session_id: str) -> list[Counts]:
        """The counts of each lane, as a session sees them."""
        return self._each(lambda records: records.counts(session_id))

    def session_stories(self, session_id: str) -> list[SessionStory]:
        """The knowledge that each lane has of a session, the broadest first."""
        return self._each(lambda records: records.session_story(session_id))

    def session_starts(self, session_id: str) -> list[SessionStart]:
        """The beginning of a session as each lane knows it."""
        return self._each(lambda records: records.session_start(session_id))

    def proposals(self) -> list[Proposal]:
        """The memories that are proposed to go to the user."""
        return [each for its in self._each(lambda records: records.proposals()) for each in its]

    def browse(self, request: BrowserRequest) -> list[tuple[int, BrowsedRows]]:
        """The findings of each lane for the memory browser, by lane."""
        return [(lane, _records(self._lanes[lane]).browse(request)) for lane in reversed(self._lanes)]

    def _each(self, ask: Callable[[Records], T]) -> list[T]:
        return [ask(_records(self._lanes[lane])) for lane in reversed(self._lanes)]

    def _of_each(self, refs: Iterable[Ref], ask: Callable[[SearchedTexts, list[int]], Mapping[int, T]]) -> dict[Ref, T]:
        return {
            (lane, number): found
            for lane, numbers in by_lane(refs).items()
            for number, found in ask(self._lanes[lane].records, numbers).items()
        }


def _records(lane: Source) -> Records:
    """The records of a lane of memories. Notes, which have none, are in views for recalls alone."""
    return cast(Records, lane.records)


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
