"""`remembrancer hook`: records an event in a client's session, in a small file that the gateway interprets later, and
gives the assistant context from memory.

A client waits for its hooks, so this module uses only a small part of the standard library. No failure may disrupt the
session: the exit status is 0, and a line on standard error describes the problem. The format of the input is Claude
Code's (https://code.claude.com/docs/en/hooks), which Codex, VS Code and Qwen Code share. Gemini CLI
(https://geminicli.com/docs/hooks/reference) and Cursor (https://cursor.com/docs/hooks) use different names.
"""

# ruff: noqa: PTH100, PTH103, PTH104, PTH108, PTH111, PTH112, PTH118, PTH120, PTH123, PTH208
from __future__ import annotations

import json
import os
import select
import stat
import time
from contextlib import suppress

from remembrancer.actors.bridge.places import SESSION_VARIABLES, find_places, working_directory
from remembrancer.protocol.gateway_link import CONTEXT_GIVEN, HOOK_EVENTS, HOOK_FORMAT

TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket
    from collections.abc import Mapping
    from typing import Any

    from remembrancer.commands.gateway_client import Message

    Given = Mapping[str, Any]
SESSION_START, PROMPT, TOOL_BEGINS = "SessionStart", "UserPromptSubmit", "PreToolUse"
COMPACTIONS = ("PreCompact", "PostCompact")
NOT_RECORDED = (TOOL_BEGINS, "PreCompact")
"""Only the end of a tool call or a compaction is recorded."""
LONG_MEMBERS = frozenset({"prompt", "last_assistant_message", "prompt_response", "text", "compact_summary"})
LONG_MEMBER_BYTES, MEMBER_BYTES = 32 * 1024, 2 * 1024
"""The maximum size in bytes of a recorded turn, and of any other member of the input."""
STRING_LIMITS = (2000, 1500, 1000, 500, 100)
"""The lengths to which texts are cut, until a structured member fits."""
LONGEST_LIST = 50
LARGEST_INTEGER = 2**63 - 1
CONTEXT_LOST = b"again"
"""The content of a note about a session whose conversation has lost its context."""
INPUT_WAIT_S = 2.0
"""The time to wait for the input."""
MAX_WAITING_EVENTS = 5000
"""If this many events are waiting, no others are recorded."""
MAX_NOTES = 1000
"""The maximum number of notes on what sessions were given. Above it, all are deleted, and sessions start afresh."""
DEFAULT_TOKENS = 6000
"""The tool's default. Any other length is passed to the tool."""
LEAST_TOKENS, MOST_TOKENS = 100, 8000
DEFAULT_WAIT_S, LATER_WAIT_S = 1.5, 0.3
"""The time to wait for the first prompt's context (which may include starting the runtime), and for later contexts."""
STARTING = 4
"""On a busy machine, starting this process and the runtime may take this many times as long as `hook_wait_s`."""
MOST_WAIT_S = 10.0
DEFAULT_ACTION_WAIT_S = 0.15
"""The time to wait for memories about a command or an edit, counted from the hook's request."""
CONTEXT_BEFORE_TOOLS = ("claude-code", "codex", "vscode", "qwen-code")
"""The clients that accept context with a tool call."""
NO_ASK = ("codex",)
LONGEST_TASK = 4000
"""The number of characters of a prompt that are used. Searches use no more."""
SECTIONS_OF_A_PROMPT = ["preferences", "project_context", "relevant_procedures", "open_ends"]
"""Without the session's history, which the session already knows."""
CURSOR, VSCODE, CLAUDE_CODE = "cursor", "vscode", "claude-code"
EVENTS_BY_NAME = {
    **{event: event for event in HOOK_EVENTS},
    **{event[0].lower() + event[1:]: event for event in HOOK_EVENTS},
    **{"BeforeAgent": PROMPT, "AfterAgent": "Stop", "BeforeTool": TOOL_BEGINS, "AfterTool": "PostToolUse"},
    **{"beforeSubmitPrompt": PROMPT, "afterAgentResponse": "Stop"},
}
"""Maps the clients' names for events to ours. Gemini's `PreCompress` is left out, because it fires on every turn."""
COMMANDS = ("command", "cmd")
PATHS = ("file_path", "filePath", "path", "notebook_path", "target_file")
NEW_TEXTS = ("new_string", "newString", "content", "contents", "new_source", "file_text", "insert_text", "new_str")
OLD_TEXTS = ("old_string", "oldString", "old_str")
PATCHES = ("patch", "input")
"""The names that various clients use for the arguments of a shell, an editor and `apply_patch`."""
PATCH, ADDED, IN_FILE = "*** Begin Patch", "+", ("*** Update File: ", "*** Add File: ")
_LOOKING = """
    cat ls rg grep egrep head tail find wc tree du df which pwd echo less more diff stat ps top htop date uptime whoami
    env printenv lsof jq xxd cd open code sleep true
"""
_LOOKING_WORDS = """
    status log diff show list ls describe logs ps history view inspect blame top outdated why tree plan current-context
    --version --help --check -check -V
"""
LOOKING, LOOKING_WORDS = frozenset(_LOOKING.split()), frozenset(_LOOKING_WORDS.split())
SENDING = frozenset("XdFToO-")
"""The letters of curl options that may do more than print a response, even if combined as in `-sXPOST`."""
LONGEST_ACTION, LONGEST_PATH = 8000, 4000
USAGE = f"""usage: remembrancer hook <event> [<client>]

Record an event of an assistant's session (a JSON object on standard input), and
print memories for it. To set this up, run 'remembrancer setup CLIENT --hooks'.

events: {", ".join(HOOK_EVENTS[:4])},
{", ".join(HOOK_EVENTS[4:])};
Gemini CLI and Cursor have their own names for these

exit status: always 0, so that no session fails because of its memory
"""


