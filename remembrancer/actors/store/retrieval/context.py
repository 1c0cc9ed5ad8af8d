"""The memories that a session should know for its task: all valid ones if they fit, or else those that apply to every
task (conventions, decisions, preferences) and those that a search for the task finds. Memories that were merged or
summarised into another that the session may see are omitted; closed open ends are only named."""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import PureWindowsPath
from typing import Final, TypeVar

import msgspec

from remembrancer.actors.store.records.browsing import pairs_in_review
from remembrancer.actors.store.records.types import Filters, MemoryRecord, Vectors
from remembrancer.actors.store.retrieval.deduplication import as_recalled
from remembrancer.actors.store.retrieval.recalls import recall
from remembrancer.actors.store.retrieval.view import View
from remembrancer.memory.contexts import choose, in_sections, longest_within, section_of
from remembrancer.memory.decay import has_ended
from remembrancer.memory.likely_kind import is_appointment
from remembrancer.memory.names import name_key
from remembrancer.memory.relevance import is_given_whole
from remembrancer.memory.replacement import REPLACED
from remembrancer.memory.tokens import CHARACTERS_A_TOKEN
from remembrancer.memory.wording import normalised
from remembrancer.protocol.kinds import RULES_OF_WORK, SESSION_RECORD, STANDING, Kind, Scope
from remembrancer.protocol.reads import (
    ContextGathered,
    GatherContext,
    ListedMemory,
    Order,
    Recall,
    RecalledMemory,
    Scores,
)

