"""The memories that a session should know for its task, in five sections.

A memory is in one section only. Open ends have one of their own until they are done. A session's own memories are its
history. A procedural memory belongs to the relevant procedures if it matches the task; without a task the project's do,
and the user's are preferences (if that section is wanted). What is left of the user's semantic and procedural memories
are preferences, what is left of the project's is project knowledge. What is archived or not valid any more is in no
section, nor is a memory that was merged into one that the session may see. One that a summary stands for
(`consolidated`) is shown where a section has nothing else.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from typing import Final, get_args

from remembrancer.actors.store.records.contract import Filters, MemoryRecord, Vectors
from remembrancer.actors.store.retrieval.once import as_recalled
from remembrancer.actors.store.retrieval.recalls import recall
from remembrancer.actors.store.retrieval.view import Ref, View
from remembrancer.memory.decay import has_ended, recency
from remembrancer.memory.ranking import DEFAULT_WEIGHTS, Weights
from remembrancer.memory.wording import normalised
from remembrancer.protocol.kinds import SESSION_RECORD, Kind, Status
from remembrancer.protocol.reads import (
    ContextGathered,
    ContextSection,
    GatherContext,
    ListedMemory,
    Notice,
    Order,
    Recall,
    RecalledMemory,
    Scores,
    Section,
    Strategy,
)
from remembrancer.protocol.writes import MemoryType, Scope

SECTIONS: Final = get_args(Section)
TAKES_FIRST: Final[tuple[Section, ...]] = (
    *("open_ends", "relevant_procedures", "preferences", "project_context", "session_history"),
)
"""Which section has a memory that several have found."""
PREFERENCE_TYPES: Final[tuple[MemoryType, ...]] = ("semantic", "procedural")
IMPORTANCE_SHARE: Final = 0.5
RECENCY_SHARE: Final = 0.2
RELEVANCE_SHARE: Final = 0.3
"""The weight of relevance for preferences when there is a task. Importance first: a preference holds for tasks that do
not name it."""

RULES: Final[frozenset[Kind]] = frozenset({"preference", "convention"})
RULE: Final = 0.7
UTMOST: Final = 0.85
"""The importance from which on a rule, and any other memory, holds for every task."""
MOST_STANDING: Final = 5
STOOD_FOR: Final[tuple[Status, ...]] = ("consolidated", "promoted")
"""The statuses of a memory that a summary or a broader memory says as well."""
TOLD: Final = 10
LEAST: Final = 0.02
"""The memories of a search that bear on a task: the first so many, and others that are so likely. With 210 questions of
three weeks as tasks a context has 18 memories instead of 24, more of each, and 204 answers of 210 instead of 201."""
LEAST_MEMORIES: Final = 20
"""A section has so many however long they are, so that a few long ones do not keep all others away."""
LOADED_AT_ONCE: Final = 64
SHARED: Final = 2
"""Times as many are fetched where another section may take as many as it may have."""


@dataclass(slots=True)
class Finds:
    """The findings of a section, the best first. `more`: others match that were not fetched."""

    memories: list[RecalledMemory] = field(default_factory=list)
    more: bool = False


def divided(found: dict[Section, Finds], limit: int, characters: int | None = None) -> tuple[ContextSection, ...]:
    """The sections with each memory in one of them, and in each at most `limit` and about so many `characters`."""
    taken: set[str] = set()
    kept: dict[Section, ContextSection] = {}
    for name in (name for name in TAKES_FIRST if name in found):
        own = [memory for memory in found[name].memories if memory.id not in taken]
        own = [memory for memory in own if memory.status != "consolidated"] or own
        own.sort(key=lambda memory: memory.status in STOOD_FOR)
        own = current_first(said_once(own))
        within = own[: min(limit, how_many(own, characters))]
        kept[name] = ContextSection(name, tuple(within), more=found[name].more or len(own) > len(within))
        taken.update(memory.id for memory in kept[name].memories)
    return tuple(kept[name] for name in SECTIONS if name in kept)


def said_once(memories: Sequence[RecalledMemory]) -> list[RecalledMemory]:
    """The memories without those that say an earlier one's words again. What happened is told as often as it did."""
    said: set[str] = set()
    once: list[RecalledMemory] = []
    for memory in memories:
        text = normalised(memory.content)
        if memory.type == "episodic" or text not in said:
            once.append(memory)
        said.add(text)
    return once


def current_first(memories: Sequence[RecalledMemory]) -> list[RecalledMemory]:
    """The memories in their order, but those that others among them replace after these."""
    known = {memory.id for memory in memories}
    return sorted(memories, key=lambda each: not known.isdisjoint((*each.superseded_by, *each.possibly_superseded_by)))


