"""`remembrancer hook`: records an event of a client's session, and gives the assistant context from memory.

A client waits for its hooks, so this module uses little of the standard library and nothing else. The record is one
small file in a private directory of the home, which the gateway reads later. No failure may disturb the session: the
exit status is 0, and a line on standard error describes the problem.

The format of the input is Claude Code's (https://code.claude.com/docs/en/hooks), which Codex, VS Code and Qwen Code
share. Those of Gemini CLI (https://geminicli.com/docs/hooks/reference) and Cursor (https://cursor.com/docs/hooks) are
translated by the tables of names below.
"""

# ruff: noqa: PTH123
from __future__ import annotations

import json
import os
import select
import sys
import time

from remembrancer.actors.bridge.places import find_places, working_directory
from remembrancer.commands.hook_files import Session, leave
from remembrancer.protocol import gateway_link as link
from remembrancer.protocol.gateway_link import (
    COMPACTED,
    COMPACTS,
    GIVEN,
    HOOK_EVENTS,
    MAX_TOOL_BYTES,
    MAX_TURN_BYTES,
    PROMPT,
    SESSION_START,
    TOOL_BEGINS,
    TOOL_DONE,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    Given = Mapping[str, Any]
MAX_NAME = 200
DEEPEST = 6
LONGEST_LIST = 50
LARGEST_INTEGER = 2**63 - 1
STRING_LIMITS = (1000, 100)
"""Limits for the length of each text in a tool's arguments: the first with which all of them fit is used."""
AGAIN = b"again"
"""The note on a session whose conversation has lost its context."""
INPUT_BYTES = 16 * 1024 * 1024
INPUT_WAIT_S = 2.0
"""The time to wait for the input, and the number of bytes read from it."""
TAIL_BYTES = 256 * 1024
"""The number of bytes at the end of a transcript in which the last message is looked for."""
CURSOR, VSCODE, CLAUDE_CODE = "cursor", "vscode", "claude-code"
EVENTS_BY_NAME = {
    **{event: event for event in HOOK_EVENTS},
    **{event[0].lower() + event[1:]: event for event in HOOK_EVENTS},
    **{"BeforeAgent": PROMPT, "AfterAgent": link.STOP, "BeforeTool": TOOL_BEGINS, "AfterTool": TOOL_DONE},
    **{"beforeSubmitPrompt": PROMPT, "afterAgentResponse": link.STOP},
}
"""The events by their names in all clients. Cursor's begin with a small letter, Gemini CLI has different words. Its
`PreCompress` is left out, because it fires on every turn, whether or not anything is compressed."""
OTHER_NAMES = {
    "session_id": ("sessionId", "conversation_id"),
    "hook_event_name": ("hookEventName",),
    "last_assistant_message": ("prompt_response", "text"),
    "tool_response": ("tool_output",),
    "duration_ms": ("duration",),
}
"""The names of input fields in other clients."""
USAGE = f"""usage: remembrancer hook <event> [<client>]  (its input, a JSON object, comes on standard input)

Record an event of an assistant's session; 'remembrancer setup CLIENT --hooks' has a client report them.
Print memories for the assistant: at the first prompt those for the task, later new ones that probably answer, and
before a command or an edit those about it.

events: {", ".join(HOOK_EVENTS)}; those of Gemini CLI and Cursor by their own names

exit status: always 0, so that no session fails because of its memory; errors go to standard error
"""


class NoEvent(Exception):
    """The input holds no event to record; the message says why."""


def in_our_words(given: Given) -> dict[str, Any]:
    """The input with our names for its fields."""
    renamed = dict(given)
    for ours, others in OTHER_NAMES.items():
        for name in others:
            if name in given:
                renamed.setdefault(ours, given[name])
    return renamed


def client_of(named: str | None, given: Given) -> str:
    """The client that sent an event: named by its hook's command, or else guessed from the form of the input.

    Cursor and VS Code also run the hooks in Claude Code's settings, whose commands name no client.
    """
    return named or (CURSOR if "cursor_version" in given else VSCODE if "hookEventName" in given else CLAUDE_CODE)


def session_of(given: Given, environ: Mapping[str, str]) -> str:
    """The session that an event belongs to: named by the same variables as for the bridge, or else by the client.

    Raises:
        NoEvent: nothing names one.
    """
    named = environ.get("REMEMBRANCER_SESSION_ID") or environ.get("MEMORY_SESSION_ID")
    session = named or given.get("session_id") or environ.get("CLAUDE_CODE_SESSION_ID")
    if not isinstance(session, str) or not session.strip():
        raise NoEvent("the input names no session_id")
    return whole(session)


def directory_of(given: Given, environ: Mapping[str, str], here: str) -> str:
    """The directory whose project an event belongs to: the client's project, a variable, the client's working
    directory, or `here`.

    The client's project has priority, as its roots have for the bridge, because `cwd` follows every `cd` of the
    assistant.
    """
    roots = given.get("workspace_roots")
    root = roots[0] if isinstance(roots, list) and roots else None
    for named in (environ.get("CLAUDE_PROJECT_DIR"), environ.get("REMEMBRANCER_PROJECT"), root, given.get("cwd")):
        if isinstance(named, str) and named.strip() and "\0" not in named:
            return named
    return here


def to_event(
    event: str, given: Given, session: str, directory: str, now: float, read_tail: Callable[[str], bytes]
) -> dict[str, Any]:
    """The event in its stored form. `read_tail` returns the end of the transcript at a path.

    Raises:
        NoEvent: the input lacks the data for such an event.
    """
    about: dict[str, Any]
    match event:
        case link.SESSION_START | link.SESSION_END:
            about = _metadata(given, "source", "reason")
        case link.PROMPT:
            about = {"text": _turn(given.get("prompt"), "the input has no prompt")}
        case link.STOP | link.SUBAGENT_STOP:
            about = _last_message(event, given, read_tail)
        case link.COMPACTED:
            about = {"text": _turn(given.get("compact_summary"), "the input has no summary")}
            about |= _metadata(given, "trigger")
        case link.TOOL_DONE | link.TOOL_FAILED:
            about = _tool_call(event, given)
        case _:
            raise NoEvent(f"the event {event[:60]!r} is not known")
    return {"format": link.HOOK_FORMAT, "event": event, "at": now, "session": session, "directory": directory, **about}


def _turn(text: object, otherwise: str) -> str:
    if not isinstance(text, str) or not text.strip():
        raise NoEvent(otherwise)
    return cut(text, MAX_TURN_BYTES)


def _metadata(given: Given, *names: str) -> dict[str, Any]:
    metadata = {name: cut(given[name], MAX_NAME) for name in names if isinstance(given.get(name), str) and given[name]}
    return {"metadata": metadata} if metadata else {}


def _last_message(event: str, given: Given, read_tail: Callable[[str], bytes]) -> dict[str, Any]:
    """The assistant's last message, from the client or else from its transcript."""
    text = given.get("last_assistant_message")
    if not isinstance(text, str) or not text.strip():
        is_subagent = event == link.SUBAGENT_STOP
        own = given.get("agent_transcript_path") if is_subagent else None
        path = own or given.get("transcript_path")
        text = last_said(read_tail(path), sidechain=is_subagent) if isinstance(path, str) and path else None
    about = {"text": _turn(text, "the assistant's last message was not found")}
    return {**about, **(_metadata(given, "agent_type", "agent_id") if event == link.SUBAGENT_STOP else {})}


def last_said(tail: bytes, *, sidechain: bool) -> str | None:
    """The last text of the assistant (in a sidechain: of its subagent), from the end of a transcript.

    A transcript is JSON Lines; the first line of its tail may be incomplete. Lines in another form are skipped.
    """
    for line in reversed(tail.split(b"\n")):
        if b'"assistant"' not in line:
            continue
        try:
            entry = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if not isinstance(entry, dict) or entry.get("type") != "assistant":
            continue
        if bool(entry.get("isSidechain")) is not sidechain:
            continue
        message = entry.get("message")
        text = _text_of(message.get("content")) if isinstance(message, dict) else ""
        if text.strip():
            return text
    return None


def _text_of(content: object) -> str:
    """The text in the content of a message or an answer: a text, or a list of blocks, some of which are texts."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    texts = [block.get("text") for block in content if isinstance(block, dict) and block.get("type") == "text"]
    return "\n".join(text for text in texts if isinstance(text, str))


def _tool_call(event: str, given: Given) -> dict[str, Any]:
    name = given.get("tool_name")
    if not isinstance(name, str) or not name.strip():
        raise NoEvent("the input has no tool_name")
    about: dict[str, Any] = {"tool": cut(name, MAX_NAME)}
    arguments = given.get("tool_input")
    if isinstance(arguments, dict) and arguments:
        about["arguments"] = shortened(arguments)
    response = given.get("error") if event == link.TOOL_FAILED else given.get("tool_response")
    summary = summarized(response)
    if summary:
        about["result"] = summary
    about["success"] = event == link.TOOL_DONE and succeeded(response)
    duration = given.get("duration_ms")
    if isinstance(duration, int | float) and 0 <= duration < LARGEST_INTEGER:
        about["duration_ms"] = int(duration)
    return about


def succeeded(response: object) -> bool:
    """True if a tool's answer reports success, or reports neither success nor failure."""
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
    """The text of a tool's answer, shortened; empty if it has none."""
    if response is None:
        return ""
    text = _text_of(response)
    if isinstance(response, dict):
        outputs = [response.get(name) for name in ("stdout", "stderr", "error")]
        text = "\n".join(output for output in outputs if isinstance(output, str) and output.strip())
        text = text or _text_of(response.get("content")) or _text_of(response.get("llmContent"))
    return cut(text.strip() or json.dumps(response, ensure_ascii=False), MAX_TOOL_BYTES)


def shortened(arguments: dict[str, Any]) -> dict[str, Any]:
    """A tool's arguments within their size limit: long texts and lists are cut until everything fits."""
    for longest in STRING_LIMITS:
        short = _short(arguments, longest, DEEPEST)
        if len(json.dumps(short, ensure_ascii=False).encode()) <= MAX_TOOL_BYTES:
            cut_arguments: dict[str, Any] = short
            return cut_arguments
    return {"cut": cut(json.dumps(_short(arguments, STRING_LIMITS[-1], DEEPEST), ensure_ascii=False), MAX_TOOL_BYTES)}


def _short(value: Any, longest: int, deep: int) -> Any:
    """A value that can be encoded: no overlong text, no lone surrogate, no number beyond 64 bits."""
    if isinstance(value, str):
        return whole(value) if len(value) <= longest else f"{whole(value[:longest])}… ({len(value)} characters)"
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) > LARGEST_INTEGER:
        return cut(hex(value), longest)
    if isinstance(value, list):
        if deep == 0:
            return f"({len(value)} items)"
        return [_short(each, longest, deep - 1) for each in value[:LONGEST_LIST]]
    if isinstance(value, dict):
        if deep == 0:
            return f"({len(value)} members)"
        members = list(value.items())[:LONGEST_LIST]
        return {whole(name[:longest]): _short(each, longest, deep - 1) for name, each in members}
    return value


