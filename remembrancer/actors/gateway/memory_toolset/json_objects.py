"""Objects that a client gives as they are (`metadata`, `structured`): what can be kept of them, and how much."""

from __future__ import annotations

import math
from typing import Any, Final

import msgspec
from msgspec import UNSET, UnsetType

from remembrancer.actors.gateway.toolkit.text import clean_name, shown
from remembrancer.protocol.errors import InvalidInput

MAX_OBJECT_BYTES: Final = 65_536
MAX_OBJECT_DEPTH: Final = 8
MAX_KEY: Final = 200
MAX_EXACT: Final = 2**53
"""The largest whole number up to which JSON carries every one exactly."""


def clean_object(given: dict[str, Any] | UnsetType, *, field: str) -> dict[str, Any] | None:
    """An object as it can be kept, or None when there is none. Names at the top are cleaned as names are.

    Raises:
        InvalidInput: it is too large or nested too deeply, or holds what JSON or MessagePack would not carry unharmed.
    """
    if given is UNSET or not given:
        return None
    for name, value in given.items():
        _check_value(value, f"{field}.{shown(name)[1:-1]}", 1)
    cleaned = {clean_name(name, field=field, longest=MAX_KEY): value for name, value in given.items()}
    size = len(msgspec.json.encode(cleaned))
    if size > MAX_OBJECT_BYTES:
        raise InvalidInput(f"{field} may have {MAX_OBJECT_BYTES} bytes as JSON at most, and has {size}", field=field)
    return cleaned


def _check_value(value: Any, field: str, depth: int) -> None:
    """Refuse what JSON or MessagePack would not carry unharmed.

    Raises:
        InvalidInput: it is nested too deeply, or holds a number that is not exact or half a character.
    """
    match value:
        case None | bool():
            return
        case str():
            _check_string(value, field)
        case int() if abs(value) > MAX_EXACT:
            message = f"{field} must be a number from -2**53 to 2**53, not {shown(value)}: give it as a string"
            raise InvalidInput(message, field=field)
        case float() if not math.isfinite(value) or abs(value) > MAX_EXACT:
            message = f"{field} must be a finite number from -2**53 to 2**53, not {shown(value)}"
            raise InvalidInput(message, field=field)
        case dict() | list() if depth >= MAX_OBJECT_DEPTH:
            raise InvalidInput(f"{field} is nested more than {MAX_OBJECT_DEPTH} levels deep", field=field)
        case dict():
            for name, each in value.items():
                _check_string(name, field)
                _check_value(each, f"{field}.{shown(name)[1:-1]}", depth + 1)
        case list():
            for place, each in enumerate(value):
                _check_value(each, f"{field}[{place}]", depth + 1)


def _check_string(text: str, field: str) -> None:
    if not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text):
        message = f"{field} holds a lone surrogate (half a character): send whole characters"
        raise InvalidInput(message, field=field)
