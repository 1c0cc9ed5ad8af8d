"""Maintenance of a file, and its consolidation when it has become large, page by page.

Memories are archived and let go, copies stand behind one of them, and what nobody needs
any more is removed. Of all memories together only what tells copies apart is held at once.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from anyio.to_thread import run_sync

from remembrancer.actors.consolidator.derived_memories import plan_summaries
from remembrancer.actors.consolidator.promoting import ToUser, propose_to_user
from remembrancer.actors.consolidator.reflecting import find_patterns
from remembrancer.actors.consolidator.store_connection import (
    IDS,
    Clock,
    Group,
    Run,
    StoreConnection,
    derive,
    pages,
    read_named,
    run_id_of,
)
from remembrancer.config.settings import Settings
from remembrancer.memory.decay import DAY_S, DELETE_AFTER_S, should_archive, should_delete, strength_of
from remembrancer.memory.wording import normalised
from remembrancer.protocol.consolidation import (
    ConsolidateJob,
    Done,
    Maintained,
    MaintainJob,
    Material,
    ReadMemories,
    Upkept,
)
from remembrancer.protocol.kinds import SESSION_KINDS
from remembrancer.protocol.runs import (
    AddLink,
    ApplyRun,
    CloseRequest,
    DropOrphans,
    Method,
    Prune,
    ReviseMemory,
)

PAGE: Final = 1000
PAGE_WITH_CONTENT: Final = 200
SLICE: Final = 500
"""Memories that are summed up together."""
NAMED: Final = 100
"""Ids of each sort that an answer gives."""
ORPHAN_AFTER_S: Final = 30 * DAY_S
"""An entity that no memory mentions is removed if it is older than this."""
SESSION_DETAILS_KEPT_S: Final = 30 * DAY_S
"""The turns, tool calls, scratchpads and tool outcomes of a session are deleted this long after it was closed."""
OPERATIONS_KEPT_S: Final = 30 * DAY_S
"""An operation that is repeated later than this would be applied again; queues are emptied much sooner."""


async def maintain(job: MaintainJob, store: StoreConnection, settings: Settings, clock: Clock) -> Maintained:
    """Carry out the maintenance of a file, or say what it would do.

    From a shared lane nothing goes to the user alone, and what its hosts make of it by themselves is theirs to prune.
    """
    is_shared, clock = job.lane_time is not None, _clock_of(job, clock)
    request, now = job.request, clock()
    project = request.project
    place = "user" if project is None else project.id
    run_id = run_id_of("maintenance", place, now)
    run = _Pass(store, project, run_id, "maintenance", clock, dry_run=request.dry_run)
    notes = _Pass(store, project, run_id_of("notes", run_id), "maintenance", clock, dry_run=request.dry_run)
    examined, archived, deleted = await run.archive()
    duplicates = await run.deduplicate(archived)
    # In a dry run, what is archived or stands behind a copy does not look like that.
    left_out = frozenset((*archived, *duplicates)) if request.dry_run else frozenset()
    forgotten = await notes.forget_notes()
    orphans, pruned = 0, 0
    if not is_shared:
        rows = Prune(now - SESSION_DETAILS_KEPT_S, now - settings.runs_kept_s, now - OPERATIONS_KEPT_S)
        orphans, pruned = await run.prune(DropOrphans(now - ORPHAN_AFTER_S), rows)
    to_user = ToUser()
    if project is not None and not is_shared:
        to_user = await propose_to_user(store, project, clock, dry_run=request.dry_run, left_out=left_out)
    named: dict[Upkept, Sequence[str]] = {
        "archived": archived,
        "deleted": deleted,
        "duplicates": duplicates,
        "proposed": to_user.proposed,
        "promoted": to_user.promoted,
        "notes": forgotten,
    }
    done = {sort: Done(len(ids), tuple(ids[:NAMED])) for sort, ids in named.items()}
    done |= {"orphans": Done(orphans), "pruned": Done(pruned)}
    return Maintained(
        place,
        examined,
        {sort: each for sort, each in done.items() if each.count},
        tuple(each.run_id for each in (run, notes) if each.parts),
        request.dry_run,
    )


async def consolidate(job: ConsolidateJob, store: StoreConnection, settings: Settings, clock: Clock) -> None:
    """Consolidate a project's memories, or the user's, and note it. What was summed up before is left."""
    project, clock = job.project, _clock_of(job, clock)
    run_id = consolidation_id(job)
    run = _Pass(store, project, run_id, "consolidation", clock)
    if settings.consolidate_in_background:
        request = ReadMemories(
            project, scopes=(run.place,), statuses=("active",), types=("episodic",), limit=SLICE, with_vectors=True
        )
        async for page in pages(store, request):
            summaries = await run_sync(lambda: plan_summaries(page, clock()))  # noqa: B023 - awaited
            await run.write("summarize_cluster", [summary.group for summary in summaries])
        if project is not None:
            patterns = await find_patterns(store, project, (), clock())
            procedures = [pattern.derived for pattern in patterns if pattern.derived is not None]
            await run.write("extract_patterns", [procedure.group for procedure in procedures])
        await run.deduplicate()
    if project is not None and job.lane_time is None:
        await propose_to_user(store, project, clock)
    closing = Run(store, project, run_id_of("closing", run_id), "consolidation", clock)
    await closing.write("summarize_cluster", [(CloseRequest(job.after),)])


def consolidation_id(job: ConsolidateJob) -> str:
    """The id of a job's run. Memories have other numbers on each host of a shared lane, so its time belongs to it."""
    return run_id_of("consolidation", "user" if job.project is None else job.project.id, job.after, job.lane_time)


