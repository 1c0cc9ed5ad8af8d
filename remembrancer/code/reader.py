"""The process that reads and parses some files of code: `python -P -m remembrancer.code.reader`. Its input may kill it.

A grammar may crash, loop, or exhaust the memory, and Python cannot stop it. So each file has a budget of processor
time, after which the system kills the process. It answers a `ReadFiles` on standard input with an empty line once it
has started, and a line, a `ReadFile` in JSON, for each file as soon as it was read. The first file without a line is
the one that killed it.
"""

import os
import resource
import signal
import sys
from typing import BinaryIO, Final

import msgspec

from remembrancer.code.read_files import ReadFile, read_file
from remembrancer.code.tree import SourceFile
from remembrancer.protocol.system import limit_memory

DEADLINE_S: Final = 10
"""Seconds of processor time for reading, parsing and counting one file."""
LONGEST_S: Final = 300
"""Wall-clock seconds for a file that takes no processor time, as on a disk that does not answer."""
MOST_MEMORY: Final = 1024**3
"""Bytes of address space."""


class ReadFiles(msgspec.Struct, frozen=True, array_like=True):
    """A request to read these files of a tree. The `plain` ones are cut without a parser."""

    root: str
    files: tuple[SourceFile, ...]
    plain: tuple[str, ...] = ()
    deadline_s: int = DEADLINE_S
    """For each file."""


requests: Final = msgspec.json.Decoder(ReadFiles)
answers: Final = msgspec.json.Decoder(ReadFile)


def answer(request: ReadFiles, output: BinaryIO) -> None:
    """Read the files, and write their lines."""

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
    limit_memory(MOST_MEMORY)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    answer(requests.decode(sys.stdin.buffer.read()), sys.stdout.buffer)
