"""Decides whether a memory is only about its own project, by signs that a person can check, each with its reason. Pure.

One sign is enough: a memory that stays in its project can still be promoted manually, while one that is promoted to the
user appears in every project.
"""

import re
from collections.abc import Iterable
from typing import Final

from remembrancer.memory.lexicon import word_lists
from remembrancer.memory.names import FILE_ENDINGS, TICKET
from remembrancer.memory.open_ends import DATE
from remembrancer.memory.replacement import tells_what_happened

LEAST_NAME: Final = 3
"""A shorter project name would match by chance."""
LONGEST_SHOWN: Final = 60

CODE_ENTITIES: Final = {
    "file": "file",
    "source file": "file",
    "filename": "file",
    "function": "function",
    "method": "function",
    "class": "class",
    "module": "module",
}
"""The types of entities that are part of one project's code, with their synonyms."""
_LISTS: Final = word_lists("project_specifics")
EVERYWHERE: Final = _LISTS["everywhere"]
"""Files that have the same name in every project, so a convention about them is not specific to one project."""
PRODUCTS: Final = _LISTS["products"]
"""Names of technologies that look like files."""
_COMMON: Final = EVERYWHERE | PRODUCTS

SOURCE_DIRECTORIES: Final = _LISTS["source_directories"]
"""Words that begin a path rather than an alternative (`and/or`); not `client`, since `client/server` is common."""

_WITH_DIRECTORIES: Final = re.compile(
    r"(?<![\w@.~/\\-])(?:[A-Za-z]:[/\\]|~(?!/\.)[/\\]|\.{1,2}[/\\]|[/\\])?[\w@.-]+(?:[/\\][\w@.-]+)+[/\\]?"
)
"""Names with separators. Paths below a dot directory of the user's home are not matched, as they belong to no
project."""
_FILE_NAME: Final = re.compile(rf"(?<![\w@.~/\\-])[\w@-][\w@.-]+\.(?:{FILE_ENDINGS})(?![\w(-]|\.\w)", re.IGNORECASE)
_IS_FILE_NAME: Final = re.compile(rf"[\w@.-]*\.(?:{FILE_ENDINGS})", re.IGNORECASE)
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
    """The reason, in words, why a memory is only about its project; None if there is no sign.

    `entities` are names with their types. The signs: an entity that is a file, a function, a class or a module; the
    name of the project; an address, a port, the id of a ticket, the path or name of a file; a figure for a day; an
    event.
    """
    for name, given_type in entities:
        kind = CODE_ENTITIES.get(" ".join(re.findall(r"[^\s_-]+", given_type.casefold())))
        if kind is not None and name.casefold() not in EVERYWHERE:
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
    """True if a text contains the words of a project's name, joined in any way."""
    parts = _PARTS.findall(project_name)
    if sum(map(len, parts)) < LEAST_NAME:
        return False
    name = r"[\W_]?".join(map(re.escape, parts))
    return re.search(rf"(?<![^\W_]){name}(?![^\W_])", text, re.IGNORECASE) is not None


def _file(content: str) -> str | None:
    """The first path or file name in a text, except those that every project has."""
    for match in _WITH_DIRECTORIES.finditer(content):
        path = match[0].rstrip(".")
        if _is_path(path):
            return path
    for match in _FILE_NAME.finditer(content):
        if match[0].casefold() not in _COMMON:
            return match[0]
    return None


def _is_path(text: str) -> bool:
    """True if names with separators are a path rather than an alternative like `and/or`."""
    names = [name.casefold() for name in re.split(r"[/\\]", text) if name]
    if text[0] in "~./\\" or text[1:2] == ":" or text[-1] in "/\\" or names[0] in SOURCE_DIRECTORIES:
        return True
    if names[-1] in PRODUCTS or all(name in _COMMON for name in names):
        return False
    return _IS_FILE_NAME.fullmatch(names[-1]) is not None


def _short(text: str) -> str:
    return text if len(text) <= LONGEST_SHOWN else text[: LONGEST_SHOWN - 1] + "…"
