"""Cuts Markdown into overlapping chunks for search, between headings and blocks, or between the lines of a long block.

A chunk is a range of the original text, so its lines can be shown and opened. Blocks are those of CommonMark with
tables, as parsed by markdown-it-py; front matter is one more block.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from itertools import pairwise, takewhile
from typing import TYPE_CHECKING, Final, NamedTuple

from remembrancer.memory.tokens import estimate_tokens, truncate

if TYPE_CHECKING:
    from markdown_it import MarkdownIt

SECTION_SHARE: Final = 1 / 4
"""A heading starts a new chunk if the current one is at least this full; shorter sections share a chunk."""
LONGEST_TITLE: Final = 120
_CHARACTERS: Final = 8
"""The most characters per token, except in runs of blanks; limits the search for a place to cut."""

_NEWLINE: Final = re.compile(r"\r\n?|\n")
_FRONT_MATTER: Final = re.compile(r"---[ \t]*(?:\r\n?|\n)(?s:.*?)(?:\r\n?|\n)---[ \t]*(?=[\r\n]|\Z)")
_HEADING: Final = re.compile(r" {0,3}#{1,6}[ \t]+(.*?)(?:[ \t]+#+)?[ \t]*$")
_SENTENCE: Final = re.compile(r"""[.!?…؟۔।]["'”’»)\]]{0,3}\s+|[。！？｡][”’」』）]{0,3}\s*""")
_WORD: Final = re.compile(r"\s+")


class Chunk(NamedTuple):
    """Lines `start_line` to `end_line` (from 1, inclusive) of a text; the first and last may be partial.

    `heading` has the headings above the chunk, outermost first, as in `Setup > Linux`; it may be empty.
    """

    start_line: int
    end_line: int
    heading: str
    text: str


def chunks_of(
    text: str, tokens: int = 400, overlap: int = 80, *, at_blocks: bool = True, blocks: Sequence[Block] | None = None
) -> list[Chunk]:
    """The chunks of a text in order, each estimated at no more than `tokens`; together they have all non-blank lines.

    A chunk that continues where the previous one was cut begins with up to `overlap` tokens of it: whole lines, or else
    sentences, or else words. There is no overlap if the chunk begins with a heading, or if its first block would not
    fit. Without `at_blocks`, headings and blocks are treated as ordinary lines. `blocks` are given for a text that is
    not Markdown. `tokens` is at least `LEAST_CHUNK_TOKENS`, and `overlap` at most half of it (as of the settings).
    """
    if blocks is None:
        blocks = _blocks_of(text, line_starts(text)) if at_blocks else ()
    return list(_Cutter(text, tokens, overlap, blocks).chunks())


class Block(NamedTuple):
    """Lines `first` to `end` (from 0, exclusive), and the headings above them: `Setup > Linux`. A heading has a level
    from 1 to 6, and is the last in its path."""

    first: int
    end: int
    level: int = 0
    path: str = ""


def headings_of(text: str) -> list[Block]:
    """The headings of a text in order, except those in lists, quotations and code."""
    return [block for block in _blocks_of(text, line_starts(text)) if block.level]


def line_starts(text: str) -> list[int]:
    """The start of each line of a text, and the start that a line after the end would have. A line ends at CR, LF or
    both."""
    starts = [0, *(match.end() for match in _NEWLINE.finditer(text))]
    return starts if starts[-1] == len(text) and text else [*starts, len(text)]


class _Piece(NamedTuple):
    """Characters `start` to `end`, which are not cut further, and their tokens. `heading` is as in a chunk."""

    start: int
    end: int
    tokens: int
    opens_section: bool = False
    heading: str = ""


