"""Context for a hook, requested over the gateway's socket as a bridge would. Standard library only.

All waits share one deadline, so a slow or missing memory costs the assistant's session no more than that.
"""

from __future__ import annotations

import time

from remembrancer.actors.bridge.starter import Starter
from remembrancer.commands.gateway_client import GatewayClient, pause, reach

TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket
    from collections.abc import Mapping
    from typing import Any

    from remembrancer.actors.bridge.places import Places
    from remembrancer.commands.hook import Session

DEFAULT_TOKENS = 6000
"""The tool's own default, of which it uses less if not everything fits."""
LEAST_TOKENS, MOST_TOKENS = 100, 8000
"""The limits of the tool."""
DEFAULT_WAIT_S, LATER_WAIT_S = 1.5, 0.3
"""The time for the first prompt's context, which may include the start of the runtime, and the limit for later ones."""
STARTING = 4
"""On a busy machine, the start of this process and the runtime may take this many times as long before the first
prompt's context is requested: the assistant's own tools wait for the runtime as well."""
MOST_WAIT_S = 10.0
DEFAULT_ACTION_WAIT_S = 0.15
"""The time limit for memories about a command or an edit, from the hook's question on."""
TOLD_BEFORE_TOOLS = ("claude-code", "codex", "vscode", "qwen-code")
"""The clients that accept context with a tool call; Codex does not support `ask`."""
NO_ASK = ("codex",)
COMMANDS = ("command", "cmd")
PATHS = ("file_path", "filePath", "path", "notebook_path", "target_file")
NEW_TEXTS = ("new_string", "newString", "content", "contents", "new_source", "file_text", "insert_text", "new_str")
OLD_TEXTS = ("old_string", "oldString", "old_str")
PATCHES = ("patch", "input")
"""The arguments' names in various clients for a shell, an editor and `apply_patch`."""
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
"""Programs that only read, and subcommands of other programs that only read."""
SENDING = frozenset("XdFToO-")
"""The letters of curl's options with which it may do more than print an answer, also among others as in `-sXPOST`; of
long options every one may."""
LONGEST_ACTION = 8000
LONGEST_TASK = 4000
"""The number of characters used of a prompt; searches use no more."""
SECTIONS_OF_A_PROMPT = ["preferences", "project_context", "relevant_procedures", "open_ends"]
"""The sections for a later prompt: the session knows what it did itself."""
AGAIN_S = 0.1
CLIENT = "remembrancer hook"
"""The client name of these sessions."""


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
    if named is None and _is_in_file(places.config, name):
        from remembrancer.config.reading import load_settings

        return float(getattr(load_settings(environ), name))
    try:
        return float(named or otherwise)
    except ValueError:
        return otherwise


def _is_in_file(config: str | None, name: str) -> bool:
    if config is None:
        return False
    try:
        from remembrancer.protocol.paths import read_file

        return name.encode() in read_file(config)
    except OSError:
        return False


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


def action_of(called: Mapping[str, Any]) -> dict[str, str] | None:
    """The command or edit of a tool call; None for a tool that changes nothing, or a command that only reads."""
    command = _text_in(called, COMMANDS)
    if command.startswith(PATCH) or not command:
        return _edit_in(called, command or _text_in(called, PATCHES))
    return None if only_looks(command) else {"command": command[:LONGEST_ACTION]}


def _edit_in(called: Mapping[str, Any], patch: str) -> dict[str, str] | None:
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
    return {"path": path[-LONGEST_TASK:], "old": old[:LONGEST_ACTION], "new": new} if path and new.strip() else None


def _text_in(called: Mapping[str, Any], names: tuple[str, ...]) -> str:
    for name in names:
        value = called.get(name)
        if isinstance(value, list) and value and all(isinstance(item, str) for item in value):
            return value[-1] if value[0] in ("bash", "sh", "zsh") or value[0].endswith("/bash") else " ".join(value)
        if isinstance(value, str) and value:
            return value
    return ""


def only_looks(command: str) -> bool:
    """True if every part of a command line only reads."""
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


def ask_about_action(session: Session, action: dict[str, str], given: list[str]) -> dict[str, Any] | None:
    """The memories that are relevant to an action and not in `given`; None if they do not arrive in time, which counts
    from here, since the client has already waited for this process to start. Starts no runtime."""
    wait_s = min(MOST_WAIT_S, _setting("action_wait_s", DEFAULT_ACTION_WAIT_S, session.places, session.environ))
    until = time.monotonic() + wait_s
    link = Starter(session.places, session.environ).dial()
    return _answer(link, session, {"action": action, "given": given}, until)


def start(session: Session) -> None:
    """Start a runtime if none is up, without waiting for it."""
    link = reach(Starter(session.places, session.environ), time.monotonic())
    if link is not None:
        link.close()


def ask(session: Session, arguments: dict[str, Any], wait_s: float, *, is_first: bool) -> dict[str, Any] | None:
    """The memory's answer with the ids of its memories; None if it does not arrive within `wait_s` of the start of this
    process. With the first prompt, the time counts from the connection to the gateway, which may take `STARTING` times
    as long. Starts a runtime if there is none, even if that is too late for this request."""
    until = session.began + (STARTING if is_first else 1) * wait_s
    link = reach(Starter(session.places, session.environ), until)
    if is_first and time.monotonic() < until:
        until = time.monotonic() + wait_s
    return _answer(link, session, arguments, until)


def _answer(
    link: socket.socket | None, session: Session, arguments: dict[str, Any], until: float
) -> dict[str, Any] | None:
    """The answer of `get_memory_context`; None if there is no connection, or it does not arrive by `until`."""
    if link is None:
        return None
    with link:
        try:
            link.settimeout(max(0.0, until - time.monotonic()))
            gateway = GatewayClient(link, session.places, session.name, session.directory, {}, CLIENT)
            answer = gateway.call("get_memory_context", arguments, until)
            while answer.get("degraded") and not answer.get("memory_ids") and time.monotonic() + AGAIN_S < until:
                pause(AGAIN_S)  # the gateway is up before the store
                answer = gateway.call("get_memory_context", arguments, until)
        except OSError:  # it disconnected, or is too slow
            return None
    return answer
