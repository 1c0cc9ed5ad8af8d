"""What a client's hook is told on its standard input, made into the event that is kept. Pure. Standard library only.

The form is Claude Code's: `session_id`, `cwd`, `hook_event_name`, and `prompt`, `tool_name`, `tool_input`,
`tool_response`, `last_assistant_message` or `transcript_path` by event (https://code.claude.com/docs/en/hooks).
"""

from __future__ import annotations

import json

from remembrancer.protocol import hooks
from remembrancer.protocol.hooks import MAX_TOOL_BYTES, MAX_TURN_BYTES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    Given = Mapping[str, Any]

MAX_NAME = 200
DEEPEST = 6
LONGEST_LIST = 50
LARGEST_INTEGER = 2**63 - 1
STRING_LIMITS = (1000, 300, 100, 30)
"""Characters that are kept of each text among a tool's arguments: the first limit with which all of them fit."""


class NoEvent(Exception):
    """There is nothing to record in this input, and why."""


def session_of(given: Given, environ: Mapping[str, str]) -> str:
    """The session that an event belongs to: named by the same variables as for the bridge, or else by the client.

    Raises:
        NoEvent: nobody names one.
    """
    named = environ.get("REMEMBRANCER_SESSION_ID") or environ.get("MEMORY_SESSION_ID")
    session = named or given.get("session_id") or environ.get("CLAUDE_CODE_SESSION_ID")
    if not isinstance(session, str) or not session.strip():
        raise NoEvent("the input names no session_id")
    return whole(session)


def directory_of(given: Given, environ: Mapping[str, str], here: str) -> str:
    """The directory whose project an event belongs to: the client's project, a variable, where the client is, `here`.

    The client's own project goes first, as its roots do for the bridge: `cwd` follows every `cd` of the assistant.
    """
    for named in (environ.get("CLAUDE_PROJECT_DIR"), environ.get("REMEMBRANCER_PROJECT"), given.get("cwd")):
        if isinstance(named, str) and named.strip() and "\0" not in named:
            return named
    return here


def to_event(
    event: str, given: Given, session: str, directory: str, now: float, read_tail: Callable[[str], bytes]
) -> dict[str, Any]:
    """The event as it is kept. `read_tail` gives the end of a transcript, given its path.

    Raises:
        NoEvent: the input lacks what such an event is about.
    """
    about: dict[str, Any]
    match event:
        case hooks.SESSION_START | hooks.SESSION_END:
            about = _metadata(given, "source", "reason")
        case hooks.PROMPT:
            about = {"text": _turn(given.get("prompt"), "the input has no prompt")}
        case hooks.STOP | hooks.SUBAGENT_STOP:
            about = _said(event, given, read_tail)
        case hooks.TOOL_BEGINS | hooks.TOOL_DONE | hooks.TOOL_FAILED:
            about = _tool_call(event, given)
        case _:
            raise NoEvent(f"the event {event[:60]!r} is not known")
    return {"format": hooks.FORMAT, "event": event, "at": now, "session": session, "directory": directory, **about}


def tool_key(given: Given, session: str) -> str:
    """A name for one call of a tool, the same before and after it: by its id, or else by what is called."""
    from binascii import crc32

    told = given.get("tool_use_id") or json.dumps([given.get("tool_name"), given.get("tool_input")])
    return f"{crc32(session.encode()):08x}-{crc32(str(told).encode('utf-8', 'replace')):08x}"


def _turn(text: object, otherwise: str) -> str:
    if not isinstance(text, str) or not text.strip():
        raise NoEvent(otherwise)
    return cut(text, MAX_TURN_BYTES)


def _metadata(given: Given, *names: str) -> dict[str, Any]:
    found = {name: cut(given[name], MAX_NAME) for name in names if isinstance(given.get(name), str) and given[name]}
    return {"metadata": found} if found else {}


def _said(event: str, given: Given, read_tail: Callable[[str], bytes]) -> dict[str, Any]:
    """What the assistant said last: the client says it, or else its transcript does."""
    text = given.get("last_assistant_message")
    if not isinstance(text, str) or not text.strip():
        is_subagent = event == hooks.SUBAGENT_STOP
        own = given.get("agent_transcript_path") if is_subagent else None
        path = own or given.get("transcript_path")
        text = last_said(read_tail(path), sidechain=is_subagent) if isinstance(path, str) and path else None
    about = {"text": _turn(text, "the assistant has said nothing that can be found")}
    return {**about, **(_metadata(given, "agent_type", "agent_id") if event == hooks.SUBAGENT_STOP else {})}


def last_said(tail: bytes, *, sidechain: bool) -> str | None:
    """The text that the assistant (or, in a sidechain, its subagent) said last, by the end of a transcript.

    A transcript is JSON Lines; the first line of its end may be half of one. Lines of another form are passed over.
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
    """The text of a message's or an answer's content: a text, or a list of blocks of which some are texts."""
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
    if event == hooks.TOOL_BEGINS:
        return about
    response = given.get("error") if event == hooks.TOOL_FAILED else given.get("tool_response")
    summary = summarized(response)
    if summary:
        about["result"] = summary
    about["success"] = event == hooks.TOOL_DONE and succeeded(response)
    duration = given.get("duration_ms")
    if isinstance(duration, int | float) and 0 <= duration < LARGEST_INTEGER:
        about["duration_ms"] = int(duration)
    return about


def succeeded(response: object) -> bool:
    """Whether a tool's answer says that it did what it should. An answer that says nothing of it has succeeded."""
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
    """The text of a tool's answer, as far as it is kept; empty where it has none."""
    if response is None:
        return ""
    text = _text_of(response)
    if isinstance(response, dict):
        outputs = [response.get(name) for name in ("stdout", "stderr", "error")]
        text = "\n".join(output for output in outputs if isinstance(output, str) and output.strip())
        text = text or _text_of(response.get("content"))
    return cut(text.strip() or json.dumps(response, ensure_ascii=False), MAX_TOOL_BYTES)


def shortened(arguments: dict[str, Any]) -> dict[str, Any]:
    """A tool's arguments within their limit: long texts and lists are cut short until all of them fit."""
    for longest in STRING_LIMITS:
        short = _short(arguments, longest, DEEPEST)
        if len(json.dumps(short, ensure_ascii=False).encode()) <= MAX_TOOL_BYTES:
            found: dict[str, Any] = short
            return found
    return {"cut": cut(json.dumps(_short(arguments, STRING_LIMITS[-1], DEEPEST), ensure_ascii=False), MAX_TOOL_BYTES)}


def _short(value: Any, longest: int, deep: int) -> Any:
    """A value of which every part can be sent: no endless text, no half character, no number beyond 64 bits."""
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
    """The beginning of a text, of at most `limit_bytes` in UTF-8 and a few words that say how much is missing."""
    encoded = whole(text).encode()
    if len(encoded) <= limit_bytes:
        return encoded.decode()
    kept = encoded[:limit_bytes].decode("utf-8", "ignore")
    return f"{kept}… ({len(encoded) - limit_bytes} bytes more)"


def whole(text: str) -> str:
    """A text without what cannot be kept: halves of characters and NULs become question marks."""
    return text.encode("utf-8", "replace").decode().replace("\0", "?")
