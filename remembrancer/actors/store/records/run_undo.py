"""What a run did, so far as it can be undone, and how it is undone. Inside the caller's transaction."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass, field
from typing import Final, assert_never

import msgspec

from remembrancer.actors.store.records.memory_rows import RELEASED, Done, MemoryRow, read_memory, revise, snapshot_of
from remembrancer.actors.store.records.promotion_rows import unlog_promotions, unnote_pattern, without_steps
from remembrancer.actors.store.records.sqlite_file import encode_json, query_of
from remembrancer.memory.changes import is_visible, kind_of
from remembrancer.protocol.errors import NotFound
from remembrancer.protocol.runs import ChainLink, NotePattern, Skipped, UndoneResult, UndoRun
from remembrancer.protocol.writes import Operation, Snapshot

RESTORED: Final = ("status", "scope", "type", "summary", "importance", "confidence", "valid_until", "tags")
"""The fields that a run may change, apart from the kind and from being forgotten."""


TO_THE_USER: Final = "it has gone to the user, and stays there"


class Added(msgspec.Struct, frozen=True, tag=True, tag_field="did"):
    """The run made the memory."""


class Revised(msgspec.Struct, frozen=True, tag=True, tag_field="did", omit_defaults=True):
    """The run made a version of the memory, or counted an access at `accessed_at`.

    `last_accessed_at` is when the one before that was.
    """

    before: int
    after: int
    chain: ChainLink | None = None
    accessed_at: float | None = None
    last_accessed_at: float | None = None


class Linked(msgspec.Struct, frozen=True, tag=True, tag_field="did"):
    """The run linked the memory to another one."""

    target: str
    relation: str
    created_at: float


class Observed(msgspec.Struct, frozen=True, tag=True, tag_field="did"):
    """The run counted an observation of the memory in a project: the first one there or not."""

    project_id: str
    was_new: bool


class Left(msgspec.Struct, frozen=True, tag=True, tag_field="did"):
    """The memory went to the user when the session of the run ended. That stays so when the run is undone."""


Deed = Added | Revised | Linked | Observed | Left

_decode_deed: Final = msgspec.json.Decoder(Deed).decode


def note_deed(connection: sqlite3.Connection, run_id: str, memory_id: str, deed: Deed) -> None:
    """Keep what a run did to a memory."""
    before, after = (deed.before, deed.after) if isinstance(deed, Revised) else (None, None)
    connection.execute(
        """INSERT INTO run_changes (run_id, edit, memory_id, version_before, version_after, details)
           VALUES (?, ?, ?, ?, ?, ?)""",
        (run_id, type(deed).__name__.lower(), memory_id, before, after, encode_json(deed).decode()),
    )


def note_departure(connection: sqlite3.Connection, run_id: str, memory_id: str, now: float) -> None:
    """Keep that a memory went to the user in consequence of a session's end, whose run may not have written yet."""
    connection.execute(
        "INSERT OR IGNORE INTO runs (run_id, kind, session_id, began_at) VALUES (?, 'session_end', '', ?)",
        (run_id, now),
    )
    note_deed(connection, run_id, memory_id, Left())


def undo_run(connection: sqlite3.Connection, operation: Operation, change: UndoRun, now: float) -> Done:
    """Undo all parts of a run, the last deed first. What was changed since is left as it is, and named.

    Raises:
        NotFound: there is no such run here, or it is about a memory that the operation's session may not see, or
            about another project.
    """
    row = connection.execute("SELECT undone_at FROM runs WHERE run_id = ?", (change.run_id,)).fetchone()
    deeds = _read_deeds(connection, change.run_id)
    session_id = operation.session_id or None
    known = row is not None and all(_is_visible(connection, memory_id, session_id) for memory_id, _ in deeds)
    if not known or (change.place == "user" and not _is_of(operation.project.id, deeds)):
        if change.if_there:
            return Done(UndoneResult(change.run_id, found=False))
        raise NotFound(
            f"there is no run with the id {change.run_id} (what is older than 90 days, or than the setting runs_kept_s "
            "says, cannot be undone any more)",
            field="run_id",
        )
    if row[0] is not None:
        return Done(UndoneResult(change.run_id, already=True))
    undoing = _Undoing(connection, operation, change.run_id, now)
    versions: dict[str, list[Added | Revised]] = {}
    for memory_id, deed in reversed(deeds):
        match deed:
            case Added() | Revised():
                versions.setdefault(memory_id, []).append(deed)
            case Linked():
                undoing.unlink(memory_id, deed)
            case Observed(project_id=project_id, was_new=was_new):
                unnote_pattern(connection, NotePattern(memory_id, project_id), was_new=was_new)
            case Left():
                undoing.leave(memory_id)
            case _:
                assert_never(deed)
    for memory_id, latest_first in versions.items():
        undoing.restore(memory_id, latest_first)
    unlog_promotions(connection, change.run_id)
    connection.execute("UPDATE runs SET undone_at = ? WHERE run_id = ?", (now, change.run_id))
    return Done(UndoneResult(change.run_id, tuple(undoing.memories), tuple(undoing.skipped)))


