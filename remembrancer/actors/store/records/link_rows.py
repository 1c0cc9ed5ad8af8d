"""Links between memories that somebody asks for. Inside the caller's transaction."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Final

import msgspec

from remembrancer.actors.store.records.history import read_history
from remembrancer.actors.store.records.memory_rows import MemoryRow, memory_to_change, revise
from remembrancer.protocol.errors import InvalidInput, NotFound
from remembrancer.protocol.writes import LinkRef, Operation

SUPERSEDED: Final = "superseded"

Links = list[tuple[LinkRef, MemoryRow]]


def find_targets(
    connection: sqlite3.Connection, operation: Operation, source: MemoryRow, links: Sequence[LinkRef], field: str
) -> Links:
    """The memories that links lead to. `field` is what they were given in.

    Raises:
        InvalidInput: a target is the memory itself, or none that the session sees in the same file.
    """
    found: Links = []
    for link in dict.fromkeys(links):
        try:
            target = memory_to_change(connection, operation, link.target)
        except NotFound as error:
            raise InvalidInput(
                f"there is no memory with the id {link.target} to link to: "
                "both must be of one project (or its sessions), or both the user's",
                field=field,
            ) from error
        if target.id == source.id:
            raise InvalidInput("a memory cannot be linked to itself", field=field)
        found.append((link, target))
    return found


def check_may_supersede(source: MemoryRow, links: Links, field: str) -> None:
    """Raises `InvalidInput` if a memory of one session alone would end what other sessions see."""
    for link, target in links:
        if link.relation == "supersedes" and source.now.scope == "session" and target.now.scope != "session":
            raise InvalidInput(
                f"{source.id} is this session's alone and cannot supersede {target.id}, which other sessions see: "
                "promote it to the project first (promote_memory)",
                field=field,
            )


def add_links(
    connection: sqlite3.Connection, operation: Operation, source: MemoryRow, links: Links, now: float
) -> bool:
    """Make links; whether any is new. One that supersedes ends the time in which its target is valid, if it has no end.

    That is a version of the target; the link itself is none of its source.
    """
    changed = False
    for link, target in links:
        made = connection.execute(
            "INSERT OR IGNORE INTO memory_links VALUES (?, ?, ?, 1.0, ?)",
            (source.number, target.number, link.relation, now),
        )
        changed = changed or made.rowcount > 0
        if made.rowcount and link.relation == "supersedes":
            _end_validity(connection, operation, source.id, target.id, now)
    return changed


def remove_links(
    connection: sqlite3.Connection, operation: Operation, source: MemoryRow, links: Links, now: float
) -> bool:
    """Remove links; whether any was there. The end of validity that a link had set goes with it."""
    changed = False
    for link, target in links:
        gone = connection.execute(
            "DELETE FROM memory_links WHERE source = ? AND target = ? AND relation = ?",
            (source.number, target.number, link.relation),
        )
        changed = changed or gone.rowcount > 0
        if gone.rowcount and link.relation == "supersedes":
            _restore_validity(connection, operation, source.id, target.id, now)
    return changed


def _end_validity(
    connection: sqlite3.Connection, operation: Operation, source_id: str, target_id: str, now: float
) -> None:
    target = memory_to_change(connection, operation, target_id)
    if target.now.valid_until is None:
        after = msgspec.structs.replace(target.now, valid_until=now)
        revise(connection, operation, target, after, SUPERSEDED, now, by=source_id)


def _restore_validity(
    connection: sqlite3.Connection, operation: Operation, source_id: str, target_id: str, now: float
) -> None:
    """What the history says that this link set, unless something else has set it since."""
    target = memory_to_change(connection, operation, target_id)
    history = read_history(lambda query, values: connection.execute(query, values).fetchall(), target.id)
    ended = [entry for entry in history if entry.change == SUPERSEDED and entry.details.get("by") == source_id]
    if ended and target.now.valid_until is not None and ended[-1].record.valid_until == target.now.valid_until:
        after = msgspec.structs.replace(target.now, valid_until=None)
        revise(connection, operation, target, after, "superseding_undone", now, by=source_id)
