"""One member of a JSON object set or removed in its text, so that every other byte stays as its owner wrote it.

Parsing and writing a file again would lose the way numbers are written, escapes, and the look of it. Pure.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from json.decoder import scanstring  # type: ignore[attr-defined]
from typing import Any, Final

DEFAULT_INDENT: Final = "  "
_SPACE: Final = re.compile(r"[ \t\r\n]*")
_STRING: Final = r'"(?:\\.|[^"\\])*"'
_COMMENTS: Final = re.compile(_STRING + r"|//[^\n]*|/\*.*?\*/", re.DOTALL)
_LAST_COMMAS: Final = re.compile(_STRING + r"|,(?=\s*[}\]])")

Json = dict[str, Any]


class NotEditable(Exception):
    """The text is no JSON object that a program may change. `reason` says so to a person."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class _Member:
    key: str
    start: int
    value_start: int
    end: int


def parse(text: str) -> Json:
    """The object that a text holds; an empty text holds an empty one.

    Raises:
        NotEditable: it is no JSON, has comments, holds something else than an object, or names a key twice.
    """
    if not text.strip():
        return {}
    try:
        found = json.loads(text, object_pairs_hook=_no_key_twice)
    except RecursionError as error:
        raise NotEditable("it is nested too deeply") from error
    except ValueError as error:
        if without_comments(text) != text:
            raise NotEditable("it has comments or trailing commas, which would be lost") from error
        raise NotEditable(f"it is not valid JSON: {error}") from error
    if not isinstance(found, dict):
        raise NotEditable("it does not hold a JSON object")
    return found


def parse_with_comments(text: str) -> Json:
    """As `parse`, for a client that allows comments and trailing commas (VS Code, Cursor). To look, not to change."""
    return parse(without_comments(text))


def without_comments(text: str) -> str:
    """The text without what some clients allow beyond JSON: comments, and a comma after the last member."""
    return _LAST_COMMAS.sub(_kept_if_string, _COMMENTS.sub(_kept_if_string, text))


def set_member(text: str, path: tuple[str, ...], value: object) -> str:
    """The text with the member at `path` (keys from the outside in) set; objects on the way are made when missing.

    Raises:
        NotEditable: see `parse`; or something on the way is not an object.
    """
    whole = parse(text)
    if not text.strip():
        text = text.strip("\ufeff \t\r\n") or "{}\n"
    expected = _with(whole, path, value)
    start = _SPACE.match(text, 0).end()  # type: ignore[union-attr]
    indent = _indent_of(text)
    depth = 0
    while True:
        members, end = _members(text, start)
        found = next((member for member in members if member.key == path[depth]), None)
        if found is None or depth == len(path) - 1:
            break
        start, depth = found.value_start, depth + 1
    for key in reversed(path[depth + 1 :]):
        value = {key: value}
    changed = _put(text, start, members, end, found, path[depth], value, indent)
    return _checked(changed, expected)


def remove_member(text: str, path: tuple[str, ...]) -> str:
    """The text without the member at `path`; the same text when there is none. Raises `NotEditable` as `parse` does."""
    expected = _without(parse(text), path)
    if expected is None:
        return text
    start = _SPACE.match(text, 0).end()  # type: ignore[union-attr]
    for key in path[:-1]:
        members, _ = _members(text, start)
        start = next(member.value_start for member in members if member.key == key)
    members, end = _members(text, start)
    place = next(index for index, member in enumerate(members) if member.key == path[-1])
    if len(members) == 1:
        changed = text[: start + 1] + text[end:]
    elif place + 1 < len(members):
        changed = text[: members[place].start] + text[members[place + 1].start :]
    else:
        changed = text[: members[place - 1].end] + text[members[place].end :]
    return _checked(changed, expected)


def write_value(value: object, indent: str, margin: str, newline: str) -> str:
    """A value as text whose later lines begin with `margin`."""
    lines = json.dumps(value, indent=indent, ensure_ascii=False).split("\n")
    return (newline + margin).join(lines)


def _put(
    text: str,
    start: int,
    members: list[_Member],
    end: int,
    found: _Member | None,
    key: str,
    value: object,
    indent: str,
) -> str:
    newline = "\r\n" if "\r\n" in text else "\n"
    outer = _margin_of(text, start)
    first = text[start + 1 : members[0].start] if members else newline
    is_one_line = "\n" not in first
    margin = first.rpartition("\n")[2] if members else outer + indent
    written = json.dumps(value, ensure_ascii=False) if is_one_line else write_value(value, indent, margin, newline)
    if found is not None:
        return text[: found.value_start] + written + text[found.end :]
    member = f"{json.dumps(key, ensure_ascii=False)}: {written}"
    if not members:
        return f"{text[: start + 1]}{newline}{margin}{member}{newline}{outer}{text[end:]}"
    separator = ", " if is_one_line else "," + newline + margin
    return text[: members[-1].end] + separator + member + text[members[-1].end :]


def _members(text: str, start: int) -> tuple[list[_Member], int]:
    """The members of the object that begins at `start`, and where its closing brace is. The text is valid JSON."""
    if text[start] != "{":
        raise NotEditable("what should hold the servers is not a JSON object")
    decoder = json.JSONDecoder()
    members = []
    place = _skip(text, start + 1)
    while text[place] != "}":
        key, after = scanstring(text, place + 1)
        value_start = _skip(text, _skip(text, after) + 1)
        _, end = decoder.raw_decode(text, value_start)
        members.append(_Member(key, place, value_start, end))
        place = _skip(text, end)
        if text[place] == ",":
            place = _skip(text, place + 1)
    return members, place


def _skip(text: str, place: int) -> int:
    found = _SPACE.match(text, place)
    return found.end() if found else place


def _indent_of(text: str) -> str:
    """One step of the text's indentation: what stands before the first thing that is indented."""
    found = re.search(r"\n([ \t]+)\S", text)
    return found.group(1) if found else DEFAULT_INDENT


def _margin_of(text: str, place: int) -> str:
    """The white space at the beginning of the line of a place."""
    found = re.match(r"[ \t]*", text[text.rfind("\n", 0, place) + 1 :])
    return found.group() if found else ""


def _with(whole: Json, path: tuple[str, ...], value: object) -> Json:
    inner = whole.get(path[0], {})
    if len(path) > 1 and not isinstance(inner, dict):
        raise NotEditable(f"its member {path[0]!r} is not a JSON object")
    return {**whole, path[0]: value if len(path) == 1 else _with(inner, path[1:], value)}


def _without(whole: Json, path: tuple[str, ...]) -> Json | None:
    inner: object = whole
    for key in path:
        if not isinstance(inner, Mapping) or key not in inner:
            return None
        inner = inner[key]
    if len(path) == 1:
        return {key: value for key, value in whole.items() if key != path[0]}
    return {**whole, path[0]: _without(whole[path[0]], path[1:])}


def _checked(text: str, expected: Json) -> str:
    """The text, if it says what it should: a slip in the splicing must never reach a user's file."""
    said = parse(text)
    if json.dumps(said) != json.dumps(expected):
        raise NotEditable("it could not be changed without changing something else")
    return text


def _kept_if_string(found: re.Match[str]) -> str:
    return found.group() if found.group().startswith('"') else ""


def _no_key_twice(pairs: list[tuple[str, Any]]) -> Json:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key stands twice in one object")
    return found
