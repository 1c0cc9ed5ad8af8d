"""`remembrancer hook`: records an event of a client's session, and gives the assistant context from memory.

A client waits for its hooks, so this module uses little of the standard library and nothing else. The record is a small
file with the client's input in a private directory of the home; the gateway interprets it later. It survives the end of
every process, but not a power failure within the next seconds. No failure may disturb the session: the exit status is
0, and a line on standard error describes the problem.

The format of the input is Claude Code's (https://code.claude.com/docs/en/hooks), which Codex, VS Code and Qwen Code
share. Gemini CLI (https://geminicli.com/docs/hooks/reference) and Cursor (https://cursor.com/docs/hooks) have names of
their own.
"""

# ruff: noqa: PTH103, PTH104, PTH108, PTH112, PTH118, PTH120, PTH123, PTH208
from __future__ import annotations

import json
import os
import select
import stat
import time

from remembrancer.actors.bridge.places import find_places, working_directory
from remembrancer.protocol.gateway_link import CONTEXT_GIVEN, HOOK_EVENTS, HOOK_FORMAT, HOOK_SUFFIX

TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket
    from collections.abc import Mapping
    from typing import Any

    from remembrancer.actors.bridge.places import Places

    Given = Mapping[str, Any]
SESSION_START, PROMPT, TOOL_BEGINS = "SessionStart", "UserPromptSubmit", "PreToolUse"
COMPACTIONS = ("PreCompact", "PostCompact")
NOT_RECORDED = (TOOL_BEGINS, "PreCompact")
"""These events are not recorded, only the ones that mark their end."""
LONG_MEMBERS = frozenset({"prompt", "last_assistant_message", "prompt_response", "text", "compact_summary"})
LONG_MEMBER_BYTES, MEMBER_BYTES = 32 * 1024, 2 * 1024
"""The bytes that are kept of a turn, and of any other member of the input; the rest is cut, with a note."""
STRING_LIMITS = (2000, 1500, 1000, 500, 100)
"""Limits on the length of each text in a structured member: the first that makes all of them fit is used."""
LONGEST_LIST = 50
LARGEST_INTEGER = 2**63 - 1
CONTEXT_LOST = b"again"
"""The note on a session whose conversation has lost its context."""
INPUT_BYTES = 16 * 1024 * 1024
INPUT_WAIT_S = 2.0
"""The maximum size of the input, and the time to wait for it."""
MAX_WAITING_EVENTS = 5000
"""The maximum number of events that wait for a gateway; further ones are not recorded."""
MAX_NOTES = 1000
"""The number of notes on what sessions were given; then all are deleted, and present sessions get everything again."""
DEFAULT_TOKENS = 6000
"""The tool's default. A different length is passed on to it."""
LEAST_TOKENS, MOST_TOKENS = 100, 8000
"""The limits of the tool."""
DEFAULT_WAIT_S, LATER_WAIT_S = 1.5, 0.3
"""The time for the first prompt's context, which may include the start of the runtime, and the limit for later ones."""
STARTING = 4
"""On a busy machine, the start of this process and the runtime may take this many times as long before the first
prompt's context is requested: the assistant's own tools wait for the runtime as well."""
MOST_WAIT_S = 10.0
DEFAULT_ACTION_WAIT_S = 0.15
"""The time limit for memories about a command or an edit, from the hook's request."""
CONTEXT_BEFORE_TOOLS = ("claude-code", "codex", "vscode", "qwen-code")
"""The clients that accept context with a tool call; Codex does not support `ask`."""
NO_ASK = ("codex",)
LONGEST_TASK = 4000
"""The number of characters used of a prompt; searches use no more."""
SECTIONS_OF_A_PROMPT = ["preferences", "project_context", "relevant_procedures", "open_ends"]
"""The sections for a later prompt: the session knows what it did itself."""
AGAIN_S = 0.1
CURSOR, VSCODE, CLAUDE_CODE = "cursor", "vscode", "claude-code"
EVENTS_BY_NAME = {
    **{event: event for event in HOOK_EVENTS},
    **{event[0].lower() + event[1:]: event for event in HOOK_EVENTS},
    **{"BeforeAgent": PROMPT, "AfterAgent": "Stop", "BeforeTool": TOOL_BEGINS, "AfterTool": "PostToolUse"},
    **{"beforeSubmitPrompt": PROMPT, "afterAgentResponse": "Stop"},
}
"""The events by their names in all clients. Cursor's begin with a small letter, Gemini CLI has different words. Its
`PreCompress` is left out, because it fires on every turn, whether or not anything is compressed."""
USAGE = f"""usage: remembrancer hook <event> [<client>]

Record an event of an assistant's session, a JSON object on standard input, and
print memories for it; 'remembrancer setup CLIENT --hooks' sets this up.

events: {", ".join(HOOK_EVENTS[:4])},
{", ".join(HOOK_EVENTS[4:])};
those of Gemini CLI and Cursor by their own names

exit status: always 0, so that no session fails because of its memory
"""


