"""The memory's knowledge, asked for by a hook: as a bridge would, over the gateway's socket. Standard library only.

Every wait has the same end, so a memory that is slow, or is not there, costs the assistant's session no more than that.
"""

from __future__ import annotations

import time

from remembrancer.actors.bridge.starter import Starter
from remembrancer.commands.gateway_client import GatewayClient, pause, reach

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from remembrancer.actors.bridge.places import Places

LENGTH, WAIT, ACTION_WAIT = "hook_context_length", "hook_wait_s", "action_wait_s"
DEFAULT_TOKENS = 6000
"""The tool's own, of which it gives less where not all fits."""
LEAST_TOKENS, MOST_TOKENS = 100, 8000
"""The bounds of the tool that is asked."""
DEFAULT_WAIT_S, LATER_WAIT_S = 1.5, 0.3
"""The time for the first prompt's context, which may have to wait for the runtime, and at most for those after it."""
STARTING = 4
"""So many times as long this process and the runtime may take to start, on a busy machine, before the first prompt's
context is asked for: the assistant's own tools wait for the runtime as well."""
MOST_WAIT_S = 10.0
DEFAULT_ACTION_WAIT_S = 0.15
"""The time from the start of a hook in which something has to come that bears on a command or an edit."""
TOLD_BEFORE_TOOLS = ("claude-code", "codex", "vscode", "qwen-code")
"""The clients that take context with a tool's call; Codex takes no `ask`."""
NO_ASK = ("codex",)
COMMANDS = ("command", "cmd")
PATHS = ("file_path", "filePath", "path", "notebook_path", "target_file")
NEW_TEXTS = ("new_string", "newString", "content", "contents", "new_source", "file_text", "insert_text", "new_str")
OLD_TEXTS = ("old_string", "oldString", "old_str")
PATCHES = ("patch", "input")
"""The names that clients have for the arguments of a shell, of an editor and of `apply_patch`."""
PATCH, ADDED, IN_FILE = "*** Begin Patch", "+", ("*** Update File: ", "*** Add File: ")
_LOOKING = """
    cat ls rg grep egrep head tail find wc tree du df which pwd echo less more diff stat ps top htop date uptime whoami
    env printenv lsof jq xxd cd open code sleep true
"""
_LOOKING_WORDS = """
    status log diff show list ls describe logs ps history view inspect blame top outdated why tree --version --help -V
"""
LOOKING, LOOKING_WORDS = frozenset(_LOOKING.split()), frozenset(_LOOKING_WORDS.split())
"""The programs that only look at something, and the words after others that say so."""
LONGEST_ACTION = 8000
LONGEST_TASK = 4000
"""Characters of a prompt: no search looks at more."""
SECTIONS_OF_A_PROMPT = ["preferences", "project_context", "relevant_procedures", "open_ends"]
"""The sections for a later prompt: the session knows what it did itself."""
AGAIN_S = 0.1
CLIENT = "remembrancer hook"
"""On whose behalf it is asked."""


def wanted(places: Places, environ: Mapping[str, str]) -> tuple[int, float, float]:
    """The length of the context in tokens, 0: none is wanted; and the seconds from the start of a hook in which it has
    to come, with the first prompt and with a later one.

    The configuration file is only read, which costs some 50 ms, when it speaks of one of them.
    """
    length, wait = (environ.get(f"REMEMBRANCER_{name.upper()}") for name in (LENGTH, WAIT))
    if (length is None or wait is None) and _is_in_file(places.config, LENGTH, WAIT):
        from remembrancer.config.reading import load_settings

        settings = load_settings(environ)
        tokens, wait_s = settings.hook_context_length, settings.hook_wait_s
    else:
        tokens, wait_s = int(_number(length, DEFAULT_TOKENS)), min(MOST_WAIT_S, _number(wait, DEFAULT_WAIT_S))
    return _within_bounds(tokens), wait_s, min(LATER_WAIT_S, wait_s)


def _number(named: str | None, otherwise: float) -> float:
    try:
        return float(named or otherwise)
    except ValueError:
        return otherwise


def action_wait_s(places: Places, environ: Mapping[str, str]) -> float:
    """The seconds from the start of a hook in which something has to come that bears on a command or an edit."""
    named = environ.get(f"REMEMBRANCER_{ACTION_WAIT.upper()}")
    if named is None and _is_in_file(places.config, ACTION_WAIT):
        from remembrancer.config.reading import load_settings

        return load_settings(environ).action_wait_s
    return min(MOST_WAIT_S, _number(named, DEFAULT_ACTION_WAIT_S))


