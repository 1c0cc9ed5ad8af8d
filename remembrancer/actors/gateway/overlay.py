"""Memories as they are after changes that the store has not been asked about since. Pure.

A change counts only where whoever asked for it may see the memory, as the store will have it (or has had it).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Generic, NamedTuple, NoReturn, TypeVar

import msgspec

from remembrancer.memory.changes import says_the_same
from remembrancer.memory.decay import has_ended
from remembrancer.memory.edits import Insert, Link, Revise
from remembrancer.memory.edits import Memory as StoredMemory
from remembrancer.memory.plan import plan
from remembrancer.protocol.errors import InvalidInput, NotFound
from remembrancer.protocol.reads import (
    Filters,
    ListedMemory,
    ListMemories,
    RecalledMemory,
    Scores,
)
from remembrancer.protocol.writes import (
    ImportMemory,
    InvalidateMemory,
    Operation,
    PortableMemory,
    ProjectRef,
    RecordedFields,
    RestoreMemory,
    Scope,
    Snapshot,
    StoreMemory,
    UpdateMemory,
    memory_id_of,
)


class Viewer(NamedTuple):
    """Who looks, or whose a memory is: the project's id and the session's, and whether the user's memories are seen."""

    project: str
    session: str
    sees_user: bool


Memory = TypeVar("Memory", bound=ListedMemory | PortableMemory)


class Followed(NamedTuple, Generic[Memory]):
    """A memory after its changes, as far as they can be followed here.

    `first_unknown` is the number of the first change whose effect the store alone knows (`math.inf`: that change is
    queued); None if the effect of every change is known here.
    """

    memory: Memory
    first_unknown: float | None


class Overlay:
    """Changes in the order in which they came. `logged` ones have a number; the `queued` come after all of them.

    `aliases` are the ids of memories that became part of another one, with that one's.
    """

    def __init__(
        self,
        logged: Iterable[tuple[int, Operation]],
        queued: Iterable[Operation],
        aliases: Mapping[str, str] | None = None,
    ) -> None:
        self._changes: dict[str, list[tuple[float, Operation]]] = {}
        self._made: dict[str, tuple[float, Operation]] = {}
        for number, operation in (*logged, *((math.inf, operation) for operation in queued)):
            memory_id = memory_id_of(operation.change) or ""
            memory_id = memory_id if aliases is None else aliases.get(memory_id, memory_id)
            if isinstance(operation.change, StoreMemory | ImportMemory):
                self._made.setdefault(memory_id, (number, operation))
            else:
                self._changes.setdefault(memory_id, []).append((number, operation))

    def on(self, memory: Memory, home: Viewer, since: float = -math.inf) -> Memory | None:
        """A memory of `home` after the changes from number `since` on; None when nobody here can know what it is."""
        followed = self.follow(memory, home, since)
        return followed.memory if followed.first_unknown is None else None

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
        return [each.memory for each in found if each is not None and each.first_unknown is None]

    def follow_made(self, memory_id: str, viewer: Viewer) -> Followed[PortableMemory] | None:
        """One that the changes themselves make, as far as is known; None where `viewer` may not see it."""
        if memory_id not in self._made:
            return None
        number, operation = self._made[memory_id]
        memory = as_portable(operation)
        home = viewer_in(operation.project, memory.session_id)
        followed = self.follow(memory, home, number)
        return followed if may_see(followed.memory.scope, home, viewer) else None

    def changed(self, viewer: Viewer) -> list[str]:
        """The ids of the memories that are changed, and not made, and that `viewer` may see: those first that are
        changed in his project."""
        asked_in = {
            memory_id: viewer.project in {operation.project.id for _, operation in changes}
            for memory_id, changes in self._changes.items()
            if memory_id and memory_id not in self._made
        }
        seen = [memory_id for memory_id, is_own in asked_in.items() if is_own or viewer.sees_user]
        return sorted(seen, key=lambda memory_id: not asked_in[memory_id])

    def listed(
        self, rows: Sequence[ListedMemory], others: Iterable[ListedMemory], request: ListMemories, viewer: Viewer
    ) -> list[ListedMemory]:
        """The beginning of a list as it is after the changes. `rows` are that of the store, and `others` changed
        memories that are not in it, as the store has them.

        Where a change's effect is not known here, a memory is listed as it was before.
        """
        before = {row.id: row.place_in(request.order) for row in rows}
        now = {each.id: self.follow(each, viewer).memory for each in (*rows, *others)}
        for memory_id, (_, operation) in self._made.items():
            made = self.follow_made(memory_id, viewer)
            if made is None or memory_id in now:
                continue
            # The store makes of a text that it has no second memory.
            known = next((each for each in now.values() if _is_stated_by(operation, each)), None)
            stands = as_listed(made.memory) if known is None else after(known, operation) or known
            now[stands.id] = stands
        shown = {
            each.id: each.place_in(request.order)
            for each in now.values()
            if passes(each, request) and (each.is_open or request.order != "due")
        }
        found = [now[memory_id] for memory_id, place in before.items() if shown.get(memory_id) == place]
        for memory_id, place in shown.items():
            if before.get(memory_id) != place:
                lower = (index for index, each in enumerate(found) if (shown[each.id], each.id) < (place, memory_id))
                found.insert(next(lower, len(found)), now[memory_id])
        return found


def _is_stated_by(operation: Operation, memory: ListedMemory) -> bool:
    """True if a memory is the one that an operation states once more."""
    again = operation.change
    return (
        isinstance(again, StoreMemory)
        and (memory.content, memory.scope) == (again.content, again.scope)
        and says_the_same(_stored(memory, operation.session_id).now, memory.created_at, again, operation.requested_at)
    )