class Session:
    """The session of an event. `began` is the start of this process (`time.monotonic`)."""

    def __init__(
        self, places: Places, environ: Mapping[str, str], client: str, name: str, directory: str, began: float
    ) -> None:
        self.places, self.environ, self.client = places, environ, client
        self.name, self.directory, self.began = name, directory, began
        self._spool = os.path.join(places.home, "hooks")
        self._notes = os.path.join(self._spool, "running")

    def leave(self, event: str, given: Mapping[str, Any]) -> None:
        """Leave an event for the gateway, with the client's input. Raises `OSError` if it cannot be written, too many
        wait already, other users may write there, or there is no home."""
        if self.places.on_disk != self.places.home and not os.path.isdir(self.places.home):
            raise FileNotFoundError("the memory is in RAM, and no runtime is up")
        _make_private(self._spool)
        if len(os.listdir(self._spool)) > MAX_WAITING_EVENTS:
            raise OSError(f"{MAX_WAITING_EVENTS} events wait already: 'remembrancer doctor' says why nobody reads them")
        now_ns = time.time_ns()
        about = {"format": HOOK_FORMAT, "event": event, "at": now_ns / 1e9, "session": self.name}
        about |= {"directory": self.directory, "client": self.client, "given": given}
        name = f"{now_ns:020d}-{os.urandom(4).hex()}{HOOK_SUFFIX}"
        unnamed = os.path.join(self._spool, f".{name}")
        _write_new(unnamed, json.dumps(about, separators=(",", ":")).encode())
        os.rename(unnamed, os.path.join(self._spool, name))

    def note(self, kind: str, content: bytes) -> None:
        """Note the ids that are given to the session. Raises as `leave`."""
        _make_private(self._spool)
        _make_private(self._notes)
        notes = os.listdir(self._notes)
        if len(notes) >= MAX_NOTES:
            for name in notes:
                _remove(os.path.join(self._notes, name))
        path = self._note(kind)
        _remove(path)
        _write_new(path, content)

    def noted(self, kind: str) -> bytes | None:
        """The ids that were given to the session; None if nothing was."""
        try:
            with open(self._note(kind), "rb", buffering=0) as file:
                return file.read()
        except OSError:
            return None

    def _note(self, kind: str) -> str:
        from binascii import crc32

        name, directory = self.name.encode(), self.directory.encode("utf-8", "replace")
        return os.path.join(self._notes, f"{kind}-{crc32(name):08x}-{crc32(directory):08x}")


def client_of(named: str, given: Given) -> str:
    """The client that sent an event: named by its hook's command, or else guessed from the form of the input. (Cursor
    and VS Code also run the hooks in Claude Code's settings, whose commands name no client.)"""
    return named or (CURSOR if "cursor_version" in given else VSCODE if "hookEventName" in given else CLAUDE_CODE)


def session_of(given: Given, environ: Mapping[str, str]) -> str:
    """The session that an event belongs to: named by the same variables as for the bridge, or else by the client.
    Raises `ValueError` if nothing names one."""
    named = environ.get("REMEMBRANCER_SESSION_ID") or environ.get("MEMORY_SESSION_ID")
    of_client = next((given[name] for name in ("session_id", "sessionId", "conversation_id") if name in given), None)
    session = named or of_client or environ.get("CLAUDE_CODE_SESSION_ID")
    if not isinstance(session, str) or not session.strip():
        raise ValueError("the input names no session_id")
    return whole(session)


