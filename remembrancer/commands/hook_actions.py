"""Reads the command or edit from an assistant's tool call, for all clients. Uses only the standard library."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

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


def action_of(called: Mapping[str, Any]) -> dict[str, str] | None:
    """The command or edit of a tool call; None if it changes nothing."""
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
    return {"path": path[-LONGEST_PATH:], "old": old[:LONGEST_ACTION], "new": new} if path and new.strip() else None


def _text_in(called: Mapping[str, Any], names: tuple[str, ...]) -> str:
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
