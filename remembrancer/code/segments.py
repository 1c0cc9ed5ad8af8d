"""Files read, cut and counted: what a reader hands to whoever keeps the index, some files at a time."""

from __future__ import annotations

import itertools
import zlib
from array import array
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from itertools import chain
from pathlib import PurePosixPath
from types import MappingProxyType
from typing import Final

import msgspec
import numpy as np

from remembrancer.code.chunks import Chunk, chunks_of, parsed
from remembrancer.code.languages import language_of
from remembrancer.code.symbols import Symbol, names_of, symbols_of
from remembrancer.code.tree import SourceFile, Unreadable, read_source
from remembrancer.code.words import terms_of, words_in

FIELDS: Final = {"name": 2, "file": 3, "directory": 2, "head": 1}
"""The weight of a term in a field beside 1 in the text."""
REFERS: Final = "@"
IMPORTS: Final = "+"
"""The beginning of a term that is a name which a chunk refers to, or imports: no word of a question begins so."""
MOST_COUNT: Final = 255
"""Occurrences that fit into 8 bits; a term that is there more often tells no more."""


class ReadChunk(msgspec.Struct, frozen=True, array_like=True):
    """A chunk as the index keeps it; `length` counts its terms, and `digest` is that of all but its lines."""

    start_line: int
    end_line: int
    digest: int
    kind: str = ""
    name: str = ""
    signature: str = ""
    length: int = 0
    text: bytes = b""
    """Deflated; nothing of a chunk that the index has, of which it is said where it is now."""


class ReadFile(msgspec.Struct, frozen=True, array_like=True):
    """A file as it was read; `skipped` says why it was not."""

    path: str
    mtime_ns: int
    size: int
    language: str
    chunks: tuple[ReadChunk, ...] = ()
    skipped: str = ""
    symbols: tuple[Symbol, ...] = ()


class PostingLists(msgspec.Struct, frozen=True, array_like=True):
    """For each of some terms, in their order, the numbers of the chunks that have it (32 bits each), and how often (8
    bits each): one after the other, as far as the `ends`."""

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
    """Files, and the postings of their terms: chunks count from 0 over all files."""

    files: tuple[ReadFile, ...] = ()
    postings: PostingLists = PostingLists()


def read_segment(
    root: str,
    files: Sequence[SourceFile],
    plain: frozenset[str] = frozenset(),
    note: Callable[[str], None] = lambda path: None,
    known: Mapping[str, bytes] = MappingProxyType({}),
) -> Segment:
    """These files of a tree. `plain` are cut without a parser, `note` is told of each before it is read, and `known`
    are the digests, of 64 bits, of the chunks that the index has of some of them. Blocks."""
    read: list[tuple[ReadFile, list[tuple[Chunk, int, bool]]]] = []
    counted = _CountedTerms()
    for file in files:
        note(file.path)
        language = language_of(file.path) or ""
        cut, named, symbols, skipped = _cut(root, file.path, language, is_plain=file.path in plain)
        of_path = counted.numbers_of(_path_text(file.path))
        there = Counter(memoryview(known.get(file.path, b"")).cast("q"))
        chunks = []
        for chunk, (referred, imported) in zip(cut, named, strict=True):
            digest = _digest(chunk, referred, imported)
            is_known = there[digest] > 0
            if is_known:
                there[digest] -= 1
            else:
                names, heads = [chunk.name] * FIELDS["name"], [chunk.head] * FIELDS["head"]
                counted.add(of_path, "\n".join((chunk.text, *names, *heads)), referred, imported)
            chunks.append((chunk, digest, is_known))
        about = ReadFile(file.path, file.mtime_ns, file.size, language, (), skipped, tuple(symbols))
        read.append((about, chunks))
    lengths, postings = counted.of_all()
    of_new = iter(lengths)
    return Segment(
        tuple(
            msgspec.structs.replace(
                about,
                chunks=tuple(
                    ReadChunk(chunk.start_line, chunk.end_line, digest)
                    if is_known
                    else _packed(chunk, digest, next(of_new))
                    for chunk, digest, is_known in chunks
                ),
            )
            for about, chunks in read
        ),
        postings,
    )


def _digest(chunk: Chunk, referred: Iterable[str], imported: Iterable[str]) -> int:
    """That of all that is kept or counted of a chunk but its lines and its file's path."""
    said = (*chunk[2:], *sorted(referred), "", *sorted(imported))
    digest = blake2b("\0".join(said).encode("utf-8", "replace"), digest_size=8)
    return int.from_bytes(digest.digest(), signed=True)  # as SQLite keeps it


def _packed(chunk: Chunk, digest: int, length: int) -> ReadChunk:
    text = zlib.compress(chunk.text.encode("utf-8", "replace"), 1)
    return ReadChunk(chunk.start_line, chunk.end_line, digest, chunk.kind, chunk.name, chunk.signature, length, text)


class _CountedTerms:
    """Counts the terms of chunks: notes their words, of which many are alike, and makes terms of these at the end."""

    def __init__(self) -> None:
        self._words: defaultdict[str, int] = defaultdict(itertools.count().__next__)
        number = itertools.count().__next__
        self._referred, self._imported = defaultdict[str, int](number), defaultdict[str, int](number)
        self._in_chunks, self._sizes = array("I"), array("I")
        self._marked, self._mark_sizes = array("I"), array("I")

    def numbers_of(self, text: str) -> array[int]:
        """The words of a text, as `add` takes them."""
        return array("I", map(self._words.__getitem__, words_in(text)))

    def add(self, numbers: array[int], text: str, referred: Iterable[str], imported: Iterable[str]) -> None:
        """One more chunk: words that were numbered before, a text, and the names that it refers to and imports."""
        before, marked = len(self._in_chunks), len(self._marked)
        self._in_chunks.extend(numbers)
        self._in_chunks.extend(map(self._words.__getitem__, words_in(text)))
        self._marked.extend(map(self._referred.__getitem__, referred))
        self._marked.extend(map(self._imported.__getitem__, imported))
        self._sizes.append(len(self._in_chunks) - before)
        self._mark_sizes.append(len(self._marked) - marked)

    def of_all(self) -> tuple[list[int], PostingLists]:
        """For each chunk the number of terms in its text, and the postings."""
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
"""For each chunk the names that it refers to, and those that it imports."""


def _cut(root: str, path: str, language: str, *, is_plain: bool) -> tuple[list[Chunk], Named, list[Symbol], str]:
    """The chunks of a file with the names in them, and its symbols, or why it has none."""
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
    """The words of a file's path, each as often as it counts in each of its chunks."""
    names, directory = [own_name(path)] * FIELDS["file"], [str(PurePosixPath(path).parent)] * FIELDS["directory"]
    return "\n".join((*names, *directory))


def own_name(path: str) -> str:
    """The name of a file without its ending."""
    return path.rpartition("/")[2].partition(".")[0]
