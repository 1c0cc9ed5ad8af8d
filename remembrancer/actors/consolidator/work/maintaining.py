"""Maintenance of a file, page by page: of all its memories together only what tells copies apart is held at once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from remembrancer.actors.consolidator.handlers import Clock
from remembrancer.actors.consolidator.store_access import StoreAccess, pages
from remembrancer.actors.consolidator.work.reading import IDS, aside, find_near, read_named
from remembrancer.actors.consolidator.work.rules import WorkRules, rules_of
from remembrancer.actors.consolidator.work.tidying import (
    Change,
    CopyFinder,
    plan_archiving,
    plan_contradictions,
    plan_copies,
    plan_notes,
)
from remembrancer.actors.consolidator.work.to_user import promote_to_user
from remembrancer.actors.consolidator.work.writing import Group, Head, derive, lost, parts_of, run_id_of, submit_run
from remembrancer.config.settings import Settings
from remembrancer.protocol.consolidation import MaintainDuty, Maintained, ReadMemories
from remembrancer.protocol.kinds import SESSION_KINDS, Scope
from remembrancer.protocol.rules import MaintenanceRules
from remembrancer.protocol.runs import ApplyRun, DropOrphans, Method, Place, Prune, RunKind
from remembrancer.protocol.writes import ProjectRef

PAGE: Final = 1000
PAGE_WITH_CONTENT: Final = 200
NAMED: Final = 100
"""Ids of each sort that an answer gives."""


@dataclass
class Tidying:
    """One pass of maintenance or consolidation over a file, while it goes on. With `dry_run` it writes nothing."""

    store: StoreAccess
    project: ProjectRef | None
    run_id: str
    kind: RunKind
    rules: WorkRules
    clock: Clock
    dry_run: bool = False
    examined: int = 0
    parts: int = 0
    archived: list[str] = field(default_factory=list)
    deleted: list[str] = field(default_factory=list)
    duplicates: list[str] = field(default_factory=list)
    contradictions: int = 0
    orphans: int = 0
    pruned: int = 0

    @property
    def place(self) -> Place:
        return "user" if self.project is None else "project"

    @property
    def scopes(self) -> tuple[Scope, ...]:
        """The scopes of the file that are looked at: what belongs to a session is none of this pass's business."""
        return (self.place,)

    @property
    def spoken_for(self) -> frozenset[str]:
        """What is archived or stands behind a copy after this pass so far: in a dry run it does not look like that."""
        return frozenset((*self.archived, *self.duplicates)) if self.dry_run else frozenset()

    async def archive(self) -> None:
        """Archive what is weak, and forget what was archived long ago."""
        request = ReadMemories(
            self.project, scopes=self.scopes, statuses=("active", "archived"), limit=PAGE, with_content=False
        )
        async for page in pages(self.store, request):
            self.examined += len(page.memories)
            archived, deleted = plan_archiving(page.memories, self.clock(), self.rules.maintenance)
            self.archived += await self._write("decay_archive", archived)
            self.deleted += await self._write("decay_archive", deleted)

    async def deduplicate(self) -> None:
        """Have one of each set of copies stand for the others."""
        finder = CopyFinder()
        request = ReadMemories(self.project, scopes=self.scopes, statuses=("active",), limit=PAGE_WITH_CONTENT)
        async for page in pages(self.store, request):
            for memory in page.memories:
                finder.add(memory)
        for ids in _portions(finder.groups(), IDS):
            copies = await read_named(self.store, self.project, ids, with_vectors=False)
            spoken_for = self.spoken_for
            still = [memory for memory in copies if memory.status == "active" and memory.id not in spoken_for]
            self.duplicates += await self._write("deduplicate", plan_copies(still, self.clock()))

    async def find_contradictions(self, since: float | None) -> None:
        """Propose what memories since a time (None: all) say against older ones."""
        request = ReadMemories(
            self.project,
            scopes=self.scopes,
            statuses=("active",),
            types=("semantic",),
            limit=PAGE_WITH_CONTENT,
            with_vectors=True,
        )
        rules = self.rules.contradictions
        spoken_for = self.spoken_for
        async for page in pages(self.store, request):
            newer = [
                each
                for each in page.memories
                if (since is None or max(each.created_at, each.updated_at) >= since) and each.id not in spoken_for
            ]
            if not newer:
                continue
            near = await find_near(self.store, self.project, newer, rules.cosine, scopes=self.scopes)
            changes = await aside(lambda: plan_contradictions(newer, near, self.clock(), rules))  # noqa: B023 - awaited
            self.contradictions += len(await self._write("contradict", changes))

    async def drop_orphans(self, count: int, before: float) -> None:
        """Remove the entities that were made before a time and that nothing names: so many."""
        self.orphans = count
        if count and not self.dry_run:
            await self._submit("decay_archive", [(DropOrphans(before),)])

    async def forget_notes(self) -> None:
        """Forget what sessions that were closed long ago noted for themselves alone. A project's file has sessions."""
        if self.project is None:
            return
        rules = self.rules.maintenance
        request = ReadMemories(
            self.project,
            scopes=("session",),
            kinds=tuple(sorted(SESSION_KINDS)),
            closed_before=self.clock() - rules.session_details_kept_s,
            limit=PAGE,
            with_content=False,
        )
        async for page in pages(self.store, request):
            self.deleted += await self._write("decay_archive", plan_notes(page.memories, self.clock(), rules))

    async def prune(self, edit: Prune, count: int) -> None:
        """Remove what nobody needs any more: so many rows, a bounded number in each transaction."""
        self.pruned = count
        if self.dry_run or not count:
            return
        self.pruned, part = 0, 0
        while True:
            run_id = run_id_of("pruning", self.run_id)
            run = ApplyRun(run_id, self.place, self.kind, "decay_archive", (edit,), part=part)
            name = derive("pruning", self.run_id, part)
            result = await submit_run(self.store, self.project, run, self.clock(), operation_id=name)
            self.pruned += result.pruned
            part += 1
            if result.pruned < edit.limit:
                return

    async def _write(self, method: Method, changes: Sequence[Change]) -> list[str]:
        """Have the changes carried out; ids of the memories that were changed (or would be)."""
        if self.dry_run or not changes:
            return [change.memory_id for change in changes]
        passed_over = await self._submit(method, [change.group for change in changes])
        return [change.memory_id for change in changes if change.memory_id not in passed_over]

    async def _submit(self, method: Method, groups: Sequence[Group]) -> set[str]:
        passed_over: set[str] = set()
        head = Head(self.run_id, self.place, self.kind, method)
        for part in parts_of(head, groups, first=self.parts):
            name = derive("tidying", self.place, "" if self.project is None else self.project.id, part.edits)
            result = await submit_run(self.store, self.project, part, self.clock(), operation_id=name)
            passed_over |= lost(result)
            self.parts += 1
        return passed_over


