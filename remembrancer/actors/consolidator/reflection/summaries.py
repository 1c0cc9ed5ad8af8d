"""Extractive summaries: the central sentences of some texts, without those that say the same again.

Centrality is LexRank (Erkan and Radev, 2004) in its continuous form, which weighs every similarity, with the random
surfer's jumps biased to the sentences of important texts (Otterbacher, Erkan and Radev, 2005). Greetings, questions and
the like count for less than they are central. The choice among the central ones is by maximal marginal relevance
(Carbonell and Goldstein, 1998).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from remembrancer.actors.consolidator.reflection.facts import Vectors
from remembrancer.actors.consolidator.reflection.sentences import cut_at_word, split_sentences
from remembrancer.actors.consolidator.reflection.words import content_words, tf_idf

DEFAULT_BUDGET: Final = 400
ONE_LINE: Final = 120
MOST_SENTENCES: Final = 200
"""Sentences that are looked at: the table of their similarities grows with the square."""
DAMPING: Final = 0.85
RELEVANCE_SHARE: Final = 0.7
"""What centrality weighs in the choice; the rest is how little of it has been said."""
SAID_ALREADY: Final = 0.9
"""A sentence as similar as this to one that was chosen is never chosen."""
FULL_WORDS: Final = 4
"""A sentence with fewer content words says little by itself."""
LEAST_CENTRAL: Final = 0.5
"""A sentence with less than this share of the mean centrality is beside the point: it does not even fill a gap."""
_LEAST_WEIGHT: Final = 0.05
_ROUNDS: Final = 100
_SETTLED: Final = 1e-9


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


@dataclass(frozen=True, slots=True)
class Summary:
    """The chosen sentences in the order of their sources; `text` has them in one line."""

    sentences: tuple[Sentence, ...]

    @property
    def text(self) -> str:
        return join_sentences(each.text for each in self.sentences)


def sentences_of(sources: Sequence[Source]) -> list[Sentence]:
    """All the sentences in order, `MOST_SENTENCES` at most: each source gives its first ones in turn."""
    split = [split_sentences(source.text) for source in sources]
    room, deep = MOST_SENTENCES, 0
    taken = [0] * len(split)
    while room and any(deep < len(each) for each in split):
        for place, each in enumerate(split):
            if room and deep < len(each):
                taken[place] += 1
                room -= 1
        deep += 1
    return [Sentence(place, text) for place, each in enumerate(split) for text in each[: taken[place]]]


def summarise(sources: Sequence[Source], budget: int = DEFAULT_BUDGET, vectors: Vectors | None = None) -> Summary:
    """The sentences that say most of what the sources say, in no more than `budget` characters.

    `vectors` has a row of length 1 for each of `sentences_of(sources)`; without it, sentences are compared by their
    words. Where not even one sentence fits, the summary is the beginning of the most central one. It is empty only when
    all sources are blank.

    Raises:
        ValueError: `vectors` has not one row for each sentence, or the budget is not positive.
    """
    if budget < 1:
        raise ValueError("a summary needs room")
    sentences = sentences_of(sources)
    if vectors is not None and len(vectors) != len(sentences):
        raise ValueError(f"{len(sentences)} sentences need as many vectors, not {len(vectors)}")
    if not sentences:
        return Summary(())
    similarities = _similarities(tf_idf([each.text for each in sentences]) if vectors is None else vectors)
    centrality = _merits(sentences, similarities, sources)
    chosen = _choose(sentences, similarities, centrality, budget)
    if not chosen:
        first = sentences[int(centrality.argmax())]
        return Summary((Sentence(first.source, cut_at_word(first.text, budget)),))
    return Summary(tuple(sentences[place] for place in sorted(chosen)))


def central_sentence(sources: Sequence[Source]) -> Sentence:
    """The sentence that says most of what the sources say, whole.

    Raises:
        ValueError: all sources are blank.
    """
    sentences = sentences_of(sources)
    if not sentences:
        raise ValueError("there is no sentence in blank texts")
    similarities = _similarities(tf_idf([each.text for each in sentences]))
    return sentences[int(_merits(sentences, similarities, sources).argmax())]


def one_line(content: str, length: int = ONE_LINE) -> str:
    """What a text says, in one line of no more than `length` characters: its first central sentence.

    A central one says at least as much as the mean of them. What is cut off is marked. Empty for a blank text.
    """
    source = Source(content)
    sentences = sentences_of([source])
    if not sentences:
        return ""
    merits = _merits(sentences, _similarities(tf_idf([each.text for each in sentences])), [source])
    first = int(np.flatnonzero(merits >= merits.mean() - _SETTLED)[0])
    line = " ".join(sentences[first].text.split())
    return line if len(line) <= length else cut_at_word(line, length - 1) + "…"


def lex_rank(similarities: NDArray[np.float64], weights: Sequence[float]) -> NDArray[np.float64]:
    """The share of its time that a surfer spends at each sentence; all together are 1.

    With the probability `DAMPING` it goes on to a sentence in proportion to the similarity, else to any in
    proportion to the weights. From one that is like no other it goes anywhere.
    """
    count = len(similarities)
    bias = np.maximum(np.asarray(weights, dtype=np.float64), _LEAST_WEIGHT)
    bias /= bias.sum()
    links = similarities.copy()
    np.fill_diagonal(links, 0.0)
    sums = links.sum(axis=1, keepdims=True)
    steps = np.where(sums > 0, np.divide(links, sums, out=np.zeros_like(links), where=sums > 0), bias)
    rank = np.full(count, 1.0 / count)
    for _ in range(_ROUNDS):
        following = (1 - DAMPING) * bias + DAMPING * (rank @ steps)
        moved = float(np.abs(following - rank).sum())
        rank = following
        if moved < _SETTLED:
            break
    return rank


def join_sentences(sentences: Iterable[str]) -> str:
    """The sentences as one line; one that ends with no mark gets a full stop before the next."""
    line = ""
    for sentence in sentences:
        between = "" if not line else ". " if line[-1].isalnum() else " "
        line += between + " ".join(sentence.split())
    return line


def _merits(
    sentences: Sequence[Sentence], similarities: NDArray[np.float64], sources: Sequence[Source]
) -> NDArray[np.float64]:
    """How much each sentence says of the whole: its centrality, less for one that says little by itself."""
    centrality = lex_rank(similarities, [sources[each.source].weight for each in sentences])
    merits: NDArray[np.float64] = centrality * np.array([_substance(each.text) for each in sentences])
    return merits


def _substance(sentence: str) -> float:
    """In (0, 1]: the share of `FULL_WORDS` content words that it has; half of that for a question."""
    words = min(max(1, len(content_words(sentence))), FULL_WORDS) / FULL_WORDS
    return words / 2 if sentence.endswith(("?", "？", "؟")) else words


def _similarities(rows: Vectors) -> NDArray[np.float64]:
    """The cosines of all pairs; what is unlike counts as 0."""
    cosines: NDArray[np.float64] = np.clip(rows @ rows.T, 0.0, 1.0).astype(np.float64)
    return cosines


def _choose(
    sentences: Sequence[Sentence], similarities: NDArray[np.float64], centrality: NDArray[np.float64], budget: int
) -> list[int]:
    """Positions in the order of their choice: the first is the most central that fits."""
    relevance = centrality / centrality.max()
    said = np.zeros(len(sentences))
    open_ = centrality >= LEAST_CENTRAL * centrality.mean()
    chosen: list[int] = []
    while open_.any():
        gains = np.where(open_, RELEVANCE_SHARE * relevance - (1 - RELEVANCE_SHARE) * said, -np.inf)
        best = int(gains.argmax())
        open_[best] = False
        if said[best] >= SAID_ALREADY or (gains[best] <= 0 and chosen):
            continue
        if len(join_sentences(sentences[place].text for place in sorted([*chosen, best]))) > budget:
            continue
        chosen.append(best)
        said = np.maximum(said, similarities[best])
    return chosen
