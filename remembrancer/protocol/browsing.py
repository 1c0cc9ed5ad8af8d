"""Requests that only the memory browser makes: activity, sessions, possible contradictions."""

from typing import Final

import msgspec

from remembrancer.protocol.kinds import Kind
from remembrancer.protocol.reads import GraphFound, ListedMemory, ListedSession, Proposal, SessionRequest
from remembrancer.protocol.session_life import ToolCall, Turn


class MemoryChanged(msgspec.Struct, frozen=True, omit_defaults=True):
    """A change to a memory by a session (empty id: by background work). `begins` is the start of the memory's text
    after the change; `changed_later`: the current text differs. `fields` are the changed fields, and `done` is the
    resulting state of an open end. `is_forgotten`: the memory is forgotten now. `member`: the machine that changed a
    shared memory. `undid`: the name of the change that this change undid. `command`: the shell command that made it.
    `by`: the memory that replaced this one.

    Only on request: `is_undone`, and `undo_at`, the memory's version at which an undo reverts this change (0: an undo
    reverts another change, or nothing).
    """

    memory_id: str
    change: str
    at: float
    session_id: str = ""
    version: int = 0
    begins: str = ""
    kind: Kind = "fact"
    fields: tuple[str, ...] = ()
    done: bool = False
    is_forgotten: bool = False
    changed_later: bool = False
    member: str = ""
    undid: str = ""
    command: str = ""
    by: str = ""
    is_undone: bool = False
    undo_at: int = 0


class RunDone(msgspec.Struct, frozen=True, omit_defaults=True):
    """A run of the consolidator, or an import, and the number of memories that it changed. `undone_at`: the time at
    which it was undone. `of_user`: it changed the user's memories; `of_another`: it changed another project's memories
    or another session's private ones, and can only be undone there."""

    run_id: str
    kind: str
    at: float
    session_id: str = ""
    changes: int = 0
    undone_at: float | None = None
    of_user: bool = False
    of_another: bool = False


class ActivityRead(msgspec.Struct, frozen=True, tag=True):
    """Changes, and runs unless all memories they changed have been erased, latest first. `happened`: the events of the
    requested days, in order. `more`: there are older changes or events."""

    changes: tuple[MemoryChanged, ...] = ()
    runs: tuple[RunDone, ...] = ()
    more: bool = False
    happened: tuple[MemoryChanged, ...] = ()


class ReadActivity(SessionRequest[ActivityRead], frozen=True):
    """Read the latest changes to memories that the session can see, and the latest runs."""

    before: float | None = None
    limit: int = 100
    after: float = 0.0
    characters: int = 200
    """Longer texts are cut to this length."""
    summarized: bool = False
    """Show a memory's summary, if it has one, instead of its text."""
    with_undo: bool = False
    days: tuple[float, ...] = ()
    """Also read events: events with only a day, from the first of these days (in UTC) up to but not including the
    second; other events from `after` up to but not including `before`."""


class ListSessions(SessionRequest[tuple[ListedSession, ...]], frozen=True):
    """List the latest sessions of a project, latest first."""

    before: float | None = None
    limit: int = 50


class TurnsRead(msgspec.Struct, frozen=True, tag=True):
    """Turns and tool calls in order. `more`: there are earlier entries."""

    turns: tuple[Turn, ...] = ()
    tool_calls: tuple[ToolCall, ...] = ()
    more: bool = False


class ReadTurns(SessionRequest[TurnsRead], frozen=True):
    """Read the latest turns and tool calls of the session that are still kept, up to `limit` in total, skipping the
    latest `past`."""

    past: int = 0
    limit: int = 200


MOST_PAIRS: Final = 500
"""The maximum number of pairs in an answer."""


class Pair(msgspec.Struct, frozen=True):
    """Two memories in the same space, the older one first."""

    older: ListedMemory
    newer: ListedMemory
    relation: str
    strength: float
    may_be_done: bool = False
    """True if the newer memory, not itself an open end, probably reports the older one, an open end, as done."""


class Undecided(msgspec.Struct, frozen=True, tag=True):
    """The project's memories that are proposed for promotion to the user, and pairs awaiting a decision. `more` is the
    number of pairs beyond the limit."""

    proposals: tuple[Proposal, ...] = ()
    pairs: tuple[Pair, ...] = ()
    more: int = 0


class FindUndecided(SessionRequest[Undecided], frozen=True):
    """Find what awaits a person's decision: proposals, most certain first; pairs of memories in which one may replace
    the other, most probable first, followed (with `alike`) by pairs that say nearly the same thing, most similar first.
    `with_hidden` adds pairs that Review leaves out: pairs in a series, and pairs outranked by a more probable one."""

    limit: int = 20
    alike: bool = True
    with_hidden: bool = False


class ReadGraph(SessionRequest[GraphFound], frozen=True):
    """Read the entities with the most memories, and their relations, sorted by number of memories. Entities that are
    only mentioned together have the relation `MENTIONED_WITH`."""

    limit: int = 2000