def cut(text: str, limit_bytes: int) -> str:
    """The beginning of a text, in at most `limit_bytes` of UTF-8 plus a note about the missing rest."""
    encoded = whole(text).encode()
    if len(encoded) <= limit_bytes:
        return encoded.decode()
    beginning = encoded[:limit_bytes].decode("utf-8", "ignore")
    return f"{beginning}… ({len(encoded) - limit_bytes} bytes more)"


def whole(text: str) -> str:
    """A text with question marks in place of characters that cannot be stored: lone surrogates and NULs."""
    return text.encode("utf-8", "replace").decode().replace("\0", "?")


def main(argv: list[str]) -> int:
    """Record the event that `argv` or the input names. Returns 0, whatever happens."""
    began, failure = _started(), "the event is not recorded"
    try:
        if argv[:1] in (["-h"], ["--help"]):
            _write(1, USAGE)
        elif (give := _hear([*argv, None, None], os.environ, began)) is not None:
            failure = "no context is given"
            give()
    except Exception as error:  # noqa: BLE001 - the session must go on, and the line says what was wrong
        _complain(f"{failure}: {error or 'an unexpected error'}")
    return 0


def _started() -> float:
    """The monotonic time at which this process was started. The start of Python counts, because the session waits for
    it and it takes a while on a busy machine. From the kernel (proc(5), field 22), or else estimated from the CPU time.
    """
    if sys.platform == "linux":
        try:
            with open("/proc/self/stat", "rb", buffering=0) as file:
                ticks = int(file.read().rpartition(b")")[2].split()[19])
            return time.monotonic() - time.clock_gettime(time.CLOCK_BOOTTIME) + ticks / os.sysconf("SC_CLK_TCK")
        except (OSError, ValueError):
            pass
    return time.monotonic() - time.process_time()


