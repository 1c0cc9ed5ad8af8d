"""Operations: changes to the records, as they are sent, queued and applied. An operation is applied exactly once."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

from remembrancer.protocol.errors import Failure
from remembrancer.protocol.kinds import OPEN_END, Relation, Status
from remembrancer.protocol.kinds import Kind as Kind
from remembrancer.protocol.kinds import MemoryType as MemoryType
from remembrancer.protocol.kinds import Scope as Scope
from remembrancer.protocol.runs import ApplyRun, ChainLink, PromotionReason, RunResult, UndoneResult, UndoRun
from remembrancer.protocol.session_life import EndSession, RecordEvents, SessionResult, StartSession
from remembrancer.protocol.wire import Request


class ProjectRef(msgspec.Struct, frozen=True):
    """A project: its id (`p_` and 12 hexadecimal digits) and the path that the id was made from."""

    id: str
    path: str
    sees_user: bool = True
    """True if the requester can see and change the user's memories, which belong to all projects."""
    code_within: tuple[str, ...] | None = None
    """The real directories to which reading code is restricted; None: everything that the user may read."""


class SourceRef(msgspec.Struct, frozen=True, omit_defaults=True):
    """`label` is the client's name for the conversation."""

    tool: str | None = None
    file: str | None = None
    conversation_turn: Annotated[int, Meta(ge=0, le=2**53)] | None = None
    label: str | None = None


class EntityRef(msgspec.Struct, frozen=True, omit_defaults=True):
    """An entity that a memory is about. The relationship is between memory and entity or, with a `subject` (the name of
    another entity of the memory), between two entities: `subject` --`relationship`--> `name`."""

    name: str
    type: str
    relationship: str
    subject: str = ""


MENTIONED_WITH: Final = "mentioned_with"
"""The edge between two entities that a memory names without saying how they are related."""
DESCRIBED_AS: Final = "described_as"


class OptionalFields(msgspec.Struct, frozen=True, kw_only=True):
    """The fields of a memory that may be unknown, or that a change may leave as they are. Times are seconds since the
    epoch. A `kind` of None follows from the type. `due` is the time by which an open end must be done."""

    kind: Kind | None = None
    summary: str | None = None
    domain: str | None = None
    occurred_at: float | None = None
    valid_from: float | None = None
    valid_until: float | None = None
    due: float | None = None


class ShownFields(OptionalFields, frozen=True, kw_only=True):
    """The fields that lists show. A memory's fields are defined only here, in `OptionalFields` and `MemoryFields`."""

    content: str
    type: MemoryType
    scope: Scope
    importance: float = 0.5
    tags: tuple[str, ...] = ()
    source: SourceRef = SourceRef()
    confidence: float = 0.5
    metadata: dict[str, Any] = {}
    done: bool = False

    @property
    def is_open(self) -> bool:
        return self.kind == OPEN_END and not self.done


class MemoryFields(ShownFields, frozen=True, kw_only=True):
    """Messages, snapshots, exports and columns are derived from these. Nothing automatic changes a `pinned` memory."""

    session_id: str
    related_entities: tuple[EntityRef, ...] = ()
    structured: dict[str, Any] = {}
    pinned: bool = False

    def fields(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in MemoryFields.__struct_fields__}


class RecordedFields(MemoryFields, frozen=True, kw_only=True):
    status: Status = "active"
    forgotten_reason: str | None = None
    invalid_reason: str | None = None
    """The reason why it is no longer true since `valid_until`, if one was given."""

    def recorded(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in RecordedFields.__struct_fields__}


class HistoryEntry(msgspec.Struct, frozen=True, omit_defaults=True):
    """A memory as it was after a change. `change` names the change: stored, updated, tagged, forgotten and so on.
    `details` has further facts about the change: its reason, the changed fields, the scopes of a promotion."""

    version: int
    change: str
    changed_at: float
    session_id: str
    operation_id: str
    record: MemoryVersion
    details: dict[str, Any] = {}


