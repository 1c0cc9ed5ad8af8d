"""Maintenance of a space, which is read page by page: memories are archived, forgotten and summarised, and unneeded
rows are deleted."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace
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
    derive,
    pages,
    run_id_of,
)
from remembrancer.memory.decay import DAY_S, DELETE_AFTER_S, should_archive, should_delete, strength_of
from remembrancer.protocol.consolidation import Done, Job, Maintained, Material, ReadMemories, Upkept
from remembrancer.protocol.kinds import SESSION_KINDS
from remembrancer.protocol.runs import DropOrphans, NoteMaintenance, Prune, ReviseMemory

SLICE: Final = 500
"""The number of memories that are summarised together."""
NAMED: Final = 100
"""The number of ids of each sort in an answer."""
ORPHAN_AFTER_S: Final = 30 * DAY_S
"""An entity that no memory mentions is deleted if it is older than this."""
SESSION_DETAILS_KEPT_S: Final = 30 * DAY_S
"""The turns, tool calls, scratchpads and tool outcomes of a session are deleted this long after it was closed."""
RUNS_KEPT_S: Final = 90 * DAY_S
"""The time for which runs can be undone, and logs and versions of deleted memories are kept."""
OPERATIONS_KEPT_S: Final = 30 * DAY_S
"""An operation that is repeated later than this would be applied again; queues are emptied much sooner."""


async def maintain(job: Job, store: StoreConnection, clock: Clock, *, dry_run: bool = False) -> Maintained:
    """Carry out the maintenance of a space, or say what it would do.

    Memories of a shared lane are not proposed to the user, and its rows are not pruned.
    """
    project, now, is_shared = job.project, clock(), job.lane_time is not None
    place = "user" if project is None else project.id
    run = Run(store, project, run_id_of("maintenance", place, now), "maintenance", clock, dry_run=dry_run)
    notes = replace(run, run_id=run_id_of("notes", run.run_id))
    summing_up = replace(run, run_id=run_id_of("consolidation", run.run_id), kind="consolidation")
    examined, archived, deleted = await _archive(run)
    done: dict[Upkept, list[str]] = {"archived": archived, "deleted": deleted}
    if project is not None:  # only a project has sessions
        done["notes"] = await _forget_notes(notes)
    derived = await _derive(summing_up, left_out=archived)
    counts: dict[Upkept, Done] = {"derived": Done(len(derived), () if dry_run else tuple(derived[:NAMED]))}
    if not is_shared and not dry_run:
        rows = Prune(now - SESSION_DETAILS_KEPT_S, now - RUNS_KEPT_S, now - OPERATIONS_KEPT_S)
        counts["orphans"], counts["pruned"] = await _prune(run, DropOrphans(now - ORPHAN_AFTER_S), rows)
    if project is not None and not is_shared:
        # In a dry run, an archived memory still looks active.
        done |= await propose_to_user(store, project, clock, dry_run=dry_run, left_out=archived)
    counts |= {sort: Done(len(ids), tuple(ids[:NAMED])) for sort, ids in done.items()}
    await replace(run, run_id=run_id_of("closing", run.run_id)).write([(NoteMaintenance(),)])
    return Maintained(
        place,
        examined,
        {sort: each for sort, each in counts.items() if each.count},
        tuple(each.run_id for each in (run, notes, summing_up) if each.parts),
        dry_run,
    )


async def _archive(run: Run) -> tuple[int, list[str], list[str]]:
    """Archive weak memories, and forget those archived long ago. Returns the number examined, and the ids of both."""
    examined = 0
    archived: list[str] = []
    deleted: list[str] = []
    request = ReadMemories(run.project, scopes=(run.place,), statuses=("active", "archived"))
    async for page in pages(run.store, request):
        examined += len(page)
        weak, old = plan_archiving(page, run.clock())
        archived += await _change(run, weak)
        deleted += await _change(run, old)
    return examined, archived, deleted


async def _derive(run: Run, left_out: Collection[str]) -> list[str]:
    """Store summaries of related memories, and procedures for a project's patterns. Returns their ids. Earlier
    summaries stay as they are."""
    derived: list[str] = []
    request = ReadMemories(
        run.project, scopes=(run.place,), statuses=("active",), types=("episodic",), limit=SLICE, with_vectors=True
    )
    async for page in pages(run.store, request):
        memories = [memory for memory in page if memory.id not in left_out]
        summaries = await run_sync(plan_summaries, memories, run.clock())
        derived += await _change(run, {each.memory.id: each.group for each in summaries})
    if run.project is not None:
        patterns = await find_patterns(run.store, run.project, (), run.clock())
        procedures = [each.derived for each in patterns if each.derived is not None]
        derived += await _change(run, {each.memory.id: each.group for each in procedures})
    return derived


async def _forget_notes(run: Run) -> list[str]:
    """Forget the session-only notes of sessions that were closed long ago."""
    request = ReadMemories(
        run.project,
        scopes=("session",),
        kinds=tuple(sorted(SESSION_KINDS)),
        closed_before=run.clock() - SESSION_DETAILS_KEPT_S,
    )
    forgotten: list[str] = []
    async for page in pages(run.store, request):
        forgotten += await _change(run, plan_notes(page, run.clock()))
    return forgotten


async def _prune(run: Run, orphans: DropOrphans, rows: Prune) -> tuple[Done, Done]:
    """Delete unneeded entities and rows, a bounded number in each transaction. Returns the numbers of both."""
    pruning = Run(run.store, run.project, run_id_of("pruning", run.run_id), run.kind, run.clock)
    dropped = pruned = 0
    while True:
        name = derive("pruning", run.run_id, pruning.parts)
        result = await pruning.write_part((orphans, rows), operation_id=name)
        dropped, pruned = dropped + result.orphans, pruned + result.pruned
        if result.pruned < rows.limit:
            return Done(dropped), Done(pruned)


async def _change(run: Run, changes: Changes) -> list[str]:
    """Change memories. Returns the ids of those that were changed (or would be)."""
    passed_over = await run.write(changes.values())
    return [memory_id for memory_id in changes if memory_id not in passed_over]


# --- The changes. Pure.

Changes = dict[str, Group]
"""The edits for each changed memory, by its id."""


def plan_archiving(memories: Iterable[Material], now: float) -> tuple[Changes, Changes]:
    """The edits for weak memories to archive, and for those to forget because they were archived long ago. Memories
    that a person brought back are left alone."""
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
    """The edits that forget old session-only notes of closed sessions."""
    reason = f"maintenance: its session has been closed for {SESSION_DETAILS_KEPT_S / DAY_S:g} days"
    before = now - SESSION_DETAILS_KEPT_S
    return {
        memory.id: _forgetting(memory, reason)
        for memory in memories
        if memory.updated_at < before and not memory.undone
    }


def _forgetting(memory: Material, reason: str) -> Group:
    return (ReviseMemory(memory.id, "forgotten", memory.version, forget=reason, reason=reason),)