class Hook:
    def __init__(self, argument: str, client: str, given: Given, environ: Mapping[str, str], began: float) -> None:
        """`argument` and `client` come from the command line and may be empty; `given` is the input; `began` is when
        this process started (`time.monotonic`). Raises `ValueError` if no session or known event is named."""
        self.given, self.environ, self.began = given, environ, began
        self.name = argument if argument in EVENTS_BY_NAME else given.get("hook_event_name", given.get("hookEventName"))
        """The client's name for the event; `event` is ours."""
        event = EVENTS_BY_NAME.get(self.name) if isinstance(self.name, str) else None
        if event is None:
            unknown = argument or self.name
            raise ValueError("no event is named" if unknown is None else f"unknown event {str(unknown)[:60]!r}")
        self.event, self.client = event, client_of(client, given)
        self.session, self.directory = session_of(given, environ), directory_of(given, environ)
        self.places = find_places(environ)
        self._spool = os.path.join(self.places.home, "hooks")
        self._notes = os.path.join(self._spool, "running")

    # --- the record ---

    def record(self) -> None:
        """Leave the event for the gateway to read. Raises `OSError` if the loss of context cannot be noted."""
        if self.event in COMPACTIONS:
            self.note("given", CONTEXT_LOST)
        if self.event not in NOT_RECORDED:
            try:
                self.leave(self.event, bounded(self.given))
            except OSError as error:
                _complain(f"{self.event} is not recorded: {error}")

    def leave(self, event: str, given: Given) -> None:
        """Leave an event for the gateway to read. Raises `OSError` if it cannot be written safely, or too many wait."""
        now_ns = time.time_ns()
        about = {"format": HOOK_FORMAT, "event": event, "at": now_ns / 1e9, "session": self.session}
        about |= {"directory": self.directory, "client": self.client, "given": given}
        if len(self._listed(self._spool)) > MAX_WAITING_EVENTS:
            raise OSError(f"{MAX_WAITING_EVENTS} events are waiting; run 'remembrancer doctor' to see why")
        name = f"{now_ns:020d}-{os.urandom(4).hex()}.event"
        _write_whole(self._spool, name, json.dumps(about, separators=(",", ":")).encode())

    def note(self, kind: str, content: bytes) -> None:
        self._listed(self._spool)
        notes = self._listed(self._notes)
        if len(notes) >= MAX_NOTES:
            for name in notes:
                _remove(os.path.join(self._notes, name))
        _write_whole(self._notes, self._name_of_note(kind), content)

    def noted(self, kind: str) -> bytes | None:
        with suppress(OSError), open(os.path.join(self._notes, self._name_of_note(kind)), "rb", buffering=0) as file:
            return file.read()
        return None

    def _name_of_note(self, kind: str) -> str:
        from binascii import crc32

        session, directory = self.session.encode(), self.directory.encode("utf-8", "replace")
        return f"{kind}-{crc32(session):08x}-{crc32(directory):08x}"

    def _listed(self, directory: str) -> list[str]:
        if self.places.on_disk != self.places.home and not os.path.isdir(self.places.home):
            raise FileNotFoundError("the memory is in RAM, and no runtime is running")
        for path in (os.path.dirname(directory), directory):
            os.makedirs(path, mode=0o700, exist_ok=True)
        about = os.lstat(directory)
        if not stat.S_ISDIR(about.st_mode) or about.st_uid != os.getuid() or about.st_mode & 0o077:
            raise PermissionError(f"{directory} is not a directory that only this user can access")
        return os.listdir(directory)

    # --- memories for the assistant ---

    def give(self) -> None:
        prompt, called = self.given.get("prompt"), self.given.get("tool_input")
        if self.event == SESSION_START:
            self._give_context("")
        elif self.event == PROMPT and isinstance(prompt, str) and prompt.strip():
            self._give_context(whole(prompt))
        elif self.event == TOOL_BEGINS and isinstance(called, dict) and self.client in CONTEXT_BEFORE_TOOLS:
            self._give_facts(called)

    def _give_context(self, text: str) -> None:
        """If no memories are due yet, start a runtime, so that it is ready for the first prompt."""
        tokens = int(self.setting("hook_context_length", DEFAULT_TOKENS))
        if tokens <= 0:
            return
        # A conversation that was just compacted continues without a prompt; VS Code accepts no context with a prompt.
        if not (text or self.given.get("source") == "compact" or self.client == VSCODE):
            if (link := self._connection(time.monotonic())) is not None:
                link.close()
            return
        before = self.noted("given")
        is_first = before in (None, CONTEXT_LOST)
        had = [] if before is None or is_first else before.decode().split()
        arguments: Message = {"detail": True, "given": had}
        if tokens != DEFAULT_TOKENS:
            arguments["max_tokens"] = min(MOST_TOKENS, max(LEAST_TOKENS, tokens))
        if text:
            arguments["task_description"] = text[:LONGEST_TASK]
        if before != CONTEXT_LOST:
            arguments["unseen"] = True
        if not is_first:
            arguments["sections"] = SECTIONS_OF_A_PROMPT
        # The time is counted from the start of this process, or for a first prompt, from the connection to the gateway.
        wait_s = min(MOST_WAIT_S if is_first else LATER_WAIT_S, self.setting("hook_wait_s", DEFAULT_WAIT_S))
        until = self.began + (STARTING if is_first else 1) * wait_s
        link = self._connection(until)
        if is_first and time.monotonic() < until:
            until = time.monotonic() + wait_s
        answer = self._answer(link, arguments, until)
        if answer is None:
            return
        if "error" in answer:
            raise ValueError(answer["message"])
        if answer["memory_ids"] or ((is_first or "in_doubt" in answer) and not answer.get("degraded")):
            self._give("given", had, answer, text)

    def _give_facts(self, called: Given) -> None:
        if (action := action_of(called)) is None:
            return
        had = (self.noted("acted") or b"").decode().split()
        answer = self.ask_about(action, had)
        if answer is not None and answer.get("memory_ids"):
            self._give("acted", had, answer, action.get("command") or action["path"])

    def ask_about(self, action: dict[str, str], had: list[str]) -> Message | None:
        """Never starts a runtime. The time counts from this call: the client has already waited for the process."""
        from remembrancer.actors.bridge.starter import Starter

        until = time.monotonic() + min(MOST_WAIT_S, self.setting("action_wait_s", DEFAULT_ACTION_WAIT_S))
        return self._answer(Starter(self.places, self.environ).dial(), {"action": action, "given": had}, until)

    def setting(self, name: str, otherwise: float) -> float:
        """A setting from the environment or the file, which is parsed (50 ms) only if it names the setting."""
        named, config = self.environ.get(f"REMEMBRANCER_{name.upper()}"), self.places.config
        try:
            if named is None and config is not None:
                from remembrancer.protocol.paths import read_file

                if name.encode() in read_file(config):
                    from remembrancer.config.reading import load_settings

                    return float(getattr(load_settings(self.environ), name))
            return float(named or otherwise)
        except (OSError, ValueError):  # the file cannot be read, or the value is not a number
            return otherwise

    def _connection(self, until: float) -> socket.socket | None:
        from remembrancer.actors.bridge.starter import Starter
        from remembrancer.commands.gateway_client import reach

        return reach(Starter(self.places, self.environ), until)

    def _answer(self, link: socket.socket | None, arguments: Message, until: float) -> Message | None:
        from remembrancer.commands.gateway_client import GatewayClient

        if link is None:
            return None
        with link:
            try:
                link.settimeout(max(0.0, until - time.monotonic()))
                gateway = GatewayClient(link, self.places, self.session, self.directory, {}, "remembrancer hook")
                return gateway.call("get_memory_context", arguments, until)
            except OSError:  # the gateway disconnected, or is too slow
                return None

    def _give(self, kind: str, had: list[str], answer: Message, asked: str) -> None:
        """The gateway counts memories as shown only when it reads the event that is left here."""
        new = answer["memory_ids"]
        block = "\n\n".join(filter(None, (answer["context_block"], answer.get("in_doubt"))))
        fields = {"additionalContext": block}
        if answer.get("ask") and self.client not in NO_ASK:
            fields = {"permissionDecision": "ask", "permissionDecisionReason": block}
        output: Message = {"hookSpecificOutput": {"hookEventName": self.name, **fields}}
        if self.client == CURSOR:
            output = {"continue": True, "additional_context": block}
        if block:  # empty if the session has already seen everything
            _write(1, json.dumps(output) + "\n")
        self.note(kind, " ".join([*had, *new]).encode())  # even if empty, to report that only once
        if new:
            count = f"{len(new)} {'memory' if len(new) == 1 else 'memories'}"
            metadata = {"memories": new, "is_all": not answer.get("truncated", True)}
            about = {"text": f"{count} given with {self.event}", "metadata": metadata}
            self.leave(CONTEXT_GIVEN, {**about, "question": cut(asked, MEMBER_BYTES)})