class MemoryVersion(RecordedFields, frozen=True, kw_only=True, omit_defaults=True):
    forgotten: bool = False


class MemoryLink(msgspec.Struct, frozen=True):
    """A link from one memory to another. The strength of `similar_to` is the cosine."""

    target: str
    relation: str
    strength: float
    created_at: float


class PortableMemory(RecordedFields, frozen=True, kw_only=True, omit_defaults=True):
    """A complete memory, as it is shown, exported, and moved between spaces."""

    id: str
    created_at: float
    updated_at: float
    version: int = 1
    access_count: int = 0
    last_accessed_at: float | None = None
    forgotten_at: float | None = None
    history: tuple[HistoryEntry, ...] = ()
    links: tuple[MemoryLink, ...] = ()
    promotion_chain: tuple[ChainLink, ...] = ()
    source_project: str | None = None
    accessed_in: tuple[str, ...] = ()
    """The sessions that are known to have used it."""


class OfMemory(msgspec.Struct, frozen=True, tag=True, tag_field="change", omit_defaults=True):
    memory_id: str


class StoreMemory(MemoryFields, frozen=True, kw_only=True, tag=True, tag_field="change"):
    """`supersedes` are ids of memories in the same space that it replaces; missing ones of `related` are skipped."""

    memory_id: str
    supersedes: str | tuple[str, ...] | None = None
    related: tuple[str, ...] = ()


class LinkRef(msgspec.Struct, frozen=True, omit_defaults=True):
    relation: Relation
    target: str
    strength: Annotated[float, Meta(gt=0, le=1)] = 1.0


class TextEdit(msgspec.Struct, frozen=True):
    """A passage of a text and its replacement. `old` must occur in the text exactly once."""

    old: str
    new: str


Clearable = Literal["valid_from", "valid_until", "due", "occurred_at"]


class UpdateMemory(OptionalFields, frozen=True, tag=True, tag_field="change", omit_defaults=True):
    """Change a memory. Fields that are None or empty stay as they are; `cleared` names times to remove. `metadata` and
    `structured` are merged into the current values; a value of None removes its key. `remove_entities` are names. A
    `supersedes` link also ends the validity of its target. `tags` and `related` replace the current values; missing
    related memories are skipped."""

    memory_id: str
    content: str | TextEdit | None = None
    importance: float | None = None
    add_tags: tuple[str, ...] = ()
    remove_tags: tuple[str, ...] = ()
    metadata: dict[str, Any] | None = None
    add_entities: tuple[EntityRef, ...] = ()
    remove_entities: tuple[str, ...] = ()
    structured: dict[str, Any] | None = None
    confidence: float | None = None
    add_links: tuple[LinkRef, ...] = ()
    remove_links: tuple[LinkRef, ...] = ()
    cleared: tuple[Clearable, ...] = ()
    tags: tuple[str, ...] | None = None
    related: tuple[str, ...] | None = None
    done: bool | None = None
    reason: str | None = None


class TagMemory(OfMemory, frozen=True):
    add: tuple[str, ...] = ()
    remove: tuple[str, ...] = ()


class ForgetMemory(OfMemory, frozen=True):
    """Hide a memory from recall; it can be restored."""

    reason: str | None = None


class PromoteMemory(OfMemory, frozen=True):
    """Move a memory to a broader scope. It keeps its id. `why` and `score` go into the promotion log. A move from a
    project to the user is not part of a run, even when the end of a session caused it."""

    target_scope: Literal["project", "user"]
    reason: str | None = None
    why: PromotionReason = "explicit"
    score: float | None = None


class RestoreMemory(OfMemory, frozen=True):
    """Undo a forgetting, an invalidation or a refused promotion to the user, or make an earlier version the newest."""

    version: int | None = None
    reason: str | None = None


