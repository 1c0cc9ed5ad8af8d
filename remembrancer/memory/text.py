"""Validates names, content and metadata from callers. Errors name the field and the limit."""

import csv
import difflib
import io
import json
import re
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Any, Final

import msgspec

from remembrancer.protocol.errors import InvalidInput

_REFUSED: Final = frozenset({"Cc", "Cs", "Zl", "Zp"})
_UNSEEN: Final = frozenset("\u061c\u200b\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\ufeff")
"""Names that differ only in these look alike. Several scripts and emoji need the joiners (U+200C, U+200D)."""
_SHOWN: Final = 60


def clean_name(text: str, *, field: str, longest: int) -> str:
    """Return a name in NFC without surrounding whitespace. Raises `InvalidInput`."""
    name = unicodedata.normalize("NFC", text).strip()
    if not name:
        raise InvalidInput(f"{field} must not be empty", field=field)
    if len(name) > longest:
        raise InvalidInput(f"{field} may have at most {longest} characters, but has {len(name)}", field=field)
    if not name.isprintable() and any(each in _UNSEEN or unicodedata.category(each) in _REFUSED for each in name):
        raise InvalidInput(
            f"{field} must not contain control characters or lone surrogates: {quote(name)}", field=field
        )
    return name


def check_text(text: str, *, field: str, longest_bytes: int) -> None:
    """Raises `InvalidInput` if a text is blank or too long, or contains a NUL or a lone surrogate."""
    if not text or text.isspace():
        raise InvalidInput(f"{field} must not be empty", field=field)
    try:
        size = len(text.encode())
    except UnicodeEncodeError as error:
        message = f"{field} has a lone surrogate (half a character) at position {error.start}; send whole characters"
        raise InvalidInput(message, field=field) from error
    if size > longest_bytes:
        raise InvalidInput(f"{field} may have at most {longest_bytes} bytes in UTF-8, but has {size}", field=field)
    if "\0" in text:
        message = f"{field} must not contain NUL characters (the first is at position {text.index(chr(0))})"
        raise InvalidInput(message, field=field)


def finder_of(patterns: Iterable[str]) -> Callable[[str], list[int]]:
    """Combine patterns into one RE2 search for those that match a text. The text must not contain lone surrogates."""
    import re2  # few processes need it

    matcher = re2.Set.SearchSet()
    for pattern in patterns:
        matcher.Add(pattern)
    matcher.Compile()
    return lambda text: sorted(matcher.Match(text) or ())


def quote(value: object) -> str:
    """Format a value for an error message: short and printable, as JSON unless it is text."""
    text = repr(value) if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def nearest(name: str, known: Iterable[str]) -> str:
    names = list(known)
    near = [each for each in names if name in each.split("_")] or difflib.get_close_matches(name, names, 1, 0.5)
    listed = f"valid names are {', '.join(names)}" if names else "there are none"
    return f": did you mean {near[0]}? ({listed})" if near else f": {listed}"


_TYPES_IN_WORDS: Final = {
    "str": "text",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "array": "a list",
    "object": "an object",
    "null": "nothing",
}


def types_in_words(message: str) -> str:
    """Write the types in an error message from msgspec as words: `expected a number, got text`."""
    words = re.sub(r"`(\w+)( \| null)?`", lambda kind: _TYPES_IN_WORDS.get(kind[1], kind[0]), message)
    return words.replace("Expected", "expected", 1)


MAX_OBJECT_BYTES: Final = 65_536
MAX_OBJECT_DEPTH: Final = 8
MAX_KEY: Final = 200
MAX_EXACT: Final = 2**53
"""The largest integer up to which JSON numbers are exact."""


def clean_object(given: dict[str, Any], *, field: str) -> dict[str, Any] | None:
    """None for an empty object. Raises `InvalidInput` for a value that is too large, too deep, or changed by JSON."""
    if not given:
        return None
    for name, value in given.items():
        _check_value(value, f"{field}.{quote(name)[1:-1]}", 1)
    cleaned = {clean_name(name, field=field, longest=MAX_KEY): value for name, value in given.items()}
    try:
        size = len(msgspec.json.encode(cleaned))
    except UnicodeEncodeError as error:
        message = f"{field} contains a lone surrogate (half a character); send whole characters"
        raise InvalidInput(message, field=field) from error
    if size > MAX_OBJECT_BYTES:
        raise InvalidInput(f"{field} may have at most {MAX_OBJECT_BYTES} bytes as JSON, but has {size}", field=field)
    return cleaned


