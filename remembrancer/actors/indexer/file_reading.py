"""Reads files for the index, without credentials.

Blocks.
"""

import hashlib
import os
import re
import time
from pathlib import Path
from typing import Final

from remembrancer.config.settings import Settings
from remembrancer.memory.chunks import chunks_of
from remembrancer.memory.credentials import masked
from remembrancer.memory.markdown_index import without_block
from remembrancer.memory.notes import MAX_FILE_BYTES
from remembrancer.memory.transcripts import chunks_of_turns, read_turns
from remembrancer.protocol.files import FileChunk, FileState, FileUpdate
from remembrancer.toolsets.files.workspace_files import (
    MAX_TRANSCRIPT_BYTES,
    FoundFile,
    find_note,
    is_of_workspace,
    open_note,
    places_of,
)

OTHER_PROJECT: Final = "of another project"
"""The reason for skipping a transcript that need not be reported."""
ENDED_S: Final = 300.0
"""The transcript of a session that has been silent for this long is read however little it has grown."""
GROWTH: Final = 0.1
"""The least share by which a transcript has grown when it is read again: it is read as a whole."""
HEAD_BYTES: Final = 256 * 1024
"""The beginning of a transcript, which usually names the directory of its session."""
_GAP: Final = re.compile(r"\n{4,}")
"""Several blank lines, as where a note has the block of memories."""


class FileReader:
    """Reads the files of one workspace."""

    def __init__(self, root: Path, settings: Settings) -> None:
        self._root = root
        self._settings = settings
        self._overlap = min(settings.chunk_overlap, settings.chunk_tokens // 2)

    def is_due(self, file: FoundFile, known: FileState) -> bool:
        """True if a changed file should be read now. A transcript may wait."""
        grown = file.size - known.size
        if file.source != "sessions" or grown <= 0 or time.time() - file.mtime_ns / 1e9 > ENDED_S:
            return True
        if grown < GROWTH * known.size:
            return False
        if grown >= self._settings.transcripts_delta_bytes:
            return True
        try:
            with file.path.open("rb") as transcript:
                transcript.seek(known.size)
                return transcript.read(grown).count(b"\n") >= self._settings.transcripts_delta_messages
        except OSError:  # reading it reports the error
            return True

    def read(self, file: FoundFile, known: FileState | None, *, force: bool) -> FileUpdate | str | None:
        """A file for the index, or the reason why it is left out, or None if it is gone or being written."""
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
        shorter = (chunk._replace(text=_GAP.sub("\n\n", chunk.text)) for chunk in chunks)
        return FileUpdate(state, tuple(FileChunk(*chunk) for chunk in shorter))

    def _read_transcript(self, file: FoundFile, known: FileState | None, *, force: bool) -> FileUpdate | str:
        with file.path.open("rb") as transcript:
            data = transcript.read(HEAD_BYTES)
            _, directory = read_turns(data)
            if directory and not is_of_workspace(directory, file.path, self._root):
                return OTHER_PROJECT
            data += transcript.read(MAX_TRANSCRIPT_BYTES)
        state = FileState(file.shown, file.source, file.mtime_ns, file.size, hashlib.sha256(data).digest())
        if known is not None and known.digest == state.digest and not force:
            return FileUpdate(state)
        turns, directory = read_turns(data)
        if not is_of_workspace(directory, file.path, self._root):
            return OTHER_PROJECT
        chunks = chunks_of_turns(turns, self._settings.chunk_tokens, self._overlap)
        return FileUpdate(state, tuple(FileChunk(*chunk) for chunk in chunks))
