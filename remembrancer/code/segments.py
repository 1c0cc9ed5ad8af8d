"""Reads, cuts and counts files: the segments that a reader hands to the writer of the index."""

from __future__ import annotations

import itertools
import zlib
from array import array
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from pathlib import PurePosixPath
from typing import Final

import msgspec
import numpy as np

from remembrancer.code.chunks import Chunk, chunks_of, parsed
from remembrancer.code.languages import language_of
from remembrancer.code.symbols import Symbol, names_of, symbols_of
from remembrancer.code.tree import SourceFile, Unreadable, read_source
from remembrancer.code.words import terms_of, words_in

FIELDS: Final = {"name": 2, "file": 3, "directory": 2, "head": 1}
"""The weight of a term in each field, relative to 1 in the text."""
REFERS: Final = "@"
IMPORTS: Final = "+"
"""The prefixes of terms for names that a chunk refers to, or imports. No word of a question begins with them."""
MOST_COUNT: Final = 255
"""Counts are capped to 8 bits; more occurrences tell no more."""


class ReadChunk(msgspec.Struct, frozen=True, array_like=True):
    """A chunk for the index. `length` counts its terms; `text` is deflated."""

    start_line: int
    end_line: int
    kind: str
    name: str
    signature: str
    length: int
    text: bytes


class ReadFile(msgspec.Struct, frozen=True, array_like=True):
    """A file as it was read. `skipped` is the reason why it was not."""

    path: str
    mtime_ns: int
    size: int
    language: str
    chunks: tuple[ReadChunk, ...] = ()
    skipped: str = ""
    symbols: tuple[Symbol, ...] = ()


class PostingLists(msgspec.Struct, frozen=True, array_like=True):
    """The postings of sorted terms: chunk numbers (32 bits) and counts (8 bits), one list after the other up to each of
    `ends`."""

    terms: Sequence[str] = ()
    ends: Sequence[int] = ()
    chunks: bytes = b""
    counts: bytes = b""

    def __iter__(self) -> Iterator[tuple[str, bytes, bytes]]:
        start = 0
        for term, end in zip(self.terms, self.ends, strict=True):
            if end > start:
                yield term, self.chunks[4 * start : 4 * end], self.counts[start:end]
            start = end


class Segment(msgspec.Struct, frozen=True, array_like=True):
    """Files and the postings of their terms. Chunks are numbered from 0 across all files."""

    files: tuple[ReadFile, ...] = ()
    postings: PostingLists = PostingLists()


def read_segment(
    root: str,
    files: Sequence[SourceFile],
    plain: frozenset[str] = frozenset(),
    note: Callable[[str], None] = lambda path: None,
) -> Segment:
    """Read these files of a tree. The `plain` ones are cut without a parser; `note` is called with each path before it
    is read. Blocks."""
    read: list[tuple[ReadFile, list[Chunk]]] = []
    counted = _CountedTerms()
    for file in files:
        note(file.path)
        language = language_of(file.path) or ""
        chunks, named, symbols, skipped = _cut(root, file.path, language, is_plain=file.path in plain)
        of_path = counted.numbers_of(_path_text(file.path))
        for chunk, (referred, imported) in zip(chunks, named, strict=True):
            names, heads = [chunk.name] * FIELDS["name"], [chunk.head] * FIELDS["head"]
            counted.add(of_path, "\n".join((chunk.text, *names, *heads)), referred, imported)
        about = ReadFile(file.path, file.mtime_ns, file.size, language, (), skipped, tuple(symbols))
        read.append((about, chunks))
    lengths, postings = counted.of_all()
    following = iter(lengths)
    packed = [
        msgspec.structs.replace(about, chunks=tuple(_packed(chunk, next(following)) for chunk in chunks))
        for about, chunks in read
    ]
    return Segment(tuple(packed), postings)


def _packed(chunk: Chunk, length: int) -> ReadChunk:
    text = zlib.compress(chunk.text.encode("utf-8", "replace"), 1)
    return ReadChunk(chunk.start_line, chunk.end_line, chunk.kind, chunk.name, chunk.signature, length, text)


