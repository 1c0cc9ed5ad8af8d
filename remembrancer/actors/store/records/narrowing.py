"""Which memories a full-text expression is scored among, where a file is so large that to score all takes long. Pure.

FTS5 finds rows quickly and scores them slowly (some 2.5 µs a row), and a question's common words are in a great part of
all memories. Its rare words decide who comes first: so only what has one of these is scored, though by all the words.

Of 250 questions in 100,000 turns of conversations a search for 50 took 6.8 ms of processor time instead of 23.7 (the
95th of a hundred: 15 instead of 57), found 99.3 % of the first ten and the first one always. With 3,000 and 8,000 rows
it was a tenth faster and found 98.6 %, with 2,000 and no `WIDE_ROWS` a quarter faster and found 95.9 %. To leave what
is in a fifth of all memories out of the score as well saved a tenth, and lost another 3 %.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from typing import Final

ROWS: Final = 4_000
"""Rows that are scored gladly: words are taken, the rarest first, as long as all of them are in no more rows."""
WIDE_ROWS: Final = 10_000
"""Rows that are scored for the sake of a second word, beside the rarest."""
ENOUGH: Final = 20
"""Hits of a narrowed search that make a second one, for all, needless."""
TIMES: Final = 2
"""How many times the score of the expression a narrowed one gives."""

_PHRASE: Final = re.compile(r'"[^"]*"\*?')


def phrases_of(match: str) -> Counter[str]:
    """The phrases of an expression that `match_expression` made, and how often each counts."""
    return Counter(_PHRASE.findall(match))


def narrowed(phrases: Mapping[str, int], rows: Mapping[str, int]) -> str | None:
    """An expression that scores fewer rows; None where there is nothing to gain. `rows`: how many have each phrase.

    FTS5 scores a row by every phrase in the expression that it has, as often as the phrase is there. With the rare ones
    required (`rare AND all`) these would count once more: so all others are there twice, and so is the whole score.
    """
    known = sorted((phrase for phrase in phrases if rows[phrase]), key=lambda phrase: rows[phrase])
    if sum(rows[phrase] for phrase in known) <= ROWS:
        return None
    taken = total = 0
    for phrase in known:
        total += rows[phrase]
        if taken and total > (WIDE_ROWS if taken == 1 else ROWS):
            break
        taken += 1
    if taken == len(known):
        return None
    rare, common = known[:taken], known[taken:]
    again = [phrase for phrase in rare for _ in range(TIMES * phrases[phrase] - 1)]
    twice = [phrase for phrase in common for _ in range(TIMES * phrases[phrase])]
    return f"({' OR '.join(rare)}) AND ({' OR '.join(again + twice)})"