def client_of(named: str, given: Given) -> str:
    """Cursor and VS Code also run the hooks in Claude Code's settings, whose commands name no client."""
    return named or (CURSOR if "cursor_version" in given else VSCODE if "hookEventName" in given else CLAUDE_CODE)


def session_of(given: Given, environ: Mapping[str, str]) -> str:
    """Take the session from the same variables as the bridge, or else from the client. Raises `ValueError`."""
    *ours, claudes = map(environ.get, SESSION_VARIABLES)
    of_client = map(given.get, ("session_id", "sessionId", "conversation_id"))
    session = next(filter(None, (*ours, *of_client, claudes)), None)
    if not isinstance(session, str) or not session.strip():
        raise ValueError("the input names no session_id")
    return whole(session)


def directory_of(given: Given, environ: Mapping[str, str]) -> str:
    """The client's project directory comes first, since `cwd` changes with every `cd`."""
    roots = given.get("workspace_roots")
    root = roots[0] if isinstance(roots, list) and roots else None
    for named in (environ.get("CLAUDE_PROJECT_DIR"), environ.get("REMEMBRANCER_PROJECT"), root, given.get("cwd")):
        if isinstance(named, str) and os.path.isdir(place := os.path.expanduser(named)):
            return os.path.abspath(place)
    return working_directory(environ)


