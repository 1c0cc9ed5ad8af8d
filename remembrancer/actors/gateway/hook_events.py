"""Records the events that hooks leave in a directory. The input's members are named as in Claude Code (and Codex, VS
Code and Qwen Code), Gemini CLI or Cursor, or as in a file left by release 0.2.0. If an event's file survives a crash,
the event is recorded again under the same operation id, which changes nothing."""

import json
import logging
import os
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, Final

import anyio
import anyio.to_thread
import msgspec

from remembrancer.config.project import project_of, working_tree_of
from remembrancer.memory.credentials import masked, masked_value
from remembrancer.memory.limits import MAX_SESSION_ID
from remembrancer.memory.text import clean_name
from remembrancer.memory.transcripts import texts_in
from remembrancer.protocol.errors import InvalidInput, RemembrancerError
from remembrancer.protocol.gateway_link import CONTEXT_GIVEN, HOOK_FORMAT, MAX_EVENT_BYTES
from remembrancer.protocol.ids import derive_id
from remembrancer.protocol.session_life import EndSession, RecordEvents, StartSession, ToolCall, Turn, TurnRole
from remembrancer.protocol.writes import Operation, ProjectRef, SessionChange

MAX_TOOL_NAME: Final = 400
MAX_CLIENT: Final = 100

EARLIER_FORMAT: Final = 1
"""The format of events from release 0.2.0, whose members differ from those of the client's input."""
LARGEST_DURATION: Final = 2**63

ANSWER_MEMBERS: Final = ("last_assistant_message", "prompt_response", "text")
TURNS: Final[dict[str, tuple[TurnRole, tuple[str, ...]]]] = {
    "UserPromptSubmit": ("user", ("prompt", "text")),
    "Stop": ("assistant", ANSWER_MEMBERS),
    "SubagentStop": ("tool", ANSWER_MEMBERS),
    "PostCompact": ("system", ("compact_summary", "text")),
    "ContextGiven": ("system", ("text",)),
}
"""The role of each turn, and the members that may contain its text; the first one that is present is used."""
METADATA: Final[tuple[str, ...]] = ("trigger", "agent_type", "agent_id")
"""The members that are kept as a turn's metadata."""


class HookEvent(msgspec.Struct, frozen=True):
    """The content of an event's file: see `protocol.gateway_link`. `at` is seconds since the epoch."""

    format: int
    event: str
    at: float
    session: str
    directory: str
    client: str = "claude-code"
    given: dict[str, Any] = {}

    def first(self, *names: str) -> Any:
        return next((self.given[name] for name in names if self.given.get(name) is not None), None)


def to_operation(name: str, event: HookEvent) -> Operation:
    """The operation for the event in the file `name`; the name determines the operation's id. Text that looks like a
    credential is masked, since nobody chose to store it. Raises `InvalidInput`."""
    session = clean_name(event.session, field="session", longest=MAX_SESSION_ID)
    try:
        project = project_of(Path(event.directory))
    except ValueError as error:  # a lone surrogate
        raise InvalidInput("the name of the event's directory is not valid") from error
    operation_id = derive_id("hook", name, event.event, session)
    return Operation(operation_id, project, session, event.at, change_of(event, session))


def read_event(content: bytes) -> HookEvent:
    """Raises `InvalidInput` if the event is malformed or has a newer format."""
    try:
        # The standard library's decoder, because paths that are not UTF-8 contain lone surrogates.
        raw = json.loads(content)
        event = msgspec.convert(raw, HookEvent)
    except (ValueError, RecursionError) as error:  # msgspec's error is a ValueError as well
        raise InvalidInput(f"not a hook event: {error}") from error
    if event.format == EARLIER_FORMAT:
        event = msgspec.structs.replace(event, given=raw)
    elif event.format != HOOK_FORMAT:
        raise InvalidInput(f"the event has format {event.format}, but this release reads format {HOOK_FORMAT}")
    if not event.at > 0 or "\0" in event.directory:
        raise InvalidInput("the event has no time or no directory")
    return event


def change_of(event: HookEvent, session: str) -> SessionChange:
    """Raises `InvalidInput` if the event is unknown or incomplete."""
    match event.event:
        case "SessionStart":
            tree = str(working_tree_of(Path(event.directory))).encode("utf-8", "replace").decode()
            return StartSession(session, clean_name(event.client, field="client", longest=MAX_CLIENT), tree)
        case "SessionEnd":
            return EndSession(session)
        case "PostToolUse" | "PostToolUseFailure":
            return RecordEvents(session, tool_calls=(_tool_call(event),))
        case name if name in TURNS:
            return RecordEvents(session, turns=(_turn(event, *TURNS[name]),))
        case name:
            raise InvalidInput(f"the event {name[:60]!r} is unknown")


def _turn(event: HookEvent, role: TurnRole, names: tuple[str, ...]) -> Turn:
    text = event.first(*names)
    if not isinstance(text, str) or not text.strip():
        raise InvalidInput(f"{event.event} has no text")
    more = event.first("metadata")
    metadata = {name: event.given[name] for name in METADATA if name in event.given}
    metadata |= more if isinstance(more, dict) else {}
    metadata |= {"subagent": True} if event.event == "SubagentStop" else {}
    return Turn(role, masked(text), event.at, metadata=masked_value(metadata))


