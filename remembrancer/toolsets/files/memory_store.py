"""The tool `memory_store`."""

from typing import Annotated, Final, Literal

from msgspec import Meta

from remembrancer.memory.credentials import masked
from remembrancer.memory.notes import MAX_NOTE_BYTES, clean_note_path, daily_note, directories_of, edited
from remembrancer.memory.text import check_text
from remembrancer.protocol.errors import InvalidInput, RemembrancerError
from remembrancer.protocol.files import SyncFiles
from remembrancer.protocol.writes import NoteWritten, WriteNote
from remembrancer.toolsets.files.note_index import workspace_of
from remembrancer.toolsets.tools import Answer, Call, non_empty, tool

INDEXED_WITHIN_S: Final = 0.5
"""The time to wait until the note can be found by its words. It is stored in any case."""


@tool("Write into the project's notes. Appends unless told to replace.", destructive=True, unlisted=("expected",))
async def memory_store(
    call: Call,
    content: Annotated[str, Meta(description="Markdown")],
    mode: Literal["append", "replace"] | None = None,
    path: Annotated[str, Meta(description="Today's memory/YYYY-MM-DD.md if left out")] = "",
    heading: Annotated[str, Meta(description="Append under it, or replace its section")] | None = None,
    expected: str = "",
) -> Answer:
    """Change a note on disk, once. The answer contains the text that a replacement removes."""
    settings = call.service.settings
    if not settings.notes:
        raise InvalidInput("notes are switched off here: the setting notes is false")
    check_text(content, field="content", longest_bytes=MAX_NOTE_BYTES)
    workspace = workspace_of(call)
    path = path or daily_note(call.received_at, settings.notes_paths)
    change = WriteNote(
        workspace.root,
        clean_note_path(path, workspace.root, settings.notes_paths),
        content,
        mode or "append",
        heading,
        ignore=directories_of(settings.notes_paths),
        places=settings.notes_paths,
        expected=expected,
    )
    result = await call.submit(change)
    if result is None:  # queued
        lines = edited("", content, "append", heading).lines
        return {"path": change.path, "linesWritten": lines, "indexed": False}
    assert isinstance(result, NoteWritten)
    try:
        await call.service.require(SyncFiles(workspace, source="notes"), INDEXED_WITHIN_S)
        indexed = True
    except RemembrancerError:  # it is on its way
        indexed = False
    answer: Answer = {"path": result.path, "linesWritten": result.lines, "indexed": indexed}
    return answer | non_empty(replaced=masked(result.replaced), addedToGitignore=list(result.ignored))
