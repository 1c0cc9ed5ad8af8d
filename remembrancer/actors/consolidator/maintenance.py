"""Maintenance of a space: memories are archived, forgotten and summarised, and unneeded rows are deleted."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from anyio.to_thread import run_sync

from remembrancer.actors.consolidator.derived_memories import by_id, plan_summaries
from remembrancer.actors.consolidator.promoting import propose_to_user
from remembrancer.actors.consolidator.reflecting import find_patterns
from remembrancer.actors.consolidator.store_requests import Clock, Group, Run, pages, run_id_of
from remembrancer.memory.decay import DAY_S, DELETE_AFTER_S, should_archive, should_delete, strength_of
from remembrancer.protocol.consolidation import Done, Job, Maintained, Material, ReadMemories, Upkeep
from remembrancer.protocol.ids import derive_id
from remembrancer.protocol.kinds import SESSION_KINDS
from remembrancer.protocol.runs import NoteMaintenance, Place, Prune, ReviseMemory
from remembrancer.protocol.store_client import StoreClient

SLICE: Final = 500
MAX_IDS: Final = 100
SESSION_DETAILS_KEPT_S: Final = 30 * DAY_S
"""The turns, tool calls, scratchpads and tool outcomes of a session are deleted this long after it was closed."""
RUNS_KEPT_S: Final = 90 * DAY_S
"""How long runs can be undone, and logs and versions of deleted memories are kept."""
OPERATIONS_KEPT_S: Final = 30 * DAY_S
"""An operation retried after this time would be applied again, but queues are emptied much sooner."""
ALL_ROWS: Final = 1_000_000_000


async def maintain(job: Job, store: StoreClient, clock: Clock, *, dry_run: bool = False) -> Maintained:
    """With `dry_run`, only report what would be done. Memories of a shared lane are not proposed to the user."""
    project, now, is_shared = job.project, clock(), job.lane_time is not None
    place = "user" if project is None else project.id
    scope: Place = "user" if project is None else "project"
    run = Run(store, project, run_id_of("maintenance", place, now), "maintenance", clock, dry_run=dry_run, place=scope)
    notes = replace(run, run_id=run_id_of("notes", run.run_id))
    summing_up = replace(run, run_id=run_id_of("consolidation", run.run_id), kind="consolidation")
    of_place = partial(ReadMemories, project, scopes=(scope,))
    done: dict[Upkeep, list[str]] = {}
    old, done["deleted"] = await _change_all(run, of_place(statuses=("archived",)), plan_forgetting)
    active, done["archived"] = await _change_all(run, of_place(statuses=("active",)), plan_archiving)
    leaving = frozenset(done["archived"])  # in a dry run they still look active
    if project is not None:  # only a project has sessions
        closed = ReadMemories(
            project, scopes=("session",), kinds=tuple(sorted(SESSION_KINDS)), closed_before=now - SESSION_DETAILS_KEPT_S
        )
        _, done["notes"] = await _change_all(notes, closed, plan_notes)

    def plan_remaining(memories: Sequence[Material], now: float) -> Changes:
        return by_id(plan_summaries([memory for memory in memories if memory.id not in leaving], now))

    events = of_place(statuses=("active",), types=("episodic",), limit=SLICE, with_vectors=True)
    _, done["derived"] = await _change_all(summing_up, events, plan_remaining)
    if project is not None:
        patterns = await find_patterns(store, project, (), now)
        done["derived"] += await _change(summing_up, by_id(derived for _, derived in patterns if derived is not None))
    counts: dict[Upkeep, Done] = {}
    if not dry_run:
        rows = Prune(now - SESSION_DETAILS_KEPT_S, now - RUNS_KEPT_S, now - OPERATIONS_KEPT_S)
        if is_shared:  # in one part, so that all hosts delete the same rows; hosts may still retry old operations
            rows = Prune(rows.sessions_before, rows.runs_before, 0.0, ALL_ROWS)
        counts["pruned"] = await _prune(run, rows)
    if project is not None and not is_shared:
        done |= await propose_to_user(store, project, clock, dry_run=dry_run, left_out=leaving)
    for sort, ids in done.items():
        exist = sort != "derived" or not dry_run
        counts[sort] = Done(len(ids), tuple(ids[:MAX_IDS]) if exist else ())
    await replace(run, run_id=run_id_of("closing", run.run_id)).write([(NoteMaintenance(),)])
    runs = tuple(each.run_id for each in (run, notes, summing_up) if each.parts)
    return Maintained(place, old + active, {sort: each for sort, each in counts.items() if each.count}, runs, dry_run)


async def _change_all(
    run: Run, request: ReadMemories, plan: Callable[[Sequence[Material], float], Changes]
) -> tuple[int, list[str]]:
    """Returns the number of memories read, and the ids of those that were (or would be) changed."""
    read = 0
    changed: list[str] = []
    async for page in pages(run.store, request):
        read += len(page)
        changed += await _change(run, await run_sync(plan, page, run.clock()))
    return read, changed


async def _change(run: Run, changes: Changes) -> list[str]:
    passed_over = await run.write(changes.values())
    return [memory_id for memory_id in changes if memory_id not in passed_over]


async def _prune(run: Run, rows: Prune) -> Done:
    pruning, pruned = replace(run, run_id=run_id_of("pruning", run.run_id), parts=0), 0
    while True:
        name = derive_id("pruning", run.run_id, pruning.parts)
        result = await pruning.write_part((rows,), operation_id=name)
        pruned += result.pruned
        if result.pruned < rows.limit:
            return Done(pruned)


# --- The changes. Pure.

Changes = Mapping[str, Group]


def plan_archiving(memories: Iterable[Material], now: float) -> Changes:
    weak = [memory for memory in memories if should_archive(memory, now) and not _is_wanted(memory)]
    reasons = [f"weak ({strength_of(memory, now):g}), old and hardly used" for memory in weak]
    return {
        memory.id: (ReviseMemory(memory.id, "archived", memory.version, status="archived", reason=reason),)
        for memory, reason in zip(weak, reasons, strict=True)
    }


def plan_forgetting(memories: Iterable[Material], now: float) -> Changes:
    reason = f"maintenance: archived for {DELETE_AFTER_S / DAY_S:g} days"
    return {
        each.id: _forgetting(each, reason) for each in memories if should_delete(each, now) and not _is_wanted(each)
    }


def _is_wanted(memory: Material) -> bool:
    return memory.pinned or memory.undone in ("archived", "forgotten")


def plan_notes(memories: Iterable[Material], now: float) -> Changes:
    reason = f"maintenance: its session has been closed for {SESSION_DETAILS_KEPT_S / DAY_S:g} days"
    before = now - SESSION_DETAILS_KEPT_S
    return {each.id: _forgetting(each, reason) for each in memories if each.updated_at < before and not each.undone}


def _forgetting(memory: Material, reason: str) -> Group:
    return (ReviseMemory(memory.id, "forgotten", memory.version, forget=reason, reason=reason),)
