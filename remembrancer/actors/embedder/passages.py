"""Splits a text into overlapping passages that fit a model's window. A passage ends with a sentence if one ends in the
second half of the window, and otherwise between words. Only long words are split."""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Final, NamedTuple, Protocol

from remembrancer.memory.sentences import SENTENCE_END
from remembrancer.memory.tokens import CHARACTERS_A_TOKEN

PASSAGE_TOKENS: Final = 96
"""The length of passages for small models. In a longer passage, details are lost in the mean over the tokens."""
OVERLAP: Final = 0.1
"""The share of a passage that the next one may repeat. It is small, since most passages start with a sentence."""
LONG_WORD: Final = 1 / 8
"""A word that fills a larger share of a passage than this may be split."""
WORDS_AT_ONCE: Final = 10_000
"""The number of words tokenized at once. During that time, each token takes a few hundred bytes."""
_WORD: Final = re.compile(r"(\S{1,200})\s*")


class TokenCounter(Protocol):
    """The part of a tokenizer that the splitter needs. It does not count special tokens around the text."""

    def count_tokens(self, texts: Sequence[str]) -> list[int]: ...


class MeasuredPassage(NamedTuple):
    """The characters of a text from `start` to `end`, and the number of their tokens."""

    start: int
    end: int
    tokens: int


def split_passages(text: str, tokenizer: TokenCounter, budget: int) -> list[MeasuredPassage]:
    """One or more passages, in order, of at most `budget` tokens each. Every character except whitespace is in some
    passage. Only a single character with more tokens than the budget exceeds it."""
    whole, begin = text.strip(), len(text) - len(text.lstrip())
    if whole and len(whole) <= budget * CHARACTERS_A_TOKEN:  # most memories are one passage
        (tokens,) = tokenizer.count_tokens([whole])
        if tokens <= budget:
            return [MeasuredPassage(begin, begin + len(whole), tokens)]
    ends_of_sentences = [match.end() for match in SENTENCE_END.finditer(text)]
    words = _measured_words(text, [0, *ends_of_sentences, len(text)], tokenizer, budget * LONG_WORD)
    if not words:
        return [MeasuredPassage(0, len(text), 0)]
    number = len(words)
    starts = [*(start for start, _ in words), len(text)]
    before = list(accumulate((tokens for _, tokens in words), initial=0))
    sentences = [0, *(bisect_left(starts, end) for end in ends_of_sentences)]
    passages: list[MeasuredPassage] = []
    first = reached = 0
    while reached < number:
        end = max(bisect_right(before, before[first] + budget) - 1, reached + 1)
        if end < number:
            half = bisect_left(before, before[first] + budget // 2)
            last_sentence = sentences[bisect_right(sentences, end) - 1]
            end = last_sentence if last_sentence > max(reached, half) else end
        while True:
            part = text[starts[first] : starts[end]].rstrip()
            (tokens,) = tokenizer.count_tokens([part])
            if tokens <= budget or end - first == 1:
                break
            # Words may have more tokens together than separately, and so may the rest of a long word.
            first, end = (first, end - 1) if end - reached > 1 else (first + 1, end)
        passages.append(MeasuredPassage(starts[first], starts[first] + len(part), tokens))
        repeated = max(bisect_left(before, before[end] - int(budget * OVERLAP)), first + 1)
        sentence = bisect_left(sentences, repeated)
        first = sentences[sentence] if sentence < len(sentences) and sentences[sentence] < end else repeated
        reached = end
    return passages


def _measured_words(text: str, bounds: Sequence[int], tokenizer: TokenCounter, most: float) -> list[tuple[int, int]]:
    """The start of each word and its number of tokens. Words with more than `most` are halved."""
    words = [match.span(1) for begin, end in pairwise(bounds) for match in _WORD.finditer(text, begin, end)]
    measured: list[tuple[int, int]] = []
    while words:
        some = words[-WORDS_AT_ONCE:]
        del words[-WORDS_AT_ONCE:]
        counts = tokenizer.count_tokens([text[start:end] for start, end in some])
        for (start, end), tokens in zip(some, counts, strict=True):
            if tokens <= most or end - start == 1:
                measured.append((start, tokens))
            else:
                words += [(start, middle := (start + end) // 2), (middle, end)]
    return sorted(measured)
