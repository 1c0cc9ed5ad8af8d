"""Notes: Markdown files that people also edit. Defines the rules for their names and for changing their text. Pure."""

import re
from collections.abc import Sequence
from datetime import datetime
from pathlib import PurePosixPath
from typing import Final, Literal, NamedTuple

from remembrancer.memory.chunks import Block, headings_of, line_starts
from remembrancer.memory.text import check_text, nearest, quote
from remembrancer.protocol.errors import InvalidInput, NotFound

MAX_NOTE_BYTES: Final = 262_144
MAX_FILE_BYTES: Final = 4 * 1024 * 1024
"""Larger files are neither indexed nor written."""
MAX_LEVEL: Final = 6
MAX_NAMED: Final = 20
"""The number of headings that an error message names."""
MAX_REPLACED: Final = 20_000
"""The maximum number of characters that a change may remove. The answer shows them, so that a loss is noticed."""
_NOT_IN_NAMES: Final = re.compile(r'[\x00-\x1f\x7f<>:"|?*\\]')
_ITEM: Final = re.compile(r"\s*(?:[-*+]|\d{1,9}[.)])\s")
_HEADING: Final = re.compile(r"(#{1,6})(?:[ \t]+|$)(.*?)[ \t#]*$")


def directories_of(places: Sequence[str]) -> tuple[str, ...]:
    return tuple(
        f"{PurePosixPath(place)}/" for place in places if place.endswith("/") or not place.lower().endswith(".md")
    )


def daily_note(at: float, places: Sequence[str]) -> str:
    """The path of a local day's note in the first directory. Raises `InvalidInput` if there is no directory."""
    directories = directories_of(places)
    if not directories:
        raise InvalidInput(f"path is missing: it must be one of {', '.join(places)}", field="path")
    return f"{directories[0]}{datetime.fromtimestamp(at).astimezone():%Y-%m-%d}.md"


def clean_note_path(path: str, root: str, places: Sequence[str]) -> str:
    """Checks only the text of the path: links are resolved when the file is opened. Raises `InvalidInput`."""
    check_text(path, field="path", longest_bytes=1000)
    inside = f"{path}/".removeprefix(f"{root.rstrip('/')}/") if path.startswith("/") else path
    pure, directories = PurePosixPath(inside), directories_of(places)
    files = [str(PurePosixPath(place)) for place in places if f"{PurePosixPath(place)}/" not in directories]
    odd = [each for each in pure.parts if _NOT_IN_NAMES.search(each) or each[0] == "." or each[-1] in ". "]
    if pure.is_absolute() or ".." in pure.parts:
        why = f"is outside the workspace {root}; give a path relative to it"
    elif odd:
        why = f"has a name that is not allowed: {quote(odd[0])}"
    elif any(len(each.encode()) > 200 for each in pure.parts):
        why = "has a name of more than 200 bytes"
    elif pure.suffix.lower() != ".md":
        why = "is not a Markdown file: its name must end in .md"
    elif not (str(pure).startswith(directories) or str(pure) in files):
        why = "is not one of the project's notes"
    else:
        return str(pure)
    allowed = ", ".join([*files, *(f"{directory}*.md" for directory in directories)])
    raise InvalidInput(f"{quote(path)} {why} (notes are {allowed})", field="path")


class Edited(NamedTuple):
    """`lines` is the number of added lines. `was_there` is True if the text already had them."""

    text: str
    replaced: str
    lines: int
    was_there: bool = False


