"""Names of entities, normalized for comparison and search. Pure."""

import re
import unicodedata
from typing import Final

from remembrancer.memory.lexicon import word_lists

_STANDARDS: Final = "|".join(sorted(word_lists("names")["standards"])).upper()
TICKET: Final = rf"(?!(?:{_STANDARDS})-)[A-Z][A-Z0-9]{{1,9}}-\d{{1,6}}(?![\w-])"
"""Matches a ticket's id, but not the number of a standard."""
_JOINTS: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|[\W_]+")
"""Word boundaries: before capitals (`AuthService`, `HTTPServer`), and at punctuation and spaces."""
_SPELT_OUT: Final = {"c++": "cpp", "c#": "csharp", "f#": "fsharp", ".net": "dotnet"}


def name_key(name: str) -> str:
    """`AuthService`, `auth-service` and `auth service` share a key, and so do `C#` and `csharp`."""
    folded = unicodedata.normalize("NFKC", name).casefold()
    return _SPELT_OUT.get(folded) or "".join(filter(str.isalnum, folded)) or folded


def name_words(name: str) -> str:
    """The name for full-text search, followed by its parts if they differ."""
    parts = " ".join(part for part in _JOINTS.split(name) if part)
    return name if parts == name else f"{name} {parts}"