def _check_value(value: Any, field: str, depth: int) -> None:
    match value:
        case int() | float() if not abs(value) <= MAX_EXACT:
            message = f"{field} must be a number from -2**53 to 2**53, not {quote(value)}; give it as a string"
            raise InvalidInput(message, field=field)
        case dict() | list() if depth >= MAX_OBJECT_DEPTH:
            raise InvalidInput(f"{field} is nested more than {MAX_OBJECT_DEPTH} levels deep", field=field)
        case dict():
            for name, each in value.items():
                _check_value(each, f"{field}.{quote(name)[1:-1]}", depth + 1)
        case list():
            for place, each in enumerate(value):
                _check_value(each, f"{field}[{place}]", depth + 1)


_ROLES: Final = re.compile(
    r"<(?=/?\s*(?:system|context|instructions?|assistant|user|human|developer|important|additional-?context|memory-data"
    r"|(?:tool|function)(?:_\w+)?|antml)\b|\|)|\[(?=/?INST\])",
    re.IGNORECASE,
)
"""A tag that a model may mistake for its conversation's structure."""
_STEERING: Final = r"\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069"
_INVISIBLE: Final = (
    r"\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2060-\u2065\u206a-\u206f\u3164\ufe00-\ufe0f"
    r"\ufeff\uffa0\ufff0-\ufffb\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
"""These can hide text from people but not from models."""
_HIDDEN: Final = re.compile(rf"(?:[{_STEERING}\u2028\u2029{_INVISIBLE}]|\r(?!\n))+")
_STEERS: Final = re.compile(rf"[{_STEERING}\r]")
_JOINED: Final = re.compile("[\ufe0e\ufe0f]?[\u200c\u200d]?")
"""A variation selector for emoji, and a joiner that several scripts and emoji need."""
_FIRST_JOINED: Final = "\u0590"
_KEYCAP: Final = "\ufe0f\u20e3"
"""Turns the preceding digit into a keycap emoji."""


def _harmless(match: re.Match[str]) -> str:
    hidden, text, (start, end) = match[0], match.string, match.span()
    may_join = text[start - 1 : start] >= _FIRST_JOINED or text[start : end + 1] == _KEYCAP
    kept = _JOINED.match(hidden) if may_join else None
    shown = re.sub("[\u2028\u2029]", "\n", _STEERS.sub("\ufffd", hidden))
    return (kept[0] if kept else "") + "".join(each for each in shown if each in "\n\ufffd")


def harmless(text: str) -> str:
    """Replace control characters with U+FFFD, and remove invisible characters that no script needs."""
    is_plain = text.isascii() and text.replace("\n", "").replace("\t", "").isprintable()
    return text if is_plain else _HIDDEN.sub(_harmless, text)


def printable(text: str) -> str:
    return harmless(text).replace("\r\n", "\n")


NAMELESS: Final = "A session"


def client_title(client: str) -> str:
    """`claude-code` becomes `Claude Code`, and the default name of a client library becomes `NAMELESS`."""
    if client.lower() in ("mcp", "mcp-client"):
        return NAMELESS
    return client.replace("-", " ").title() if client.islower() else client


def session_title(client: str | None, started_at: float) -> str:
    name = client_title(client or NAMELESS)
    return f"{name} of {datetime.fromtimestamp(started_at).astimezone():%d %b, %H:%M}" if name == NAMELESS else name


def count(number: int, noun: str, plural: str = "") -> str:
    """A number with its noun, as in "1 memory" and "1,200 memories"."""
    several = plural or (f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}s")
    return f"{number:,} {noun if number == 1 else several}"


def neutralised(text: str) -> str:
    """Make a text unable to pose as part of the conversation's structure, or to control a terminal."""
    text = harmless(text)
    if "<" in text or "[" in text:
        text = _ROLES.sub(lambda found: "‹" if found[0] == "<" else "［", text)
    return text


def neutralised_value(value: Any) -> Any:
    match value:
        case str():
            return neutralised(value)
        case dict():
            return {neutralised(name): neutralised_value(each) for name, each in value.items()}
        case list() | tuple():
            return [neutralised_value(each) for each in value]
        case _:
            return value


def tags_text(tags: Sequence[str]) -> str:
    """Tags separated by commas, with quotes around a tag that contains a comma."""
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow(tags)
    return line.getvalue()


def tags_in(text: str) -> tuple[str, ...]:
    cells = (tag.strip() for row in csv.reader([" ".join(text.split())], skipinitialspace=True) for tag in row)
    return tuple(tag for tag in cells if tag)