class UndoChange(OfMemory, frozen=True):
    """Undo a memory's last change that has not been undone yet or, if the memory has replaced another one since then,
    the replacement. Refused if the memory has a different version (None: any version)."""

    version: int | None = None


class InvalidateMemory(OfMemory, frozen=True):
    """Mark a memory as no longer true since `at` (epoch seconds; None: now). `replaced_by` is in the same space."""

    reason: str | None = None
    replaced_by: str | None = None
    at: float | None = None


class EraseMemory(OfMemory, frozen=True):
    """Delete a memory for good."""


class ImportMemory(msgspec.Struct, frozen=True, tag=True, tag_field="change", omit_defaults=True):
    """Import a complete memory with its id and history, from an export or another space. With `joins_same`, an existing
    memory with the same text and meaning absorbs the imported one and takes over its id as an alias. `run_id` names the
    import for `UndoRun`. Memories forgotten by undoing an import are restored."""

    memory: PortableMemory
    joins_same: bool = False
    run_id: str | None = None


MemoryChange = (
    StoreMemory
    | UpdateMemory
    | TagMemory
    | ForgetMemory
    | PromoteMemory
    | RestoreMemory
    | UndoChange
    | InvalidateMemory
    | EraseMemory
    | ImportMemory
)
SessionChange = StartSession | EndSession | RecordEvents


class WriteNote(msgspec.Struct, frozen=True, tag=True, tag_field="change", omit_defaults=True):
    """Write to a note: a file below `root`, the session's working tree. The note's real path must be in one of the
    `places`, the files and directories of the workspace's notes. Git ignores these directories."""

    root: str
    path: str
    content: str
    mode: Literal["append", "replace"] = "append"
    heading: str | None = None
    places: tuple[str, ...] = ()
    expected: str = ""
    """The SHA-256 (hexadecimal) of the note's text; if the text differs, the change is refused."""


Change = MemoryChange | SessionChange | ApplyRun | UndoRun | WriteNote


def needs_room(change: Change) -> bool:
    """False for changes that are accepted when the file is full, since they add only a small row."""
    return not isinstance(change, ForgetMemory | EraseMemory)


def memory_id_of(change: Change) -> str | None:
    match change:
        case ImportMemory(memory=memory):
            return memory.id
        case StoreMemory() | UpdateMemory() | OfMemory():
            return change.memory_id
        case _:
            return None


class Operation(msgspec.Struct, frozen=True):
    """`requested_at` is the time of the client's request (seconds since the epoch)."""

    operation_id: str
    project: ProjectRef
    session_id: str
    requested_at: float
    change: Change


class ResultOfMemory(msgspec.Struct, frozen=True, omit_defaults=True, tag=True, tag_field="result"):
    memory_id: str


class StoredResult(ResultOfMemory, frozen=True):
    """The outcome of a `StoreMemory`. The id is that of an existing memory if the text was `already_known`.
    `duplicates` are ids of other memories with the same content, oldest first; `missing` are unknown related ids."""

    scope: Scope
    graph_edges_created: int = 0
    duplicates: tuple[str, ...] = ()
    already_known: bool = False
    missing: tuple[str, ...] = ()
    updated_fields: tuple[str, ...] = ()
    """The changed fields of an existing memory with this text."""
    moved_to: float | None = None
    """The day to which the memory moves the open end that it replaces, becoming an open end itself."""


class UpdatedResult(ResultOfMemory, frozen=True):
    """Without any `updated_fields`, no new version was made. `missing` are related ids that do not exist."""

    updated_fields: tuple[str, ...]
    version: int
    missing: tuple[str, ...] = ()
    line: str = ""
    """The line in which a passage was replaced, or the beginning of a new text."""


class TaggedResult(ResultOfMemory, frozen=True):
    """The outcome of a `TagMemory`. `tags` are all tags that the memory has now."""

    tags: tuple[str, ...]
    is_changed: bool = True


