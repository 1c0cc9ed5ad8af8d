"""Questions of the memory browser that no session asks: what was done when, which sessions there were, what may
contradict what, and what is used."""

from __future__ import annotations

import msgspec

from remembrancer.protocol.kinds import Kind
from remembrancer.protocol.reads import ListedMemory, Notice, SessionRequest
from remembrancer.protocol.session_life import SessionEntry, ToolCall, Turn


class MemoryChanged(msgspec.Struct, frozen=True, omit_defaults=True):
    """A change of a memory, by a session (an empty id: by the background). `begins` is how the memory began after it.
    `fields` are those that it changed, and `done` is the state of an open end since. `is_forgotten`: the memory is
    forgotten now."""

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


class RunDone(msgspec.Struct, frozen=True, omit_defaults=True):
    """A run of the consolidator, and how many memories it changed. `undone_at`: when it was undone."""

    run_id: str
    kind: str
    at: float
    session_id: str = ""
    changes: int = 0
    undone_at: float | None = None


class ActivityRead(msgspec.Struct, frozen=True, tag=True):
    """The latest first. `more`: there is more before the last change."""

    changes: tuple[MemoryChanged, ...] = ()
    runs: tuple[RunDone, ...] = ()
    more: bool = False
    notices: tuple[Notice, ...] = ()


class ReadActivity(SessionRequest[ActivityRead], frozen=True):
    """The last changes of memories that the session sees, and the last runs."""

    before: float | None = None
    limit: int = 100
    after: float = 0.0
    characters: int = 200
    """The number of characters read of each text."""


class ListedSession(SessionEntry, frozen=True, omit_defaults=True):
    """A session, and how much of it is kept."""

    memories: int = 0
    turns: int = 0
    tool_calls: int = 0


class SessionsListed(msgspec.Struct, frozen=True, tag=True):
    """The latest first."""

    sessions: tuple[ListedSession, ...] = ()
    notices: tuple[Notice, ...] = ()


class ListSessions(SessionRequest[SessionsListed], frozen=True):
    """The last sessions of a project."""

    before: float | None = None
    limit: int = 50


class TurnsRead(msgspec.Struct, frozen=True, tag=True):
    """In their order. `earlier`: the numbers of the first turn and tool call of which others went before; None: these
    are the first."""

    turns: tuple[Turn, ...] = ()
    tool_calls: tuple[ToolCall, ...] = ()
    earlier: tuple[int, int] | None = None
    notices: tuple[Notice, ...] = ()


class ReadTurns(SessionRequest[TurnsRead], frozen=True):
    """The last turns and tool calls of the session, as long as they are kept, up to `limit` of both together.
    `before` is `earlier` in the answer that had those behind them."""

    before: tuple[int, int] | None = None
    limit: int = 200


class Pair(msgspec.Struct, frozen=True):
    """Two memories of one file, the older first."""

    older: ListedMemory
    newer: ListedMemory
    relation: str
    strength: float


class PairsFound(msgspec.Struct, frozen=True, tag=True):
    """Contradictions first, then by likeness."""

    pairs: tuple[Pair, ...] = ()
    notices: tuple[Notice, ...] = ()


class FindPairs(SessionRequest[PairsFound], frozen=True):
    """Memories that contradict each other, or say nearly the same."""

    limit: int = 50


class UsageRead(msgspec.Struct, frozen=True, tag=True):
    """`stored` are numbers of memories by the day (UTC) on which they were stored; `never` counts those of which no
    answer was made in the first week, and `unused` are some of them, the oldest first."""

    stored: dict[str, int] = {}
    most: tuple[ListedMemory, ...] = ()
    unused: tuple[ListedMemory, ...] = ()
    never: int = 0
    total: int = 0
    notices: tuple[Notice, ...] = ()


class ReadUsage(SessionRequest[UsageRead], frozen=True):
    """Asks for the use of memories."""

    limit: int = 15


class GraphNode(msgspec.Struct, frozen=True, array_like=True):
    """An entity, and the number of memories about it."""

    name: str
    type: str
    memories: int


class GraphLink(msgspec.Struct, frozen=True, array_like=True):
    """Two of the entities, which are numbered from 0 on, the number of memories that relate them, and the name of a
    relation; an empty one: they are only mentioned together."""

    source: int
    target: int
    memories: int
    type: str = ""


class GraphRead(msgspec.Struct, frozen=True, tag=True):
    """Entities and relations, those with the most memories first."""

    nodes: tuple[GraphNode, ...] = ()
    links: tuple[GraphLink, ...] = ()
    notices: tuple[Notice, ...] = ()


class ReadGraph(SessionRequest[GraphRead], frozen=True):
    """The entities that most memories are about, and their relations."""

    limit: int = 2000


BrowserRequest = ReadActivity | ListSessions | ReadTurns | FindPairs | ReadUsage | ReadGraph
BrowserAnswer = ActivityRead | SessionsListed | TurnsRead | PairsFound | UsageRead | GraphRead