def _hear(argv: list[str | None], environ: Mapping[str, str], began: float) -> Callable[[], None] | None:
    """Record the event. Returns the function that then gives the assistant the memories that are due."""
    raw = _parsed(_read_input(began + INPUT_WAIT_S))
    given = in_our_words(raw)
    name = argv[0] if argv[0] in EVENTS_BY_NAME else given.get("hook_event_name")
    event = EVENTS_BY_NAME.get(name) if isinstance(name, str) else None
    if event is None:
        _complain(f"unknown event {str(argv[0] or name)[:60]!r}: nothing is recorded")
        return None
    directory = directory_of(given, environ, working_directory(environ))
    if not os.path.isdir(directory):  # noqa: PTH112 - pathlib costs as much as all
        directory = working_directory(environ)
    session = Session(
        find_places(environ), environ, client_of(argv[1], raw), session_of(given, environ), directory, began
    )
    if event in (COMPACTS, COMPACTED):  # the conversation has lost the memories that it had
        session.note("given", AGAIN)
    try:
        recorded = _record(event, given, session)
    except (NoEvent, OSError) as error:
        _complain(f"{event} is not recorded: {error}")
        recorded = None

    def give() -> None:
        output = None
        if event == SESSION_START or (event == PROMPT and recorded is not None):
            text = str(recorded["text"]) if recorded is not None and event == PROMPT else ""
            is_due = event == PROMPT or begins_anew(session.client, given)
            context = _context_for(event, text, session, is_due=is_due)
            output = _as_output(session.client, str(name), context) if context is not None else None
        if event == TOOL_BEGINS and isinstance(given.get("tool_input"), dict):
            about = _before_action(given["tool_input"], session)
            output = {"hookSpecificOutput": {"hookEventName": str(name), **about}} if about is not None else None
        if output is not None:
            _write(1, json.dumps(output) + "\n")

    return give


