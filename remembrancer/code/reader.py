"""The process that reads and parses code: `python -P -m remembrancer.code.reader`. Its input may kill it.

A grammar may crash, loop, or exhaust the memory, and Python cannot stop it. So each file has a budget of processor
time, after which the system kills the process, and the parent knows the file by the last `Begun`. A frame is a 4-byte
length followed by a message in MessagePack.
"""

from __future__ import annotations

import gc
import os
import resource
import signal
import struct
import sys
from typing import BinaryIO, Final

import msgspec

from remembrancer.code.read_files import ReadFile, read_files
from remembrancer.code.tree import SourceFile

DEADLINE_S: Final = 10
"""Seconds of processor time for reading, parsing and counting one file."""
LONGEST_S: Final = 300
"""Wall-clock seconds for a file that takes no processor time, as on a disk that does not answer."""
MOST_MEMORY: Final = 1024**3
"""Bytes of address space."""


class ReadFiles(msgspec.Struct, frozen=True, array_like=True, tag=0):
    """A request to read these files of a tree. The `plain` ones are cut without a parser."""

    root: str
    files: tuple[SourceFile, ...]
    plain: tuple[str, ...] = ()
    deadline_s: int = DEADLINE_S
    """For each file."""


class Begun(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """A file is about to be read."""

    path: str


class Done(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """All files have been read."""

    files: tuple[ReadFile, ...]


requests: Final = msgspec.msgpack.Decoder(ReadFiles)
answers: Final = msgspec.msgpack.Decoder(Begun | Done)
_encoder: Final = msgspec.msgpack.Encoder()


def frame(message: ReadFiles | Begun | Done) -> bytes:
    """A message as it is sent."""
    body = _encoder.encode(message)
    return struct.pack(">I", len(body)) + body


def serve(requests_in: BinaryIO, answers_out: BinaryIO) -> None:
    """Answer requests until the end of the input."""

    def note(path: str) -> None:
        signal.setitimer(signal.ITIMER_PROF, request.deadline_s)
        signal.alarm(LONGEST_S)
        answers_out.write(frame(Begun(path)))
        answers_out.flush()

    while head := requests_in.read(4):
        request = requests.decode(requests_in.read(struct.unpack(">I", head)[0]))
        files = read_files(request.root, request.files, frozenset(request.plain), note)
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.alarm(0)
        answers_out.write(frame(Done(files)))
        answers_out.flush()
        gc.collect()


if __name__ == "__main__":
    os.nice(5)
    for each in (signal.SIGPROF, signal.SIGALRM):
        signal.signal(each, signal.SIG_DFL)
    if sys.platform != "darwin":  # macOS refuses this limit
        resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, MOST_MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    serve(sys.stdin.buffer, sys.stdout.buffer)
