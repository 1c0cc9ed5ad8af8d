"""What a change of Claude Code's settings would be, so that its hooks run `remembrancer hook`. Pure.

Form (https://code.claude.com/docs/en/hooks): `hooks` holds, for each event, a list of groups with a matcher and a list
of commands. Groups and commands that are not ours stay as they are, in their order.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from itertools import pairwise
from pathlib import PurePath
from typing import Any, Final

from remembrancer.commands.client_setup.clients.catalogue import Client, Place, Scope, Surroundings
from remembrancer.commands.client_setup.clients.config_file import without_mark
from remembrancer.commands.client_setup.clients.json_text import (
    NotEditable,
    parse_with_comments,
    remove_member,
    set_member,
)
from remembrancer.commands.client_setup.clients.plan import Action, Plan
from remembrancer.protocol import hooks

KEY: Final = "hooks"
WRITTEN: Final = tuple(event for event in hooks.EVENTS if event != hooks.TOOL_FAILED)
"""The events that are asked for. With one that it does not know, an older client takes nothing from the whole file."""
OF_TOOLS: Final = (hooks.TOOL_BEGINS, hooks.TOOL_DONE)
"""Events whose groups say which tools they are about: all."""
TIMEOUT_S: Final = 10
"""After which the client gives a hook up. One takes 2 s at the most, and some hundredths as a rule."""

Group = dict[str, Any]


def hooks_place(around: Surroundings, scope: Scope) -> Place:
    """The settings that Claude Code reads hooks from."""
    if scope == "project":
        directory = around.project / ".claude"
    else:
        named = around.environ.get("CLAUDE_CONFIG_DIR")
        directory = type(around.home)(named).expanduser() if named else around.home / ".claude"
    return Place("claude-code", scope, directory / "settings.json", KEY)


def make_groups(command: tuple[str, ...], environ: Mapping[str, str]) -> dict[str, Group]:
    """Our group for each event. `command` is the command line before the word `hook`."""
    variables = [f"{name}={shlex.quote(value)}" for name, value in environ.items()]
    start = " ".join([*variables, shlex.join([*command, "hook"])])
    return {
        event: {
            **({"matcher": "*"} if event in OF_TOOLS else {}),
            "hooks": [{"type": "command", "command": f"{start} {event}", "timeout": TIMEOUT_S}],
        }
        for event in WRITTEN
    }


def plan_hooks(client: Client, place: Place, text: str | None, wanted: Mapping[str, Group]) -> Plan:
    """What makes every event run its command. One of ours that is there already, in another form, is replaced."""
    body, mark = without_mark(text or "")
    try:
        present = _present(parse_with_comments(body))
        after, was_there = body, False
        for event, group in wanted.items():
            groups = _groups(present, event)
            others = _without_ours(groups)
            was_there = was_there or others != groups
            if groups.count(group) != 1 or [each for each in groups if each != group] != others:
                after = set_member(after, (KEY, event), [*others, group])
    except NotEditable as refused:
        paste = hooks_document(wanted)
        return Plan(client, place, "refuse", f"is left as it is: {refused.reason}", text, paste=paste)
    if after == body:
        return Plan(client, place, "nothing", "has its hooks already", text)
    action: Action = "replace" if was_there else "add"
    return Plan(client, place, action, f"its hooks are {'replaced' if was_there else 'added'}", text, mark + after)


def plan_hooks_removal(client: Client, place: Place, text: str | None) -> Plan:
    """What takes our commands out again, and what is empty without them."""
    body, mark = without_mark(text or "")
    try:
        present = _present(parse_with_comments(body))
        after, left = body, dict(present)
        for event in present:
            groups = _groups(present, event)
            others = _without_ours(groups)
            if others == groups:
                continue
            after = set_member(after, (KEY, event), others) if others else remove_member(after, (KEY, event))
            left[event] = others
        if after != body and not any(left.values()):
            after = remove_member(after, (KEY,))
    except NotEditable as refused:
        return Plan(client, place, "refuse", f"is left as it is: {refused.reason}", text)
    if after == body:
        return Plan(client, place, "nothing", "has no hooks of ours", text)
    return Plan(client, place, "remove", "its hooks are removed", text, mark + after)


def hooks_document(wanted: Mapping[str, Group]) -> str:
    """A whole file with our hooks alone."""
    return json.dumps({KEY: {event: [group] for event, group in wanted.items()}}, indent=2, ensure_ascii=False)


def is_our_command(command: object) -> bool:
    """Whether a hook's command runs `remembrancer hook`."""
    if not isinstance(command, str):
        return False
    try:
        words = shlex.split(command)
    except ValueError:  # quotes that are not closed
        return False
    return any(PurePath(word).stem == "remembrancer" and following == "hook" for word, following in pairwise(words))


def _present(whole: Mapping[str, object]) -> Mapping[str, object]:
    present = whole.get(KEY, {})
    if not isinstance(present, Mapping):
        raise NotEditable(f"its member {KEY!r} is not a JSON object")
    return present


def _groups(present: Mapping[str, object], event: str) -> list[Any]:
    groups = present.get(event, [])
    if not isinstance(groups, list):
        raise NotEditable(f"what it has for the event {event} is not a list")
    return groups


def _without_ours(groups: list[Any]) -> list[Any]:
    """The groups without our commands; a group that had no others is gone."""
    left = []
    for group in groups:
        commands = group.get("hooks") if isinstance(group, Mapping) else None
        if not isinstance(commands, list) or not any(map(_is_ours, commands)):
            left.append(group)
            continue
        others = [each for each in commands if not _is_ours(each)]
        if others:
            left.append({**group, "hooks": others})
    return left


def _is_ours(entry: object) -> bool:
    return isinstance(entry, Mapping) and is_our_command(entry.get("command"))