def bounded(given: Given) -> dict[str, Any]:
    return {
        whole(name): _bounded(member, LONG_MEMBER_BYTES if name in LONG_MEMBERS else MEMBER_BYTES)
        for name, member in given.items()
    }


def _bounded(member: Any, limit_bytes: int) -> Any:
    if isinstance(member, str):
        return cut(member, limit_bytes)
    for longest in STRING_LIMITS:
        short = _short(member, longest)
        encoded = json.dumps(short, ensure_ascii=False)
        if len(encoded.encode()) <= limit_bytes:
            return short
    return {"cut": cut(encoded, limit_bytes)}


def _short(value: Any, longest: int) -> Any:
    """Cut overlong texts and lists, and replace lone surrogates and numbers beyond 64 bits."""
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
    """The start of the text, at most `limit_bytes` of UTF-8, and a note if it was cut."""
    encoded = whole(text).encode()
    if len(encoded) <= limit_bytes:
        return encoded.decode()
    beginning = encoded[:limit_bytes].decode("utf-8", "ignore")
    return f"{beginning}… ({len(encoded) - limit_bytes} bytes more)"


def whole(text: str) -> str:
    """Replace characters that cannot be stored, lone surrogates and NULs, with question marks."""
    return text.encode("utf-8", "replace").decode().replace("\0", "?")


# --- the command or edit of a tool call ---