def _is_in_file(config: str | None, *names: str) -> bool:
    if config is None:
        return False
    try:
        from remembrancer.protocol.paths import read_file

        content = read_file(config)
    except OSError:
        return False
    return any(name.encode() in content for name in names)


def _within_bounds(tokens: int) -> int:
    return 0 if tokens <= 0 else min(MOST_TOKENS, max(LEAST_TOKENS, tokens))


def question(text: str, tokens: int, *, is_first: bool, is_again: bool) -> dict[str, Any]:
    """The arguments for the tool `get_memory_context`, for a prompt: with the first, all that a session should know.

    `text` is empty where a session goes on without a prompt; `is_again`: its conversation has lost what it was given.
    """
    arguments: dict[str, Any] = {"detail": True}
    if tokens != DEFAULT_TOKENS:
        arguments["max_tokens"] = tokens
    if text:
        arguments["task_description"] = text[:LONGEST_TASK]
    if not is_again:
        arguments["unseen"] = True
    return arguments if is_first else {**arguments, "sections": SECTIONS_OF_A_PROMPT}


def action_of(called: Mapping[str, Any]) -> dict[str, str] | None:
    """The command or the edit that a tool is called for; None for a tool that changes nothing, and for a command that
    only looks at something."""
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
        several = [each for each in edits if isinstance(each, dict)] if isinstance(edits, list) else [called]
        path = _text_in(called, PATHS)
        old, new = ("\n".join(_text_in(each, names) for each in several) for names in (OLD_TEXTS, NEW_TEXTS))
    new = new[:LONGEST_ACTION]
    return {"path": path[-LONGEST_TASK:], "old": old[:LONGEST_ACTION], "new": new} if path and new.strip() else None


def _text_in(called: Mapping[str, Any], names: tuple[str, ...]) -> str:
    for name in names:
        value = called.get(name)
        if isinstance(value, list) and value and all(isinstance(each, str) for each in value):
            return value[-1] if value[0] in ("bash", "sh", "zsh") or value[0].endswith("/bash") else " ".join(value)
        if isinstance(value, str) and value:
            return value
    return ""


def only_looks(command: str) -> bool:
    """True if every part of a command line only looks at something."""
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
    before, named = words[0], []
    for word in words[1:]:
        is_value = len(before) == 2 and before[0] == "-"
        if word in LOOKING_WORDS or not (word[0] == "-" or is_value):
            named.append(word)
        before = word
    return not LOOKING_WORDS.isdisjoint(named[:2])


def ask_about_action(
    places: Places,
    environ: Mapping[str, str],
    session: str,
    directory: str,
    action: dict[str, str],
    given: list[str],
    until: float,
) -> dict[str, Any] | None:
    """The memories that bear on an action and were not given; None when they do not come until `until`. It starts no
    runtime."""
    left_s = until - time.monotonic()  # none, where the machine was too busy to start this process
    link = Starter(places, environ).dial() if left_s > 0 else None
    if link is None:
        return None
    with link:
        try:
            link.settimeout(left_s)
            gateway = GatewayClient(link, places, session, directory, {}, CLIENT)
            return gateway.call("get_memory_context", {"action": action, "given": given}, until)
        except OSError:
            return None


def start(places: Places, environ: Mapping[str, str]) -> None:
    """Start a runtime if none is up, and do not wait for it."""
    link = reach(Starter(places, environ), time.monotonic())
    if link is not None:
        link.close()


def ask(
    places: Places,
    environ: Mapping[str, str],
    session: str,
    directory: str,
    arguments: dict[str, Any],
    began: float,
    wait_s: float,
    *,
    is_first: bool,
) -> dict[str, Any] | None:
    """The memory's answer with the ids of its memories; None if it does not come within `wait_s` of `began`
    (`time.monotonic`). With the first prompt the time begins when the gateway has been reached, which may take
    `STARTING` times as long.

    A runtime is started if there is none. It continues to start even if it is too late for this.
    """
    until = began + (STARTING if is_first else 1) * wait_s
    link = reach(Starter(places, environ), until)
    if link is None:
        return None
    if is_first and time.monotonic() < until:
        until = time.monotonic() + wait_s
    with link:
        try:
            gateway = GatewayClient(link, places, session, directory, {}, CLIENT)
            said = gateway.call("get_memory_context", arguments, until)
            while said.get("degraded") and not said["memory_ids"] and time.monotonic() + AGAIN_S < until:
                pause(AGAIN_S)  # the gateway is up before the store is
                said = gateway.call("get_memory_context", arguments, until)
        except OSError:  # it went away, or is too slow
            return None
    return said
