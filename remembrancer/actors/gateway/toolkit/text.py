"""Text from outside: what is accepted as a name or as content. Errors name the field and what is allowed."""

from __future__ import annotations

import json
import unicodedata
from typing import Final

from remembrancer.protocol.errors import InvalidInput

_REFUSED: Final = frozenset({"Cc", "Cs", "Zl", "Zp"})
"""Categories that no name has: controls, halves of characters, and what separates lines and paragraphs."""
_UNSEEN: Final = frozenset("\u061c\u200b\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\ufeff")
"""What turns the direction of writing, and blanks of no width: with them two names look alike, or read as others.
The joiners (U+200C, U+200D) are not among them: several scripts and emoji need these."""
_SHOWN: Final = 60


def clean_name(text: str, *, field: str, longest: int) -> str:
    """A short text (a tag, a name, an id) in Unicode's NFC and without blanks at its ends.

    Raises:
        InvalidInput: it is empty, longer than `longest` characters, or holds a control character (one that turns the
            direction of writing, or cannot be seen, counts as such) or half a character.
    """
    name = unicodedata.normalize("NFC", text).strip()
    if not name:
        raise InvalidInput(f"{field} must not be empty", field=field)
    if len(name) > longest:
        raise InvalidInput(f"{field} may have {longest} characters at most, and has {len(name)}", field=field)
    if not name.isprintable() and any(map(_is_refused, name)):
        raise InvalidInput(f"{field} must not hold control characters or lone surrogates: {shown(name)}", field=field)
    return name


def check_text(text: str, *, field: str, longest_bytes: int) -> None:
    """Refuse a longer text that cannot be kept as it is. Line breaks and tabs are welcome.

    Raises:
        InvalidInput: it is blank, longer than `longest_bytes` in UTF-8, or holds a NUL or half a character.
    """
    if not text or text.isspace():
        raise InvalidInput(f"{field} must not be empty", field=field)
    try:
        size = len(text.encode())
    except UnicodeEncodeError as error:
        message = f"{field} holds a lone surrogate (half a character) at position {error.start}: send whole characters"
        raise InvalidInput(message, field=field) from error
    if size > longest_bytes:
        raise InvalidInput(f"{field} may have {longest_bytes} bytes in UTF-8 at most, and has {size}", field=field)
    if "\0" in text:
        message = f"{field} must not hold NUL characters (the first is at position {text.index(chr(0))})"
        raise InvalidInput(message, field=field)


def _is_refused(character: str) -> bool:
    return character in _UNSEEN or unicodedata.category(character) in _REFUSED


def shown(value: object) -> str:
    """A value as an error message quotes it: short, in ASCII, and what is no text as JSON has it."""
    text = ascii(value) if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