async def maintain(duty: MaintainDuty, store: StoreAccess, settings: Settings, clock: Clock) -> Maintained:
    """Carry out the maintenance of a file, or say what it would do."""
    rules, request = rules_of(settings), duty.request
    project = request.project
    place = "user" if project is None else project.id
    run_id = run_id_of("maintenance", place, clock())
    tidying = Tidying(store, project, run_id, "maintenance", rules, clock, request.dry_run)
    orphans_before = clock() - rules.maintenance.orphan_after_s
    pruning = pruning_of(rules.maintenance, clock())
    upkeep = await store.read_upkeep(project, orphans_before, pruning)
    await tidying.archive()
    await tidying.deduplicate()
    await tidying.find_contradictions(upkeep.done_at)
    await tidying.drop_orphans(upkeep.orphans, orphans_before)
    notes = Tidying(store, project, run_id_of("notes", run_id), "maintenance", rules, clock, request.dry_run)
    await notes.forget_notes()
    await tidying.prune(pruning, upkeep.prunable)
    promoted = 0
    if project is not None:
        promoted = await promote_to_user(
            store, project, rules, clock, dry_run=request.dry_run, spoken_for=tidying.spoken_for
        )
    return Maintained(
        place=place,
        examined=tidying.examined,
        archived=len(tidying.archived),
        deleted=len(tidying.deleted),
        duplicates=len(tidying.duplicates),
        contradictions=tidying.contradictions,
        orphans=tidying.orphans,
        promoted=promoted,
        notes=len(notes.deleted),
        pruned=tidying.pruned,
        run_ids=tuple(each.run_id for each in (tidying, notes) if each.parts),
        archived_ids=tuple(tidying.archived[:NAMED]),
        deleted_ids=tuple(tidying.deleted[:NAMED]),
        duplicate_ids=tuple(tidying.duplicates[:NAMED]),
        dry_run=request.dry_run,
    )


def pruning_of(rules: MaintenanceRules, now: float) -> Prune:
    """What is removed for good."""
    return Prune(now - rules.session_details_kept_s, now - rules.runs_kept_s, now - rules.operations_kept_s)


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
