"""Maintenance of a space, and its consolidation when it has become large.

Memories are archived and forgotten, copies stand behind one of them, and unneeded rows are removed. Memories are read
page by page; only the digests of their texts are held all at once.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Final

from anyio.to_thread import run_sync

from remembrancer.actors.consolidator.derived_memories import plan_summaries
from remembrancer.actors.consolidator.promoting import propose_to_user
from remembrancer.actors.consolidator.reflecting import find_patterns
from remembrancer.actors.consolidator.store_connection import (
    Clock,
    Group,
    Run,
    StoreConnection,
    all_memories,
    derive,
    pages,
    run_id_of,
)
from remembrancer.config.settings import Settings
from remembrancer.memory.decay import DAY_S, DELETE_AFTER_S, should_archive, should_delete, strength_of
from remembrancer.memory.wording import normalised
from remembrancer.protocol.consolidation import Consolidate, Done, Job, Maintained, Material, ReadMemories, Upkept
from remembrancer.protocol.kinds import SESSION_KINDS
from remembrancer.protocol.runs import AddLink, CloseRequest, DropOrphans, Prune, ReviseMemory

PAGE: Final = 1000
PAGE_WITH_CONTENT: Final = 200
IDS: Final = 200
"""Possible copies that are read at once, at least one set of them."""
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


async def maintain(
    job: Job, store: StoreConnection, settings: Settings, clock: Clock, *, dry_run: bool = False
) -> Maintained:
    """Carry out the maintenance of a space, or say what it would do.

    From a shared lane nothing goes to the user alone, and each host prunes its own rows.
    """
    project, now, is_shared = job.project, clock(), job.lane_time is not None
    place = "user" if project is None else project.id
    run = Run(store, project, run_id_of("maintenance", place, now), "maintenance", clock, dry_run=dry_run)
    notes = replace(run, run_id=run_id_of("notes", run.run_id))
    examined, archived, deleted = await _archive(run)
    duplicates = await _deduplicate(run, left_out=archived)
    done: dict[Upkept, list[str]] = {"archived": archived, "deleted": deleted, "duplicates": duplicates}
    if project is not None:  # only a project has sessions
        done["notes"] = await _forget_notes(notes)
    counts: dict[Upkept, Done] = {}
    if not is_shared and not dry_run:
        rows = Prune(now - SESSION_DETAILS_KEPT_S, now - settings.runs_kept_s, now - OPERATIONS_KEPT_S)
        counts["orphans"], counts["pruned"] = await _prune(run, DropOrphans(now - ORPHAN_AFTER_S), rows)
    if project is not None and not is_shared:
        # In a dry run, an archived memory or a copy still looks active.
        left_out = (*archived, *duplicates)
        done |= await propose_to_user(store, project, clock, dry_run=dry_run, left_out=left_out)
    counts |= {sort: Done(len(ids), tuple(ids[:NAMED])) for sort, ids in done.items()}
    return Maintained(
        place,
        examined,
        {sort: each for sort, each in counts.items() if each.count},
        tuple(each.run_id for each in (run, notes) if each.parts),
        dry_run,
    )


async def consolidate(work: Consolidate, job: Job, store: StoreConnection, settings: Settings, clock: Clock) -> None:
    """Consolidate a project's memories, or the user's, and note it. Earlier summaries are left alone."""
    project, run_id = job.project, consolidation_id(work, job)
    run = Run(store, project, run_id, "consolidation", clock)
    if settings.consolidate_in_background:
        request = ReadMemories(
            project, scopes=(run.place,), statuses=("active",), types=("episodic",), limit=SLICE, with_vectors=True
        )
        async for page in pages(store, request):
            await run.write(summary.group for summary in await run_sync(plan_summaries, page, clock()))
        if project is not None:
            patterns = await find_patterns(store, project, (), clock())
            await run.write(pattern.derived.group for pattern in patterns if pattern.derived is not None)
        await _deduplicate(run)
    if project is not None and job.lane_time is None:
        await propose_to_user(store, project, clock)
    closing = Run(store, project, run_id_of("closing", run_id), "consolidation", clock)
    await closing.write([(CloseRequest(work.after),)])


def consolidation_id(work: Consolidate, job: Job) -> str:
    """The id of a job's run. Memories have other numbers on each host of a shared lane, so its time belongs to it."""
    place = "user" if job.project is None else job.project.id
    return run_id_of("consolidation", place, work.after, job.lane_time)


async def _archive(run: Run) -> tuple[int, list[str], list[str]]:
    """Archive weak memories, and forget those archived long ago: the number examined, and both sorts' ids."""
    examined = 0
    archived: list[str] = []
    deleted: list[str] = []
    request = ReadMemories(
        run.project, scopes=(run.place,), statuses=("active", "archived"), limit=PAGE, with_content=False
    )
    async for page in pages(run.store, request):
        examined += len(page)
        weak, old = plan_archiving(page, run.clock())
        archived += await _change(run, weak)
        deleted += await _change(run, old)
    return examined, archived, deleted


