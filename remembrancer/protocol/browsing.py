"""Requests that only the memory browser makes: activity, sessions, possible contradictions."""

from typing import Final

import msgspec

from remembrancer.protocol.kinds import Kind
from remembrancer.protocol.reads import GraphFound, ListedMemory, ListedSession, Proposal, SessionRequest
from remembrancer.protocol.session_life import ToolCall, Turn

MOST_PAIRS: Final = 500
"""The maximum number of pairs in an answer."""


class MemoryChanged(msgspec.Struct, frozen=True, omit_defaults=True):
    """A change to a memory; background work has no `session_id`. `begins` is the start of the text after the change,
    and `changed_later` is true if the text has changed again. `done` is the state of an open end after the change.
    `member` is the machine that changed a shared memory, `undid` the name of the undone change, `command` the shell
    command that made the change, `by` the memory that replaced this one. Only on request: `is_undone`, and `undo_at`,
    the version whose undo reverts this change (0: there is none)."""

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
    """A run of the consolidator, or an import, with the number of changed memories. `of_user` means that it changed the
    user's memories; `of_another`, that it changed those of another project or session, and can be undone only there."""

    run_id: str
    kind: str
    at: float
    session_id: str = ""
    changes: int = 0
    undone_at: float | None = None
    of_user: bool = False
    of_another: bool = False


class ActivityRead(msgspec.Struct, frozen=True, tag=True):
    """Changes and runs, latest first. Runs whose memories have all been erased are left out. `happened` lists the
    events of the requested days, in order. `more` means that there are older changes or events."""

    changes: tuple[MemoryChanged, ...] = ()
    runs: tuple[RunDone, ...] = ()
    more: bool = False
    happened: tuple[MemoryChanged, ...] = ()


class ReadActivity(SessionRequest[ActivityRead], frozen=True):
    before: float | None = None
    limit: int = 100
    after: float = 0.0
    characters: int = 200
    """Longer texts are cut to this length."""
    summarized: bool = False
    """Show a memory's summary, if it has one, instead of its text."""
    with_undo: bool = False
    days: tuple[float, ...] = ()
    """Also read events with only a day (in UTC), from the first of these up to but not including the second, and events
    with a time, from `after` up to but not including `before`."""


class ListSessions(SessionRequest[tuple[ListedSession, ...]], frozen=True):
    """List the latest sessions of a project, latest first."""

    before: float | None = None
    limit: int = 50


class TurnsRead(msgspec.Struct, frozen=True, tag=True):
    """Turns and tool calls in order. `more` means that there are earlier entries."""

    turns: tuple[Turn, ...] = ()
    tool_calls: tuple[ToolCall, ...] = ()
    more: bool = False


class ReadTurns(SessionRequest[TurnsRead], frozen=True):
    """Read the latest `limit` turns and tool calls of the session, skipping the latest `past`."""

    past: int = 0
    limit: int = 200


class Pair(msgspec.Struct, frozen=True):
    older: ListedMemory
    newer: ListedMemory
    relation: str
    strength: float
    may_be_done: bool = False
    """True if the older memory is an open end, and the newer one probably says that it is done."""
    is_weak: bool = False
    """True if the newer memory may replace the older one, but probably does not."""


class Undecided(msgspec.Struct, frozen=True, tag=True):
    """Proposals to promote memories to the user, and pairs to decide about. `more` counts pairs beyond the limit."""

    proposals: tuple[Proposal, ...] = ()
    pairs: tuple[Pair, ...] = ()
    more: int = 0
    weak: int = 0
    """The number of weak pairs among all, also beyond the limit."""


class FindUndecided(SessionRequest[Undecided], frozen=True):
    """Find what awaits a person's decision. Proposals are sorted by certainty, and pairs in which one memory may
    replace the other by probability. With `alike`, pairs that say nearly the same thing follow, most similar first.
    `with_hidden` adds pairs that Review leaves out: pairs in a series, and pairs outranked by a more probable one."""

    limit: int = 20
    alike: bool = True
    with_hidden: bool = False


class ReadGraph(SessionRequest[GraphFound], frozen=True):
    """Read the entities with the most memories. Entities that are only mentioned together are `MENTIONED_WITH`."""

    limit: int = 2000
