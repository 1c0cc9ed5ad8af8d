"""Names of entities, as they are compared and searched. Pure."""

from __future__ import annotations

import re
import unicodedata
from typing import Final

_JOINTS: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|[\W_]+")
"""The joints of a name's words: at a capital letter (`AuthService`, `HTTPServer`) and at what is no letter."""


def name_key(name: str) -> str:
    """A key that names have in common which mean the same: `AuthService`, `auth-service` and `auth service` are one
    key.

    A name without letters and digits is its own key.
    """
    folded = unicodedata.normalize("NFKC", name).casefold()
    return "".join(filter(str.isalnum, folded)) or folded


def name_words(name: str) -> str:
    """The words of a name for full text: the name itself, and its parts where these differ from it."""
    parts = " ".join(part for part in _JOINTS.split(name) if part)
    return name if parts == name else f"{name} {parts}"