def directory_of(given: Given, environ: Mapping[str, str]) -> str:
    """The directory whose project an event belongs to: the first that exists of the client's project (since `cwd`
    follows every `cd` of the assistant), a variable, the client's working directory, and that of this process."""
    roots = given.get("workspace_roots")
    root = roots[0] if isinstance(roots, list) and roots else None
    for named in (environ.get("CLAUDE_PROJECT_DIR"), environ.get("REMEMBRANCER_PROJECT"), root, given.get("cwd")):
        if isinstance(named, str) and os.path.isdir(named):
            return named
    return working_directory(environ)


def bounded(given: Given) -> dict[str, Any]:
    """The input with its long members cut, in a form that can be stored."""
    return {
        whole(name): _bounded(member, LONG_MEMBER_BYTES if name in LONG_MEMBERS else MEMBER_BYTES)
        for name, member in given.items()
    }


def _bounded(member: Any, limit_bytes: int) -> Any:
    """A member in at most `limit_bytes`: its long texts and lists are cut until everything fits."""
    if isinstance(member, str):
        return cut(member, limit_bytes)
    for longest in STRING_LIMITS:
        short = _short(member, longest)
        encoded = json.dumps(short, ensure_ascii=False)
        if len(encoded.encode()) <= limit_bytes:
            return short
    return {"cut": cut(encoded, limit_bytes)}


def _short(value: Any, longest: int) -> Any:
    """A value that can be encoded: no overlong text or list, no lone surrogate, no number beyond 64 bits."""
    if isinstance(value, str):
        return whole(value) if len(value) <= longest else f"{whole(value[:longest])}… ({len(value)} characters)"
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) > LARGEST_INTEGER:
        return cut(hex(value), longest)
    if isinstance(value, list):
        return [_short(item, longest) for item in value[:LONGEST_LIST]]
    if isinstance(value, dict):
        members = list(value.items())[:LONGEST_LIST]
        return {whole(name[:longest]): _short(member, longest) for name, member in members}
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
    began = time.monotonic() - time.process_time()  # roughly the start of this process
    failure = "the event is not recorded"
    try:
        if {"-h", "--help"} & set(argv):
            _write(1, USAGE)
            return 0
        argument, client, *_ = [*argv, "", ""]
        given = _parsed(_read_input(began + INPUT_WAIT_S))
        name, event = _event_of(argument, given)
        name_of_session, directory = session_of(given, os.environ), directory_of(given, os.environ)
        places = find_places(os.environ)
        session = Session(places, os.environ, client_of(client, given), name_of_session, directory, began)
        if event in COMPACTIONS:  # the conversation has lost the memories that it had
            session.note("given", CONTEXT_LOST)
        if event not in NOT_RECORDED:
            try:
                session.leave(event, bounded(given))
            except OSError as error:
                _complain(f"{event} is not recorded: {error}")
        failure = "no context is given"
        _give(name, event, given, session)
    except Exception as error:  # noqa: BLE001 - the session must go on, and the line says what was wrong
        _complain(f"{failure}: {error or 'an unexpected error'}")
    return 0


def _event_of(argument: str, given: Given) -> tuple[str, str]:
    """The client's name of the event, and ours. Raises `ValueError` if it is not known."""
    name = argument if argument in EVENTS_BY_NAME else given.get("hook_event_name", given.get("hookEventName"))
    event = EVENTS_BY_NAME.get(name) if isinstance(name, str) else None
    if event is None:
        unknown = argument or name
        raise ValueError("no event is named" if unknown is None else f"unknown event {str(unknown)[:60]!r}")
    return name, event


def _give(name: str, event: str, given: Given, session: Session) -> None:
    """Print the memories that are due. `name` is the client's name of the event."""
    if event == TOOL_BEGINS and isinstance(given.get("tool_input"), dict):
        _print_before_action(name, given["tool_input"], session)
        return
    prompt = given.get("prompt") if event == PROMPT else None
    text = whole(prompt) if isinstance(prompt, str) and not prompt.isspace() else ""
    if text or event == SESSION_START:
        # A conversation that was just compacted continues without a prompt; VS Code accepts no context with one.
        is_due = event == PROMPT or given.get("source") == "compact" or session.client == VSCODE
        _print_context(name, event, text, session, is_due=is_due)