def _clock_of(job: MaintainJob | ConsolidateJob, clock: Clock) -> Clock:
    lane_time = job.lane_time
    return clock if lane_time is None else lambda: lane_time


class _Pass(Run):
    """A run over all memories of a project or of the user. With `dry_run`, its answers say what it would do.

    What belongs to a session is none of its business, but for the notes of closed ones.
    """

    async def archive(self) -> tuple[int, list[str], list[str]]:
        """Archive what is weak, and forget what was archived long ago: how many were looked at, and both sorts' ids."""
        examined = 0
        archived: list[str] = []
        deleted: list[str] = []
        request = ReadMemories(
            self.project, scopes=(self.place,), statuses=("active", "archived"), limit=PAGE, with_content=False
        )
        async for page in pages(self.store, request):
            examined += len(page)
            weak, old = plan_archiving(page, self.clock())
            archived += await self._change("decay_archive", weak)
            deleted += await self._change("decay_archive", old)
        return examined, archived, deleted

    async def deduplicate(self, archived: Sequence[str] = ()) -> list[str]:
        """Have one of each set of copies stand for the others; ids of those. What was `archived` is none."""
        duplicates: list[str] = []
        finder = CopyFinder()
        request = ReadMemories(self.project, scopes=(self.place,), statuses=("active",), limit=PAGE_WITH_CONTENT)
        async for page in pages(self.store, request):
            for memory in page:
                if not memory.pinned:
                    finder.add(memory)
        left_out = frozenset(archived)
        for ids in _portions(finder.groups(), IDS):
            copies = await read_named(self.store, self.project, ids, with_vectors=False)
            still = [memory for memory in copies if memory.status == "active" and memory.id not in left_out]
            duplicates += await self._change("deduplicate", plan_copies(still, self.clock()))
        return duplicates

    async def forget_notes(self) -> list[str]:
        """Forget what sessions that were closed long ago noted for themselves alone. A project's file has sessions."""
        if self.project is None:
            return []
        forgotten: list[str] = []
        request = ReadMemories(
            self.project,
            scopes=("session",),
            kinds=tuple(sorted(SESSION_KINDS)),
            closed_before=self.clock() - SESSION_DETAILS_KEPT_S,
            limit=PAGE,
            with_content=False,
        )
        async for page in pages(self.store, request):
            forgotten += await self._change("decay_archive", plan_notes(page, self.clock()))
        return forgotten

    async def prune(self, orphans: DropOrphans, rows: Prune) -> tuple[int, int]:
        """Remove what nobody needs any more, a bounded number of rows in each transaction; the numbers of entities and
        of rows removed. A dry run counts none."""
        dropped = pruned = part = 0
        while not self.dry_run:
            run_id, edits = run_id_of("pruning", self.run_id), (orphans, rows)
            run = ApplyRun(run_id, self.place, self.kind, "decay_archive", edits, part=part)
            name = derive("pruning", self.run_id, part)
            result = await self.store.submit_run(self.project, run, self.clock(), operation_id=name)
            dropped, pruned, part = dropped + result.orphans, pruned + result.pruned, part + 1
            if result.pruned < rows.limit:
                break
        return dropped, pruned

    async def _change(self, method: Method, changes: Sequence[PlannedChange]) -> list[str]:
        """Have the changes carried out; ids of the memories that were changed (or would be)."""
        passed_over = await self.write(method, [change.group for change in changes])
        return [change.memory_id for change in changes if change.memory_id not in passed_over]


