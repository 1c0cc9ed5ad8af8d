"""The rows of a space as rules read and change them. Memories are identified by their ids."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

import msgspec

from remembrancer.protocol.runs import ChainLink, LoggedPromotion
from remembrancer.protocol.session_life import SessionEntry
from remembrancer.protocol.writes import MemoryVersion


@dataclass(frozen=True, slots=True)
class Memory:
    """A memory as it is in a space, without its history and its links."""

    id: str
    version: int
    now: MemoryVersion
    created_at: float
    updated_at: float
    access_count: int = 0
    last_accessed_at: float | None = None
    forgotten_at: float | None = None
    promotion_chain: tuple[ChainLink, ...] = ()
    source_project: str | None = None


@dataclass(frozen=True, slots=True)
class Link:
    """A link between two memories."""

    source: str
    target: str
    relation: str
    strength: float
    created_at: float


@dataclass(frozen=True, slots=True)
class SessionDeeds:
    """The work of an ended session, by its turns and tool calls. `files` are those passed to its tools, the most used
    first."""

    ended_at: float
    prompts: int = 0
    tool_calls: int = 0
    files: tuple[str, ...] = ()


# --- Rows that a space keeps beside its memories. A row's first field is its key; rows of logs have none.


class Erased(msgspec.Struct, frozen=True):
    """A memory was deleted for good; its id is never stored again."""

    memory_id: str
    erased_at: float


class Proposed(msgspec.Struct, frozen=True):
    """A proposal to promote a project's memory to the user, or its refusal. It is deleted with its memory."""

    memory_id: str
    reason: str
    score: float | None
    proposed_at: float
    refused_at: float | None = None


class PatternRow(msgspec.Struct, frozen=True):
    """In the user's space: the projects in which a memory was observed, and how often."""

    memory_id: str
    source_projects: tuple[str, ...]
    observation_count: int
    first_observed: float
    last_observed: float


class Run(msgspec.Struct, frozen=True):
    """A run of the consolidator that was partly or fully applied here."""

    run_id: str
    kind: str
    session_id: str
    began_at: float
    undone_at: float | None = None


class FoundTopic(msgspec.Struct, frozen=True):
    """A community of entities, in the order in which they were found."""

    label: str
    entities: tuple[str, ...]
    found_at: float


Row = SessionEntry | Erased | Proposed | PatternRow | Run | LoggedPromotion | FoundTopic
R = TypeVar("R", bound=Row)
