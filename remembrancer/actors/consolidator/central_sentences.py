"""The sentence that says most of what some texts say, and a text in one line. Pure.

A sentence is central that is like many others (degree centrality: Erkan and Radev, 2004), of important texts above all.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from remembrancer.memory.sentences import cut_at_word, split_sentences
from remembrancer.memory.stop_words import stop_words_of
from remembrancer.memory.wording import (
    ARTICLES,
    DENIALS,
    FILLERS,
    FUNCTION_WORDS,
    PREPOSITIONS,
    RESTRICTING,
    stem,
)

ONE_LINE: Final = 120
MOST_SENTENCES: Final = 200
"""Sentences that are looked at: the table of their similarities grows with the square."""
FULL_WORDS: Final = 4
"""A sentence with fewer content words says little by itself."""
_LEAST_WEIGHT: Final = 0.05
_SETTLED: Final = 1e-9
STOP_WORDS: Final = (
    ARTICLES
    | FUNCTION_WORDS
    | FILLERS
    | DENIALS
    | PREPOSITIONS
    | RESTRICTING
    | {"use", "uses", "used", "need", "needs", "get", "make"}
)
"""They say nothing of a text's subject."""
_WORD: Final = re.compile(r"[^\W_]+(?:[.'’_/-][^\W_]+)*")
_LOOKED_AT: Final = 1_000
_END: Final = re.compile(r"""[.!?…؟。！？｡۔।]["'”’»)\]」』）]{0,3}$""")
_LABEL: Final = re.compile(r"(?:[^\s:]+ ){0,5}[^\s:]+: ")
"""A heading in the line of what it is about ("What went well: the flag.")."""


@dataclass(frozen=True, slots=True)
class Source:
    """A text that is summed up. Its `weight` is its importance, in [0, 1]."""

    text: str
    weight: float = 0.5


@dataclass(frozen=True, slots=True)
class Sentence:
    """A sentence, word for word, and the position of the source that it is from."""

    source: int
    text: str


def statements_of(sources: Sequence[Source]) -> list[Sentence]:
    """As `sentences_of`, without what says nothing by itself in a text of several lines: headings, items, labels."""
    lined = [len(source.text.strip().splitlines()) > 1 for source in sources]
    return [
        sentence for sentence in sentences_of(sources) if not lined[sentence.source] or _stands_alone(sentence.text)
    ]


def _stands_alone(sentence: str) -> bool:
    return _END.search(sentence) is not None and _LABEL.match(sentence) is None


def sentences_of(sources: Sequence[Source]) -> list[Sentence]:
    """All the sentences in order, `MOST_SENTENCES` at most: the first ones of each source."""
    split = [split_sentences(source.text) for source in sources]
    # As many of each as there is room for when the shorter ones leave theirs.
    first = sorted((depth, place) for place, each in enumerate(split) for depth in range(len(each)))[:MOST_SENTENCES]
    return [Sentence(place, split[place][depth]) for place, depth in sorted((place, depth) for depth, place in first)]


def central_sentence(sources: Sequence[Source]) -> Sentence | None:
    """The sentence that says most of what the sources say, whole; None where none of them stands alone."""
    sentences = statements_of(sources)
    if not sentences:
        return None
    similarities = _similarities(sentences)
    return sentences[int(_merits(sentences, similarities, sources).argmax())]


def one_line(content: str, length: int = ONE_LINE) -> str:
    """A text in one line of no more than `length` characters: its first central sentence.

    A central one says at least as much as the mean of them. What is cut off is marked. Empty for a blank text.
    """
    source = Source(content)
    sentences = sentences_of([source])
    if not sentences:
        return ""
    merits = _merits(sentences, _similarities(sentences), [source])
    first = int(np.flatnonzero(merits >= merits.mean() - _SETTLED)[0])
    line = " ".join(sentences[first].text.split())
    return line if len(line) <= length else cut_at_word(line, length - 1) + "…"


def _merits(
    sentences: Sequence[Sentence], similarities: NDArray[np.float64], sources: Sequence[Source]
) -> NDArray[np.float64]:
    """The weight of each sentence for the whole: its centrality, less for one that says little by itself."""
    weights = np.array([max(sources[sentence.source].weight, _LEAST_WEIGHT) for sentence in sentences])
    links = similarities.copy()
    np.fill_diagonal(links, 1.0)  # also of a sentence without a content word
    substance = np.array([_substance(sentence.text) for sentence in sentences])
    merits: NDArray[np.float64] = (links @ weights) * substance / weights.sum()
    return merits


def _substance(sentence: str) -> float:
    """In (0, 1]: the share of `FULL_WORDS` content words that it has; half of that for a question."""
    words = min(max(1, len(content_words(sentence))), FULL_WORDS) / FULL_WORDS
    return words / 2 if sentence.endswith(("?", "？", "؟")) else words


def _similarities(sentences: Sequence[Sentence]) -> NDArray[np.float64]:
    """The cosines of all pairs by their words; what is unlike counts as 0."""
    rows = tf_idf([sentence.text for sentence in sentences])
    cosines: NDArray[np.float64] = np.clip(rows @ rows.T, 0.0, 1.0).astype(np.float64)
    return cosines


def content_words(text: str) -> list[str]:
    """The words of a text in order, in lower case, without those that say nothing of its subject."""
    folded = unicodedata.normalize("NFKC", text).casefold()
    ignored = stop_words_of(text[:_LOOKED_AT])
    return [word for word in _WORD.findall(folded) if word not in STOP_WORDS and word not in ignored]


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