def _print_context(name: str, event: str, text: str, session: Session, *, is_due: bool) -> None:
    """Print the memories for the assistant: with the first prompt everything relevant, later only likely and new ones.
    If none are due yet, start a runtime, so that the first prompt finds one. Raises `ValueError` if they cannot be
    read."""
    tokens, wait_s, later_s = wanted(session.places, session.environ)
    if tokens == 0:
        return
    if not is_due:
        if (link := _connection(session, time.monotonic())) is not None:
            link.close()
        return
    before = session.noted("given")
    is_first = before is None or before == CONTEXT_LOST
    had = [] if before is None or is_first else before.decode().split()
    arguments = question(text, tokens, had, is_first=is_first, is_again=before == CONTEXT_LOST)
    answer = ask(session, arguments, wait_s if is_first else later_s, is_first=is_first)
    if answer is None:
        return
    if "error" in answer:
        raise ValueError(answer["message"])
    new, block = answer["memory_ids"], answer["context_block"]
    is_whole = is_first and not answer.get("degraded")
    if not new and not is_whole:
        return
    if block:  # none if the session has seen all already
        specific = {"hookSpecificOutput": {"hookEventName": name, "additionalContext": block}}
        _print({"continue": True, "additional_context": block} if session.client == CURSOR else specific)
    session.note("given", " ".join([*had, *new]).encode())  # even for an empty memory, to report it only once
    _report_given(session, event, new, text, is_all=not answer["truncated"])


def _print_before_action(name: str, called: Given, session: Session) -> None:
    """Before a command or an edit, print the relevant memories that this session was not given yet: as context, or as a
    question to the user."""
    from remembrancer.commands.hook_actions import action_of

    action = action_of(called) if session.client in CONTEXT_BEFORE_TOOLS else None
    if action is None:
        return
    before = (session.noted("acted") or b"").decode().split()
    answer = ask_about_action(session, action, before)
    if answer is None or not answer.get("memory_ids"):
        return
    new, block = answer["memory_ids"], answer["context_block"]
    output = {"additionalContext": block}
    if answer.get("ask") and session.client not in NO_ASK:
        output = {"permissionDecision": "ask", "permissionDecisionReason": block}
    _print({"hookSpecificOutput": {"hookEventName": name, **output}})
    session.note("acted", " ".join([*before, *new]).encode())
    _report_given(session, TOOL_BEGINS, new, action.get("command") or action["path"])


def _print(output: Mapping[str, Any]) -> None:
    """Print the output for a client; its memories count as given only then. Raises `OSError` if nobody reads it."""
    _write_all(1, json.dumps(output) + "\n")


def _report_given(session: Session, event: str, memory_ids: list[str], asked: str, *, is_all: bool = False) -> None:
    """Tell the gateway which memories have been printed, and whether these are all: it has counted none of them as
    shown until then."""
    if memory_ids:
        count = f"{len(memory_ids)} {'memory' if len(memory_ids) == 1 else 'memories'}"
        about = {"text": f"{count} given with {event}", "metadata": {"memories": memory_ids, "is_all": is_all}}
        session.leave(CONTEXT_GIVEN, {**about, "question": cut(asked, MEMBER_BYTES)})


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


def _complain(text: str) -> None:
    _write(2, f"remembrancer hook: {text}\n")


def _write(descriptor: int, text: str) -> None:
    try:
        _write_all(descriptor, text)
    except OSError:  # there is no reader
        return


def _write_all(descriptor: int, text: str) -> None:
    """Write without Python's own streams, which complain at exit if the reader has gone."""
    rest = memoryview(text.encode("utf-8", "replace"))
    while rest:
        rest = rest[os.write(descriptor, rest) :]


# --- asking the memory ---


def wanted(places: Places, environ: Mapping[str, str]) -> tuple[int, float, float]:
    """The length of the context in tokens (0: off), and the time limits from the start of a hook, in seconds, for the
    first prompt and for later ones."""
    tokens = int(_setting("hook_context_length", DEFAULT_TOKENS, places, environ))
    wait_s = min(MOST_WAIT_S, _setting("hook_wait_s", DEFAULT_WAIT_S, places, environ))
    tokens = 0 if tokens <= 0 else min(MOST_TOKENS, max(LEAST_TOKENS, tokens))
    return tokens, wait_s, min(LATER_WAIT_S, wait_s)


