"""The rules for applying, logging and undoing consolidation runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, assert_never

import msgspec

from remembrancer.memory.changes import BREADTH, is_visible, revised, unrevised
from remembrancer.memory.fields import FIELDS
from remembrancer.memory.moves import note_pattern, propose, unnote_pattern, without_steps
from remembrancer.memory.repository import (
    Added,
    Deed,
    FoundTopic,
    Left,
    Linked,
    Memory,
    Observed,
    Revised,
    Run,
    RunChange,
)
from remembrancer.memory.writer import RELEASED, Writer
from remembrancer.protocol.errors import NotFound
from remembrancer.protocol.kinds import type_of_kind
from remembrancer.protocol.runs import (
    AddLink,
    AddMemory,
    ApplyRun,
    CloseRequest,
    CloseSession,
    DropOrphans,
    LoggedPromotion,
    LogPromotion,
    NewMemory,
    NoteMaintenance,
    NotePattern,
    ProposeMemory,
    Prune,
    RequestConsolidation,
    ReviseMemory,
    RunResult,
    SaveTopics,
    Skipped,
    UndoneResult,
    UndoRun,
)
from remembrancer.protocol.runs import Edit as RunEdit
from remembrancer.protocol.session_life import SessionEntry
from remembrancer.protocol.writes import EntityRef, MemoryVersion

UNDONE: Final = "the run was undone"
TO_THE_USER: Final = "it has gone to the user, and stays there"


def apply_run(writer: Writer, change: ApplyRun) -> RunResult:
    """Apply the edits of a run in order. The result lists the skipped edits.

    If the run was undone meanwhile, only the edit that closes its session is applied, since its job is done.
    """
    carrying = _Carrying(writer, change)
    run = writer.row(Run, change.run_id)
    if run is None:
        run = Run(change.run_id, change.kind, change.session_id, writer.at)
        writer.space.put(run)
    for edit in change.edits:
        is_over = run.undone_at is not None and not isinstance(edit, CloseSession)
        carrying.note(edit, UNDONE if is_over else carrying.carry_out(edit))
    return RunResult(change.run_id, carrying.edits, tuple(carrying.skipped), carrying.orphans, carrying.pruned)


@dataclass
class _Carrying:
    """A run while it is being applied."""

    writer: Writer
    change: ApplyRun
    edits: int = 0
    orphans: int = 0
    pruned: int = 0
    skipped: list[Skipped] = field(default_factory=list)
    passed_over: set[str] = field(default_factory=set)

    def note(self, edit: RunEdit, obstacle: str | None) -> None:
        """Count an edit, or record why it was skipped. Later edits that depend on a skipped memory are skipped as
        well."""
        if obstacle is None:
            self.edits += 1
            return
        subject = _subject_of(edit)
        if isinstance(edit, (AddMemory, ReviseMemory)):
            self.passed_over.add(subject)
        self.skipped.append(Skipped(subject, obstacle, type(edit).__name__))

    def carry_out(self, edit: RunEdit) -> str | None:
        """Apply an edit. Returns the reason if it is skipped."""
        for memory_id in _hangs_on(edit):
            if memory_id in self.passed_over:
                return f"{memory_id} was passed over"
        match edit:
            case AddMemory():
                return self._outlived(edit.made_of) or self._add(edit.memory)
            case ReviseMemory():
                return self._revise(edit)
            case AddLink():
                return self._link(edit)
            case LogPromotion():
                self.writer.log_promotion(edit, self.change.run_id)
            case NotePattern():
                return self._observe(edit)
            case ProposeMemory():
                if not propose(self.writer, edit):
                    return "it was proposed before, or is not the project's any more"
            case DropOrphans():
                self.orphans += self.writer.space.drop_orphans(edit.before)
            case Prune():
                self.pruned += self.writer.space.prune(edit)
            case SaveTopics():
                self.writer.space.remove(FoundTopic)
                for topic in edit.topics:
                    self.writer.space.put(FoundTopic(topic.label, topic.entities, self.writer.at))
            case CloseSession():
                return self._close_session(edit)
            case NoteMaintenance():
                self.writer.space.note_maintenance()
            case CloseRequest() | RequestConsolidation():
                return "maintenance consolidates"
            case _:
                assert_never(edit)
        return None

    def _outlived(self, made_of: Sequence[tuple[str, int]]) -> str | None:
        """The reason why a memory can no longer be derived from these versions, or None."""
        for memory_id, version in made_of:
            memory = self.writer.space.memory(memory_id)
            if memory is None or memory.now.forgotten:
                return f"{memory_id}, which it is made of, is forgotten or gone"
            if memory.version != version and not self._made_version(memory_id, version, memory.version):
                return f"{memory_id}, which it is made of, has been changed since"
        return None

    def _made_version(self, memory_id: str, before: int, after: int) -> bool:
        """True if this run made one version from the other."""
        made = {entry.version: entry.details.get("run") for entry in self.writer.space.history(memory_id)}
        return after == before + 1 and made.get(after) == self.change.run_id

    def _add(self, memory: NewMemory) -> str | None:
        if self.writer.space.memory(memory.id) is not None:
            return "there is a memory with this id already"
        given = {each.name: getattr(memory, each.name) for each in FIELDS if hasattr(memory, each.name)}
        tags = tuple(dict.fromkeys(memory.tags))
        entities = tuple(dict.fromkeys(EntityRef(*entity) for entity in memory.entities))
        values = given | {"type": type_of_kind(memory.kind), "tags": tags, "related_entities": entities}
        first = MemoryVersion(**values)
        self.writer.insert(memory.id, first, run=self.change.run_id)
        self._log(memory.id, Added())
        return None

    def _revise(self, edit: ReviseMemory) -> str | None:
        memory = self.writer.space.memory(edit.memory_id)
        if memory is None:
            return "it is not here any more"
        if memory.now.forgotten:
            return "it is forgotten"
        if edit.expected_version not in (None, memory.version):
            return f"it has been changed since: its version is {memory.version}, not {edit.expected_version}"
        if edit.scope is not None and BREADTH[edit.scope] <= BREADTH[memory.now.scope]:
            return f"its scope is {memory.now.scope} already"
        made = self.writer.revise(
            memory,
            revised(memory.now, edit),
            edit.change,
            chain=None if edit.chain is None else (*memory.promotion_chain, edit.chain),
            run=self.change.run_id,
            reason=edit.reason,
            score=None if edit.chain is None else edit.chain.score,
            previous_scope=None if edit.scope is None else memory.now.scope,
        )
        at = self.writer.at if edit.accessed else None
        if at is not None:
            self.writer.space.set_accesses(memory.id, memory.access_count + 1, at)
        if made.version != memory.version or at is not None:
            self._log(memory.id, Revised(memory.version, made.version, edit.chain, at, memory.last_accessed_at))
        return None

    def _link(self, edit: AddLink) -> str | None:
        if edit.source == edit.target:
            return "a memory is not linked to itself"
        ends = [self.writer.space.memory(memory_id) for memory_id in (edit.source, edit.target)]
        is_here = [end.id for end in ends if end is not None] == [edit.source, edit.target]
        if not is_here or self.writer.link(edit.source, edit.target, edit.relation) is not None:
            return f"it is linked to {edit.target} already, or one of them is gone"
        self.writer.space.put_link(edit.source, edit.target, edit.relation, edit.strength, self.writer.at)
        self._log(edit.source, Linked(edit.target, edit.relation, self.writer.at))
        return None

    def _observe(self, edit: NotePattern) -> str | None:
        memory = self.writer.space.memory(edit.memory_id)
        if memory is None or memory.now.forgotten:
            return "it is not here any more, or forgotten"
        self._log(edit.memory_id, Observed(edit.project_id, note_pattern(self.writer, edit)))
        return None

    def _close_session(self, edit: CloseSession) -> str | None:
        """Close a session, if it was not reopened since the end that the run processed."""
        entry = self.writer.row(SessionEntry, edit.session_id)
        if entry is None or entry.status != "active" or entry.ended_at != edit.ended_at:
            return "the session has begun again since, or was closed before"
        logged = self.writer.space.rows(LoggedPromotion, "source_session", edit.session_id)
        promoted = max(entry.memories_promoted, sum(each.from_scope == "session" for each in logged))
        self.writer.space.put(msgspec.structs.replace(entry, status=edit.status, memories_promoted=promoted))
        self.writer.write_record(edit.session_id)
        return None

    def _log(self, memory_id: str, deed: Deed) -> None:
        self.writer.space.put(RunChange(self.change.run_id, memory_id, deed))


def _subject_of(edit: RunEdit) -> str:
    """The id of the memory or session of an edit; empty if there is none."""
    if isinstance(edit, AddMemory):
        return edit.memory.id
    names = ("memory_id", "source", "session_id")
    return next((getattr(edit, name) for name in names if hasattr(edit, name)), "")


def _hangs_on(edit: RunEdit) -> tuple[str | None, ...]:
    """The memories on which an edit depends: if one is skipped, so is the edit."""
    match edit:
        case ReviseMemory(only_with=other):
            return (other,)
        case AddLink():
            return (edit.source, edit.target)
        case LogPromotion():
            return (edit.memory_id, edit.merged_into)
        case NotePattern():
            return (edit.memory_id,)
        case _:
            return ()


# --- Undoing.


def undo_run(writer: Writer, change: UndoRun) -> UndoneResult:
    """Undo all parts of a run, the last action first. Memories that have changed since are left alone, and listed.

    Raises:
        NotFound: there is no such run here, or it changed a memory that the operation's session may not see, or one
            of another project.
    """
    run = writer.row(Run, change.run_id)
    deeds = [(made.memory_id, made.details) for made in writer.space.rows(RunChange, "run_id", change.run_id)]
    is_hidden = any(_is_hidden(writer, memory_id) for memory_id, _ in deeds)
    if run is None or is_hidden or (change.place == "user" and not _is_of(writer.operation.project.id, deeds)):
        if change.if_there:
            return UndoneResult(change.run_id, found=False)
        raise NotFound(
            f"there is no run with the id {change.run_id} (what is older than 90 days, or than the setting runs_kept_s "
            "says, cannot be undone any more)",
            field="run_id",
        )
    if run.undone_at is not None:
        return UndoneResult(change.run_id, already=True)
    undoing = _Undoing(writer, change.run_id)
    versions: dict[str, list[Added | Revised]] = {}
    for memory_id, deed in reversed(deeds):
        match deed:
            case Added() | Revised():
                versions.setdefault(memory_id, []).append(deed)
            case Linked():
                link = writer.link(memory_id, deed.target, deed.relation)
                if link is not None and link.created_at == deed.created_at:  # otherwise it was created again since
                    writer.space.unlink(link)
            case Observed(project_id=project_id, was_new=was_new):
                unnote_pattern(writer, NotePattern(memory_id, project_id), was_new=was_new)
            case Left():
                undoing.leave(memory_id)
            case _:
                assert_never(deed)
    for memory_id, latest_first in versions.items():
        undoing.restore(memory_id, latest_first)
    writer.space.remove(LoggedPromotion, "run_id", change.run_id)
    writer.space.put(msgspec.structs.replace(run, undone_at=writer.at))
    return UndoneResult(change.run_id, tuple(undoing.memories), tuple(undoing.skipped))


@dataclass
class _Undoing:
    """A run while it is being undone."""

    writer: Writer
    run_id: str
    memories: list[str] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)
    left: set[str] = field(default_factory=set)

    def leave(self, memory_id: str) -> None:
        """Record that a memory was promoted to the user: undoing does not return it to its project."""
        if memory_id not in self.left and self.writer.space.memory(memory_id) is None:
            self.left.add(memory_id)
            self._skip(memory_id, TO_THE_USER)

    def restore(self, memory_id: str, latest_first: list[Added | Revised]) -> None:
        """Restore a memory to its state before the run; if the run made it, forget it."""
        memory = self.writer.space.memory(memory_id)
        if memory is None:
            if memory_id not in self.left:
                self._skip(memory_id, "it is not here any more")
            return
        if memory.now.forgotten and isinstance(latest_first[-1], Added):  # somebody else did, and that reason stays
            return
        version, undid = self._stands_at(memory)
        undone, was_added = _undoable(latest_first, version)
        if not undone and not was_added:
            self._skip(memory_id, "it has been changed since")
            return
        if len(undone) + was_added < len(latest_first):
            self._skip(memory_id, "it was changed by others in between: only the last step is undone")
        as_of: int | None = None
        if was_added:
            after = msgspec.structs.replace(memory.now, forgotten=True, forgotten_reason=f"undone: {self.run_id}")
        else:
            as_of = undone[-1].before
            known = [entry.record for entry in self.writer.space.history(memory_id) if entry.version == as_of]
            if not known:
                self._skip(memory_id, "what it was before is not known any more")
                return
            after = unrevised(memory.now, known[-1])
        steps = [deed.chain for deed in undone if deed.chain is not None]
        chain = without_steps(memory.promotion_chain, steps) if steps else None
        about = {"run": self.run_id, "undid": undid, "as_of": as_of}
        self.writer.revise(memory, after, "undone", chain=chain, **about)
        count, last_at = memory.access_count, memory.last_accessed_at
        for deed in undone:  # restore the time of the last access if there was no other since
            if deed.accessed_at is not None:
                count = max(0, count - 1)
                last_at = deed.last_accessed_at if last_at == deed.accessed_at else last_at
                self.writer.space.set_accesses(memory_id, count, last_at)
        self.memories.append(memory_id)

    def _stands_at(self, memory: Memory) -> tuple[int, str | None]:
        """The version that a memory equals, apart from undone changes, and the change that made that version."""
        entries = {entry.version: entry for entry in self.writer.space.history(memory.id)}
        version = memory.version
        while True:
            entry = entries.get(version)
            if entry is None:
                return version, None
            as_of = entry.details.get("as_of")
            if entry.change == RELEASED:
                version -= 1
            elif entry.change == "undone" and isinstance(as_of, int) and as_of < version:
                version = as_of
            else:
                return version, entry.change

    def _skip(self, memory_id: str, reason: str) -> None:
        self.skipped.append(Skipped(memory_id, reason))


def _undoable(latest_first: list[Added | Revised], version: int) -> tuple[list[Revised], bool]:
    """The last actions of a run, latest first, that led to a version without other changes in between; and True if the
    run made the memory before them."""
    undone: list[Revised] = []
    for deed in latest_first:
        if isinstance(deed, Added):
            return undone, version == 1
        if deed.after != version:
            break
        undone.append(deed)
        version = deed.before
    return undone, False


def _is_of(project_id: str, deeds: list[tuple[str, Deed]]) -> bool:
    """True if the changes of a run to the user's memories came from that project, or from none."""
    origins = {deed.project_id for _, deed in deeds if isinstance(deed, Observed)}
    origins |= {deed.chain.source_project or "" for _, deed in deeds if isinstance(deed, Revised) and deed.chain}
    return origins <= {"", project_id}


def _is_hidden(writer: Writer, memory_id: str) -> bool:
    """True if the operation has a session that may not see a memory. A deleted memory counts as visible."""
    memory = writer.space.memory(memory_id)
    session_id = writer.operation.session_id or None
    return memory is not None and not is_visible(memory.now.scope, memory.now.session_id, session_id)