@dataclass
class _Undoing:
    """A run while it is undone."""

    connection: sqlite3.Connection
    operation: Operation
    run_id: str
    now: float
    memories: list[str] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)
    left: set[str] = field(default_factory=set)

    def leave(self, memory_id: str) -> None:
        """Say of a memory that it has gone to the user: an undoing does not bring it back into its project."""
        if memory_id not in self.left and _read(self.connection, memory_id) is None:
            self.left.add(memory_id)
            self.skipped.append(Skipped(memory_id, TO_THE_USER))

    def restore(self, memory_id: str, latest_first: list[Added | Revised]) -> None:
        """Make a memory what it was before the run; if the run made it, forget it."""
        memory = _read(self.connection, memory_id)
        if memory is None:
            if memory_id not in self.left:
                self.skipped.append(Skipped(memory_id, "it is not here any more"))
            return
        if memory.now.forgotten and isinstance(latest_first[-1], Added):  # by somebody else, whose reason stands
            return
        version, undid = self._stands_at(memory)
        undone, was_added = _undoable(latest_first, version)
        if not undone and not was_added:
            self.skipped.append(Skipped(memory_id, "it has been changed since"))
            return
        if len(undone) + was_added < len(latest_first):
            self.skipped.append(Skipped(memory_id, "it was changed by others in between: only the last step is undone"))
        as_of: int | None = None
        if was_added:
            after = msgspec.structs.replace(memory.now, forgotten=True, forgotten_reason=f"undone: {self.run_id}")
        else:
            as_of = undone[-1].before
            old = snapshot_of(self.connection, memory_id, as_of)
            if old is None:
                self.skipped.append(Skipped(memory_id, "what it was before is not known any more"))
                return
            after = as_before(memory.now, old)
        steps = [deed.chain for deed in undone if deed.chain is not None]
        chain = without_steps(memory.promotion_chain, steps) if steps else None
        about = {"run": self.run_id, "undid": undid, "as_of": as_of}
        revise(self.connection, self.operation, memory, after, "undone", self.now, chain=chain, **about)
        self._uncount_accesses(memory, undone)
        self.memories.append(memory_id)

    def _stands_at(self, memory: MemoryRow) -> tuple[int, str | None]:
        """The version that a memory is like, and the change that made it: what was undone stands in nobody's way."""
        version = memory.version
        while True:
            row = self.connection.execute(
                """SELECT change, json_extract(details, '$.as_of') FROM history WHERE memory_id = ? AND version = ?
                   ORDER BY changed_at DESC LIMIT 1""",
                (memory.id, version),
            ).fetchone()
            change, as_of = row or (None, None)
            if change == RELEASED:
                version -= 1
                continue
            if change != "undone" or not isinstance(as_of, int) or as_of >= version:
                return version, change
            version = as_of

    def unlink(self, memory_id: str, deed: Linked) -> None:
        """Remove a link, unless it was made anew since."""
        self.connection.execute(
            """DELETE FROM memory_links WHERE source = (SELECT number FROM memories WHERE id = ?)
               AND target = (SELECT number FROM memories WHERE id = ?) AND relation = ? AND created_at = ?""",
            (memory_id, deed.target, deed.relation, deed.created_at),
        )

    def _uncount_accesses(self, memory: MemoryRow, latest_first: list[Revised]) -> None:
        """Take the run's accesses back. The time of the last one is as before if there was no other since."""
        for deed in latest_first:
            if deed.accessed_at is not None:
                self.connection.execute(
                    """UPDATE memories SET access_count = max(0, access_count - 1),
                       last_accessed_at = CASE last_accessed_at WHEN ? THEN ? ELSE last_accessed_at END
                       WHERE number = ?""",
                    (deed.accessed_at, deed.last_accessed_at, memory.number),
                )


def as_before(now: Snapshot, old: Snapshot) -> Snapshot:
    """What a memory is now with everything that a run may change as it was. Pure."""
    return msgspec.structs.replace(
        now,
        **{name: getattr(old, name) for name in RESTORED},
        kind=kind_of(old),
        forgotten=old.forgotten,
        forgotten_reason=old.forgotten_reason,
    )


def _undoable(latest_first: list[Added | Revised], version: int) -> tuple[list[Revised], bool]:
    """The last deeds of a run, the latest first, that led to a version without other changes in between; and whether
    they go back to the making of the memory."""
    undone: list[Revised] = []
    for deed in latest_first:
        if isinstance(deed, Added):
            return undone, version == 1
        if deed.after != version:
            break
        undone.append(deed)
        version = deed.before
    return undone, False


def _read_deeds(connection: sqlite3.Connection, run_id: str) -> list[tuple[str, Deed]]:
    rows = connection.execute(
        "SELECT memory_id, details FROM run_changes WHERE run_id = ? ORDER BY sequence", (run_id,)
    ).fetchall()
    return [(memory_id, _decode_deed(details)) for memory_id, details in rows]


def _is_of(project_id: str, deeds: list[tuple[str, Deed]]) -> bool:
    """Whether what a run did to the user's memories came from that project, or from none."""
    origins = {deed.project_id for _, deed in deeds if isinstance(deed, Observed)}
    origins |= {deed.chain.source_project or "" for _, deed in deeds if isinstance(deed, Revised) and deed.chain}
    return origins <= {"", project_id}


def _is_visible(connection: sqlite3.Connection, memory_id: str, session_id: str | None) -> bool:
    """Whether a session may see a memory. What is not here any more is no secret."""
    memory = _read(connection, memory_id)
    return memory is None or is_visible(memory.now.scope, memory.now.session_id, session_id)


def _read(connection: sqlite3.Connection, memory_id: str) -> MemoryRow | None:
    return read_memory(query_of(connection), memory_id)