MAX_CONSIDERED: Final = 600
"""More memories than this would never fit."""
MAX_SEARCH_RESULTS: Final = 40
MAX_FILES: Final = 20
"""The number of files considered, in the given order."""
SEARCHED_FILES: Final = 8
"""The number of files whose names are included in the search."""
LOAD_BATCH: Final = 64
SUBJECTS: Final = 24
MIN_SUBJECT_MEMORIES: Final = 2
CLOSED_NAMED_S: Final = 14 * 86_400.0
"""For this long after its end, an open end is still named."""
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Gathering:
    """`embed` returns the task's vector, or raises `EmbeddingUnavailable`, in which case only words are searched."""

    request: GatherContext
    view: View
    embed: Callable[[str], Awaitable[Vectors]]
    threads: Executor
    now: float

    @property
    def _longest(self) -> float:
        return longest_within(self.request.part_tokens)

    async def gathered(self) -> ContextGathered:
        with_task = bool(self.request.task)  # without a task, the most important ones
        listed, is_all = await self._in_thread(lambda: self._first("important", or_none=with_task))
        every = [each for each in listed if not each.done]
        lengths = (math.inf, self._longest) if is_all else ()  # a long text is cut if everything fits then
        choices = (choose(self.request.tokens, every, longest=longest) for longest in lengths)
        choice = next((each for each in choices if not each.left_out), None)
        subjects: tuple[tuple[str, int], ...] = ()
        if choice is None:
            standing, ends, (own, is_all_own), of_files, found, subjects = await asyncio.gather(
                self._in_thread(lambda: self._first("important", STANDING)[0]),
                self._in_thread(lambda: self._first("due")[0]),
                self._in_thread(lambda: self._first("important", scopes=("session", "project"), or_none=True)),
                self._in_thread(self._from_files),
                self._found(),
                self._in_thread(self._subjects),
            )
            answering = {each.id: each for each in found}  # with their relevance to the task
            standing, ends = ([answering.get(each.id, each) for each in some] for some in (standing, ends))
            fits = is_all_own and not choose(self.request.part_tokens, own).left_out
            important = every if not self.request.task else own if fits else ()
            rest = [each for each in (*of_files, *found, *important) if not each.done]
            rest.sort(
                key=lambda each: each.scope == "user" and not (each.kind in RULES_OF_WORK or is_given_whole(each))
            )
            choice = choose(self.request.part_tokens, rest, standing, ends, answering, is_part=True)
        closed = () if choice.left_out else tuple(each for each in listed if each.done)
        ids = [each.id for each in (*choice.given, *choice.replaced, *closed)]
        return ContextGathered(
            in_sections(await self._in_thread(lambda: self._with_doubts(choice.given)), self.request.sections),
            not choice.left_out,
            subjects,
            choice.replaced,
            closed,
            short_ids=await self._in_thread(lambda: self.view.reader.short_forms(ids)),
            edited=await self._in_thread(lambda: self._edited(choice.given)),
        )

    def _edited(self, memories: Iterable[RecalledMemory]) -> dict[str, float]:
        known = self.view.reader.numbers_of({each.id for each in memories if each.version > 1})
        return {known[number][1]: at for number, at in self.view.reader.edited_among(list(known)).items()}

    def _with_doubts(self, memories: Sequence[RecalledMemory]) -> list[RecalledMemory]:
        """Mark the memories that, according to Review, another memory in the list may replace."""
        known = {each.id: each for each in memories}
        for pair in pairs_in_review(self.view.reader, self.request.session_id):  # the most probable first
            older = known.get(pair.older.id)
            if older and pair.newer.id in known and not older.possibly_superseded_by:
                known[older.id] = msgspec.structs.replace(older, possibly_superseded_by=(pair.newer.id,))
        return [*known.values()]

    def _first(
        self, order: Order, kinds: tuple[Kind, ...] = (), *, scopes: tuple[Scope, ...] = (), or_none: bool = False
    ) -> tuple[list[RecalledMemory], bool]:
        """Return the first matching memories (with `or_none`, all or none), and True if there are no more."""
        filters = Filters(self.request.session_id, scopes, kinds=kinds)
        room = self.request.tokens * CHARACTERS_A_TOKEN  # more than this is not read
        found: list[RecalledMemory] = []
        if or_none and self.view.reader.matching(filters, MAX_CONSIDERED) is None:
            return [], False
        refs = self.view.reader.top(filters, order, MAX_CONSIDERED + 1)
        for start in range(0, len(refs), LOAD_BATCH):
            if sum(min(len(each.content), self._longest * CHARACTERS_A_TOKEN) for each in found) > room:
                return self._once(found), False
            page = refs[start : start + LOAD_BATCH]
            known = self.view.load(page, filters)
            shown = [self._shown(known[ref]) for ref in page if ref in known]
            found += [each for each in shown if self._is_wanted(each)]
        return self._once(found), len(refs) <= MAX_CONSIDERED

    def _from_files(self) -> list[RecalledMemory]:
        files, filters = OpenFiles(self.request.files), Filters(self.request.session_id, ("project",))
        refs = self.view.reader.from_files(files.names(), filters, MAX_SEARCH_RESULTS)
        found = [self._shown(each) for each in self.view.load(refs, filters).values()]
        return self._once(each for each in found if self._is_wanted(each) and files.is_source(each.source.file))

    async def _found(self) -> list[RecalledMemory]:
        words = OpenFiles(self.request.files).query(self.request.task)
        if not words:
            return []
        request = Recall(
            project=self.request.project,
            session_id=self.request.session_id,
            query=words,
            strategy="hybrid" if self.request.task else "keyword",
            limit=MAX_SEARCH_RESULTS,
            is_task=True,
            replaced_from=REPLACED,
        )
        task = self.request.task  # without the names of files
        answer = await recall(request, self.view, lambda _: self.embed(task), self.threads, self.now)
        return await self._in_thread(lambda: self._once(each for each in answer.memories if self._is_wanted(each)))

    def _subjects(self) -> tuple[tuple[str, int], ...]:
        if not self.request.with_subjects:
            return ()
        uses: Counter[str] = Counter()
        names: dict[str, str] = {}
        for name, count in self.view.reader.uses(self.request.session_id, 2 * SUBJECTS):  # with other spellings
            key = name_key(name)
            names.setdefault(key, name)
            uses[key] = max(uses[key], count)
        return tuple((names[key], count) for key, count in uses.most_common(SUBJECTS) if count >= MIN_SUBJECT_MEMORIES)

    def _is_wanted(self, memory: ListedMemory) -> bool:
        was_closed = memory.done and self.now - memory.updated_at > CLOSED_NAMED_S
        is_past = memory.is_open and memory.due is not None and self.now - memory.due > CLOSED_NAMED_S
        is_over = (
            was_closed
            or (is_past and is_appointment(memory.content))
            or memory.kind == SESSION_RECORD
            or has_ended(memory.valid_until, self.now)
        )
        is_asked_for = section_of(memory, self.request.sections) is not None
        return is_asked_for and not is_over and not memory.superseded_by

    def _once(self, memories: Iterable[RecalledMemory]) -> list[RecalledMemory]:
        """Remove repeated ids and texts (except events), and memories merged into another that the session may see."""
        found = list({each.id: each for each in memories}.values())
        promoted = [each.id for each in found if each.status == "promoted"]
        if promoted:
            into = self.view.reader.merged_into(promoted)
            seen = self.view.visible(into.values(), Filters(self.request.session_id)).values()
            shown = {target for target, each in seen if not has_ended(each.valid_until, self.now)}
            found = [each for each in found if into.get(each.id) not in shown]
        texts: set[str] = set()
        once: list[RecalledMemory] = []
        for each in found:
            text = normalised(each.content)
            if each.type == "episodic" or text not in texts:
                once.append(each)
            texts.add(text)
        # A summary does not represent its sources while one of them has probably been replaced.
        sources = {each.id: each for each in once if each.status == "consolidated"}
        outdated = {name for name, each in sources.items() if each.possibly_superseded_by}
        apart = {
            name
            for each in once
            if sources.keys() >= (derived := {*each.derived_from}) and not derived.isdisjoint(outdated)
            for name in (each.id, *derived)
        }
        hidden = sources.keys() ^ apart
        return [each for each in once if each.id not in hidden] or once

    def _shown(self, record: MemoryRecord) -> RecalledMemory:
        return as_recalled(record, Scores(0.0, 0.0), self.now)  # without a query, there is no relevance

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self.threads, work)


class OpenFiles:
    """The open files, at most `MAX_FILES`. Their paths may use the separators of any system."""

    def __init__(self, paths: Sequence[str]) -> None:
        parts = dict.fromkeys(PureWindowsPath(path.strip()).parts for path in paths[:MAX_FILES])
        self.parts = [each for each in parts if each]

    def names(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(path[-1] for path in self.parts))

    def query(self, task: str) -> str:
        stems = [name.partition(".")[0] or name for name in self.names()[:SEARCHED_FILES]]
        return " ".join(part for part in (*stems, task) if part)

    def is_source(self, file: str | None) -> bool:
        """True if one path is the end of another, as `auth/service.py` is of `/home/me/src/auth/service.py`."""
        parts = PureWindowsPath((file or "").strip()).parts
        return bool(parts) and any(path[-len(parts) :] == parts or parts[-len(path) :] == path for path in self.parts)
