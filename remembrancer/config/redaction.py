"""What of a setting may be shown. A secret is never printed, logged or sent."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

HIDDEN: Final = "***"
_SECRET_NAME: Final = re.compile("pass|token|secret|key", re.IGNORECASE)
_HARMLESS_ADDRESS: Final = re.compile(r"[a-z][a-z0-9+.-]*://[^@?#]*", re.IGNORECASE)
_SCHEME: Final = re.compile(r"[a-z][a-z0-9+.-]*://", re.IGNORECASE)


def is_secret(name: str) -> bool:
    """Whether a setting of that name holds a secret."""
    return _SECRET_NAME.search(name) is not None


def holds_secret(name: str, value: object) -> bool:
    """Whether something in that setting must not be shown."""
    return value not in (None, "", {}) and HIDDEN in shown(name, value)


def shown(name: str, value: object) -> str:
    """A setting's value as it may be printed: no secret, and no address that has a user, a password or a query."""
    if is_secret(name) or isinstance(value, dict | list):  # which may hold anything
        return HIDDEN
    text = str(value)
    if ("://" not in text and "url" not in name.lower()) or _HARMLESS_ADDRESS.fullmatch(text):
        return text
    scheme = _SCHEME.match(text)
    return (scheme[0] if scheme else "") + HIDDEN


def exposed(mode: int, secrets: Iterable[str]) -> str | None:
    """What is wrong with the mode (as `stat` gives it) of a file that holds these secrets; None when nothing is."""
    names = ", ".join(sorted(secrets))
    if not names or not mode & 0o077:
        return None
    return f"it holds {names}, and others than its owner may get at it: chmod 600"
