"""What a change of one client's file would be, from the file's text: decided first, carried out later. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from remembrancer.commands.client_setup.clients.catalogue import Client, Place
from remembrancer.commands.client_setup.clients.config_file import without_mark
from remembrancer.commands.client_setup.clients.entries import Entry, compare, difference, extend, is_ours
from remembrancer.commands.client_setup.clients.json_text import (
    NotEditable,
    parse_with_comments,
    remove_member,
    set_member,
)

Action = Literal["add", "extend", "replace", "remove", "nothing", "refuse"]


@dataclass(frozen=True, slots=True)
class Plan:
    """One file's change. `after` is None when nothing is changed; `said` says it to a person; `difference` shows an
    entry that is in the way; `paste` is what a person would put in by hand."""

    client: Client
    place: Place
    action: Action
    said: str
    before: str | None
    after: str | None = None
    difference: str = ""
    paste: str = ""


def plan_entry(client: Client, place: Place, text: str | None, name: str, wanted: Entry, *, force: bool) -> Plan:
    """What makes the file start `wanted` under `name`. `text` is what the file holds, None when there is none."""
    body, mark = without_mark(text or "")
    try:
        present = _entry(parse_with_comments(body), place.key, name)
        state = compare(present, wanted)
        if state == "same":
            return Plan(client, place, "nothing", "is set up already", text)
        if state == "other" and not force:
            return Plan(
                client,
                place,
                "refuse",
                f"has another entry named {name!r}: --force replaces it, --name gives ours another name",
                text,
                difference=difference(present, wanted),
            )
        entry = extend(present, wanted) if state == "extended" and isinstance(present, Mapping) else wanted
        after = mark + set_member(body, (place.key, name), entry)
    except NotEditable as refused:
        return _refused(client, place, text, refused, document(place.key, name, wanted))
    action: dict[str, tuple[Action, str]] = {
        "absent": ("add", "added"),
        "extended": ("extend", "given the variables that it lacked"),
        "other": ("replace", "replaced"),
    }
    return Plan(client, place, action[state][0], f"the entry {name!r} is {action[state][1]}", text, after)


def plan_removal(client: Client, place: Place, text: str | None, name: str, *, force: bool) -> Plan:
    """What takes our entry out of the file again."""
    body, mark = without_mark(text or "")
    try:
        present = _entry(parse_with_comments(body), place.key, name)
        if present is None:
            return Plan(client, place, "nothing", f"has no entry named {name!r}", text)
        if not is_ours(present) and not force:
            return Plan(
                client,
                place,
                "refuse",
                f"has an entry named {name!r} that does not start Remembrancer: --force removes it all the same",
                text,
            )
        after = mark + remove_member(body, (place.key, name))
    except NotEditable as refused:
        return _refused(client, place, text, refused, "")
    return Plan(client, place, "remove", f"the entry {name!r} is removed", text, after)


def document(key: str, name: str, entry: Entry) -> str:
    """A whole file with our entry alone."""
    return json.dumps({key: {name: entry}}, indent=2, ensure_ascii=False)


def _entry(whole: Mapping[str, object], key: str, name: str) -> object:
    servers = whole.get(key, {})
    if not isinstance(servers, Mapping):
        raise NotEditable(f"its member {key!r} is not a JSON object")
    return servers.get(name)


def _refused(client: Client, place: Place, text: str | None, refused: NotEditable, paste: str) -> Plan:
    said = f"is left as it is: {refused.reason}"
    return Plan(client, place, "refuse", said, text, paste=paste)
