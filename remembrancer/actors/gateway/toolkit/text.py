"""Text from outside: what is accepted as a name or as content. Errors name the field and what is allowed."""

from __future__ import annotations

import unicodedata
from typing import Final

from remembrancer.protocol.errors import InvalidInput

_CONTROL: Final = frozenset({"Cc", "Cs"})
_SHOWN: Final = 60


def clean_name(text: str, *, field: str, longest: int) -> str:
    """A short text (a tag, a name, an id) in Unicode's NFC and without blanks at its ends.

    Raises:
        InvalidInput: it is empty, longer than `longest` characters, or holds a control character or half a character.
    """
    name = unicodedata.normalize("NFC", text).strip()
    if not name:
        raise InvalidInput(f"{field} must not be empty", field=field)
    if len(name) > longest:
        raise InvalidInput(f"{field} may have {longest} characters at most, and has {len(name)}", field=field)
    if not name.isprintable() and any(unicodedata.category(character) in _CONTROL for character in name):
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


def shown(value: object) -> str:
    """A value as an error message quotes it: short, and in ASCII."""
    text = ascii(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
