"""Splits a text into overlapping passages that fit a model's window, so that no text is silently lost.

Passages end at the end of a sentence, if there is one in the second half of the window; otherwise between words; and
within a word only if the word itself is long (a text without spaces, base64, a script without spaces).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple, Protocol

from remembrancer.memory.sentences import SENTENCE_END

DEFAULT_BUDGET: Final = 254
"""Subword tokens of a passage: a window of 256 minus the two marks around the text."""
PASSAGE_TOKENS: Final = 96
"""Subword tokens of a passage for small models with larger windows: a detail of a long passage is lost in the mean of
its tokens."""
OVERLAP: Final = 0.1
"""The share of a passage that may be repeated at the start of the next: most start with a sentence anyway."""
PIECE_CHARACTERS: Final = 250_000
"""The characters that are tokenized at once; each token takes some hundred bytes meanwhile."""
LONG_WORD: Final = 1 / 8
"""A word that fills more of the window than this may be split."""


class TokenSpans(NamedTuple):
    """The character offsets of a text's tokens, and whether each begins a word."""

    starts: Sequence[int]
    ends: Sequence[int]
    opens_word: Sequence[bool]


class TokenCounter(Protocol):
    """The part of a tokenizer that the splitter needs. Marks around the text do not count."""

    def spans(self, text: str) -> TokenSpans:
        """The tokens of a text."""

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """The number of tokens of each text."""


class MeasuredPassage(NamedTuple):
    """Characters `start` to `end` of a text, and the number of their tokens."""

    start: int
    end: int
    tokens: int


class _Atoms:
    """A text as pieces that are never split: the start of each, and the cumulative number of tokens before it."""

    def __init__(self, text: str, spans: TokenSpans, budget: int) -> None:
        self.starts: list[int] = []
        self.opens_word: list[bool] = []
        first_tokens: list[int] = []
        for index in _cuts(spans, budget):
            first_tokens.append(index)
            self.starts.append(spans.starts[index])
            self.opens_word.append(spans.opens_word[index])
        self.tokens_before = [*first_tokens, len(spans.starts)]
        self.sentences = _sentence_openings(text, self.starts)

    def __len__(self) -> int:
        return len(self.starts)


def split_passages(
    text: str, tokenizer: TokenCounter, budget: int = DEFAULT_BUDGET, overlap: float = OVERLAP
) -> list[MeasuredPassage]:
    """Split `text` into passages in order, at least one, none with more than `budget` tokens.

    Every character that is not white space is in some passage. `overlap` is a share of the budget. Only a single
    character with more tokens than the budget exceeds it.
    """
    if len(text) > PIECE_CHARACTERS:
        return _of_pieces(text, tokenizer, budget, overlap)
    spans = tokenizer.spans(text)
    count = len(spans.starts)
    if count <= budget:
        start, end = _trimmed(text, 0, len(text))
        return [MeasuredPassage(start, end, count)]
    atoms = _Atoms(text, spans, budget)
    ranges = _without_contained(
        _trimmed(text, *each) for each in _character_ranges(atoms, budget, int(budget * overlap), len(text))
    )
    counts = tokenizer.count_tokens([text[start:end] for start, end in ranges])
    passages: list[MeasuredPassage] = []
    for (start, end), tokens in zip(ranges, counts, strict=True):
        if tokens <= budget:
            passages.append(MeasuredPassage(start, end, tokens))
        else:
            passages.extend(_halved(text, start, end, tokenizer, budget))
    return passages


def _of_pieces(text: str, tokenizer: TokenCounter, budget: int, overlap: float) -> list[MeasuredPassage]:
    """The passages of a long text, piece by piece: each piece ends between lines or words, if possible."""
    found: list[MeasuredPassage] = []
    begin = 0
    while begin < len(text):
        end = begin + PIECE_CHARACTERS
        if end < len(text):
            middle = begin + PIECE_CHARACTERS // 2
            end = max(text.rfind("\n", middle, end), text.rfind(" ", middle, end)) + 1 or end
        piece = text[begin:end]
        if piece.strip() or (not found and end >= len(text)):
            passages = split_passages(piece, tokenizer, budget, overlap)
            found += [MeasuredPassage(begin + start, begin + stop, tokens) for start, stop, tokens in passages]
        begin = end
    return found


