"""A model of the memory in plain Python: what every change has to do. The store and its files are compared with it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Literal

from remembrancer.protocol.writes import (
    Change,
    EntityRef,
    ForgetMemory,
    PromoteMemory,
    RestoreMemory,
    Scope,
    StoreMemory,
    TagMemory,
    UpdateMemory,
)

BREADTH: dict[str, int] = {"session": 0, "project": 1, "user": 2}
Verdict = Literal["applied", "invalid_input", "not_found"]


@dataclass(frozen=True)
class Version:
    """What a memory is after one of its changes."""

    content: str
    importance: float
    tags: tuple[str, ...]
    entities: tuple[EntityRef, ...]
    metadata: dict[str, Any]
    scope: Scope
    forgotten: bool = False

    def same_but(self, **changes: Any) -> Version:
        return replace(self, **changes)


@dataclass
class Modelled:
    """A memory of the model: its owner's session, and all its versions."""

    session_id: str
    versions: list[Version]

    @property
    def now(self) -> Version:
        return self.versions[-1]


@dataclass
class Model:
    """All memories of one project and the user."""

    memories: dict[str, Modelled] = field(default_factory=dict)

    def apply(self, change: Change, session_id: str) -> Verdict:
        """Do what the store has to do, and say what it has to answer."""
        if isinstance(change, StoreMemory):
            version = Version(change.content, change.importance, change.tags, change.related_entities, {}, change.scope)
            self.memories[change.memory_id] = Modelled(change.session_id, [version])
            return "applied"
        assert isinstance(change, UpdateMemory | TagMemory | ForgetMemory | PromoteMemory | RestoreMemory)
        memory = self.visible(change.memory_id, session_id)
        if memory is None:
            return "not_found"
        new = _changed(memory, change)
        if new is None:
            return "invalid_input"
        if new != memory.now:
            memory.versions.append(new)
        return "applied"

    def visible(self, memory_id: str, session_id: str) -> Modelled | None:
        """The memory, if the session may see it."""
        memory = self.memories.get(memory_id)
        if memory is None or (memory.now.scope == "session" and memory.session_id != session_id):
            return None
        return memory


def _changed(memory: Modelled, change: Change) -> Version | None:
    """The memory after the change; None when the change is refused."""
    now = memory.now
    match change:
        case RestoreMemory(version=None):
            return now.same_but(forgotten=False) if now.forgotten else None
        case RestoreMemory(version=number):
            assert number is not None
            if not 1 <= number <= len(memory.versions):
                return None
            old = memory.versions[number - 1]
            return old.same_but(scope=now.scope, forgotten=False)
        case ForgetMemory():
            return now.same_but(forgotten=True)
        case _ if now.forgotten:
            return None
        case TagMemory(add=add, remove=remove):
            return now.same_but(tags=_retagged(now.tags, add, remove))
        case PromoteMemory(target_scope=target):
            return now.same_but(scope=target) if BREADTH[target] > BREADTH[now.scope] else None
        case UpdateMemory():
            return _updated(now, change)
        case _:
            raise AssertionError(change)


def _updated(now: Version, change: UpdateMemory) -> Version:
    kept = tuple(each for each in now.entities if each.name not in change.remove_entities)
    added = tuple(each for each in change.add_entities if each not in kept)
    metadata = {**now.metadata, **(change.metadata or {})}
    return now.same_but(
        content=now.content if change.content is None else change.content,
        importance=now.importance if change.importance is None else change.importance,
        tags=_retagged(now.tags, change.add_tags, change.remove_tags),
        metadata={name: value for name, value in metadata.items() if value is not None},
        entities=kept + added,
    )


def _retagged(tags: tuple[str, ...], add: tuple[str, ...], remove: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys([*(tag for tag in tags if tag not in remove), *add]))
