"""What of a text makes no difference to what it says."""

from __future__ import annotations

import unicodedata
from typing import Final

_END_MARKS: Final = " .!…;,。！｡；，۔।"
"""Without a question mark: a question is not the statement."""


def normalised(text: str) -> str:
    """A text with what makes no difference taken away: forms of characters (NFKC), case, blanks, marks at its end."""
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    joined = " ".join(folded.split())
    return joined.rstrip(_END_MARKS) or joined
