"""Where a session stopped, for the next ones: what is an open end, and which questions ask for it. Pure."""

from __future__ import annotations

import re
from typing import Final

HANDOVER: Final = "handover"
"""The tag of the memory that a session leaves to its project when it ends."""

_OPEN: Final = re.compile(
    r"\b(next( up| steps?)?\s*(:|is\b|are\b|we\b|i\b)|to[- ]?do\b|still (needs?|ha(s|ve) to|missing|open|fails?|to\b)"
    r"|half[- ](done|written|finished|migrated|way)|unfinished|incomplete|wip\b|in progress"
    r"|not (yet )?(done|finished|written|migrated|tested|merged|deployed|committed)"
    r"|(remains?|remaining|left) (to|is|are)\b"
    r"|left (off|to do)|follow[- ]?ups?\b|open (question|end|point|issue)s?|blocked (on|by)|waiting for|continue with"
    r"|pick up (at|with|from)|stopped (at|in|before|after)"
    r"|als nächstes|noch (offen|nicht|zu)|weiter mit|à faire|reste à|prochaine étape|siguiente paso|falta)",
    re.IGNORECASE,
)
_ASKS: Final = re.compile(
    r"\bwhat(?:'s| is| was| are)?(?: the)? (?:next(?: steps?| up)?|left(?: to do)?)\W*$"
    r"|\bwhat(?:'s| is| was| are)?(?: the)? (?:still (?:open|to do)|open(?: ends?)?)\W*$"
    r"|\bwhat (?:should|do|shall|can) (?:i|we|you) (?:do|work on|continue with|pick up)(?: next| now)?\W*$"
    r"|\bwhere (?:did|were|was|have) (?:i|we|you) (?:stop|stopped|leave off|left off|been|at)\b"
    r"|\b(?:last|previous|earlier|yesterday's|preceding) (?:work(?:ing)? )?sessions?\b"
    r"|\b(?:continue|resume|pick up)\b.{0,30}\b(?:where|left off|stopped|yesterday|last time)\b"
    r"|\b(?:what|anything)\b.{0,30}\b(?:unfinished|half[- ]done|in progress|left over)\b"
    r"|\bopen ends?\b|\bunfinished work\b|\bto[- ]?dos?\W*$"
    r"|was (?:ist|war) (?:als )?nächstes|letzten? sitzung|wo (?:haben wir|habe ich) aufgehört"
    r"|dernière session|prochaine étape|última sesión|siguiente paso",
    re.IGNORECASE,
)


def is_open_end(sentence: str) -> bool:
    """Whether a sentence says what is still to be done."""
    return _OPEN.search(sentence) is not None


def asks_where_it_stopped(question: str) -> bool:
    """Whether a question asks what the last sessions did, or what is next."""
    return len(question) <= 200 and _ASKS.search(question) is not None
