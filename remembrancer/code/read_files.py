"""Reads and cuts files, and lists the terms of their chunks, for the writer of the index."""

import zlib
from collections import Counter
from itertools import chain
from pathlib import PurePosixPath
from typing import ClassVar, Final

import msgspec

from remembrancer.code.chunks import Chunk, chunks_of
from remembrancer.code.languages import PROSE, language_of
from remembrancer.code.tree import SourceFile, Unreadable, read_source
from remembrancer.code.words import terms_of, words_in
from remembrancer.memory.markdown_index import without_block

FIELDS: Final = {"name": 2, "file": 3, "directory": 2, "head": 1}
"""The weight of a term in each field, relative to 1 in the text."""
MOST_COUNT: Final = 255
"""Occurrences of a term in a chunk that are counted."""


class ReadChunk(msgspec.Struct, frozen=True, array_like=True):
    """A chunk for the index. `length` counts its terms, `terms` has each with its count
    (`retry^3 pool^1`); `text` and `terms` are deflated."""

    start_line: int
    end_line: int
    kind: str
    name: str
    length: int
    text: bytes
    terms: bytes


class ReadFile(msgspec.Struct, frozen=True, array_like=True):
    """A file as it was read. `kind` is its language; `skipped` is the reason why it was not read."""

    path: str
    mtime_ns: int
    size: int
    kind: str
    chunks: tuple[ReadChunk, ...] = ()
    skipped: str = ""
    digest: ClassVar[bytes] = b""


def read_file(root: str, file: SourceFile, *, is_plain: bool = False) -> ReadFile:
    """Read a file of a tree; a plain one is cut without a parser. Blocks."""
    language = language_of(file.path) or ""
    cut, skipped = _cut(root, file.path, language, is_plain=is_plain)
    of_path = words_in(_path_text(file.path))
    chunks = []
    for chunk in cut:
        names, heads = [chunk.name] * FIELDS["name"], [chunk.head] * FIELDS["head"]
        words = Counter(chain(of_path, words_in("\n".join((chunk.text, *names, *heads)))))
        counts = Counter[str]()
        for word, count in words.items():
            for term in terms_of(word):
                counts[term] += count
        terms = " ".join(f"{term}^{min(count, MOST_COUNT)}" for term, count in counts.items())
        place = (chunk.start_line, chunk.end_line, chunk.kind, chunk.name, counts.total())
        chunks.append(ReadChunk(*place, _deflated(chunk.text), _deflated(terms)))
    return ReadFile(file.path, file.mtime_ns, file.size, language, tuple(chunks), skipped)


def _deflated(text: str) -> bytes:
    return zlib.compress(text.encode("utf-8", "replace"), 1)


def _cut(root: str, path: str, language: str, *, is_plain: bool) -> tuple[list[Chunk], str]:
    """A file's chunks, or the reason why it is skipped."""
    try:
        text = read_source(root, path)
    except Unreadable as error:
        return [], str(error)
    except OSError:
        return [], "unreadable"
    return chunks_of(without_block(text) if language in PROSE else text, language, is_plain=is_plain), ""


def _path_text(path: str) -> str:
    """The words of a file's path, repeated by the weights of their fields."""
    names, directory = [own_name(path)] * FIELDS["file"], [str(PurePosixPath(path).parent)] * FIELDS["directory"]
    return "\n".join((*names, *directory))


def own_name(path: str) -> str:
    """The name of a file without its extension."""
    return path.rpartition("/")[2].partition(".")[0]
