"""Runs: edits by the consolidator that are applied and undone together, except for memories that changed meanwhile."""

from __future__ import annotations

from typing import Any, Final, Literal

import msgspec

from remembrancer.protocol.kinds import Kind, Relation, Scope, Status

Place = Literal["project", "user"]
RunKind = Literal["session_end", "promotion", "consolidation", "maintenance"]
IMPORTS: Final = "run:import-"
"""The prefix of the ids of imports, which are undone like runs."""
IMPORT: Final = "import"
IMPORT_UNDONE: Final = "its import was undone"
"""Memories that were forgotten for this reason can be imported again."""
PromotionReason = Literal["importance", "explicit", "pattern_match"]


class ChainLink(msgspec.Struct, frozen=True, omit_defaults=True):
    """A step in a memory's promotion to its scope: it was promoted from `scope`, or another memory was merged into it.
    `memory_id` is the promoted or merged memory; `content` is the merged memory's text, if different."""

    scope: Scope
    memory_id: str
    promoted_at: float
    action: Literal["promoted", "merged"] = "promoted"
    session_id: str | None = None
    source_project: str | None = None
    score: float | None = None
    reason: str | None = None
    content: str | None = None
    run_id: str | None = None


class NewMemory(msgspec.Struct, frozen=True, omit_defaults=True):
    id: str
    content: str
    kind: Kind
    scope: Scope
    session_id: str
    summary: str | None = None
    importance: float = 0.5
    confidence: float = 0.5
    domain: str | None = None
    tags: tuple[str, ...] = ()
    entities: tuple[tuple[str, str, str], ...] = ()
    """Names, types and relationships."""
    metadata: dict[str, Any] = {}
    occurred_at: float | None = None


class AddMemory(msgspec.Struct, frozen=True, tag=True, tag_field="edit", omit_defaults=True):
    """Store a new memory. If its id exists, this edit and later ones that depend on it are skipped."""

    memory: NewMemory
    made_of: tuple[tuple[str, int], ...] = ()
    """Ids and versions of its sources. The edit is skipped if one is forgotten, gone, or changed outside this run."""


class ReviseMemory(msgspec.Struct, frozen=True, tag=True, tag_field="edit", omit_defaults=True):
    """Make a new version of a memory. Fields that are None keep their values. The edit is skipped if the memory does
    not have the `expected_version` (None: any version), and so are the run's later edits that concern the memory.
    `accessed` counts an access, `chain` is added to the promotion chain, `tags` are added, and `forget` is the reason
    for hiding the memory."""

    memory_id: str
    change: Literal[
        "promoted", "merged", "consolidated", "archived", "deduplicated", "superseded", "forgotten", "summarized"
    ]
    expected_version: int | None = None
    status: Status | None = None
    scope: Literal["project"] | None = None
    kind: Kind | None = None
    summary: str | None = None
    importance: float | None = None
    confidence: float | None = None
    valid_until: float | None = None
    tags: tuple[str, ...] = ()
    accessed: bool = False
    chain: ChainLink | None = None
    forget: str | None = None
    reason: str | None = None
    only_with: str | None = None
    """The id of another memory: if an earlier edit of that memory was skipped, this edit is skipped as well."""


class AddLink(msgspec.Struct, frozen=True, tag=True, tag_field="edit", omit_defaults=True):
    """Link two memories of the space. Skipped if the link exists or either memory is missing."""

    source: str
    target: str
    relation: Relation
    strength: float = 1.0


class LogPromotion(msgspec.Struct, frozen=True, tag=True, tag_field="edit", omit_defaults=True):
    """Record a promotion or a merge (`merged_into`) in the promotion log. `score` is in [0, 1]."""

    memory_id: str
    kind: Kind
    from_scope: Scope
    to_scope: Scope
    reason: PromotionReason
    source_session: str
    score: float | None = None
    merged_into: str | None = None

    def step(self, at: float, reason: str | None, project: str | None = None, content: str | None = None) -> ChainLink:
        """Return the step in the promotion chain. `project` is the project that the memory leaves."""
        action: Literal["promoted", "merged"] = "merged" if self.merged_into else "promoted"
        session_id = self.source_session or None
        return ChainLink(self.from_scope, self.memory_id, at, action, session_id, project, self.score, reason, content)