async def _deduplicate(run: Run, left_out: Collection[str] = ()) -> list[str]:
    """Have one of each set of copies stand for the others; ids of those."""
    finder = CopyFinder()
    request = ReadMemories(run.project, scopes=(run.place,), statuses=("active",), limit=PAGE_WITH_CONTENT)
    left_out = frozenset(left_out)
    async for page in pages(run.store, request):
        for memory in page:
            if not memory.pinned and memory.id not in left_out:
                finder.add(memory)
    duplicates: list[str] = []
    for ids in finder.portions():
        request = ReadMemories(run.project, statuses=("active",), memory_ids=tuple(ids))
        duplicates += await _change(run, plan_copies(await all_memories(run.store, request), run.clock()))
    return duplicates


async def _forget_notes(run: Run) -> list[str]:
    """Forget the session-only notes of sessions that were closed long ago."""
    request = ReadMemories(
        run.project,
        scopes=("session",),
        kinds=tuple(sorted(SESSION_KINDS)),
        closed_before=run.clock() - SESSION_DETAILS_KEPT_S,
        limit=PAGE,
        with_content=False,
    )
    forgotten: list[str] = []
    async for page in pages(run.store, request):
        forgotten += await _change(run, plan_notes(page, run.clock()))
    return forgotten


async def _prune(run: Run, orphans: DropOrphans, rows: Prune) -> tuple[Done, Done]:
    """Remove unneeded entities and rows, a bounded number in each transaction; the numbers of both removed."""
    pruning = Run(run.store, run.project, run_id_of("pruning", run.run_id), run.kind, run.clock)
    dropped = pruned = 0
    while True:
        name = derive("pruning", run.run_id, pruning.parts)
        result = await pruning.write_part((orphans, rows), operation_id=name)
        dropped, pruned = dropped + result.orphans, pruned + result.pruned
        if result.pruned < rows.limit:
            return Done(dropped), Done(pruned)


async def _change(run: Run, changes: Changes) -> list[str]:
    """Have memories changed; ids of those that were (or would be)."""
    passed_over = await run.write(changes.values())
    return [memory_id for memory_id in changes if memory_id not in passed_over]


# --- The changes. Pure.

Changes = dict[str, Group]
"""The edits for each changed memory, by its id."""


def plan_archiving(memories: Iterable[Material], now: float) -> tuple[Changes, Changes]:
    """The weak memories to archive, and those to forget because they were archived long ago. Memories that somebody
    wanted back are left alone."""
    archived: Changes = {}
    deleted: Changes = {}
    for memory in memories:
        if memory.pinned or memory.undone in ("archived", "forgotten"):
            continue
        if should_archive(memory, now):
            reason = f"weak ({strength_of(memory, now):g}), old and hardly used"
            archived[memory.id] = (
                ReviseMemory(memory.id, "archived", memory.version, status="archived", reason=reason),
            )
        elif should_delete(memory, now):
            deleted[memory.id] = _forgetting(memory, f"maintenance: archived for {DELETE_AFTER_S / DAY_S:g} days")
    return archived, deleted


def plan_notes(memories: Iterable[Material], now: float) -> Changes:
    """The old session-only notes of closed sessions to forget."""
    reason = f"maintenance: its session has been closed for {SESSION_DETAILS_KEPT_S / DAY_S:g} days"
    before = now - SESSION_DETAILS_KEPT_S
    return {
        memory.id: _forgetting(memory, reason)
        for memory in memories
        if memory.updated_at < before and not memory.undone
    }


def _forgetting(memory: Material, reason: str) -> Group:
    return (ReviseMemory(memory.id, "forgotten", memory.version, forget=reason, reason=reason),)


@dataclass(slots=True)
class CopyFinder:
    """Finds possible copies among very many memories, and holds some 100 bytes for each.

    Only the texts of these few are compared afterwards.
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

    def portions(self) -> Iterator[list[str]]:
        """The ids of memories that say the same: whole groups, together up to `IDS` ids; a larger group alone."""
        portion: list[str] = []
        for group in self._groups.values():
            if portion and len(portion) + len(group) > IDS:
                yield portion
                portion = []
            portion.extend(group)
        if portion:
            yield portion


def plan_copies(memories: Iterable[Material], now: float) -> Changes:
    """Of memories with the same words, one stays as it is; each of the others is linked to it, and stands behind it.

    The strongest stays; of equally strong ones the oldest, and of those the one with the lowest id. A copy for which
    that was undone is none any more.
    """
    groups: dict[str, dict[str, Material]] = {}
    for memory in memories:
        if memory.undone != "deduplicated" and (text := normalised(memory.content)):
            groups.setdefault(text, {})[memory.id] = memory
    changes: Changes = {}
    for group in groups.values():
        kept = min(group.values(), key=lambda each: (-strength_of(each, now), each.created_at, each.id))
        reason = f"{kept.id} says the same in the same words"
        for copy in sorted(group.values(), key=lambda each: (each.created_at, each.id)):
            if copy is not kept:
                revision = ReviseMemory(copy.id, "deduplicated", copy.version, status="consolidated", reason=reason)
                changes[copy.id] = (revision, AddLink(copy.id, kept.id, "similar_to"))
    return dict(sorted(changes.items()))