def _tool_call(event: HookEvent) -> ToolCall:
    name, arguments = event.first("tool_name", "tool"), event.first("tool_input", "arguments")
    has_failed = event.event == "PostToolUseFailure"
    response = event.first(*(["error"] if has_failed else ["tool_response", "tool_output"]), "result")
    success, duration = event.first("success"), event.first("duration_ms", "duration")
    is_duration = isinstance(duration, int | float) and 0 <= duration < LARGEST_DURATION
    return ToolCall(
        tool_name=clean_name(name if isinstance(name, str) else "", field="tool", longest=MAX_TOOL_NAME),
        at=event.at,
        arguments=masked_value(arguments) if isinstance(arguments, dict) else {},
        result_summary=masked(summarized(response)) or None,
        success=success if isinstance(success, bool) else not has_failed and succeeded(response),
        duration_ms=int(duration) if is_duration else None,
    )


def succeeded(response: object) -> bool:
    """True if a tool's answer reports success, or neither success nor failure."""
    if isinstance(response, str):
        return not response.lstrip().startswith(("Error:", "<tool_use_error>"))
    if not isinstance(response, dict):
        return True
    if any(response.get(name) is True for name in ("is_error", "isError", "interrupted")):
        return False
    if response.get("success") is False or response.get("error"):
        return False
    code = next((response[name] for name in ("exitCode", "exit_code", "returnCode") if name in response), 0)
    return code in (0, None)


def summarized(response: object) -> str:
    if response is None:
        return ""
    text = texts_in(response)
    if isinstance(response, dict):
        outputs = [response.get(name) for name in ("stdout", "stderr", "error")]
        text = "\n".join(output for output in outputs if isinstance(output, str) and output.strip())
        text = text or texts_in(response.get("content")) or texts_in(response.get("llmContent"))
    return text.strip() or json.dumps(response, ensure_ascii=False)


LOOK_S: Final = 0.5
PAUSE_S: Final = 5.0
"""The pause before retrying an event that cannot be written now, for example because the disk is full."""
PRESENT_S: Final = 1800.0
"""A session counts as present for this long after its last event, unless it ends: people need time to think."""

logger = logging.getLogger(__name__)


class HookIntake:
    """`apply` makes an operation durable, or raises an error. `shown` is called with the operation, the memories that a
    hook gave to its session, the prompt or action, and True if there are no other memories."""

    def __init__(
        self,
        directory: Path,
        apply: Callable[[Operation, float], Awaitable[object]],
        shown: Callable[[Operation, Sequence[str], str, bool], None],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._directory = directory
        self._apply = apply
        self._shown = shown
        self._clock = clock
        self._last_events: dict[tuple[str, str], tuple[float, ProjectRef]] = {}

    def present(self) -> list[tuple[ProjectRef, str]]:
        """The sessions with recent events, because a session without a bridge is not abandoned between two prompts."""
        now = self._clock()
        self._last_events = {key: last for key, last in self._last_events.items() if now - last[0] < PRESENT_S}
        return [(project, session) for (_, session), (_, project) in self._last_events.items()]

    async def run(self) -> None:
        while True:
            try:
                await self.take_all()
            except (RemembrancerError, OSError) as error:
                logger.warning("hook events have to wait", extra={"reason": str(error)})
                await anyio.sleep(PAUSE_S)
            await anyio.sleep(LOOK_S)

    async def take_all(self) -> None:
        """Record all waiting events in order. If one cannot be written now, raises the error and keeps the rest."""
        try:
            with os.scandir(self._directory) as entries:  # including unreadable files, which are removed
                files = [entry.name for entry in entries if entry.is_file(follow_symlinks=False)]
        except FileNotFoundError:
            return
        for name in sorted(files):
            if not name.startswith("."):  # otherwise it is unfinished
                await self._take(name)

    async def _take(self, name: str) -> None:
        path = self._directory / name
        try:
            event, operation = await anyio.to_thread.run_sync(_read, path)
            with anyio.CancelScope(shield=True):  # a write must not be cancelled half-way, and has its own time limit
                await self._apply(operation, self._clock())
            if event.event == CONTEXT_GIVEN:
                given = event.given["metadata"]
                question, is_all = event.given.get("question", ""), given.get("is_all", False)
                self._shown(operation, given["memories"], question, is_all)
        except FileNotFoundError:
            return
        except OSError:
            raise
        except RemembrancerError as error:
            if error.retry_possible:
                raise
            logger.warning("a hook event was rejected", extra={"file": name, "reason": error.message})
        except Exception:
            logger.exception("a hook event could not be recorded", extra={"file": name})
        else:
            key = (operation.project.id, operation.session_id)
            if isinstance(operation.change, EndSession):
                self._last_events.pop(key, None)
            else:
                self._last_events[key] = (operation.requested_at, operation.project)
        path.unlink(missing_ok=True)


def _read(path: Path) -> tuple[HookEvent, Operation]:
    if path.lstat().st_size > MAX_EVENT_BYTES:
        raise InvalidInput(f"it has more than {MAX_EVENT_BYTES} bytes")
    event = read_event(path.read_bytes())
    return event, to_operation(path.name, event)