def _portions(groups: Iterable[Sequence[str]], size: int) -> Iterator[list[str]]:
    """Whole groups, together as many ids as fit; a larger group comes alone."""
    portion: list[str] = []
    for group in groups:
        if portion and len(portion) + len(group) > size:
            yield portion
            portion = []
        portion.extend(group)
    if portion:
        yield portion


# --- What is changed. Pure.


@dataclass(frozen=True, slots=True)
class PlannedChange:
    """A change of one memory."""

    memory_id: str
    group: Group


def plan_archiving(memories: Iterable[Material], now: float) -> tuple[list[PlannedChange], list[PlannedChange]]:
    """The memories to archive, and those to forget because they were archived long ago; none that somebody wanted
    back."""
    archived, deleted = [], []
    for memory in memories:
        if memory.pinned or memory.undone in ("archived", "forgotten"):
            continue
        if should_archive(memory, now):
            reason = f"weak ({strength_of(memory, now):g}), old and hardly used"
            revision = ReviseMemory(
                memory.id, "archived", expected_version=memory.version, status="archived", reason=reason
            )
            archived.append(PlannedChange(memory.id, (revision,)))
        elif should_delete(memory, now):
            deleted.append(_forgetting(memory, f"maintenance: archived for {DELETE_AFTER_S / DAY_S:g} days"))
    return archived, deleted


def plan_notes(memories: Iterable[Material], now: float) -> list[PlannedChange]:
    """The notes of closed sessions for themselves alone that are forgotten: those that are old themselves."""
    reason = f"maintenance: its session has been closed for {SESSION_DETAILS_KEPT_S / DAY_S:g} days"
    before = now - SESSION_DETAILS_KEPT_S
    return [_forgetting(memory, reason) for memory in memories if memory.updated_at < before and not memory.undone]


def _forgetting(memory: Material, reason: str) -> PlannedChange:
    revision = ReviseMemory(memory.id, "forgotten", expected_version=memory.version, forget=reason, reason=reason)
    return PlannedChange(memory.id, (revision,))


@dataclass(slots=True)
class CopyFinder:
    """Finds which of very many memories could be copies, and holds some 100 bytes for each.

    The text itself is compared afterwards, of those few alone.
    """

    _first: dict[bytes, str] = field(default_factory=dict)
    _groups: dict[bytes, list[str]] = field(default_factory=dict)

    def add(self, memory: Material) -> None:
        """Look at one more."""
        text = normalised(memory.content)
        if not text:
            return
        digest = hashlib.blake2b(text.encode(), digest_size=16).digest()
        first = self._first.setdefault(digest, memory.id)
        if first != memory.id:
            self._groups.setdefault(digest, [first]).append(memory.id)

    def groups(self) -> list[list[str]]:
        """Ids of memories that say the same."""
        return list(self._groups.values())


def plan_copies(memories: Iterable[Material], now: float) -> list[PlannedChange]:
    """One of the memories of a scope that say the same in the same words stays as it is; each of the others points at
    it, and stands behind it.

    The strongest stays; of equally strong ones the oldest, and of those the one with the lowest id. A copy for which
    that was undone is none any more.
    """
    groups: dict[str, dict[str, Material]] = {}
    for memory in memories:
        if memory.undone != "deduplicated" and (text := normalised(memory.content)):
            groups.setdefault(text, {})[memory.id] = memory
    changes = []
    for group in groups.values():
        kept = min(group.values(), key=lambda each: (-strength_of(each, now), each.created_at, each.id))
        for copy in sorted(group.values(), key=lambda each: (each.created_at, each.id)):
            if copy is not kept:
                revision = ReviseMemory(
                    copy.id,
                    "deduplicated",
                    expected_version=copy.version,
                    status="consolidated",
                    reason=f"{kept.id} says the same in the same words",
                )
                changes.append((kept.id, PlannedChange(copy.id, (revision, AddLink(copy.id, kept.id, "similar_to")))))
    return [change for _, change in sorted(changes, key=lambda pair: pair[0])]