def _setting(name: str, otherwise: float, places: Places, environ: Mapping[str, str]) -> float:
    """A setting from the environment or the configuration file. The file is parsed, which takes some 50 ms, only if it
    mentions the setting."""
    named = environ.get(f"REMEMBRANCER_{name.upper()}")
    try:
        if named is None and places.config is not None:
            from remembrancer.protocol.paths import read_file

            if name.encode() in read_file(places.config):
                from remembrancer.config.reading import load_settings

                return float(getattr(load_settings(environ), name))
        return float(named or otherwise)
    except (OSError, ValueError):  # the file cannot be read, or that is no number
        return otherwise


def question(text: str, tokens: int, had: list[str], *, is_first: bool, is_again: bool) -> dict[str, Any]:
    """The arguments of `get_memory_context` for a prompt; with the first prompt, for everything that a session should
    know. `had` are the memories that were printed for the session.

    `text` is empty if a session continues without a prompt; `is_again`: its conversation has lost its context.
    """
    arguments: dict[str, Any] = {"detail": True, "given": had}
    if tokens != DEFAULT_TOKENS:
        arguments["max_tokens"] = tokens
    if text:
        arguments["task_description"] = text[:LONGEST_TASK]
    if not is_again:
        arguments["unseen"] = True
    return arguments if is_first else {**arguments, "sections": SECTIONS_OF_A_PROMPT}


def ask_about_action(session: Session, action: dict[str, str], given: list[str]) -> dict[str, Any] | None:
    """The memories that are relevant to an action and not in `given`; None if they do not arrive in time, which counts
    from here, since the client has already waited for this process to start. Starts no runtime."""
    from remembrancer.actors.bridge.starter import Starter

    wait_s = min(MOST_WAIT_S, _setting("action_wait_s", DEFAULT_ACTION_WAIT_S, session.places, session.environ))
    until = time.monotonic() + wait_s
    return _answer(Starter(session.places, session.environ).dial(), session, {"action": action, "given": given}, until)


def ask(session: Session, arguments: dict[str, Any], wait_s: float, *, is_first: bool) -> dict[str, Any] | None:
    """The memory's answer with the ids of its memories; None if it does not arrive within `wait_s` of the start of this
    process. With the first prompt, the time counts from the connection to the gateway, which may take `STARTING` times
    as long."""
    until = session.began + (STARTING if is_first else 1) * wait_s
    link = _connection(session, until)
    if is_first and time.monotonic() < until:
        until = time.monotonic() + wait_s
    return _answer(link, session, arguments, until)


def _connection(session: Session, until: float) -> socket.socket | None:
    """As `reach`."""
    from remembrancer.actors.bridge.starter import Starter
    from remembrancer.commands.gateway_client import reach

    return reach(Starter(session.places, session.environ), until)


def _answer(
    link: socket.socket | None, session: Session, arguments: dict[str, Any], until: float
) -> dict[str, Any] | None:
    """The answer of `get_memory_context`; None if there is no connection, or it does not arrive by `until`."""
    from remembrancer.commands.gateway_client import GatewayClient, pause

    if link is None:
        return None
    with link:
        try:
            link.settimeout(max(0.0, until - time.monotonic()))
            gateway = GatewayClient(link, session.places, session.name, session.directory, {}, "remembrancer hook")
            answer = gateway.call("get_memory_context", arguments, until)
            while answer.get("degraded") and not answer.get("memory_ids") and time.monotonic() + AGAIN_S < until:
                pause(AGAIN_S)  # the gateway is up before the store
                answer = gateway.call("get_memory_context", arguments, until)
        except OSError:  # it disconnected, or is too slow
            return None
    return answer


# --- files ---


def _make_private(directory: str) -> None:
    """Make a directory that only this user can access, and the home if a hook is the first to need it."""
    for each in (os.path.dirname(directory), directory):
        os.makedirs(each, mode=0o700, exist_ok=True)
    about = os.lstat(directory)
    if not stat.S_ISDIR(about.st_mode) or about.st_uid != os.getuid() or about.st_mode & 0o077:
        raise PermissionError(f"{directory} is not a directory that only this user can access")


def _write_new(path: str, content: bytes) -> None:
    with open(path, "xb", opener=lambda path, flags: os.open(path, flags | os.O_NOFOLLOW, 0o600)) as file:
        try:
            file.write(content)
            file.flush()
        except OSError:
            _remove(path)
            raise


def _remove(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:  # another process was faster
        return