def begins_anew(client: str, given: Given) -> bool:
    """True if the assistant gets its context at the session's start instead of the first prompt: either its
    conversation was just compacted and continues without a prompt, or its client accepts no context with a prompt (VS
    Code)."""
    return given.get("source") == "compact" or client == VSCODE


def _record(event: str, given: Given, session: Session) -> dict[str, Any] | None:
    """Leave the event for the gateway. Returns it in its stored form, or None if it is not stored.

    Raises:
        NoEvent: there is nothing to record.
        OSError: it cannot be written.
    """
    now_ns = time.time_ns()
    if event in (COMPACTS, TOOL_BEGINS):
        return None  # only the end is recorded
    kept = to_event(event, given, session.name, session.directory, now_ns / 1e9, _read_tail)
    if session.client != CLAUDE_CODE:
        kept["client"] = session.client
    places = session.places
    if places.on_disk != places.home and not os.path.isdir(places.home):  # noqa: PTH112 - pathlib costs as much as all
        raise NoEvent("the memory is in RAM, and no runtime is up")
    leave(session.spool, kept, now_ns)
    return kept


def _context_for(event: str, text: str, session: Session, *, is_due: bool) -> str | None:
    """The memories for the assistant: with the first prompt everything relevant, later only likely and new memories.

    None if there are none, they are late, or none are due yet. In the last case a runtime is started if none is up, so
    that the first prompt finds one.
    """
    from remembrancer.commands.hook_context import ask, question, start, wanted

    tokens, wait_s, later_s = wanted(session.places, session.environ)
    if tokens == 0:
        return None
    if not is_due:
        start(session)
        return None
    before = session.noted("given")
    is_again = before == AGAIN
    had = [] if before is None or is_again else before.decode().split()
    is_first = before is None or is_again
    arguments = question(text, tokens, is_first=is_first, is_again=is_again)
    answer = ask(session, arguments, wait_s if is_first else later_s, is_first=is_first)
    if answer is None:
        return None
    new = [name for name in answer["memory_ids"] if name not in had]
    is_whole = is_first and not answer.get("degraded")
    if new or is_whole:
        session.note("given", " ".join([*had, *new]).encode())
    block: str = answer["context_block"]
    if not new:  # report an empty memory only once
        return block or None if is_whole else None
    now_ns = time.time_ns()
    count = f"{len(new)} {'memory' if len(new) == 1 else 'memories'}"
    given: dict[str, Any] = {"format": link.HOOK_FORMAT, "event": GIVEN, "at": now_ns / 1e9, "session": session.name}
    given |= {"text": f"{count} given with {event}", "metadata": {"memories": new}}
    leave(session.spool, given | {"directory": session.directory}, now_ns)
    return block


