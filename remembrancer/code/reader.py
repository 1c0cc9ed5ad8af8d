"""The process that reads code files, splits them, and lists the terms of their chunks.

A file may kill the process: a grammar may crash, loop, or exhaust the memory, and Python cannot prevent this. So the
operating system kills the process when a file has used up its processor time. `python -P -m remembrancer.code.reader`
answers a `ReadFiles` on standard input with an empty line once it has started, and then with one line per file: a
`ReadFile` in JSON. The first file without a line is the file that killed the process.
"""

import os
import resource
import signal
import sys
import zlib
from collections import Counter
from pathlib import PurePosixPath
from typing import BinaryIO, ClassVar, Final

import msgspec

from remembrancer.code.chunks import Chunk, chunks_of
from remembrancer.code.languages import PROSE, language_of
from remembrancer.code.tree import SourceFile, Unreadable, read_source
from remembrancer.code.words import own_name, terms_of, words_in
from remembrancer.memory.markdown_index import without_block
from remembrancer.protocol.system import limit_memory

DEADLINE_S: Final = 10
"""The processor time for one file."""
LONGEST_S: Final = 300
"""The limit for a file that uses no processor time, for example on a disk that does not respond."""
ADDRESS_SPACE_BYTES: Final = 1024**3
NAME_WEIGHT, FILE_WEIGHT = 2, 2
"""The weights of terms in names and file paths. Terms in other fields have weight 1."""
MAX_TERM_COUNT: Final = 255


class ReadFiles(msgspec.Struct, frozen=True, array_like=True):
    """The `plain` files of a tree are split without a parser."""

    root: str
    files: tuple[SourceFile, ...]
    plain: tuple[str, ...] = ()
    deadline_s: int = DEADLINE_S
    """The limit for each file."""


class ReadChunk(msgspec.Struct, frozen=True, array_like=True):
    """`terms` (deflated, like `text`) has each term with its count (`retry^3 pool^1`); `length` is the counts' sum."""

    start_line: int
    end_line: int
    kind: str
    name: str
    length: int
    text: bytes
    terms: bytes


class ReadFile(msgspec.Struct, frozen=True, array_like=True):
    """`kind` is the file's language; `skipped` is the reason why it was not read."""

    path: str
    mtime_ns: int
    size: int
    kind: str
    chunks: tuple[ReadChunk, ...] = ()
    skipped: str = ""
    digest: ClassVar[bytes] = b""


requests: Final = msgspec.json.Decoder(ReadFiles)
answers: Final = msgspec.json.Decoder(ReadFile)


def read_file(root: str, file: SourceFile, *, is_plain: bool = False) -> ReadFile:
    language = language_of(file.path) or ""
    cut, skipped = _cut(root, file.path, language, is_plain=is_plain)
    of_path = [own_name(file.path)] * FILE_WEIGHT + [str(PurePosixPath(file.path).parent)]
    chunks = []
    for chunk in cut:
        fields = (*of_path, chunk.text, chunk.head, *[chunk.name] * NAME_WEIGHT)
        words = Counter(words_in("\n".join(fields)))
        counts = Counter[str]()
        for word, count in words.items():
            for term in terms_of(word):
                counts[term] += count
        terms = " ".join(f"{term}^{min(count, MAX_TERM_COUNT)}" for term, count in counts.items())
        place = (chunk.start_line, chunk.end_line, chunk.kind, chunk.name, counts.total())
        chunks.append(ReadChunk(*place, _deflated(chunk.text), _deflated(terms)))
    return ReadFile(file.path, file.mtime_ns, file.size, language, tuple(chunks), skipped)


def _deflated(text: str) -> bytes:
    return zlib.compress(text.encode("utf-8", "replace"), 1)


def _cut(root: str, path: str, language: str, *, is_plain: bool) -> tuple[list[Chunk], str]:
    try:
        text = read_source(root, path)
    except Unreadable as error:
        return [], str(error)
    except OSError:
        return [], "unreadable"
    return chunks_of(without_block(text) if language in PROSE else text, language, is_plain=is_plain), ""


def answer(request: ReadFiles, output: BinaryIO) -> None:
    def write(line: bytes) -> None:
        output.write(line + b"\n")
        output.flush()

    write(b"")
    for file in request.files:
        signal.setitimer(signal.ITIMER_PROF, request.deadline_s)
        signal.alarm(LONGEST_S)
        write(msgspec.json.encode(read_file(request.root, file, is_plain=file.path in request.plain)))


if __name__ == "__main__":
    os.nice(5)
    for each in (signal.SIGPROF, signal.SIGALRM):
        signal.signal(each, signal.SIG_DFL)
    limit_memory(ADDRESS_SPACE_BYTES)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    answer(requests.decode(sys.stdin.buffer.read()), sys.stdout.buffer)