class LoggedPromotion(LogPromotion, frozen=True, kw_only=True):
    run_id: str | None = None
    promoted_at: float


class NotePattern(msgspec.Struct, frozen=True, tag=True, tag_field="edit"):
    """Record that the pattern in a memory of the user was observed in a project."""

    memory_id: str
    project_id: str


class ProposeMemory(msgspec.Struct, frozen=True, tag=True, tag_field="edit", omit_defaults=True):
    """Propose a project's memory for promotion to the user. Skipped if it was already proposed or refused."""

    memory_id: str
    reason: str
    score: float | None = None


class DropOrphans(msgspec.Struct, frozen=True, tag=True, tag_field="edit"):
    """Has no effect. Release 0.2.0 writes this edit and the next two to shared lanes."""


class CloseRequest(msgspec.Struct, frozen=True, tag=True, tag_field="edit"):
    """Has no effect, like `DropOrphans`."""


class RequestConsolidation(msgspec.Struct, frozen=True, tag=True, tag_field="edit"):
    """Has no effect, like `DropOrphans`."""


class Prune(msgspec.Struct, frozen=True, tag=True, tag_field="edit"):
    """Delete up to `limit` rows: turns and tool calls of sessions closed before `sessions_before`; results of
    operations applied before `operations_before`, too long ago for a retry; and from before `runs_before`, runs, log
    entries of consolidations, versions of memories that are gone or have many newer versions, promotions of memories
    that are gone, and sessions without other records. Times are seconds since the epoch."""

    sessions_before: float
    runs_before: float
    operations_before: float
    limit: int = 1000


class SaveTopics(msgspec.Struct, frozen=True, tag=True, tag_field="edit"):
    """Replace the stored communities of the entity graph. An undo does not restore them."""

    topics: tuple[Topic, ...]


class Topic(msgspec.Struct, frozen=True):
    """A community of entities: its name, and its members, the best connected first."""

    label: str
    entities: tuple[str, ...]


class CloseSession(msgspec.Struct, frozen=True, tag=True, tag_field="edit", omit_defaults=True):
    session_id: str
    status: Literal["completed", "abandoned"]
    ended_at: float
    """The time of the end that was processed: a session that has continued since then stays open."""


class NoteMaintenance(msgspec.Struct, frozen=True, tag=True, tag_field="edit"):
    """Record that maintenance of the space has been done."""


Edit = (
    AddMemory
    | ReviseMemory
    | AddLink
    | LogPromotion
    | NotePattern
    | ProposeMemory
    | DropOrphans
    | Prune
    | SaveTopics
    | CloseSession
    | CloseRequest
    | RequestConsolidation
    | NoteMaintenance
)


class ApplyRun(msgspec.Struct, frozen=True, tag=True, tag_field="change", omit_defaults=True):
    """Apply a run, or a part of it: all parts with one `run_id` are undone together."""

    run_id: str
    place: Place
    kind: RunKind
    edits: tuple[Edit, ...]
    session_id: str = ""


class UndoRun(msgspec.Struct, frozen=True, tag=True, tag_field="change", omit_defaults=True):
    """Undo all parts of a run in a space: memories that it made are forgotten, and changed ones restored. Memories that
    others have changed since then are left unchanged and listed. Only a person in a shell can undo an import, since its
    memories belong to all sessions. In a shared project, session memories have their own space (`session`). An unknown
    run is refused or, with `if_there`, reported as not found."""

    run_id: str
    place: Scope
    if_there: bool = False


class Skipped(msgspec.Struct, frozen=True):
    memory_id: str
    reason: str
    edit: str = ""


class RunResult(msgspec.Struct, frozen=True, omit_defaults=True, tag=True, tag_field="result"):
    edits: int
    """The number of applied edits."""
    skipped: tuple[Skipped, ...] = ()
    pruned: int = 0
    """The number of rows removed."""


class UndoneResult(msgspec.Struct, frozen=True, omit_defaults=True, tag=True, tag_field="result"):
    """The outcome of an `UndoRun`. `memories` were restored or forgotten."""

    memories: tuple[str, ...] = ()
    skipped: tuple[Skipped, ...] = ()
    already: bool = False
    found: bool = True
    """False only with `if_there`."""