def _before_action(called: Given, session: Session) -> dict[str, str] | None:
    """The output for a command or an edit with relevant memories that this session has not seen before an action: the
    memories as context, or as a question to the user."""
    from remembrancer.commands.hook_context import NO_ASK, TOLD_BEFORE_TOOLS, action_of, ask_about_action

    action = action_of(called) if session.client in TOLD_BEFORE_TOOLS else None
    if action is None:
        return None
    before = (session.noted("acted") or b"").decode().split()
    answer = ask_about_action(session, action, before)
    if answer is None or not answer.get("memory_ids"):
        return None
    session.note("acted", " ".join([*before, *answer["memory_ids"]]).encode())
    if answer.get("ask") and session.client not in NO_ASK:
        return {"permissionDecision": "ask", "permissionDecisionReason": answer["context_block"]}
    return {"additionalContext": answer["context_block"]}


def _as_output(client: str, name: str, context: str) -> dict[str, Any]:
    """Context in the form that a client accepts. `name` is the client's name of the event."""
    if client == CURSOR:
        return {"continue": True, "additional_context": context}
    return {"hookSpecificOutput": {"hookEventName": name, "additionalContext": context}}


def _parsed(data: bytes) -> dict[str, Any]:
    """The object in the input. Raises `ValueError` if there is none."""
    if not data.strip():
        raise ValueError("there is no input: a hook needs a JSON object on standard input")
    try:
        given = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"the input is not JSON ({error})") from None
    if not isinstance(given, dict):
        raise ValueError("the input is not a JSON object")
    return given


def _read_input(until: float) -> bytes:
    """Standard input up to its end, or as much of it as has arrived at `until`."""
    if os.isatty(0):
        return b""
    data = bytearray()
    poll = select.poll()
    poll.register(0, select.POLLIN)
    while len(data) <= INPUT_BYTES and poll.poll(max(0.0, until - time.monotonic()) * 1000):
        read = os.read(0, 1024 * 1024)
        if not read:
            return bytes(data)
        data += read
    if len(data) > INPUT_BYTES:
        raise ValueError(f"the input has more than {INPUT_BYTES} bytes")
    return bytes(data)  # someone keeps the pipe open, but the input may be complete


def _read_tail(path: str) -> bytes:
    """The end of a transcript; empty if it cannot be read."""
    try:
        with open(os.path.expanduser(path), "rb", buffering=0) as file:  # noqa: PTH111 - as above
            size = os.fstat(file.fileno()).st_size
            file.seek(max(0, size - TAIL_BYTES))
            return file.read(TAIL_BYTES)
    except (OSError, ValueError):
        return b""


def _complain(text: str) -> None:
    _write(2, f"remembrancer hook: {text}\n")


def _write(descriptor: int, text: str) -> None:
    """Write without Python's own streams, which complain at exit if the reader has gone."""
    rest = memoryview(text.encode("utf-8", "replace"))
    try:
        while rest:
            rest = rest[os.write(descriptor, rest) :]
    except OSError:  # there is no reader
        return