def action_of(called: Given) -> dict[str, str] | None:
    """The command or edit of a tool call; None if it changes nothing."""
    command = _text_in(called, COMMANDS)
    if command.startswith(PATCH) or not command:
        return _edit_in(called, command or _text_in(called, PATCHES))
    return None if only_looks(command) else {"command": command[:LONGEST_ACTION]}


def _edit_in(called: Given, patch: str) -> dict[str, str] | None:
    if patch.startswith(PATCH):
        lines = patch.splitlines()
        path = next((line.removeprefix(name) for line in lines for name in IN_FILE if line.startswith(name)), "")
        old, new = ("\n".join(line[1:] for line in lines if line.startswith(mark)) for mark in ("-", ADDED))
    else:
        edits = called.get("edits")
        several = [edit for edit in edits if isinstance(edit, dict)] if isinstance(edits, list) else [called]
        path = _text_in(called, PATHS)
        old, new = ("\n".join(_text_in(edit, names) for edit in several) for names in (OLD_TEXTS, NEW_TEXTS))
    new = new[:LONGEST_ACTION]
    return {"path": path[-LONGEST_PATH:], "old": old[:LONGEST_ACTION], "new": new} if path and new.strip() else None


def _text_in(called: Given, names: tuple[str, ...]) -> str:
    for name in names:
        value = called.get(name)
        if isinstance(value, list) and value and all(isinstance(item, str) for item in value):
            return value[-1] if value[0] in ("bash", "sh", "zsh") or value[0].endswith("/bash") else " ".join(value)
        if isinstance(value, str) and value:
            return value
    return ""


def only_looks(command: str) -> bool:
    if ">" in command:
        return False
    for mark in ("&&", "||", "|", "\n"):
        command = command.replace(mark, ";")
    return all(_only_looks(part.split()) for part in command.split(";"))


def _only_looks(words: list[str]) -> bool:
    while words and "=" in words[0]:
        del words[0]
    if not words or words[0] in LOOKING or (words[0] == "sed" and "-n" in words):
        return True
    if words[0] == "kubectl" and "get" in words:
        return True
    if words[0] == "curl":
        return all(word[0] != "-" or SENDING.isdisjoint(word[1:]) for word in words)
    before, named = words[0], []
    for word in words[1:]:
        is_value = len(before) == 2 and before[0] == "-"
        if word in LOOKING_WORDS or not (word[0] == "-" or is_value):
            named.append(word)
        before = word
    return not LOOKING_WORDS.isdisjoint(named[:2])


# --- the process ---


def main(argv: list[str]) -> int:
    """Always returns 0."""
    began = time.monotonic() - time.process_time()  # roughly the start of this process
    failure = "the event is not recorded"
    try:
        if {"-h", "--help"} & set(argv):
            _write(1, USAGE)
            return 0
        argument, client, *_ = [*argv, "", ""]
        hook = Hook(argument, client, _read_input(began + INPUT_WAIT_S), os.environ, began)
        hook.record()
        failure = "no context is given"
        hook.give()
    except Exception as error:  # noqa: BLE001 - the session must go on, and the line says what was wrong
        _complain(f"{failure}: {error or 'an unexpected error'}")
    return 0


def _read_input(until: float) -> dict[str, Any]:
    """Read as much as arrives by `until`, since the pipe may be kept open. Raises `ValueError`."""
    data = bytearray()
    poll = select.poll()
    poll.register(0, select.POLLIN)
    while not os.isatty(0) and poll.poll(max(0.0, until - time.monotonic()) * 1000) and (read := os.read(0, 2**20)):
        data += read
    try:
        given = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"a JSON object is needed on standard input ({error})") from None
    if not isinstance(given, dict):
        raise ValueError("a JSON object is needed on standard input")
    return given


def _complain(text: str) -> None:
    with suppress(OSError):  # there is no reader
        _write(2, f"remembrancer hook: {text}\n")


def _write(descriptor: int, text: str) -> None:
    """Python's own streams would complain at exit if the reader has gone."""
    rest = memoryview(text.encode("utf-8", "replace"))
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def _write_whole(directory: str, name: str, content: bytes) -> None:
    unnamed = os.path.join(directory, f".{name}-{os.urandom(4).hex()}")
    try:
        with open(unnamed, "xb", opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
            file.write(content)
        os.rename(unnamed, os.path.join(directory, name))
    except OSError:
        _remove(unnamed)
        raise


def _remove(path: str) -> None:
    with suppress(OSError):  # another process was faster
        os.unlink(path)