class ForgottenResult(ResultOfMemory, frozen=True):
    """The outcome of a `ForgetMemory`. `already` means that it was forgotten before, and keeps its first reason."""

    reason: str | None = None
    already: bool = False


class PromotedResult(ResultOfMemory, frozen=True):
    """The outcome of a `PromoteMemory`. `merged_into` is an equal memory in the new scope that replaces this one."""

    previous_scope: Scope
    merged_into: str | None = None


class RestoredResult(ResultOfMemory, frozen=True):
    """The outcome of a `RestoreMemory` or an `UndoChange`. `proposed_again` means that only a refused promotion was
    proposed again. `undone` names the undone change, and `valid_again` the other memories that it had replaced."""

    version: int
    restored_fields: tuple[str, ...]
    proposed_again: bool = False
    undone: str = ""
    valid_again: tuple[str, ...] = ()


class InvalidatedResult(ResultOfMemory, frozen=True):
    valid_until: float
    reason: str
    version: int
    already: bool = False


class ErasedResult(ResultOfMemory, frozen=True):
    """The outcome of an `EraseMemory`. `said_by` are memories, some forgotten, that are derived from it or nearly the
    same, and may repeat its content; `also_erased` are derived memories that repeated it; `file` is its source."""

    already: bool = False
    said_by: tuple[str, ...] = ()
    also_erased: tuple[str, ...] = ()
    file: str | None = None

    @property
    def gone(self) -> tuple[str, ...]:
        return (self.memory_id, *self.also_erased)


class ImportedResult(ResultOfMemory, frozen=True):
    """The outcome of an `ImportMemory`: the imported memory, or the existing one."""


class NoteWritten(msgspec.Struct, frozen=True, omit_defaults=True, tag=True, tag_field="result"):
    """The outcome of a `WriteNote`: the number of added lines, the removed text, and newly ignored directories."""

    lines: int
    replaced: str = ""
    ignored: tuple[str, ...] = ()


Result = (
    StoredResult
    | UpdatedResult
    | TaggedResult
    | ForgottenResult
    | PromotedResult
    | RestoredResult
    | InvalidatedResult
    | ErasedResult
    | ImportedResult
    | SessionResult
    | RunResult
    | UndoneResult
    | NoteWritten
)


class NearMemory(msgspec.Struct, frozen=True):
    """A memory, and a later one that probably replaces it. `newer` is the later one's text."""

    memory_id: str
    content: str
    replaced_by: str
    newer: str = ""
    is_private: bool = False
    """True if only its session can see the later memory, so that it cannot replace a memory that others can see."""
    may_be_done: bool = False
    """True if the earlier memory is an open end, and the later one probably says that it is done."""


class Applied(msgspec.Struct, frozen=True, tag=True):
    """Store to gateway: committed durably. `replayed` means that an earlier request had already done it.
    `embedding_error` says why no text can be embedded now. `near` are memories that this session's memories probably
    replace, and that have not been reported to the session yet; with `near_waits`, `TakeNear` returns more. `short_ids`
    are short forms of the ids, if a memory was stored."""

    operation_id: str
    result: Result
    replayed: bool = False
    embedding_error: str | None = None
    near: tuple[NearMemory, ...] = ()
    short_ids: dict[str, str] = {}
    near_waits: bool = False


class Submit(Request[Applied], frozen=True):
    """Gateway to store. An `EraseMemory` also deletes the project's turns and tool calls with one of the `quotes`."""

    operation: Operation
    quotes: tuple[str, ...] = ()


class BatchApplied(msgspec.Struct, frozen=True, tag=True):
    """Store to gateway: these operations were committed (now or before); rejected operations, by id, never will be.
    Others were not attempted: send them again. If the first operation is refused for now, so is the batch."""

    applied: tuple[str, ...]
    rejected: dict[str, Failure] = {}


class SubmitBatch(Request[BatchApplied], frozen=True):
    """Gateway to store, from the write queue: apply these operations in order."""

    operations: tuple[Operation, ...]
