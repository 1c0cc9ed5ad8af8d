"""The life of a session in the records: its start and end, its turns and tool calls."""

from typing import Any, Final, Literal

import msgspec

SessionStatus = Literal["active", "completed", "abandoned"]
TurnRole = Literal["user", "assistant", "system", "tool"]

SHELL_SESSION: Final = "session:shell"
"""The session id of a person in a shell, in the history of a memory. It is not a session with a start and an end."""
BROWSER_SESSION: Final = "session:browser"
"""The session ids of people, in the histories of memories. These sessions have no start and no end."""
_WHERE: Final = {SHELL_SESSION: "in the shell", BROWSER_SESSION: "in the browser"}


def author_of(session_id: str, client: str, member: str = "") -> str:
    """The display name of a change's author. `member` is the machine on which a shared memory was changed."""
    if place := _WHERE.get(session_id):
        return f"{member or 'you'}, {place}"
    return f"{client} on {member}" if member else client


class StartSession(msgspec.Struct, frozen=True, tag=True, tag_field="change", omit_defaults=True):
    """Start a session, or continue it after its end. `directory` is the root of its working tree, or its directory."""

    session_id: str
    client: str | None = None
    directory: str | None = None


class EndSession(msgspec.Struct, frozen=True, tag=True, tag_field="change", omit_defaults=True):
    """End a session. No effect for an unknown session, or one that has already ended."""

    session_id: str
    how: Literal["completed", "abandoned"] = "completed"


class Turn(msgspec.Struct, frozen=True, omit_defaults=True):
    """A message of the conversation. A `token_count` of 0 means not counted."""

    role: TurnRole
    content: str
    at: float
    token_count: int = 0
    metadata: dict[str, Any] = {}


class ToolCall(msgspec.Struct, frozen=True, omit_defaults=True):
    """`arguments` and `result_summary` are shortened."""

    tool_name: str
    at: float
    arguments: dict[str, Any] = {}
    result_summary: str | None = None
    success: bool = True
    duration_ms: int | None = None


class RecordEvents(msgspec.Struct, frozen=True, tag=True, tag_field="change", omit_defaults=True):
    session_id: str
    turns: tuple[Turn, ...] = ()
    tool_calls: tuple[ToolCall, ...] = ()


class SessionResult(msgspec.Struct, frozen=True, omit_defaults=True, tag=True, tag_field="result"):
    """The outcome of a `StartSession`, an `EndSession` or a `RecordEvents`."""


class SessionEntry(msgspec.Struct, frozen=True, omit_defaults=True):
    """A session in the registry of its project. If it has `ended_at` and is still `active`, its end has yet to be
    processed. If it has `ending` without `ended_at`, it continued after an end of this kind."""

    session_id: str
    started_at: float
    last_active_at: float
    status: SessionStatus = "active"
    ended_at: float | None = None
    ending: Literal["completed", "abandoned"] | None = None
    memories_promoted: int = 0
    summary: str | None = None
    client: str | None = None
