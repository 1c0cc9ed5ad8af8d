"""The life of a session as the records keep it: its start and end, its turns and tool calls."""

from __future__ import annotations

from typing import Any, Final, Literal

import msgspec

SessionStatus = Literal["active", "completed", "abandoned"]
TurnRole = Literal["user", "assistant", "system", "tool"]

SHELL_SESSION: Final = "session:shell"
"""Who a person in a shell is, in the history of a memory: no session, that would begin, end and hand over."""
BROWSER_SESSION: Final = "session:browser"
"""The same for a person in the memory browser."""


class StartSession(msgspec.Struct, frozen=True, tag=True, tag_field="change", omit_defaults=True):
    """A session begins, or goes on after its end. A project without a file stays without one.

    `directory` is the root of the working tree (or the directory) that the session works in.
    """

    session_id: str
    client: str | None = None
    directory: str | None = None


class EndSession(msgspec.Struct, frozen=True, tag=True, tag_field="change", omit_defaults=True):
    """A session has ended, or (`abandoned`) nobody has heard of it any more. Its end is dealt with in the background.

    For a session that is unknown, or has ended already, nothing changes.
    """

    session_id: str
    how: Literal["completed", "abandoned"] = "completed"


class Turn(msgspec.Struct, frozen=True, omit_defaults=True):
    """The words that somebody said. Times are seconds since the epoch; `token_count` 0 is not counted."""

    role: TurnRole
    content: str
    at: float
    token_count: int = 0
    metadata: dict[str, Any] = {}


class ToolCall(msgspec.Struct, frozen=True, omit_defaults=True):
    """A tool that the assistant called in a session. `arguments` and `result_summary` are cut to what is useful."""

    tool_name: str
    at: float
    arguments: dict[str, Any] = {}
    result_summary: str | None = None
    success: bool = True
    duration_ms: int | None = None


class RecordEvents(msgspec.Struct, frozen=True, tag=True, tag_field="change", omit_defaults=True):
    """Note turns and tool calls of a session, in the order in which they happened."""

    session_id: str
    turns: tuple[Turn, ...] = ()
    tool_calls: tuple[ToolCall, ...] = ()


class SessionResult(msgspec.Struct, frozen=True, omit_defaults=True, tag=True, tag_field="result"):
    """The state of a session after a `StartSession`, an `EndSession` or a `RecordEvents`."""

    session_id: str
    status: SessionStatus
    turns: int = 0
    """Turns that are recorded by now."""


class SessionEntry(msgspec.Struct, frozen=True, omit_defaults=True):
    """A session in the registry of its project. `ended_at` with the status `active`: its end is still to be dealt
    with. `ending` without `ended_at`: it did something after an end, which was of this kind, and goes on."""

    session_id: str
    started_at: float
    last_active_at: float
    status: SessionStatus = "active"
    ended_at: float | None = None
    ending: Literal["completed", "abandoned"] | None = None
    memories_promoted: int = 0
    summary: str | None = None
    client: str | None = None
