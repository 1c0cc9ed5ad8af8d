"""Our entry in a client's configuration: what it should say, and how it compares with what is there. Pure."""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping
from pathlib import PurePath
from typing import Any, Final, Literal

from remembrancer.commands.client_setup.clients.catalogue import Client

Entry = dict[str, Any]
State = Literal["absent", "same", "extended", "other"]
HIDDEN: Final = "(not shown)"
PLAIN_PREFIXES: Final = ("REMEMBRANCER_", "MEMORY_")
SECRET_WORDS: Final = ("KEY", "TOKEN", "SECRET", "PASS")


def make_entry(client: Client, command: tuple[str, ...], environ: Mapping[str, str]) -> Entry:
    """The entry that has `client` start `command`."""
    entry: Entry = {"type": "stdio"} if client.says_type else {}
    entry |= {"command": command[0], "args": list(command[1:])}
    if environ:
        entry["env"] = dict(environ)
    return entry


def compare(present: object, wanted: Entry) -> State:
    """How the entry that is there stands to the wanted one: `extended` starts the same command and only lacks (or has
    other values of) wanted variables; `other` starts something else."""
    if present is None:
        return "absent"
    if not isinstance(present, Mapping) or not starts_the_same(present, wanted):
        return "other"
    found = present.get("env")
    has = found if isinstance(found, Mapping) else {}
    return "same" if wanted.get("env", {}).items() <= has.items() else "extended"


def starts_the_same(present: Mapping[str, Any], wanted: Entry) -> bool:
    """Whether both start the same command line on standard input and output."""
    said = (present.get("type", "stdio"), present.get("command"), _list(present.get("args")))
    return said == ("stdio", wanted["command"], wanted["args"])


def extend(present: Mapping[str, Any], wanted: Entry) -> Entry:
    """The present entry with the wanted variables; whatever else it has stays."""
    found = present.get("env")
    return {**present, "env": {**(found if isinstance(found, Mapping) else {}), **wanted["env"]}}


def is_ours(entry: object) -> bool:
    """Whether an entry starts Remembrancer, by the name of its command or of a module in its arguments."""
    if not isinstance(entry, Mapping):
        return False
    words = [entry.get("command"), *_list(entry.get("args"))]
    return any(isinstance(word, str) and PurePath(word).stem == "remembrancer" for word in words)


def difference(present: object, wanted: Entry) -> str:
    """What would change, line by line; values of variables that may be secret are not shown."""
    before, after = (json.dumps(_veiled(each), indent=2, ensure_ascii=False).splitlines() for each in (present, wanted))
    return "\n".join(list(difflib.unified_diff(before, after, "present", "wanted", lineterm="", n=99))[3:])


def _veiled(entry: object) -> object:
    if not isinstance(entry, Mapping):
        return entry
    veiled = dict(entry)
    for name in ("env", "headers"):
        values = entry.get(name)
        if isinstance(values, Mapping):
            veiled[name] = {key: value if is_plain(key) else HIDDEN for key, value in values.items()}
    return veiled


def is_plain(variable: str) -> bool:
    """Whether a variable's value may be shown: one of ours that holds no secret."""
    return variable.startswith(PLAIN_PREFIXES) and not any(word in variable for word in SECRET_WORDS)


def _list(value: object) -> list[object]:
    return value if isinstance(value, list) else []
