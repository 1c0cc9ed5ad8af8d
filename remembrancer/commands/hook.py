"""`remembrancer hook`: record an event of a client's session, and tell it what the memory knows at its start.

A client waits for its hooks. So this is the standard library and little of it, the record is one small file in a
private directory of the home that the gateway takes in later, and nothing that goes wrong is the session's concern: the
exit status is 0, and a line on standard error says what it was. An event is there as soon as its file has its name; it
survives the end of every process, though not a loss of power within the next seconds.

The input's form is Claude Code's (https://code.claude.com/docs/en/hooks).
"""

# ruff: noqa: PTH102, PTH103, PTH104, PTH108, PTH118, PTH120, PTH123, PTH208
from __future__ import annotations

import json
import os
import select
import stat
import time

from remembrancer.actors.bridge.places import find_places, working_directory
from remembrancer.protocol import gateway_link as link
from remembrancer.protocol.gateway_link import (
    DROPPED,
    HOOK_EVENTS,
    HOOK_SUFFIX,
    MAX_TOOL_BYTES,
    MAX_TURN_BYTES,
    MAX_WAITING_EVENTS,
    PROMPT,
    RUNNING,
    SESSION_START,
    TOOL_BEGINS,
    TOOL_DONE,
    TOOL_FAILED,
    event_name,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from remembrancer.actors.bridge.places import Places

    Given = Mapping[str, Any]
MAX_NAME = 200
DEEPEST = 6
LONGEST_LIST = 50
LARGEST_INTEGER = 2**63 - 1
STRING_LIMITS = (1000, 300, 100, 30)
"""Characters that are kept of each text among a tool's arguments: the first limit with which all of them fit."""
MAX_RUNNING = 1000
"""Notes on tools that have begun. Of a tool that is never done, because it was refused say, the note stays."""
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
INPUT_BYTES = 16 * 1024 * 1024
INPUT_WAIT_S = 2.0
"""How long the input may take to come, and how much of it is looked at."""
TAIL_BYTES = 256 * 1024
"""How much of the end of a transcript is looked at for what was said last."""
WAIT_FOR_CONTEXT_S = {SESSION_START: 2.0, PROMPT: 0.3}
"""The events at which a client takes context, and how long it is made to wait for it, from the start of the hook."""
USAGE = f"""usage: remembrancer hook <event>  (its input, a JSON object, comes on standard input)

Record an event of an assistant's session; 'remembrancer setup claude-code --hooks' has Claude Code say them.
At SessionStart and UserPromptSubmit, what is remembered is printed for the assistant.

events: {", ".join(HOOK_EVENTS)}

exit status: always 0, so that no session fails because of its memory; standard error says what went wrong
"""


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
        case link.SESSION_START | link.SESSION_END:
            about = _metadata(given, "source", "reason")
        case link.PROMPT:
            about = {"text": _turn(given.get("prompt"), "the input has no prompt")}
        case link.STOP | link.SUBAGENT_STOP:
            about = _said(event, given, read_tail)
        case link.TOOL_BEGINS | link.TOOL_DONE | link.TOOL_FAILED:
            about = _tool_call(event, given)
        case _:
            raise NoEvent(f"the event {event[:60]!r} is not known")
    return {"format": link.HOOK_FORMAT, "event": event, "at": now, "session": session, "directory": directory, **about}


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
        is_subagent = event == link.SUBAGENT_STOP
        own = given.get("agent_transcript_path") if is_subagent else None
        path = own or given.get("transcript_path")
        text = last_said(read_tail(path), sidechain=is_subagent) if isinstance(path, str) and path else None
    about = {"text": _turn(text, "the assistant has said nothing that can be found")}
    return {**about, **(_metadata(given, "agent_type", "agent_id") if event == link.SUBAGENT_STOP else {})}


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
    if event == link.TOOL_BEGINS:
        return about
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


def leave(directory: str, event: dict[str, Any], now_ns: int) -> None:
    """Leave an event for the gateway. `now_ns` is the time in nanoseconds since the epoch.

    Raises:
        OSError: it cannot be written, or others may write there.
    """
    _make_private(directory)
    waiting = [name for name in os.listdir(directory) if name.endswith(HOOK_SUFFIX)]
    if len(waiting) >= MAX_WAITING_EVENTS:
        _drop(directory, sorted(waiting)[: len(waiting) - MAX_WAITING_EVENTS + 1])
    name = event_name(now_ns, os.urandom(4).hex())
    unnamed = os.path.join(directory, f".{name}")
    _write_new(unnamed, json.dumps(event, separators=(",", ":")).encode())
    os.rename(unnamed, os.path.join(directory, name))


def note_beginning(directory: str, key: str, now_ns: int) -> None:
    """Note that a tool begins. Raises as `leave`."""
    _make_private(directory)
    running = os.path.join(directory, RUNNING)
    _make_private(running)
    notes = os.listdir(running)
    if len(notes) >= MAX_RUNNING:
        for name in sorted(notes, key=lambda name: _changed_at(os.path.join(running, name)))[: len(notes) // 2]:
            _remove(os.path.join(running, name))
    path = os.path.join(running, key)
    _remove(path)
    _write_new(path, b"%d" % now_ns)


def take_duration_ms(directory: str, key: str, now_ns: int) -> int | None:
    """How long the tool took that began under this key; None when nobody noted it."""
    path = os.path.join(directory, RUNNING, key)
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        began_ns = int(os.read(descriptor, 32))
    except (OSError, ValueError):
        return None
    finally:
        os.close(descriptor)
        _remove(path)
    return max(0, (now_ns - began_ns) // 1_000_000)


def _make_private(directory: str) -> None:
    """Make a directory for this user alone. The home is made, too: a hook may be the first to want it."""
    try:
        os.mkdir(directory, 0o700)
    except FileExistsError:
        pass
    except FileNotFoundError:
        os.makedirs(os.path.dirname(directory), mode=0o700, exist_ok=True)
        os.mkdir(directory, 0o700)
    about = os.lstat(directory)
    if not stat.S_ISDIR(about.st_mode) or about.st_uid != os.getuid() or about.st_mode & 0o077:
        raise PermissionError(f"{directory} is not a directory of this user alone")


def _drop(directory: str, names: list[str]) -> None:
    """Take the oldest events away, and count them for the gateway."""
    counted = os.open(
        os.path.join(directory, DROPPED), os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600
    )
    try:
        for name in names:
            if _remove(os.path.join(directory, name)):
                os.write(counted, b".")
    finally:
        os.close(counted)


def _write_new(path: str, content: bytes) -> None:
    descriptor = os.open(path, _NEW, 0o600)
    try:
        left = memoryview(content)
        while left:
            left = left[os.write(descriptor, left) :]
    except OSError:
        _remove(path)
        raise
    finally:
        os.close(descriptor)


def _remove(path: str) -> bool:
    try:
        os.unlink(path)
    except OSError:  # somebody else was faster
        return False
    return True


def _changed_at(path: str) -> float:
    try:
        return os.lstat(path).st_mtime
    except OSError:
        return 0.0


def main(argv: list[str]) -> int:
    """Record the event that `argv` names, or the input itself. Returns 0, whatever happens."""
    began = time.monotonic()
    try:
        if argv[:1] in (["-h"], ["--help"]):
            _write(1, USAGE)
        else:
            _hear(argv[0] if argv else None, os.environ, began)
    except Exception as error:  # noqa: BLE001 - the session must go on, and the line says what was wrong
        _complain(f"the event is not recorded: {error or 'something unexpected went wrong'}")
    return 0


def _hear(named: str | None, environ: Mapping[str, str], began: float) -> None:
    given = _parsed(_read_input(began + INPUT_WAIT_S))
    event = named if named in HOOK_EVENTS else given.get("hook_event_name")
    if event not in HOOK_EVENTS:
        _complain(f"the event {str(named or event)[:60]!r} is not known, and nothing is recorded of it")
        return
    places = find_places(environ)
    session, directory = session_of(given, environ), directory_of(given, environ, working_directory(environ))
    text = ""
    try:
        text = _record(event, given, session, directory, places)
    except (NoEvent, OSError) as error:
        _complain(f"{event} is not recorded: {error}")
    if event in WAIT_FOR_CONTEXT_S:
        _tell(event, text, places, environ, session, directory, began + WAIT_FOR_CONTEXT_S[event])


def _record(event: str, given: Mapping[str, Any], session: str, directory: str, places: Places) -> str:
    """Leave the event for the gateway; returns its text, if it has any.

    Raises:
        NoEvent: there is nothing to record.
        OSError: it cannot be written.
    """
    now_ns = time.time_ns()
    kept = to_event(event, given, session, directory, now_ns / 1e9, _read_tail)
    if places.on_disk != places.home and not os.path.isdir(places.home):  # noqa: PTH112 - pathlib costs as much as all
        raise NoEvent("the memory is kept in memory, and no runtime is up")
    spool = os.path.join(places.home, "hooks")
    if event == TOOL_BEGINS:
        note_beginning(spool, tool_key(given, session), now_ns)
        return ""
    if event in (TOOL_DONE, TOOL_FAILED):
        took_ms = take_duration_ms(spool, tool_key(given, session), now_ns)
        if took_ms is not None:
            kept.setdefault("duration_ms", took_ms)
    leave(spool, kept, now_ns)
    return str(kept.get("text", ""))


def _tell(
    event: str, text: str, places: Places, environ: Mapping[str, str], session: str, directory: str, until: float
) -> None:
    """Print what is remembered, in the form in which a client takes it (additionalContext)."""
    if event == PROMPT and not os.path.exists(places.gateway_socket):  # noqa: PTH110 - as above
        return  # what follows would cost a third of all that it takes to record
    from remembrancer.commands.hook_context import ask, question, tokens_wanted

    tokens = tokens_wanted(places, environ)
    if tokens == 0 or (event == PROMPT and not text):
        return
    starts = event == SESSION_START
    block = ask(places, environ, session, directory, question(event, text, tokens), until, starts=starts)
    if block is not None:
        output = {"hookSpecificOutput": {"hookEventName": event, "additionalContext": block}}
        _write(1, json.dumps(output) + "\n")


def _parsed(data: bytes) -> dict[str, Any]:
    """The object in the input. Raises `ValueError`: there is none."""
    if not data.strip():
        raise ValueError("there is no input: a client's hook gives a JSON object on standard input")
    try:
        given = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"the input is not JSON ({error})") from None
    if not isinstance(given, dict):
        raise ValueError("the input is not a JSON object")
    return given


def _read_input(until: float) -> bytes:
    """Standard input to its end, or as much as there is at `until`."""
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
    return bytes(data)  # somebody keeps the pipe open: what is there may be all of it


def _read_tail(path: str) -> bytes:
    """The end of a transcript; nothing when it cannot be read."""
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
    """Write past Python's own streams, whose end would complain about a reader that has gone."""
    left = memoryview(text.encode("utf-8", "replace"))
    try:
        while left:
            left = left[os.write(descriptor, left) :]
    except OSError:  # nobody reads it
        return