def _cuts(spans: TokenSpans, budget: int) -> list[int]:
    """The tokens before which a passage may be split: the starts of words, and any token of a long word."""
    boundaries: list[int] = []
    reach = last_start = -1
    for index, (start, end) in enumerate(zip(spans.starts, spans.ends, strict=True)):
        if not boundaries or (start >= reach and start > last_start):
            boundaries.append(index)
            last_start = start
        reach = max(reach, end)
    openings = [index for index in boundaries if spans.opens_word[index] or index == 0]
    cuts: list[int] = []
    position = 0
    for opening, following in zip(openings, [*openings[1:], len(spans.starts)], strict=True):
        cuts.append(opening)
        while position < len(boundaries) and boundaries[position] <= opening:
            position += 1
        inside = position
        while position < len(boundaries) and boundaries[position] < following:
            position += 1
        if following - opening > budget * LONG_WORD:
            cuts.extend(boundaries[inside:position])
    return cuts


def _sentence_openings(text: str, starts: Sequence[int]) -> list[int]:
    """The indices of the atoms that begin a sentence, ascending."""
    openings = {0}
    for match in SENTENCE_END.finditer(text):
        index = bisect_left(starts, match.end())
        if index < len(starts):
            openings.add(index)
    return sorted(openings)


def _character_ranges(atoms: _Atoms, budget: int, overlap: int, length: int) -> list[tuple[int, int]]:
    """Pack the atoms greedily. Each range ends later than the previous one, so the loop ends."""
    before, total = atoms.tokens_before, len(atoms)
    ranges: list[tuple[int, int]] = []
    first = reached = 0
    while True:
        # The rest of a word has one or two tokens more when it stands alone.
        limit = budget if atoms.opens_word[first] else max(1, budget - 2)
        end = max(bisect_right(before, before[first] + limit) - 1, reached + 1)
        begin_character = 0 if first == 0 else atoms.starts[first]
        if end >= total:
            ranges.append((begin_character, length))
            return ranges
        cut = _last_sentence(atoms, max(reached, bisect_left(before, before[first] + limit // 2)), end) or end
        ranges.append((begin_character, atoms.starts[cut]))
        first = _step_back(atoms, first, cut, overlap, budget - 2)
        reached = cut


def _last_sentence(atoms: _Atoms, low: int, high: int) -> int | None:
    """The last atom in (low, high] that begins a sentence, so that the passage before it ends with one."""
    position = bisect_right(atoms.sentences, high) - 1
    found = atoms.sentences[position]
    return found if found > low else None


def _step_back(atoms: _Atoms, first: int, cut: int, overlap: int, limit: int) -> int:
    """The start of the next passage: a sentence, or else a word, at most `overlap` tokens before the cut."""
    before = atoms.tokens_before
    lowest = max(bisect_left(before, before[cut] - overlap), first + 1)
    position = bisect_left(atoms.sentences, lowest)
    if position < len(atoms.sentences) and atoms.sentences[position] < cut:
        lowest = atoms.sentences[position]
    while lowest < cut and before[cut + 1] - before[lowest] > limit:
        lowest += 1
    return lowest


def _halved(text: str, start: int, end: int, tokenizer: TokenCounter, budget: int) -> list[MeasuredPassage]:
    """Halves of a passage that has more tokens on its own than within the text: rare, so a simple method will do."""
    if start == end:
        return []
    (tokens,) = tokenizer.count_tokens([text[start:end]])
    if tokens <= budget or end - start == 1:
        return [MeasuredPassage(start, end, tokens)]
    middle = (start + end) // 2
    return [
        passage
        for half in ((start, middle), (middle, end))
        for passage in _halved(text, *_trimmed(text, *half), tokenizer, budget)
        if not text[passage.start : passage.end].isspace()
    ]


def _without_contained(ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """The ranges without those inside a neighbour, after white space has been trimmed."""
    kept: list[tuple[int, int]] = []
    for start, end in ranges:
        if kept and end <= kept[-1][1]:
            continue
        if kept and start <= kept[-1][0]:
            kept.pop()
        kept.append((start, end))
    return kept


def _trimmed(text: str, start: int, end: int) -> tuple[int, int]:
    """The range without surrounding white space; unchanged if it has nothing else."""
    content = text[start:end]
    stripped = len(content.strip())
    if not stripped:
        return start, end
    begin = start + len(content) - len(content.lstrip())
    return begin, begin + stripped