def edited(text: str, content: str, mode: Literal["append", "replace"], heading: str | None) -> Edited:
    """Append to or replace a whole note, or the text under a heading. Appending adds a missing heading; replacing
    includes subsections. Raises `NotFound` for a missing heading, and `InvalidInput` for an ambiguous heading or if the
    removed text is too long for an answer."""
    newline = "\r\n" if "\r\n" in text else "\n"
    block = re.sub(r"\r\n?|\n", newline, content.strip("\r\n")).rstrip()
    lines = len(line_starts(block)) - 1
    own, begin, end = None, 0, len(text)
    if heading is not None:
        headings, starts = headings_of(text), line_starts(text)
        index = _find(headings, heading)
        if index is None and mode == "replace":
            known = nearest(heading, [each.path for each in headings[:MAX_NAMED]])
            raise NotFound(f"there is no heading {quote(heading)}{known}", field="heading")
        if index is None:
            level, title = _parse_heading(heading)
            above, _, last = title.rpartition(" > ")
            parent = _find(headings, above) if above else None
            if parent is not None:
                level, title = min(headings[parent].level + 1, MAX_LEVEL), last
                later = (each for each in headings[parent + 1 :] if each.level < level)
                end = next((starts[each.first] for each in later), end)
            block = f"{'#' * (level or 2)} {title}{newline}{newline}{block}"
            return Edited(_joined(text[:end], block, text[end:], newline), "", lines + 2)
        own = headings[index]
        following = (each for each in headings[index + 1 :] if mode == "append" or each.level <= own.level)
        begin, end = starts[own.end], next((starts[each.first] for each in following), end)
    if mode == "append":
        was_there = f"\n{text[:end].rstrip()}".endswith(f"\n{block}")
        return Edited(_joined(text[:end], block, text[end:], newline), "", lines, was_there)
    first, _, rest = block.partition(newline)
    if own is not None and _parse_heading(first) == (own.level, own.path.rpartition(" > ")[2]):
        block = rest.strip("\r\n")
        lines = len(line_starts(block)) - 1 if block else 0
    if end - begin > MAX_REPLACED:
        raise InvalidInput(
            f"that would remove {end - begin} characters, but an answer can show at most {MAX_REPLACED}; "
            "replace a smaller section, by its heading, or append",
            field="mode",
        )
    after = _joined(text[:begin], block, text[end:], newline)
    return Edited(after, text[begin:end].strip(), lines, after == text)


def _joined(before: str, block: str, after: str, newline: str) -> str:
    """Join the parts with blank lines between them, except between two list items."""
    if before and not before.endswith(("\r", "\n")):
        before += newline
    if before.strip():
        if after.strip():  # the inserted text goes above the blank lines before the next heading
            before = before.rstrip("\r\n") + newline
        last = before.rstrip().rpartition("\n")[2]
        gap = 1 if _ITEM.match(last) and _ITEM.match(block) else 2
        ends = len(before) - len(before.rstrip("\r\n"))
        before += newline * max(0, gap - before[len(before) - ends :].count("\n"))
    return f"{before}{block}{newline}{newline if after.strip() else ''}{after}"


def _parse_heading(heading: str) -> tuple[int, str]:
    """The heading's level (0 if unspecified) and title."""
    marked = _HEADING.match(heading.strip())
    return (len(marked[1]), marked[2]) if marked else (0, heading.strip())


def _find(headings: Sequence[Block], heading: str) -> int | None:
    level, title = _parse_heading(heading)
    wanted = " ".join(title.split()).casefold()
    if not wanted or "\n" in title or "\r" in title:
        raise InvalidInput("heading must be one line with the text of a heading", field="heading")
    paths = [f" > {each.path.casefold()}" for each in headings]
    for is_named in (f" > {wanted}".__eq__, lambda path: path.endswith(f" > {wanted}")):
        matching = [place for place, path in enumerate(paths) if is_named(path) and level in (0, headings[place].level)]
        if len(matching) > 1:
            named = dict.fromkeys(headings[place].path for place in matching)
            remedy = f"give the path of one of them, {', '.join(named)}" if named.keys() - {title} else "rename one"
            message = f"{len(matching)} headings are called {quote(title)}; {remedy}"
            raise InvalidInput(message, field="heading")
        if matching:
            return matching[0]
    return None
