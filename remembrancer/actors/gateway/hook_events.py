"""An event that a hook left, read and made into the change that records it. Pure, but for looking for its project."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from remembrancer.actors.gateway.hello import working_tree_of
from remembrancer.actors.gateway.toolkit.credential_masking import masked, masked_value
from remembrancer.actors.gateway.toolkit.text import clean_name
from remembrancer.config.project import project_of
from remembrancer.protocol.errors import InvalidInput
from remembrancer.protocol.gateway_link import HOOK_FORMAT
from remembrancer.protocol.ids import derive_operation_id
from remembrancer.protocol.session_life import EndSession, RecordEvents, StartSession, ToolCall, Turn
from remembrancer.protocol.writes import Operation, SessionChange

CLIENT: Final = "claude-code"
"""Whose hooks these are."""
MAX_SESSION_ID: Final = 200
MAX_TOOL_NAME: Final = 400

EventName = Literal[
    "SessionStart", "UserPromptSubmit", "PostToolUse", "PostToolUseFailure", "Stop", "SubagentStop", "SessionEnd"
]


class HookEvent(msgspec.Struct, frozen=True):
    """What a file holds: see `protocol.hooks`. `at` is seconds since the epoch."""

    format: int
    event: EventName
    at: float
    session: str
    directory: str
    text: str = ""
    tool: str = ""
    arguments: dict[str, Any] = {}
    result: str | None = None
    success: bool = True
    duration_ms: int | None = None
    metadata: dict[str, Any] = {}


def to_operation(name: str, content: bytes) -> Operation:
    """The operation that a file's event asks for. Its id follows from the file's name, so it is done once.

    What looks like a credential is blotted out: these are texts that nobody chose to store.

    Raises:
        InvalidInput: it is no such event.
    """
    event = read_event(content)
    session = clean_name(event.session, field="session", longest=MAX_SESSION_ID)
    try:
        project = project_of(Path(event.directory))
    except ValueError as error:  # half a character
        raise InvalidInput("an event of a directory whose name cannot be") from error
    return Operation(
        operation_id=derive_operation_id("hook", name, event.event, session),
        project=project,
        session_id=session,
        requested_at=event.at,
        change=change_of(event, session),
    )


def read_event(content: bytes) -> HookEvent:
    """The event in a file. Raises InvalidInput when there is none, or of a newer form."""
    try:
        # The standard library's decoder, because paths that are not UTF-8 come with lone surrogates.
        event = msgspec.convert(json.loads(content), HookEvent)
    except (ValueError, RecursionError) as error:  # msgspec's own is a ValueError too
        raise InvalidInput(f"no event of a hook: {error}") from error
    if event.format != HOOK_FORMAT:
        raise InvalidInput(f"an event of form {event.format}, and this release reads form {HOOK_FORMAT}")
    if not event.at > 0 or "\0" in event.directory:
        raise InvalidInput("an event of no time, or of no place")
    return event


def change_of(event: HookEvent, session: str) -> SessionChange:
    """What to record of an event. A subagent is to its session what a tool is: its last words are a tool's turn."""
    match event.event:
        case "SessionStart":
            tree = str(working_tree_of(Path(event.directory))).encode("utf-8", "replace").decode()
            return StartSession(session, CLIENT, tree)
        case "SessionEnd":
            return EndSession(session)
        case "UserPromptSubmit":
            return RecordEvents(session, turns=(_turn(event, "user", event.metadata),))
        case "Stop":
            return RecordEvents(session, turns=(_turn(event, "assistant", event.metadata),))
        case "SubagentStop":
            return RecordEvents(session, turns=(_turn(event, "tool", {**event.metadata, "subagent": True}),))
        case "PostToolUse" | "PostToolUseFailure":
            return RecordEvents(session, tool_calls=(_tool_call(event),))


def _turn(event: HookEvent, role: Literal["user", "assistant", "tool"], metadata: dict[str, Any]) -> Turn:
    if not event.text.strip():
        raise InvalidInput("a turn without words")
    return Turn(role, masked(event.text), event.at, metadata=masked_value(metadata))


def _tool_call(event: HookEvent) -> ToolCall:
    return ToolCall(
        tool_name=clean_name(event.tool, field="tool", longest=MAX_TOOL_NAME),
        at=event.at,
        arguments=masked_value(event.arguments),
        result_summary=None if event.result is None else masked(event.result),
        success=event.success,
        duration_ms=event.duration_ms,
    )