def passes(memory: ListedMemory, filters: Filters) -> bool:
    """True if a memory that somebody may see passes filters, as `condition_of` in `records/search.py` has it."""
    return (
        (not filters.scopes or memory.scope in filters.scopes)
        and (not filters.types or memory.type in filters.types)
        and (not filters.kinds or memory.kind in filters.kinds)
        and (not filters.domains or memory.domain in filters.domains)
        and (not filters.tags or not set(filters.tags).isdisjoint(memory.tags))
        and memory.importance >= filters.min_importance
        and (filters.after is None or memory.happened_at >= filters.after)
        and (filters.before is None or memory.happened_at <= filters.before)
        and (filters.include_forgotten or not memory.forgotten)
        and (
            filters.valid_at is None
            or (memory.valid_since <= filters.valid_at and not has_ended(memory.valid_until, filters.valid_at))
        )
    )


def may_see(scope: Scope, home: Viewer, viewer: Viewer) -> bool:
    """True if `viewer` may see a memory of that scope whose project and session are `home`."""
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
    change, known = operation.change, _stored(memory, operation.session_id)
    if isinstance(change, RestoreMemory) and not known.now.forgotten and known.now.invalid_reason is None:
        return None if change.version is not None else memory  # it has to name a version
    try:
        edits = list(plan(_without_others(operation), _OneMemory(known)))
    except (InvalidInput, NotFound):
        return memory
    except _UnknownHereError:
        return None
    for edit in edits:
        if isinstance(edit, Revise):
            return _revised(memory, edit)
    return memory


def _revised(memory: Memory, edit: Revise) -> Memory:
    now, at = edit.entry.record, edit.entry.changed_at
    fields: dict[str, Any] = {name: value for name, value in now.recorded().items() if hasattr(memory, name)}
    fields |= {"version": edit.entry.version, "updated_at": at, "forgotten_at": at if now.forgotten else None}
    if not isinstance(memory, PortableMemory):
        fields["forgotten"] = now.forgotten
    if isinstance(memory, RecalledMemory):
        if "valid_until" in edit.fields:
            fields["expired"] = has_ended(now.valid_until, at)
        fields["scores"] = msgspec.structs.replace(memory.scores, importance=now.importance)
    return msgspec.structs.replace(memory, **fields)


def _without_others(operation: Operation) -> Operation:
    """The operation without its links: the memories that they lead to are not known here."""
    change = operation.change
    match change:
        case StoreMemory():
            change = msgspec.structs.replace(change, supersedes=None, related=())
        case UpdateMemory():
            change = msgspec.structs.replace(change, add_links=(), remove_links=(), related=None)
        case InvalidateMemory():
            change = msgspec.structs.replace(change, replaced_by=None)
    return msgspec.structs.replace(operation, change=change)


class _UnknownHereError(Exception):
    """The store alone knows what an operation comes to."""


class _OneMemory:
    """A file of which nothing is known but one memory, if that: a `Reader` for plans that ask for nothing else."""

    def __init__(self, memory: StoredMemory | None = None) -> None:
        self._memory = memory

    def memory(self, memory_id: str) -> StoredMemory | None:
        return self._memory

    def links(self, memory_id: str) -> list[Link]:
        return []

    def same_content(self, content: str, session_id: str) -> list[tuple[str, str, str]]:
        known = self._memory
        if known is None or known.now.content != content:
            return []
        return [(known.id, known.now.scope, known.now.session_id)]

    def rows(self, kind: type[Any], field: str, value: str | int) -> list[Any]:
        return []

    def _unknown(self, *_: object, **__: object) -> NoReturn:
        raise _UnknownHereError

    history = portable = summed_up_in = session_record = session_deeds = turns = _unknown


def _stored(memory: ListedMemory | PortableMemory, asker: str) -> StoredMemory:
    """The memory as far as it is known: an answer does not have all of its fields, nor whose it is."""
    known = {name: getattr(memory, name) for name in RecordedFields.__struct_fields__ if hasattr(memory, name)}
    is_forgotten = memory.forgotten if isinstance(memory, ListedMemory) else memory.forgotten_at is not None
    return StoredMemory(
        memory.id,
        memory.version,
        Snapshot(**{"session_id": asker, **known}, forgotten=is_forgotten),
        memory.created_at,
        memory.updated_at or memory.created_at,
    )


def as_portable(operation: Operation) -> PortableMemory:
    """The memory that a `StoreMemory` or `ImportMemory` makes, without its history."""
    if isinstance(operation.change, ImportMemory):
        return operation.change.memory
    edits = plan(_without_others(operation), _OneMemory())
    made = next(edit.memory for edit in edits if isinstance(edit, Insert))
    return msgspec.structs.replace(made, history=())


def as_listed(memory: PortableMemory) -> ListedMemory:
    """A memory as a list shows it, before anybody has said which others it is like or linked to."""
    known = {name: getattr(memory, name) for name in ListedMemory.__struct_fields__ if hasattr(memory, name)}
    return ListedMemory(**known, forgotten=memory.forgotten_at is not None)


def as_recalled(memory: PortableMemory) -> RecalledMemory:
    """A memory as a recall shows it, before anybody has said how relevant it is."""
    scores = Scores(final=0.0, relevance=0.0, importance=memory.importance, recency=1.0)
    return RecalledMemory(**as_listed(memory).listed(), scores=scores)
