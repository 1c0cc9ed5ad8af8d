"""Splits Markdown into overlapping chunks for search. Chunks are ranges of the original text, split at headings and
blocks (CommonMark, tables and front matter), or at the lines of a long block."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence, Set
from functools import cache, lru_cache
from itertools import takewhile
from typing import TYPE_CHECKING, Final, NamedTuple

from remembrancer.memory.tokens import estimate_tokens, truncate

if TYPE_CHECKING:
    from markdown_it import MarkdownIt

SECTION_SHARE: Final = 1 / 4
"""A heading starts a new chunk if the current one is at least this full; shorter sections share a chunk."""
LONGEST_TITLE: Final = 120
MOST_HEADINGS: Final = 9
"""The maximum number of headings, or parts of them, before the first line of an imported memory."""
_CHARACTERS: Final = 8
"""The maximum number of characters per token, except in runs of whitespace."""

_NEWLINE: Final = re.compile(r"\r\n?|\n")
_FRONT_MATTER: Final = re.compile(r"---[ \t]*(?:\r\n?|\n)(?s:.*?)(?:\r\n?|\n)---[ \t]*(?=[\r\n]|\Z)")
_HEADING: Final = re.compile(r" {0,3}#{1,6}[ \t]+(.*?)(?:[ \t]+#+)?[ \t]*$")
_MARKS: Final = " \t-*[].;"
"""The characters around a line that an import may leave out."""
_SENTENCE: Final = re.compile(r"""[.!?…؟۔।]["'”’»)\]]{0,3}\s+|[。！？｡][”’」』）]{0,3}\s*""")
_WORD: Final = re.compile(r"\s+")


class Chunk(NamedTuple):
    """Line numbers start at 1 and are inclusive. The first and last lines may be partial. `heading` looks like `Setup >
    Linux`."""

    start_line: int
    end_line: int
    heading: str
    text: str


class Block(NamedTuple):
    """Line numbers start at 0. `end` is exclusive. A heading's level is 1 to 6, and its `path` ends with its title."""

    first: int
    end: int
    level: int = 0
    path: str = ""


def line_starts(text: str) -> list[int]:
    """The offset at which each line starts, and the length of the text. Lines end with CR, LF or CRLF."""
    starts = [0, *(match.end() for match in _NEWLINE.finditer(text))]
    return starts if starts[-1] == len(text) and text else [*starts, len(text)]


def headings_of(text: str) -> list[Block]:
    return [block for block in blocks_of(text) if block.level]


def chunks_of(
    text: str, tokens: int = 400, overlap: int = 80, *, at_blocks: bool = True, blocks: Sequence[Block] | None = None
) -> list[Chunk]:
    """Split a text into chunks of at most `tokens` that together cover all non-blank lines. A chunk that does not begin
    with a heading repeats up to `overlap` tokens of the previous one: whole lines if possible, then sentences, then
    words. Without `at_blocks`, headings and blocks are ordinary lines. Text that is not Markdown needs `blocks`.
    `tokens` must be at least `LEAST_CHUNK_TOKENS`, and `overlap` at most half of `tokens`."""
    starts = line_starts(text)
    if blocks is None:
        blocks = blocks_of(text) if at_blocks else [Block(0, len(starts) - 1)]
    cutter = _Cutter(text, starts, tokens, overlap)
    chunks: list[Chunk] = []
    begin = end = spent = 0
    heading = ""

    def close() -> None:
        last = bisect_right(starts, max(begin, end - 1))
        chunks.append(Chunk(bisect_right(starts, begin), last, heading, text[begin:end]))

    for block in blocks:
        for start, stop, size in cutter.pieces(block.first, block.end):
            between = estimate_tokens(text[end:start]) if spent else 0
            is_full = spent + between + size > tokens or (block.level > 0 and spent >= tokens * SECTION_SHARE)
            if spent and is_full:
                close()
                begin = start if block.level else cutter.overlap_before(start, size, begin)
                spent, heading = estimate_tokens(text[begin:start]) + size, block.path
            elif spent:
                spent += between + size
            else:
                begin, spent, heading = start, size, block.path
            end = stop
    if spent:
        close()
    return chunks


