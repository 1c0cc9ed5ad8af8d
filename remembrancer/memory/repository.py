"""A space as rules read and change it. Memories are identified by their ids: rules do not depend on tables, row numbers
or clocks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

import msgspec

from remembrancer.protocol.runs import ChainLink, LoggedPromotion, Prune
from remembrancer.protocol.session_life import RecordEvents, SessionEntry
from remembrancer.protocol.writes import HistoryEntry, MemoryVersion, PortableMemory


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


class NoteWrite(msgspec.Struct, frozen=True):
    """A note is being written. `operation` and its future `result` are encoded as MessagePack."""

    operation_id: str
    operation: bytes
    result: bytes


class FoundTopic(msgspec.Struct, frozen=True):
    """A community of entities, in the order in which they were found."""

    label: str
    entities: tuple[str, ...]
    found_at: float


Row = SessionEntry | Erased | Proposed | PatternRow | Run | NoteWrite | LoggedPromotion | FoundTopic
R = TypeVar("R", bound=Row)


class Repository(Protocol):
    """One space inside a transaction. Queries see the changes so far."""

    def memory(self, memory_id: str) -> Memory | None:
        """A memory, whether forgotten or not, by its id or an alias."""

    def history(self, memory_id: str) -> tuple[HistoryEntry, ...]:
        """All versions of a memory, the first one first."""

    def changed_by(self, run_id: str) -> list[str]:
        """The ids of the memories of which a run made versions, those that it made last."""

    def links(self, memory_id: str) -> list[Link]:
        """The links from and to a memory."""

    def portable(self, memory_id: str) -> PortableMemory | None:
        """A memory with all of its versions and links."""

    def same_content(self, content: str, session_id: str) -> list[tuple[str, str, str]]:
        """The ids, scopes and sessions of the five oldest memories with this content that the session can see and that
        are not forgotten."""

    def stored_by(self, session_id: str) -> int:
        """The number of unforgotten memories that a session has stored, without derived ones."""

    def summed_up_in(self, memory_id: str) -> tuple[str, ...]:
        """The memories that were derived from a memory and repeat its text, or the text of one that it supports.

        Forgotten memories do not count, nor do a session's private memories that stand for memories visible to others.
        """

    def session_record(self, session_id: str) -> Memory | None:
        """The record of a session, whether forgotten or not."""

    def session_deeds(self, session_id: str, root: str) -> SessionDeeds | None:
        """The work of an ended session; None while it is running. `root` is the project's path."""

    def turns(self, session_id: str) -> int:
        """The number of recorded turns of a session."""

    def rows(self, kind: type[R], field: str, value: str | int) -> list[R]:
        """The rows of a kind in which a field has a value, in order."""

    def insert(self, memory: PortableMemory, at: float, *, comes_whole: bool = False) -> None:
        """Insert a memory with its history. `at` is the time for its edges to entities.

        A memory that `comes_whole` from elsewhere has links, and others may link to it: links wait until both ends
        exist.
        """

    def revise(
        self, before: Memory, entry: HistoryEntry, fields: tuple[str, ...], chain: Sequence[ChainLink] | None = None
    ) -> None:
        """Add a version (`entry`) to a memory. `fields` are the changed ones.

        `chain` is the new promotion chain, if it has changed. If the content changes, all data derived from the old one
        (passages, near-duplicates, found names) is deleted.
        """

    def delete(self, memory_id: str, *, with_history: bool = False) -> None:
        """Delete a memory with everything that depends on it, except its history. `with_history` deletes the history
        too, apart from versions private to a session."""

    def erase_traces(self, memory_id: str) -> int:
        """Delete all traces of a memory that is not in the space: in history, logs, answers and promotion chains.
        Returns the number of rows that were deleted or changed."""

    def put_link(self, source: str, target: str, relation: str, strength: float, created_at: float) -> None:
        """Link two memories, or change the strength of their link. Does nothing if one of them does not exist."""

    def unlink(self, link: Link) -> None:
        """Remove a link."""

    def add_alias(self, alias: str, memory_id: str) -> None:
        """Give a memory another id by which it can be found."""

    def set_accesses(self, memory_id: str, count: int, last_accessed_at: float | None) -> None:
        """Set the number of accesses of a memory, and the time of the last one."""

    def note_use(self, memory_ids: Sequence[str], session_id: str) -> None:
        """Record that a session has used the memories that it can see. For each memory only the first few sessions are
        kept."""

    def note_active(self, session_id: str, at: float) -> None:
        """Record that a session was active: a new one is registered, and an ended one is reopened. The way in which
        that ended is kept."""

    def record_events(self, change: RecordEvents) -> None:
        """Add turns and tool calls; a tool call belongs to the last turn before it."""

    def put(self, row: Row) -> None:
        """Write a row in place of the one with its key, or append a row to a log."""

    def remove(self, kind: type[Row], field: str | None = None, value: str | int | None = None) -> None:
        """Remove the rows of a kind in which a field has a value; without a `field`, all rows."""

    def drop_orphans(self, before: float) -> int:
        """Delete the entities of before that time to which no memory is linked, and return their number."""

    def prune(self, edit: Prune) -> int:
        """Delete up to `edit.limit` rows that are no longer needed, and return their number."""

    def note_maintenance(self) -> None:
        """Record that maintenance was done now."""
