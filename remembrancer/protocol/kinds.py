"""The vocabulary of the model: kinds, types, scopes, statuses, relations."""

from typing import Final, Literal, get_args

FileSource = Literal["notes", "sessions"]
"""The source of a file's text: a note in Markdown, or the transcript of a session."""
Origin = Literal["memory", "notes", "sessions"]
"""The origin of a recall's result."""
MemoryType = Literal["episodic", "semantic", "procedural"]
Scope = Literal["session", "project", "user"]
Status = Literal["active", "consolidated", "archived", "promoted"]
GivenKind = Literal[
    "observation",
    "decision",
    "pattern",
    "convention",
    "fact",
    "preference",
    "error_fix",
    "architecture",
    "procedure",
    "entity",
    "scratchpad",
    "tool_outcome",
    "open_end",
]
"""The kinds that a caller can give a memory."""
Kind = GivenKind | Literal["session_record"]
Relation = Literal[
    "similar_to", "contradicts", "supersedes", "derived_from", "supports", "part_of", "caused_by", "related_to"
]

MEMORY_TYPES: Final[tuple[MemoryType, ...]] = get_args(MemoryType)
SCOPES: Final[tuple[Scope, ...]] = get_args(Scope)
"""Narrowest first."""
STATUSES: Final[tuple[Status, ...]] = get_args(Status)
KINDS: Final[tuple[GivenKind, ...]] = get_args(GivenKind)
SESSION_RECORD: Final = "session_record"
"""The kind of the memory that summarises a session. Callers cannot use it."""
OPEN_END: Final = "open_end"
"""The kind of a task for later, even once it is done."""
STANDING: Final[tuple[Kind, ...]] = ("convention", "preference", "decision")
"""The kinds that apply to every task until they are replaced: they do not fade."""
RULES_OF_WORK: Final[frozenset[Kind]] = frozenset({*STANDING, "procedure"})
"""The kinds that say how to work, which a prompt may need without resembling them. A fact replaces only decisions."""
SESSION_KINDS: Final[frozenset[Kind]] = frozenset({"scratchpad", "tool_outcome"})
"""The kinds that belong only to their session."""

_OF_TYPES: Final[dict[MemoryType, tuple[Kind, ...]]] = {
    "episodic": ("observation", "error_fix", "scratchpad", "tool_outcome", OPEN_END, SESSION_RECORD),
    "semantic": ("fact", "preference", "architecture", "entity", "pattern", "convention", "decision"),
    "procedural": ("procedure",),
}
"""The kinds of each type, starting with the least specific."""
_TYPES: Final = {kind: memory_type for memory_type, kinds in _OF_TYPES.items() for kind in kinds}


def type_of_kind(kind: Kind) -> MemoryType:
    return _TYPES[kind]


def kind_of_type(memory_type: MemoryType) -> Kind:
    """The least specific kind of a type, for memories with a type but no kind."""
    return _OF_TYPES[memory_type][0]
