"""Whether a text says how something is done: as an order, or as steps. The words are English."""

from __future__ import annotations

import re
from typing import Final

# Verbs that begin an order. Those that are nouns as well (test, log, build, change) are left out.
_ORDER_TEXT: Final = """
    add always apply ask avoid be bump check clean clear close configure create define delete deploy disable do don't
    enable ensure fix generate give go handle include increase inspect install keep kill make measure migrate move never
    open pass pin prefer pull put raise read rebase rebuild remember remove rename replace reproduce reset restart retry
    rotate run save send set show specify split squash start stop switch try turn update upgrade use validate verify
    wait write
"""
_ORDER: Final = re.compile(
    rf"(?:please\s+|first,?\s+)?(?:{'|'.join(_ORDER_TEXT.split())})\b(?![’'-]?s\b)", re.IGNORECASE
)
_STEPS: Final = re.compile(
    r"\bstep \d|\bfirst\b.{1,200}\bthen\b|\bhow to\b|\bby \w{2,}ing\b|\bmake sure\b"
    r"|\b(?:must|should|ha[sd] to|have to|needs? to) be \w+"
    r"|\b(?:asked|reminded|told|wants|wanted) (?:me |us |you |them )?to \w+|\b(?:before|after) (?:every|each|any)\b"
    r"|\b(?:before|after|when|whenever) \w{2,}ing\b|^to \w+[^.]{1,80}, |(?:^|\n)\s*\d[.)] .{1,400}\n\s*\d[.)] ",
    re.IGNORECASE | re.DOTALL,
)
_ASKING: Final = re.compile(
    r"\b(?:asks?|asked|asking|questions?|wonders?|unclear)\b.{0,60}\b(?:how|about|whether|what|why)\b", re.I
)
_LOOKED_AT: Final = 2_000
"""Characters in which steps are looked for."""


def says_how(content: str) -> bool:
    """Whether it begins with an order, or has the marks of steps ("first … then", "before doing", numbers).

    To ask how is not to say how.
    """
    head = content[:_LOOKED_AT].strip()
    if _ASKING.search(head):
        return False
    return _ORDER.match(head) is not None or _STEPS.search(head) is not None
