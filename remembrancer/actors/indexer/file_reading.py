"""Reads files for the index, without credentials: notes as a whole, transcripts from the last position on.

Blocks.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections import OrderedDict
from pathlib import Path
from typing import Final, NamedTuple

from remembrancer.config.settings import Settings
from remembrancer.memory.chunks import chunks_of
from remembrancer.memory.credentials import masked
from remembrancer.memory.markdown_index import without_block
from remembrancer.memory.notes import MAX_FILE_BYTES
from remembrancer.memory.transcripts import START, Position, TranscriptTurn, chunks_of_turns
from remembrancer.protocol.files import FileChunk, FileState, FileUpdate
from remembrancer.toolsets.files.workspace_files import (
    FoundFile,
    find_note,
    is_of_workspace,
    open_note,
    places_of,
    turns_after,
)

OTHER_PROJECT: Final = "of another project"
"""The reason for skipping a transcript that need not be reported."""
ENDED_S: Final = 300.0
"""The transcript of a session that has been silent for this long is read however little it has grown."""
KEPT: Final = 8
"""Transcripts whose position is remembered; others are read from the start again."""


class _Begun(NamedTuple):
    """The position in a transcript: the number of final chunks, and the turns after them.

    `digest` is the one that the index was given.
    """

    position: Position
    kept: int
    turns: tuple[TranscriptTurn, ...]
    seen: set[str]
    digest: bytes

    @classmethod
    def anew(cls) -> _Begun:
        return cls(START, 0, (), set(), b"")


class FileReader:
    """Reads the files of one workspace."""

    def __init__(self, root: Path, settings: Settings) -> None:
        self._root = root
        self._settings = settings
        self._overlap = min(settings.chunk_overlap, settings.chunk_tokens // 2)
        self._begun: OrderedDict[Path, _Begun] = OrderedDict()

    def is_due(self, file: FoundFile, known: FileState) -> bool:
        """True if a changed file should be read now. A transcript may wait."""
        grown = file.size - known.size
        if file.source != "sessions" or not 0 < grown < self._settings.transcripts_delta_bytes:
            return True
        if time.time() - file.mtime_ns / 1e9 > ENDED_S:
            return True
        try:
            with file.path.open("rb") as transcript:
                transcript.seek(known.size)
                return transcript.read(grown).count(b"\n") >= self._settings.transcripts_delta_messages
        except OSError:  # reading it reports the error
            return True

    def read(self, file: FoundFile, known: FileState | None, *, force: bool) -> FileUpdate | str | None:
        """A file for the index, or the reason why it is left out, or None if it is gone or being written.

        A transcript is read piece by piece: while there is `more`, it has to be read again with the last returned
        state.
        """
        try:
            if file.source == "sessions":
                return self._read_transcript(file, known, force=force)
            return self._read_note(file, known, force=force)
        except FileNotFoundError:
            return None
        except OSError as error:
            return f"it cannot be read: {error.strerror}"

    def _read_note(self, file: FoundFile, known: FileState | None, *, force: bool) -> FileUpdate | str | None:
        note = find_note(file.path, self._root, places_of(self._settings, self._root))
        if isinstance(note, str):  # by now
            return note
        with os.fdopen(open_note(note), "rb") as opened:
            data = opened.read(MAX_FILE_BYTES + 1)
            if len(data) != os.fstat(opened.fileno()).st_size:
                return None  # it is being written: its time has changed meanwhile
        state = FileState(file.shown, file.source, file.mtime_ns, len(data), hashlib.sha256(data).digest())
        if known is not None and known.digest == state.digest and not force:
            return FileUpdate(state)
        if b"\0" in data[:8192]:
            return "binary"
        try:
            text = masked(without_block(data.decode("utf-8-sig")))
        except UnicodeDecodeError:
            return "not UTF-8"
        settings = self._settings
        chunks = chunks_of(text, settings.chunk_tokens, self._overlap, at_blocks=settings.chunk_at_boundaries)
        return FileUpdate(state, tuple(FileChunk(*chunk) for chunk in chunks))

    def _read_transcript(self, file: FoundFile, known: FileState | None, *, force: bool) -> FileUpdate | str:
        begun = self._begun.pop(file.path, None)
        if begun is None or force or known is None or known.digest != begun.digest:
            begun = _Begun.anew()
        with file.path.open("rb") as transcript:
            read = turns_after(transcript, begun.position, begun.seen)
            if read is None:  # it has been rewritten
                begun = _Begun.anew()
                read = turns_after(transcript, START, begun.seen) or ([], START, False)
        new, position, more = read
        if not is_of_workspace(position.directory, file.path, self._root):
            return OTHER_PROJECT
        turns = (*begun.turns, *new)
        made = chunks_of_turns(turns, self._settings.chunk_tokens, self._overlap)
        last = made[-1].start_line if made else 0
        digest = hashlib.sha256(f"{position.offset} {position.turns} ".encode() + position.tail).digest()
        done = sum(chunk.start_line < last for chunk in made)
        rest = tuple(turn for turn in turns if turn.number >= last)
        self._begun[file.path] = _Begun(position, begun.kept + done, rest, begun.seen, digest)
        while len(self._begun) > KEPT:
            self._begun.popitem(last=False)
        # After a kill before the last piece, time and size differ from the index, so the file is read again.
        about = (0, position.offset) if more else (file.mtime_ns, file.size)
        state = FileState(file.shown, file.source, *about, digest)
        if known is not None and known.digest == digest and not force:
            return FileUpdate(state)
        return FileUpdate(state, tuple(FileChunk(*chunk) for chunk in made), begun.kept, more)
