"""The words of the model: kinds, types, scopes, statuses, relations, and the types of entities."""

from __future__ import annotations

from typing import Final, Literal, get_args

FileSource = Literal["notes", "sessions"]
"""The sort of a file: a note in Markdown, or the transcript of a session."""
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
"""The kinds that a memory can be given."""
Kind = GivenKind | Literal["session_record"]
Relation = Literal[
    "similar_to", "contradicts", "supersedes", "derived_from", "supports", "part_of", "caused_by", "related_to"
]
EntityKind = Literal[
    "file",
    "function",
    "class",
    "module",
    "package",
    "technology",
    "person",
    "project",
    "service",
    "concept",
    "tool",
    "custom",
]

MEMORY_TYPES: Final[tuple[MemoryType, ...]] = get_args(MemoryType)
SCOPES: Final[tuple[Scope, ...]] = get_args(Scope)
"""The narrowest first."""
STATUSES: Final[tuple[Status, ...]] = get_args(Status)
KINDS: Final[tuple[GivenKind, ...]] = get_args(GivenKind)
SESSION_RECORD: Final = "session_record"
"""The kind of the memory that says what a session has done. Nobody can give it to a memory of his own."""
OPEN_END: Final = "open_end"
"""The kind of what is still to be done, until it is done."""
RELATIONS: Final[tuple[Relation, ...]] = get_args(Relation)
STANDING: Final[tuple[Kind, ...]] = ("convention", "preference", "decision")
"""The kinds of what holds whatever the task is, until something replaces it: it does not fade."""
SESSION_KINDS: Final[frozenset[Kind]] = frozenset({"scratchpad", "tool_outcome"})
"""The kinds that belong to their session alone."""
ENTITY_KINDS: Final[tuple[EntityKind, ...]] = get_args(EntityKind)

_OF_TYPES: Final[dict[MemoryType, tuple[Kind, ...]]] = {
    "episodic": ("observation", "error_fix", "scratchpad", "tool_outcome", OPEN_END, SESSION_RECORD),
    "semantic": ("fact", "preference", "architecture", "entity", "pattern", "convention", "decision"),
    "procedural": ("procedure",),
}
"""The kinds of each type; the first is what can be said at the least of a memory of that type."""
_TYPES: Final = {kind: memory_type for memory_type, kinds in _OF_TYPES.items() for kind in kinds}
_ENTITY_SYNONYMS: Final[dict[EntityKind, str]] = {
    "file": "source file, filename",
    "function": "method",
    "package": "library, lib, crate, gem",
    "technology": "language, programming language, framework, database",
    "person": "human, developer, author",
    "project": "repo, repository, codebase",
    "service": "microservice",
    "concept": "idea",
}
"""The words of others for the same. A word that may mean several of them (component, topic, user) is none."""
_ENTITY_KINDS: Final[dict[str, EntityKind]] = {kind: kind for kind in ENTITY_KINDS} | {
    word: kind for kind, words in _ENTITY_SYNONYMS.items() for word in words.split(", ")
}


def type_of_kind(kind: Kind) -> MemoryType:
    """The type that a kind belongs to."""
    return _TYPES[kind]


def kind_of_type(memory_type: MemoryType) -> Kind:
    """The kind of a memory that was given a type and no kind: the least that can be said of it."""
    return _OF_TYPES[memory_type][0]


def entity_kind(given: str) -> EntityKind:
    """Which of the twelve kinds an entity's type is, by itself or by a well-known synonym; `custom` for all others.

    Case, blanks around and the separators `_` and `-` make no difference.
    """
    words = " ".join(given.casefold().replace("_", " ").replace("-", " ").split())
    return _ENTITY_KINDS.get(words, "custom")
