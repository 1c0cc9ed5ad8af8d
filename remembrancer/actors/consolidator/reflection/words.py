"""The words of a text that say what it is about, and how alike texts are by them."""

from __future__ import annotations

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from remembrancer.protocol.wording.stems import stem

# Articles, pronouns, prepositions, auxiliaries and the like: they say nothing of a text's subject.
_STOP_TEXT: Final = """
    a about after again all also am an and any are as at be because been before being both but by can could did do does
    doing done during each either else even ever every few for from further get gets getting go goes going gonna got had
    has have having he hello her here hers herself hey hi him himself his how however i if in into is it its itself just
    let lets like ll lot made make makes many may me might mine more most much must my myself need needs no nor not now
    of off oh ok okay on once one only or other our ours ourselves out over own per please quite rather re really s
    same say says she should since so some still such t than thank thanks that the their theirs them themselves then
    there these they thing things this those though through to too under until up upon us use used uses using ve very
    via was way we well were what when where whether which while who whom whose why will with within without would yeah
    yes yet you your yours yourself yourselves d m
"""
STOP_WORDS: Final = frozenset(_STOP_TEXT.split())
_WORD: Final = re.compile(r"[^\W_]+(?:[.'’_/-][^\W_]+)*")
_LOOKED_AT: Final = 1_000


def content_words(text: str) -> list[str]:
    """The words of a text in order, in lower case, without those that say nothing of its subject."""
    folded = unicodedata.normalize("NFKC", text).casefold()
    return [word for word in _WORD.findall(folded) if word not in STOP_WORDS]


def tf_idf(texts: Sequence[str]) -> NDArray[np.float32]:
    """A row of length 1 for each text, or zeros for one without content words: tf-idf of its stems.

    The weight of a stem is (1 + log tf) * log(1 + n / df), as in Salton and Buckley (1988), so that a stem which all
    texts have still counts for something. Of a very long text the beginning counts.
    """
    counts = [Counter(stem(word) for word in content_words(text[:_LOOKED_AT])) for text in texts]
    frequency = Counter(term for each in counts for term in each)
    columns = {term: place for place, term in enumerate(sorted(frequency))}
    rows = np.zeros((len(texts), len(columns)), dtype=np.float32)
    for place, each in enumerate(counts):
        for term, count in each.items():
            rows[place, columns[term]] = (1 + math.log(count)) * math.log(1 + len(texts) / frequency[term])
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    unit: NDArray[np.float32] = np.divide(rows, lengths, out=np.zeros_like(rows), where=lengths > 0)
    return unit