class _CountedTerms:
    """Counts the terms of chunks. It collects words, many of which repeat, and derives their terms once at the end."""

    def __init__(self) -> None:
        self._words: defaultdict[str, int] = defaultdict(itertools.count().__next__)
        number = itertools.count().__next__
        self._referred, self._imported = defaultdict[str, int](number), defaultdict[str, int](number)
        self._in_chunks, self._sizes = array("I"), array("I")
        self._marked, self._mark_sizes = array("I"), array("I")

    def numbers_of(self, text: str) -> array[int]:
        """The numbers of a text's words, as `add` takes them."""
        return array("I", map(self._words.__getitem__, words_in(text)))

    def add(self, numbers: array[int], text: str, referred: Iterable[str], imported: Iterable[str]) -> None:
        """Add a chunk: numbered words, a text, and the names that it refers to and imports."""
        before, marked = len(self._in_chunks), len(self._marked)
        self._in_chunks.extend(numbers)
        self._in_chunks.extend(map(self._words.__getitem__, words_in(text)))
        self._marked.extend(map(self._referred.__getitem__, referred))
        self._marked.extend(map(self._imported.__getitem__, imported))
        self._sizes.append(len(self._in_chunks) - before)
        self._mark_sizes.append(len(self._marked) - marked)

    def of_all(self) -> tuple[list[int], PostingLists]:
        """The number of terms of each chunk, and the postings."""
        of_words = [terms_of(word) for word in self._words]
        of_marks = {number: REFERS + name for name, number in self._referred.items()}
        of_marks |= {number: IMPORTS + name for name, number in self._imported.items()}
        terms = sorted({*chain.from_iterable(of_words), *of_marks.values()})
        number_of = {term: number for number, term in enumerate(terms)}
        in_words = np.fromiter(map(number_of.__getitem__, chain.from_iterable(of_words)), np.int64)
        many = np.fromiter(map(len, of_words), np.int64, len(of_words))
        words = np.array(self._in_chunks, np.int64)
        many_there = many[words]
        ends = np.cumsum(many_there)
        firsts = (np.cumsum(many) - many)[words] - (ends - many_there)
        there = in_words[np.repeat(firsts, many_there) + np.arange(many_there.sum())]
        chunks = np.arange(len(self._sizes))
        places = np.repeat(np.repeat(chunks, self._sizes), many_there)
        in_marks = np.array([number_of[of_marks[number]] for number in range(len(of_marks))], np.int64)
        marks = in_marks[np.array(self._marked, np.int64)]
        numbers, at = np.concatenate([there, marks]), np.concatenate([places, np.repeat(chunks, self._mark_sizes)])
        both, counts = np.unique(numbers * len(chunks) + at, return_counts=True)
        of_terms, of_chunks = np.divmod(both, max(1, len(chunks)))
        postings = PostingLists(
            terms,
            np.cumsum(np.bincount(of_terms, minlength=len(terms))).tolist(),
            of_chunks.astype(np.uint32).tobytes(),
            np.minimum(counts, MOST_COUNT).astype(np.uint8).tobytes(),
        )
        return np.bincount(places, minlength=len(chunks)).tolist(), postings


Named = list[tuple[set[str], set[str]]]
"""For each chunk, the names that it refers to and the names that it imports."""


def _cut(root: str, path: str, language: str, *, is_plain: bool) -> tuple[list[Chunk], Named, list[Symbol], str]:
    """A file's chunks with the names in them and its symbols, or the reason why it is skipped."""
    try:
        text = read_source(root, path)
    except Unreadable as error:
        return [], [], [], str(error)
    except OSError:
        return [], [], [], "unreadable"
    source = None if is_plain else parsed(text, language)
    chunks = chunks_of(source, text)
    return chunks, names_of(source, chunks), symbols_of(source, text), ""


def _path_text(path: str) -> str:
    """The words of a file's path, repeated by the weights of their fields."""
    names, directory = [own_name(path)] * FIELDS["file"], [str(PurePosixPath(path).parent)] * FIELDS["directory"]
    return "\n".join((*names, *directory))


def own_name(path: str) -> str:
    """The name of a file without its extension."""
    return path.rpartition("/")[2].partition(".")[0]