class _Cutter:
    def __init__(self, text: str, tokens: int, overlap: int, blocks: Sequence[Block]) -> None:
        self._text = text
        self._blocks = blocks
        self._limit = tokens
        self._overlap = overlap
        self._starts = line_starts(text)
        lines = [text[start:end] for start, end in pairwise(self._starts)]
        self._blank = [not line or line.isspace() for line in lines]
        self._tokens_before = [0]
        for line in lines:
            self._tokens_before.append(self._tokens_before[-1] + estimate_tokens(line))

    def chunks(self) -> Iterator[Chunk]:
        """Joins pieces as long as they fit."""
        start = end = spent = 0
        heading = ""
        for piece in self._pieces():
            between = estimate_tokens(self._text[end : piece.start]) if spent else 0
            fits = spent + between + piece.tokens <= self._limit
            if spent and (not fits or (piece.opens_section and spent >= self._limit * SECTION_SHARE)):
                yield self._chunk(start, end, heading)
                start = piece.start if piece.opens_section else self._step_back(start, piece)
                spent = estimate_tokens(self._text[start : piece.start]) + piece.tokens
                heading = piece.heading
            else:
                if not spent:
                    start, heading = piece.start, piece.heading
                spent += between + piece.tokens
            end = piece.end
        if spent:
            yield self._chunk(start, end, heading)

    def _chunk(self, start: int, end: int, heading: str) -> Chunk:
        last = max(start, end - 1)
        return Chunk(
            bisect_right(self._starts, start), bisect_right(self._starts, last), heading, self._text[start:end]
        )

    def _pieces(self) -> Iterator[_Piece]:
        """The pieces to pack."""
        for block in _filled(self._blocks, 0, len(self._blank)):
            for piece in self._cut(block):
                yield piece._replace(opens_section=block.level > 0, heading=block.path)

    def _cut(self, block: Block) -> Iterator[_Piece]:
        """A block in pieces that fit: the whole block, or its lines, or parts of a line."""
        first, end = block.first, block.end
        while first < end and self._blank[first]:
            first += 1
        while first < end and self._blank[end - 1]:
            end -= 1
        if first == end:
            return
        tokens = self._tokens_before[end] - self._tokens_before[first]
        if tokens <= self._limit:
            yield _Piece(*self._trimmed(self._starts[first], self._starts[end]), tokens)
        elif end - first > 1:
            for line in range(first, end):
                yield from self._cut(Block(line, line + 1))
        else:
            yield from self._cut_line(*self._trimmed(self._starts[first], self._starts[end]))

    def _cut_line(self, start: int, end: int) -> Iterator[_Piece]:
        """Parts of a line, with room for the overlap. They end after sentences, or else between words."""
        room = self._limit - self._overlap
        while start < end:
            window = self._text[start : min(end, start + _CHARACTERS * room)]
            part = truncate(window, room) or window[: room // 2]  # a letter with more accents than fit into a chunk
            if start + len(part) < end:
                sentences = [match.end() for match in _SENTENCE.finditer(part, len(part) // 2)]
                part = part[: sentences[-1]] if sentences else part
            begin, stop = self._trimmed(start, start + len(part))
            if begin < stop:
                yield _Piece(begin, stop, estimate_tokens(self._text[begin:stop]))
            start += len(part)

    def _step_back(self, before: int, piece: _Piece) -> int:
        """The start of the chunk with `piece`, moved back for the overlap with the chunk that began at `before`."""
        room = min(self._overlap, self._limit - piece.tokens)
        low = max(before + 1, piece.start - _CHARACTERS * self._overlap)
        window = self._text[low : piece.start]
        lines = self._starts[bisect_left(self._starts, low) : bisect_left(self._starts, piece.start)]
        for places in (
            lines,
            [low + match.end() for match in _SENTENCE.finditer(window)],
            [low + match.end() for match in _WORD.finditer(window)],
        ):
            fitting = bisect_left(places, True, key=lambda at: estimate_tokens(self._text[at : piece.start]) <= room)
            for place in places[fitting:]:
                if self._text[place : piece.start].strip():
                    return self._trimmed(place, piece.start)[0]
        return piece.start

    def _trimmed(self, start: int, end: int) -> tuple[int, int]:
        """The range without line breaks at its ends and blanks at its end. Indentation is significant, so it stays."""
        content = self._text[start:end]
        stop = start + len(content.rstrip())
        return min(stop, end - len(content.lstrip("\r\n"))), stop


def shown_chunk(text: str, begin: int) -> str:
    """A chunk as it is shown: the headings above it, then its own text, which begins at `begin`. Headings that the
    chunk begins with are not repeated; front matter is left out unless there is nothing else."""
    front = _FRONT_MATTER.match(text, begin)
    own = (text[front.end() :].lstrip() if front else "") or text[begin:]
    opening = takewhile(lambda line: _HEADING.match(line) or not line.strip(), own.splitlines())
    own_titles = {heading[1] for heading in map(_HEADING.match, opening) if heading}
    above = " > ".join(title for title in text[:begin].strip().split(" > ") if title not in own_titles)
    return f"{above}\n{own}" if above else own


@cache
def _parser() -> MarkdownIt:
    from markdown_it import MarkdownIt  # a process that only serves memories does not need it

    parser = MarkdownIt("commonmark").enable("table").disable("reference")
    parser.core.ruler.enableOnly(["normalize", "block"])
    return parser


def _blocks_of(text: str, starts: Sequence[int]) -> list[Block]:
    """The outermost blocks of a text in order; `starts` are its `line_starts`."""
    front = _FRONT_MATTER.match(text)
    first = bisect_right(starts, front.end() - 1) if front else 0
    body = text[starts[first] :] if first < len(starts) else ""
    blocks = [Block(0, first)] if first else []
    path: list[tuple[int, str]] = []
    tokens = _parser().parse(body)
    for place, token in enumerate(tokens):
        if token.level or token.nesting < 0:
            continue
        lines = token.map or (0, 0)
        is_heading = token.type == "heading_open"
        title = " ".join(tokens[place + 1].content.split())[:LONGEST_TITLE] if is_heading else ""
        level = int(token.tag[1]) if title else 0
        if level:
            path = [*(each for each in path if each[0] < level), (level, title)]
        blocks.append(Block(lines[0] + first, lines[1] + first, level, " > ".join(name for _, name in path)))
    return blocks


def _filled(blocks: Iterable[Block], first: int, end: int) -> Sequence[Block]:
    """Blocks that cover all lines from `first` to `end`: the gaps between the given ones are filled."""
    filled: list[Block] = []
    path = ""
    for block in blocks:
        if block.first > first:
            filled.append(Block(first, block.first, 0, path))
        if block.end > first:
            filled.append(block._replace(first=max(first, block.first)))
            first, path = block.end, block.path
    if first < end:
        filled.append(Block(first, end, 0, path))
    return filled
