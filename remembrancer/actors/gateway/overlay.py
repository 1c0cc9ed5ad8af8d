"""What memories are after changes that the store has not been asked about since. Pure.

A change counts only where whoever asked for it may see the memory, as the store will have it (or has had it).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec

from remembrancer.memory import changes
from remembrancer.memory.ranking import has_ended
from remembrancer.protocol.errors import InvalidInput
from remembrancer.protocol.kinds import kind_of_type
from remembrancer.protocol.reads import ListedMemory, RecalledMemory, Scores
from remembrancer.protocol.writes import (
    ForgetMemory,
    ImportMemory,
    InvalidateMemory,
    Operation,
    PortableMemory,
    ProjectRef,
    PromoteMemory,
    RecordedFields,
    RestoreMemory,
    Scope,
    Snapshot,
    StoreMemory,
    TagMemory,
    UpdateMemory,
    memory_id_of,
)


class Viewer(NamedTuple):
    """Who looks, or whose a memory is: the project's id and the session's, and whether the user's memories are seen."""

    project: str
    session: str
    sees_user: bool


Memory = TypeVar("Memory", bound=RecalledMemory | PortableMemory)


class Followed(NamedTuple, Generic[Memory]):
    """A memory after its changes, as far as they can be followed here.

    `unknown_from` is the number of the change that comes to what nobody here can know (`math.inf`: it is queued), None
    where there is no such change.
    """

    memory: Memory
    unknown_from: float | None


class Overlay:
    """Changes in the order in which they came. `logged` ones have a number; the `queued` come after all of them."""

    def __init__(self, logged: Iterable[tuple[int, Operation]], queued: Iterable[Operation]) -> None:
        self._changes: dict[str, list[tuple[float, Operation]]] = {}
        self._made: dict[str, tuple[float, Operation]] = {}
        for number, operation in (*logged, *((math.inf, each) for each in queued)):
            memory_id = memory_id_of(operation.change) or ""
            if isinstance(operation.change, StoreMemory | ImportMemory):
                self._made.setdefault(memory_id, (number, operation))
            else:
                self._changes.setdefault(memory_id, []).append((number, operation))

    def on(self, memory: Memory, home: Viewer, since: float = -math.inf) -> Memory | None:
        """A memory of `home` after the changes from number `since` on; None when nobody here can know what it is."""
        followed = self.follow(memory, home, since)
        return followed.memory if followed.unknown_from is None else None

    def follow(self, memory: Memory, home: Viewer, since: float = -math.inf) -> Followed[Memory]:
        """As `on`, but as far as is known."""
        for number, operation in self._changes.get(memory.id, ()):
            if number >= since and may_see(memory.scope, home, asker_of(operation)):
                changed = after(memory, operation)
                if changed is None:
                    return Followed(memory, number)
                memory = changed
        return Followed(memory, None)

    def made(self, viewer: Viewer, since: float = -math.inf) -> list[PortableMemory]:
        """The memories that the changes from number `since` on make themselves and that `viewer` may see, oldest
        first."""
        found = (
            self.follow_made(memory_id, viewer) for memory_id, (number, _) in self._made.items() if number >= since
        )
        return [each.memory for each in found if each is not None and each.unknown_from is None]

    def follow_made(self, memory_id: str, viewer: Viewer) -> Followed[PortableMemory] | None:
        """One that the changes themselves make, as far as is known; None where `viewer` may not see it."""
        if memory_id not in self._made:
            return None
        number, operation = self._made[memory_id]
        memory = as_portable(operation)
        home = viewer_in(operation.project, memory.session_id)
        followed = self.follow(memory, home, number)
        return followed if may_see(followed.memory.scope, home, viewer) else None


def may_see(scope: Scope, home: Viewer, viewer: Viewer) -> bool:
    """Whether `viewer` may see a memory of that scope whose project and session are `home`."""
    match scope:
        case "user":
            return viewer.sees_user
        case "project":
            return home.project == viewer.project
        case "session":
            return home == viewer


def asker_of(operation: Operation) -> Viewer:
    """Who asked for an operation."""
    return viewer_in(operation.project, operation.session_id)


def viewer_in(project: ProjectRef, session_id: str) -> Viewer:
    """A session of a project."""
    return Viewer(project.id, session_id, project.sees_user)


def after(memory: Memory, operation: Operation) -> Memory | None:
    """A memory after one change: itself where the change does nothing or is refused, None where it is unknown."""
    change, before = operation.change, _snapshot(memory)
    try:
        match change:
            case RestoreMemory(version=None) if before.invalid_reason is None or before.forgotten:
                now = msgspec.structs.replace(before, forgotten=False, forgotten_reason=None)
            case RestoreMemory():
                return None
            case ForgetMemory(reason=reason) if not before.forgotten:
                now = msgspec.structs.replace(before, forgotten=True, forgotten_reason=reason)
            case TagMemory() | PromoteMemory() | UpdateMemory() | InvalidateMemory():
                changes.check_remembered(memory.id, before)
                if isinstance(change, InvalidateMemory):
                    now = changes.invalidated(before, change.reason, operation.requested_at)
                elif isinstance(change, TagMemory):
                    now = changes.tagged(before, change)
                elif isinstance(change, UpdateMemory):
                    now = changes.updated(before, change)
                else:
                    changes.check_broader(before.scope, change.target_scope)
                    now = msgspec.structs.replace(before, scope=change.target_scope)
            case _:
                return memory
    except InvalidInput:
        return memory
    if now == before:
        return memory
    fields: dict[str, Any] = {name: value for name, value in now.recorded().items() if hasattr(memory, name)}
    fields |= {"version": memory.version + 1, "forgotten_at": None}
    if now.forgotten:
        fields["forgotten_at"] = operation.requested_at
    if isinstance(memory, PortableMemory):
        fields["updated_at"] = operation.requested_at
    else:
        fields["forgotten"] = now.forgotten
        if now.valid_until != before.valid_until:
            fields["expired"] = has_ended(now.valid_until, operation.requested_at)
        fields["scores"] = msgspec.structs.replace(memory.scores, importance=now.importance)
    return msgspec.structs.replace(memory, **fields)


def _snapshot(memory: RecalledMemory | PortableMemory) -> Snapshot:
    """The memory as far as it is known: an answer does not have all of its fields."""
    known = {name: getattr(memory, name) for name in RecordedFields.__struct_fields__ if hasattr(memory, name)}
    is_forgotten = memory.forgotten if isinstance(memory, RecalledMemory) else memory.forgotten_at is not None
    return Snapshot(**{"session_id": "", **known}, forgotten=is_forgotten)


def as_portable(operation: Operation) -> PortableMemory:
    """The memory that a `StoreMemory` or `ImportMemory` makes."""
    change = operation.change
    if isinstance(change, ImportMemory):
        return change.memory
    assert isinstance(change, StoreMemory)
    fields = change.fields() | {"kind": change.kind or kind_of_type(change.type)}
    at = operation.requested_at
    return PortableMemory(**fields, id=change.memory_id, created_at=at, updated_at=at)


def as_recalled(memory: PortableMemory) -> RecalledMemory:
    """A memory as a recall shows it, before anybody has said how relevant it is."""
    known = {name: getattr(memory, name) for name in ListedMemory.__struct_fields__ if hasattr(memory, name)}
    scores = Scores(final=0.0, relevance=0.0, importance=memory.importance, recency=1.0)
    return RecalledMemory(**known, forgotten=memory.forgotten_at is not None, scores=scores)
