"""Thresholds for the probability that a memory answers a query, and the choice of memories for a prompt. Pure, and
without numpy, which the gateway need not load."""

import math
import re
from collections.abc import Iterable
from itertools import islice
from typing import Final

from remembrancer.memory.lexicon import word_lists
from remembrancer.protocol.kinds import RULES_OF_WORK
from remembrancer.protocol.reads import RecalledMemory

LIKELY: Final = 0.6
PERHAPS: Final = 0.2
"""The minimum probabilities of a likely and a possible answer."""


_WORD: Final = re.compile(r"[^\W\d_]+")
MOST_OPENING_WORDS: Final = 4
"""The maximum number of words in an opening. The longest one in the lists of questions and requests decides."""


def is_question(query: str) -> bool:
    words = [each[0].casefold() for each in islice(_WORD.finditer(query), MOST_OPENING_WORDS)]
    for length in range(len(words), 0, -1):
        opening = "-".join(words[:length])
        for module in ("questions", "requests"):
            if any(opening in openings for openings in word_lists(module).values()):
                return module == "questions"
    return query.rstrip().endswith(("?", "？", "؟"))


def is_given_whole(memory: RecalledMemory) -> bool:
    """True for a likely or possible answer, which is shown in full. Other memories get one line."""
    return memory.scores.relevance >= PERHAPS


LEAST_FOR_PROMPT: Final = 0.35
MOST_FOR_PROMPT: Final = 2
"""The minimum probability that a prompt needs a memory, and the maximum number of memories shown with it."""
COSINE, RELEVANCE, RULE, INTERCEPT = 10.0, 0.62, 2.34, -6.8
"""The weights of a logistic regression (cosine, logit of the relevance, 1 for a rule about work), and its intercept."""


def needed_for_prompt(memories: Iterable[RecalledMemory]) -> list[RecalledMemory]:
    chances = [(_probability_for_prompt(each), each) for each in memories]
    best = sorted(chances, key=lambda item: -item[0])[:MOST_FOR_PROMPT]
    return [each for chance, each in best if chance >= LEAST_FOR_PROMPT]


def _probability_for_prompt(memory: RecalledMemory) -> float:
    if memory.scores.cosine is None:
        return 0.0
    relevance = min(max(memory.scores.relevance, 1e-6), 1.0 - 1e-6)
    logit = INTERCEPT + COSINE * memory.scores.cosine + RELEVANCE * math.log(relevance / (1.0 - relevance))
    return 1.0 / (1.0 + math.exp(-logit - RULE * (memory.kind in RULES_OF_WORK)))
