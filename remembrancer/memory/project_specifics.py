"""Decides whether a memory is only about its own project. One sign is enough: a memory that stays can still be promoted
manually, whereas a memory promoted to the user appears in every project. Pure."""

import re
from collections.abc import Iterable
from typing import Final

from remembrancer.memory.found_names import found_names
from remembrancer.memory.lexicon import word_lists
from remembrancer.memory.names import TICKET
from remembrancer.memory.open_ends import DATE
from remembrancer.memory.replacement import tells_what_happened

LEAST_NAME: Final = 3
"""Shorter project names would match by chance."""
LONGEST_SHOWN: Final = 60

CODE_ENTITIES: Final = frozenset(("file", "function", "method", "class", "module"))
_LISTS: Final = word_lists("project_specifics")
EVERYWHERE: Final = _LISTS["everywhere"]
PRODUCTS: Final = _LISTS["products"]
_PATH: Final = re.compile(
    rf"(?<![\w@.~/-])(?:(?:\.{{1,2}}/|[A-Za-z]:\\|(?:{'|'.join(_LISTS['source_directories'])})[/\\])[\w@./\\-]*\w"
    r"|(?:[\w@.-]+/){2,}(?![\w@.-]))"
)
"""A path that begins like one ("./", "src/") or has several directories ("data/raw/"), unlike "client/server"."""
_ADDRESS: Final = re.compile(r"(?<![\w+.-])[a-z][a-z0-9+.-]*://[^\s<>\"'`)\]}]+", re.IGNORECASE)
_PORT: Final = re.compile(
    r"(?i:\bports?\b[\s:=#]*(?:is\s+|number\s+)?\d{2,5}\b)"
    r"|(?<![\w.-])(?i:localhost|(?:\d{1,3}\.){3}\d{1,3}|[a-z0-9-]+(?:\.[a-z0-9-]+)+):\d{2,5}\b"
    r"|(?<![\w.:-])[a-z][a-z0-9-]*:\d{4,5}\b"
)
_TICKET: Final = re.compile(rf"(?<![\w-]){TICKET}")
_NUMBERED: Final = re.compile(r"(?<![\w&#])#\d{2,6}\b")
_PARTS: Final = re.compile(r"[^\W_]+")


def is_project_specific(content: str, entities: Iterable[tuple[str, str]], project_name: str) -> str | None:
    """Return the reason why a memory is only about its project, or None. `entities` are pairs of name and type."""
    for name, given_type in entities:
        kind = re.split(r"[\s_-]", given_type.casefold())[-1]
        if kind in CODE_ENTITIES and name.casefold() not in EVERYWHERE:
            return f"it is about the {kind} {_short(name)}"
        if _names_project(name, project_name):
            return f"it is about the project {_short(project_name)}"
    if _names_project(content, project_name):
        return f"it names the project {_short(project_name)}"
    if address := _ADDRESS.search(content):
        return f"it names an address, {_short(address[0])}"
    if file := _file(content):
        return f"it names a file, {_short(file)}"
    if port := _PORT.search(content):
        return f"it names a port, {_short(port[0])}"
    if ticket := _TICKET.search(content) or _NUMBERED.search(content):
        return f"it names a ticket, {ticket[0]}"
    if (day := DATE.search(content)) and re.search(r"\d", DATE.sub("", content)):
        return f"it gives a figure for a day, {day[0]}"
    if tells_what_happened(content):
        return "it describes a single event"
    return None


def _names_project(text: str, project_name: str) -> bool:
    parts = _PARTS.findall(project_name)
    if sum(map(len, parts)) < LEAST_NAME:
        return False
    name = r"[\W_]?".join(map(re.escape, parts))
    return re.search(rf"(?<![^\W_]){name}(?![^\W_])", text, re.IGNORECASE) is not None


def _file(content: str) -> str | None:
    """The first path or file name that belongs to this project, and not to a dot directory in the home directory."""
    for each in found_names(content):
        name = each.name.casefold()
        is_common = name in EVERYWHERE or name.rpartition("/")[2] in PRODUCTS or name.startswith("~/.")
        if each.type == "file" and not is_common:
            return each.name
    path = _PATH.search(content)
    return path and path[0]


def _short(text: str) -> str:
    return text if len(text) <= LONGEST_SHOWN else text[: LONGEST_SHOWN - 1] + "…"
