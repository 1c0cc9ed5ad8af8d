"""`remembrancer hook`: what a client's session tells of itself, recorded; and what the memory knows, told at its start.

A client waits for its hooks. So this is the standard library and little of it, the record is one small file that the
gateway takes in later, and nothing that goes wrong is the session's concern: the exit status is 0, and a line on
standard error says what it was.
"""

# ruff: noqa: PTH109, PTH118, PTH123
from __future__ import annotations

import json
import os
import select
import time

from remembrancer.actors.bridge.places import find_places
from remembrancer.commands.hook_input import NoEvent, directory_of, session_of, to_event, tool_key
from remembrancer.commands.hook_spool import leave, note_beginning, take_duration_ms
from remembrancer.protocol.hooks import EVENTS, PROMPT, SESSION_START, TOOL_BEGINS, TOOL_DONE, TOOL_FAILED

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from remembrancer.actors.bridge.places import Places

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

events: {", ".join(EVENTS)}

exit status: always 0, so that no session fails because of its memory; standard error says what went wrong
"""


def main(argv: list[str]) -> int:
    """Record the event that `argv` names, or the input itself. Returns 0, whatever happens."""
    began = time.monotonic()
    try:
        if argv[:1] in (["-h"], ["--help"]):
            _write(1, USAGE)
        else:
            _hear(argv[0] if argv else None, os.environ, began)
    except Exception as error:  # noqa: BLE001 - the session must go on, and the line says what was wrong
        _complain(f"{type(error).__name__}: {error}")
    return 0


def _hear(named: str | None, environ: Mapping[str, str], began: float) -> None:
    given = _parsed(_read_input(began + INPUT_WAIT_S))
    event = named if named in EVENTS else given.get("hook_event_name")
    if event not in EVENTS:
        _complain(f"the event {str(named or event)[:60]!r} is not known, and nothing is recorded of it")
        return
    places = find_places(environ)
    session, directory = session_of(given, environ), directory_of(given, environ, _here(environ))
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
    """The object in the input.

    Raises:
        ValueError: there is none.
    """
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


def _here(environ: Mapping[str, str]) -> str:
    try:
        return os.getcwd()
    except OSError:
        return environ.get("PWD") or "/"


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