def how_many(memories: Sequence[RecalledMemory], characters: int | None, times: int = 1) -> int:
    """The number of memories that come to `times` so many characters, the one that passes the mark included."""
    if characters is None:
        return len(memories)
    longest = characters // LEAST_MEMORIES
    total = 0
    for place, memory in enumerate(memories):
        if total >= times * characters:
            return place
        total += min(len(memory.content), longest)
    return len(memories)


class Gathering:
    """One request under way.

    `embed` makes the task's vector, once for all; where it raises `EmbeddingUnavailable`, words are searched alone.
    """

    def __init__(
        self,
        request: GatherContext,
        view: View,
        embed: Callable[[str], Awaitable[Vectors]],
        threads: Executor,
        now: float,
        weights: Weights = DEFAULT_WEIGHTS,
    ) -> None:
        self._request = request
        self._view = view
        self._embed = embed
        self._threads = threads
        self._now = now
        self._weights = weights
        self._task = request.task.strip()
        self._files = OpenFiles.at(request.files)
        self._vector: asyncio.Future[Vectors] | None = None
        self._notices: list[Notice] = []

    async def gathered(self) -> ContextGathered:
        """The sections that are asked for, searched side by side, and what the searches lacked."""
        searches: dict[Section, Callable[[], Awaitable[Finds]]] = {
            "preferences": self._preferences,
            "project_context": self._project_context,
            "session_history": self._session_history,
            "relevant_procedures": self._relevant_procedures,
            "open_ends": self._open_ends,
        }
        wanted = [name for name in SECTIONS if name in self._request.sections]
        found = dict(zip(wanted, await asyncio.gather(*(searches[name]() for name in wanted)), strict=True))
        if any(memory.status == "promoted" for finds in found.values() for memory in finds.memories):
            await asyncio.get_running_loop().run_in_executor(self._threads, self._leave_out_merged, found.values())
        return ContextGathered(divided(found, self._request.limit, self._request.characters), tuple(self._notices))

    async def _preferences(self) -> Finds:
        """The user's semantic and procedural memories, the most important first; with a task those that have to do with
        it, and the rules that hold for every task."""
        most, related = await asyncio.gather(
            self._top(("user",), PREFERENCE_TYPES, SHARED), self._recall(self._task, ("user",), PREFERENCE_TYPES)
        )
        if not self._task:
            return most
        ranked = sorted(_once([*related.memories, *_standing(most.memories)]), key=_preference, reverse=True)
        return Finds(ranked, more=related.more)

    async def _relevant_procedures(self) -> Finds:
        """Procedural memories of the project and the user that match the task."""
        if self._task:
            return await self._recall(self._task, ("project", "user"), ("procedural",))
        if "preferences" in self._request.sections:
            return await self._top(("project",), ("procedural",))
        return await self._top(("project", "user"), ("procedural",))

    async def _project_context(self) -> Finds:
        """The project's knowledge of the task and of the open files, memories that name one of these first.

        Without a task the most important follow, with one the rules that hold for every task.
        """
        words = self._files.query(self._task)
        strategy: Strategy = "hybrid" if self._task else "keyword"
        rest = Finds()
        matches, of_files = await asyncio.gather(self._recall(words, ("project",), (), strategy), self._from_files())
        rest = await self._top(("project",), (), SHARED)
        if self._task:  # rules are said with the preferences, and not again with every prompt
            rest = Finds(_standing(rest.memories) if "preferences" in self._request.sections else [])
        known = _once([*matches.memories, *of_files.memories, *rest.memories])
        named = self._files.are_named_in
        known.sort(key=lambda each: 0 if self._files.is_source(each.source.file) else 2 - named(each.content))
        return Finds(known, more=matches.more or of_files.more or rest.more)

    async def _session_history(self) -> Finds:
        """This session's memories, what happened before the rest, the latest first."""
        events = await self._top(("session",), ("episodic",), order="latest")
        if events.more or len(events.memories) >= self._request.limit:
            return events
        others = await self._top(("session",), ("semantic", "procedural"), order="latest")
        return Finds(events.memories + others.memories, more=others.more)

    async def _open_ends(self) -> Finds:
        """The open ends that are not done, whatever the task is, by their due dates."""
        return await self._top(("session", "project", "user"), (), order="due")

    async def _recall(
        self,
        query: str,
        scopes: tuple[Scope, ...],
        types: tuple[MemoryType, ...],
        strategy: Strategy = "hybrid",
    ) -> Finds:
        view = self._view.within(scopes)
        if not query or not view:
            return Finds()
        request = Recall(
            project=self._request.project,
            session_id=self._request.session_id,
            query=query,
            strategy=strategy,
            limit=SHARED * self._request.limit,
            is_task=True,
            scopes=scopes,
            types=types,
        )
        answer, _ = await recall(request, view, self._vector_of_task, self._threads, self._now, self._weights)
        self._notices.extend(notice for notice in answer.notices if notice not in self._notices)
        useful = [memory for memory in answer.memories if self._is_wanted(memory)]
        if self._task and "project" in scopes:  # what is so of the user bears on tasks that do not name it
            useful = [*useful[:TOLD], *filter(self._bears_on_task, useful[TOLD:])]
        return Finds(useful, more=answer.total_matched > len(answer.memories))

    def _bears_on_task(self, memory: RecalledMemory) -> bool:
        return memory.scores.relevance >= LEAST or self._files.are_named_in(memory.content)

    def _is_wanted(self, memory: ListedMemory) -> bool:
        """True if a memory has a place in this context."""
        is_over = memory.done or memory.kind == SESSION_RECORD
        return not is_over and self._is_useful(memory.status, memory.valid_until)

    def _is_useful(self, status: Status, valid_until: float | None) -> bool:
        """True if a memory has a place in a context at all."""
        return status != "archived" and not has_ended(valid_until, self._now)

    def _leave_out_merged(self, found: Iterable[Finds]) -> None:
        """Take away what was merged into a memory that the session may see, and that has a place in a context."""
        promoted = {memory.id for finds in found for memory in finds.memories if memory.status == "promoted"}
        into = self._view.merged_into(list(promoted))
        targets = self._view.visible(into.values(), Filters(self._request.session_id))
        shown = {target for target, each in targets.values() if self._is_useful(each.status, each.valid_until)}
        gone = {merged for merged, target in into.items() if target in shown}
        for finds in found:
            finds.memories = [memory for memory in finds.memories if memory.id not in gone]

    async def _vector_of_task(self, _: str) -> Vectors:
        """The one vector for every search, also where the words that are searched differ."""
        if self._vector is None:
            self._vector = asyncio.ensure_future(self._embed(self._task))
        return await asyncio.shield(self._vector)

    async def _top(
        self,
        scopes: tuple[Scope, ...],
        types: tuple[MemoryType, ...],
        times: int = 1,
        order: Order = "important",
        tags: tuple[str, ...] = (),
    ) -> Finds:
        """The first memories of these scopes and types: `times` as many as a section may have."""
        filters = Filters(self._request.session_id, scopes, types, tags=tags)
        limit = times * self._request.limit

        def read() -> Finds:
            firsts = self._view.within(scopes).first(filters, order, limit + 1)
            of_each = [self._loaded(refs, filters, times) for refs in firsts]
            found = [memory for finds in of_each for memory in finds.memories]
            found.sort(key=lambda each: each.place_in(order), reverse=True)
            found.sort(key=lambda each: each.status in STOOD_FOR)
            return Finds(found[:limit], more=len(found) > limit or any(finds.more for finds in of_each))

        return await asyncio.get_running_loop().run_in_executor(self._threads, read)

    async def _from_files(self) -> Finds:
        """The project's memories whose source is one of the open files."""
        filters = Filters(self._request.session_id, ("project",))

        def read() -> Finds:
            view, limit = self._view.within(filters.scopes), SHARED * self._request.limit
            refs = [ref for its in view.first(filters, "latest", limit, self._files.names()) for ref in its]
            found = self._loaded(refs, filters, SHARED)
            return Finds([each for each in found.memories if self._files.is_source(each.source.file)], found.more)

        return await asyncio.get_running_loop().run_in_executor(self._threads, read)

    def _loaded(self, refs: Sequence[Ref], filters: Filters, times: int) -> Finds:
        """The first of the memories: as many as come to `times` the characters that a section may have.

        Those for which others stand count only if there is space for them.
        """
        found: list[RecalledMemory] = []
        stood_for: list[RecalledMemory] = []
        for start in range(0, len(refs), LOADED_AT_ONCE):
            if how_many(found, self._request.characters, times) < len(found):
                return Finds(found, more=True)
            part = refs[start : start + LOADED_AT_ONCE]
            known = self._view.load(part, filters)
            for record in (known[ref] for ref in part if ref in known):
                if self._is_wanted(record):
                    recent = recency(_happened_at(record), self._now)
                    final = self._weights.final(0.0, record.importance, recent)  # nothing was asked: no relevance
                    scores = Scores(final, relevance=0.0, importance=record.importance, recency=recent)
                    (stood_for if record.status in STOOD_FOR else found).append(as_recalled(record, scores, self._now))
        return Finds(found + stood_for)


