"""Reads, cuts and counts files: the segments that a reader hands to the writer of the index."""

from __future__ import annotations

import zlib
from array import array
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate, chain
from pathlib import PurePosixPath
from typing import Final

import msgspec

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
    read: list[ReadFile] = []
    postings: defaultdict[str, tuple[array[int], array[int]]] = defaultdict(lambda: (array("I"), array("B")))
    number = 0
    for file in files:
        note(file.path)
        language = language_of(file.path) or ""
        cut, named, symbols, skipped = _cut(root, file.path, language, is_plain=file.path in plain)
        of_path = words_in(_path_text(file.path))
        chunks = []
        for chunk, (referred, imported) in zip(cut, named, strict=True):
            names, heads = [chunk.name] * FIELDS["name"], [chunk.head] * FIELDS["head"]
            words = Counter(chain(of_path, words_in("\n".join((chunk.text, *names, *heads)))))
            counts: defaultdict[str, int] = defaultdict(int)
            for word, count in words.items():
                for term in terms_of(word):
                    counts[term] += count
            chunks.append(_packed(chunk, sum(counts.values())))
            counts |= dict.fromkeys(chain(map(REFERS.__add__, referred), map(IMPORTS.__add__, imported)), 1)
            for term, count in counts.items():
                having, often = postings[term]
                having.append(number)
                often.append(min(count, MOST_COUNT))
            number += 1
        about = ReadFile(file.path, file.mtime_ns, file.size, language, tuple(chunks), skipped, tuple(symbols))
        read.append(about)
    terms = sorted(postings)
    return Segment(
        tuple(read),
        PostingLists(
            terms,
            list(accumulate(len(postings[term][0]) for term in terms)),
            b"".join(postings[term][0].tobytes() for term in terms),
            b"".join(postings[term][1].tobytes() for term in terms),
        ),
    )


def _packed(chunk: Chunk, length: int) -> ReadChunk:
    text = zlib.compress(chunk.text.encode("utf-8", "replace"), 1)
    return ReadChunk(chunk.start_line, chunk.end_line, chunk.kind, chunk.name, chunk.signature, length, text)


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
