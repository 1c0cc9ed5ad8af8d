"""What memories are after changes that the store has not been asked about since. Pure.

A change counts only where whoever asked for it may see the memory, as the store will have it (or has had it).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, Final, Generic, NamedTuple, TypeVar

import msgspec

from remembrancer.protocol.kinds import kind_of_type, type_of_kind
from remembrancer.protocol.reads import RecalledMemory, Scores
from remembrancer.protocol.runs import ApplyRun, UndoRun
from remembrancer.protocol.session_life import EndSession, RecordEvents, StartSession
from remembrancer.protocol.writes import (
    Change,
    EntityRef,
    ForgetMemory,
    ImportMemory,
    Operation,
    PortableMemory,
    PromoteMemory,
    RestoreMemory,
    Scope,
    StoreMemory,
    TagMemory,
    UpdateMemory,
    memory_id_of,
)

Viewer = tuple[str, str]
"""Who looks, or whose a memory is: the project's id and the session's."""
Memory = TypeVar("Memory", bound=RecalledMemory | PortableMemory)
BREADTH: Final[dict[Scope, int]] = {"session": 0, "project": 1, "user": 2}


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
            memory_id = target_of(operation.change)
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
        home = (operation.project.id, memory.session_id)
        followed = self.follow(memory, home, number)
        return followed if may_see(followed.memory.scope, home, viewer) else None


def may_see(scope: Scope, home: Viewer, viewer: Viewer) -> bool:
    """Whether `viewer` may see a memory of that scope whose project and session are `home`."""
    match scope:
        case "user":
            return True
        case "project":
            return home[0] == viewer[0]
        case "session":
            return home == viewer


def asker_of(operation: Operation) -> Viewer:
    """Who asked for an operation."""
    return operation.project.id, operation.session_id


def target_of(change: Change) -> str:
    """The id of the memory that a change makes or changes; empty for one that is about no single one."""
    return memory_id_of(change) or ""


def after(memory: Memory, operation: Operation) -> Memory | None:
    """A memory after one change: itself where the change does nothing or would be refused, None where it is unknown."""
    change = operation.change
    fields: dict[str, Any]
    match change:
        case StoreMemory() | ImportMemory() | StartSession() | EndSession() | RecordEvents() | ApplyRun() | UndoRun():
            return memory
        case RestoreMemory(version=None):
            fields = _forgetting(memory, None, None)
        case RestoreMemory():
            return None
        case _ if is_forgotten(memory):
            return memory
        case ForgetMemory(reason=reason):
            fields = _forgetting(memory, operation.requested_at, reason)
        case TagMemory(add=add, remove=remove):
            fields = {"tags": tags_after(memory.tags, add, remove)}
        case PromoteMemory(target_scope=scope):
            fields = {"scope": scope} if BREADTH[scope] > BREADTH[memory.scope] else {}
        case UpdateMemory():
            fields = _updated(memory, change)
    if all(getattr(memory, name) == value for name, value in fields.items()):
        return memory
    fields["version"] = memory.version + 1
    if isinstance(memory, PortableMemory):
        fields["updated_at"] = operation.requested_at
    return msgspec.structs.replace(memory, **fields)


def is_forgotten(memory: RecalledMemory | PortableMemory) -> bool:
    """Whether recalls leave it out."""
    return memory.forgotten if isinstance(memory, RecalledMemory) else memory.forgotten_at is not None


def tags_after(tags: tuple[str, ...], add: tuple[str, ...], remove: tuple[str, ...]) -> tuple[str, ...]:
    """Tags with some taken away and some added, in the order in which they came."""
    return tuple(dict.fromkeys([*(tag for tag in tags if tag not in remove), *add]))


def _forgetting(memory: RecalledMemory | PortableMemory, at: float | None, reason: str | None) -> dict[str, Any]:
    fields: dict[str, Any] = {"forgotten_at": at, "forgotten_reason": reason}
    if isinstance(memory, RecalledMemory):
        fields["forgotten"] = at is not None
    return fields


def _updated(memory: RecalledMemory | PortableMemory, change: UpdateMemory) -> dict[str, Any]:
    fields: dict[str, Any] = {"tags": tags_after(memory.tags, change.add_tags, change.remove_tags)}
    if change.content is not None:
        fields["content"] = change.content
    if change.importance is not None:
        fields["importance"] = change.importance
        if isinstance(memory, RecalledMemory):
            fields["scores"] = msgspec.structs.replace(memory.scores, importance=change.importance)
    if change.kind is not None:
        fields |= {"kind": change.kind, "type": type_of_kind(change.kind)}
    if change.summary is not None:
        fields["summary"] = change.summary or None
    if change.confidence is not None:
        fields["confidence"] = change.confidence
    if "valid_until" in change.ends_asked():
        fields["valid_until"] = change.valid_until
    if isinstance(memory, PortableMemory):
        if change.domain is not None:
            fields["domain"] = change.domain or None
        if "valid_from" in change.ends_asked():
            fields["valid_from"] = change.valid_from
        fields["metadata"] = _merged(memory.metadata, change.metadata)
        fields["structured"] = _merged(memory.structured, change.structured)
        fields["related_entities"] = _entities_after(memory.related_entities, change)
    return fields


def _merged(present: dict[str, Any], changes: dict[str, Any] | None) -> dict[str, Any]:
    merged = {**present, **(changes or {})}
    return {name: value for name, value in merged.items() if value is not None or name not in (changes or {})}


def _entities_after(entities: tuple[EntityRef, ...], change: UpdateMemory) -> tuple[EntityRef, ...]:
    kept = list(entities)
    for name in change.remove_entities:
        exact = [each for each in entities if each.name == name]
        named = exact or [each for each in entities if each.name.casefold() == name.casefold()]
        kept = [each for each in kept if each not in named]
    return tuple(dict.fromkeys([*kept, *change.add_entities]))


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
    return RecalledMemory(
        id=memory.id,
        content=memory.content,
        type=memory.type,
        scope=memory.scope,
        importance=memory.importance,
        scores=Scores(final=0.0, relevance=0.0, importance=memory.importance, recency=1.0),
        tags=memory.tags,
        created_at=memory.created_at,
        access_count=memory.access_count,
        source=memory.source,
        version=memory.version,
        occurred_at=memory.occurred_at,
        forgotten=memory.forgotten_at is not None,
        forgotten_at=memory.forgotten_at,
        forgotten_reason=memory.forgotten_reason,
        kind=memory.kind,
        summary=memory.summary,
        confidence=memory.confidence,
        status=memory.status,
        valid_until=memory.valid_until,
    )