def _once(memories: Iterable[RecalledMemory]) -> list[RecalledMemory]:
    found: dict[str, RecalledMemory] = {}
    for memory in memories:
        found.setdefault(memory.id, memory)
    return list(found.values())


def _standing(memories: Iterable[RecalledMemory]) -> list[RecalledMemory]:
    """The first few that hold whatever the task is: the user's rules, a project's if they are of the utmost importance,
    and what else is of that importance to the user."""
    rules = [
        each
        for each in memories
        if (each.importance >= UTMOST and (each.scope == "user" or each.kind in RULES))
        or (each.importance >= RULE and each.scope == "user" and each.kind in RULES)
    ]
    return rules[:MOST_STANDING]


def _happened_at(memory: MemoryRecord | RecalledMemory) -> float:
    return memory.created_at if memory.occurred_at is None else memory.occurred_at


def _preference(memory: RecalledMemory) -> float:
    scores = memory.scores
    return IMPORTANCE_SHARE * scores.importance + RECENCY_SHARE * scores.recency + RELEVANCE_SHARE * scores.relevance


MAX_FILES: Final = 20
"""Files that are looked for; the first ones given."""
SEARCHED_FILES: Final = 8
"""Files whose names are searched for."""
NEAREST_DIRECTORIES: Final = 2
"""Directories above a file whose names say something of what the file is about."""
COMMON_DIRECTORIES: Final = frozenset(
    {"app", "bin", "dist", "docs", "home", "lib", "node_modules", "packages", "pkg", "src", "test", "tests", "users"}
)
"""Names that every project has: to search for them finds everything."""