class _Cutter(NamedTuple):
    text: str
    starts: Sequence[int]
    tokens: int
    overlap: int

    def pieces(self, first: int, end: int) -> Iterator[tuple[int, int, int]]:
        """Yield ranges of characters with their token counts: all lines together, single lines, or parts of a line."""
        while first < end and not self._line(first).strip():
            first += 1
        while first < end and not self._line(end - 1).strip():
            end -= 1
        sizes = [estimate_tokens(self._line(line)) for line in range(first, end)]
        if sizes and sum(sizes) <= self.tokens:
            yield (*self._trimmed(self.starts[first], self.starts[end]), sum(sizes))
            return
        for line, size in enumerate(sizes, first):
            start, stop = self._trimmed(self.starts[line], self.starts[line + 1])
            if size > self.tokens:
                yield from self._parts(start, stop)
            elif start < stop:
                yield start, stop, size

    def _line(self, number: int) -> str:
        return self.text[self.starts[number] : self.starts[number + 1]]

    def _parts(self, start: int, end: int) -> Iterator[tuple[int, int, int]]:
        room = self.tokens - self.overlap
        while start < end:
            window = self.text[start : min(end, start + _CHARACTERS * room)]
            part = truncate(window, room) or window[: room // 2]  # a letter may have more accents than fit into a chunk
            if start + len(part) < end:
                sentences = [match.end() for match in _SENTENCE.finditer(part, len(part) // 2)]
                part = part[: sentences[-1]] if sentences else part
            begin, stop = self._trimmed(start, start + len(part))
            if begin < stop:
                yield begin, stop, estimate_tokens(self.text[begin:stop])
            start += len(part)

    def overlap_before(self, start: int, size: int, before: int) -> int:
        """Return an earlier start in the previous chunk, from `before`. The chunk's first piece has `size` tokens."""
        room = min(self.overlap, self.tokens - size)
        low = max(before + 1, start - _CHARACTERS * self.overlap)
        window = self.text[low:start]
        lines = self.starts[bisect_left(self.starts, low) : bisect_left(self.starts, start)]
        ends = ([low + match.end() for match in pattern.finditer(window)] for pattern in (_SENTENCE, _WORD))
        for places in (lines, *ends):
            fitting = bisect_left(places, True, key=lambda at: estimate_tokens(self.text[at:start]) <= room)
            for place in places[fitting:]:
                if self.text[place:start].strip():
                    return self._trimmed(place, start)[0]
        return start

    def _trimmed(self, start: int, end: int) -> tuple[int, int]:
        """Strip line breaks at both ends and spaces at the end. Indentation is significant."""
        content = self.text[start:end]
        stop = start + len(content.rstrip())
        return min(stop, end - len(content.lstrip("\r\n"))), stop


def shown_chunk(text: str, begin: int) -> str:
    """Show a chunk, whose own text begins at `begin`, below the headings above it and without front matter."""
    front = _FRONT_MATTER.match(text, begin)
    own = (text[front.end() :].lstrip() if front else "") or text[begin:]
    opening = takewhile(lambda line: _HEADING.match(line) or not line.strip(), own.splitlines())
    own_titles = {heading[1] for heading in map(_HEADING.match, opening) if heading}
    above = " > ".join(title for title in text[:begin].strip().split(" > ") if title not in own_titles)
    return f"{above}\n{own}" if above else own


def lines_of(section: str) -> set[str]:
    """The lines of a section without headings and marks of items."""
    return {line.strip(_MARKS) for line in section.splitlines() if not _HEADING.match(line)} - {""}


def is_imported(section: str, known: Set[str]) -> bool:
    """True if each line of a section is known. Ticked items are left out, as by an import, unless the open item is
    known, and so was ticked later."""
    lines = lines_of(section)
    is_left_out = (line[:3] in ("x] ", "X] ") and line[3:] not in known for line in lines - known)
    return not lines.isdisjoint(known) and all(is_left_out)


@lru_cache(maxsize=1000)
def lines_imported(memory: str) -> frozenset[str]:
    """The lines of the section from which a memory was made. The headings above it may precede its first line."""
    first, *others = memory.splitlines()
    parts = first.split(": ", MOST_HEADINGS)
    return frozenset(lines_of("\n".join((*(": ".join(parts[place:]) for place in range(len(parts))), *others))))


@cache
def _parser() -> MarkdownIt:
    from markdown_it import MarkdownIt  # a process that only serves memories does not need it

    parser = MarkdownIt("commonmark").enable("table").disable("reference")
    parser.core.ruler.enableOnly(["normalize", "block"])
    return parser


def blocks_of(text: str) -> list[Block]:
    starts, front = line_starts(text), _FRONT_MATTER.match(text)
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