MENTIONS: Final = 20
"""Places in a text that are looked at for one name."""
LONGEST_PREFIX: Final = 200

_SEPARATORS: Final = re.compile(r"[/\\]+")
_IN_PATH: Final = re.compile(r"[\w./\\-]")


@dataclass(frozen=True, slots=True)
class OpenFiles:
    """Files by their paths' parts, the file's own name last."""

    parts: tuple[tuple[str, ...], ...]

    @classmethod
    def at(cls, paths: Sequence[str]) -> OpenFiles:
        """The files of these paths, whose separators may be of any system."""
        parts = dict.fromkeys(path_parts(path) for path in paths[:MAX_FILES])
        return cls(tuple(each for each in parts if each))

    def names(self) -> tuple[str, ...]:
        """The files' own names."""
        return tuple(dict.fromkeys(path[-1] for path in self.parts))

    def query(self, task: str) -> str:
        """The query of a context: the names of the first files without their suffixes, the task, and the directories.

        A search looks at the first words alone: neither many files nor a long task may take all of them.
        """
        stems = [name.partition(".")[0] or name for name in self.names()[:SEARCHED_FILES]]
        directories = [
            directory
            for path in self.parts
            for directory in path[:-1][-NEAREST_DIRECTORIES:]
            if directory.lower() not in COMMON_DIRECTORIES
        ]
        return " ".join(part for part in (*stems, task, *dict.fromkeys(directories)) if part)

    def is_source(self, file: str | None) -> bool:
        """True if a memory's source is one of the files."""
        return file is not None and self._has(path_parts(file))

    def are_named_in(self, content: str) -> bool:
        """True if a text names one of the files, by its name alone or with directories that agree."""
        return any(self._has(path_parts(mention)) for name in self.names() for mention in _mentions(content, name))

    def _has(self, parts: tuple[str, ...]) -> bool:
        """True if one path is the end of the other, as `auth/service.py` is of `/home/me/src/auth/service.py`."""
        return bool(parts) and any(path[-len(parts) :] == parts or parts[-len(path) :] == path for path in self.parts)


def _mentions(content: str, name: str) -> Iterator[str]:
    """The first paths in a text that end in a file's name, each with the directories before it."""
    end = 0
    for _ in range(MENTIONS):
        start = content.find(name, end)
        if start < 0:
            return
        end = start + len(name)
        first = start
        while first > 0 and start - first < LONGEST_PREFIX and _IN_PATH.match(content, first - 1):
            first -= 1
        is_whole = first == start or content[start - 1] in "/\\"
        if is_whole and not (end < len(content) and (content[end].isalnum() or content[end] in "_-")):
            yield content[first:end]


def path_parts(path: str) -> tuple[str, ...]:
    """The names in a path, without `.` and blanks at its ends."""
    return tuple(part for part in _SEPARATORS.split(path.strip()) if part not in ("", "."))
