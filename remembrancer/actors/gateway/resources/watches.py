"""What one session watches, and when to look whether it has changed. Pure; the clock is passed in (seconds).

A change marks a resource; it is looked at once nothing more has been said of it for a moment, or has been said for
long enough, and told only if it differs from what the session was last told of.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from remembrancer.actors.gateway.resources.resource_uris import GRAPH, PREFERENCES, STATUS, SUMMARY, memory_id_of
from remembrancer.protocol.errors import InvalidInput
from remembrancer.protocol.session_life import EndSession, RecordEvents, StartSession
from remembrancer.protocol.writes import ImportMemory, Operation, StoreMemory
from remembrancer.protocol.writes import memory_id_of as changed_memory

COALESCE_S: Final = 0.3
"""How long a marked resource must have been left alone."""
LONGEST_S: Final = 1.0
"""How long it waits at the most, however busy it is."""
MAX_WATCHES: Final = 200


@dataclass(slots=True)
class Watch:
    """One resource. `told` is the digest of what the session knows of it (None: that is not known)."""

    told: str | None
    holders: int = 1
    first_marked: float | None = None
    last_marked: float = 0.0

    @property
    def due_at(self) -> float | None:
        """When to look at it; None while nothing has happened to it."""
        if self.first_marked is None:
            return None
        return min(self.last_marked + COALESCE_S, self.first_marked + LONGEST_S)


class Watches:
    """The resources of one session that are watched, by their URI."""

    def __init__(self) -> None:
        self._watches: dict[str, Watch] = {}

    def __len__(self) -> int:
        return len(self._watches)

    def __contains__(self, uri: str) -> bool:
        return uri in self._watches

    @property
    def uris(self) -> list[str]:
        """Everything that is watched."""
        return list(self._watches)

    def check_room(self, uris: Iterable[str]) -> None:
        """Refuse what would be too much.

        Raises:
            InvalidInput: the session would watch more than `MAX_WATCHES` resources.
        """
        if len(self._watches.keys() | set(uris)) > MAX_WATCHES:
            raise InvalidInput(f"a session can subscribe to {MAX_WATCHES} resources at most", field="uri")

    def add(self, uri: str, digest: str | None) -> None:
        """Watch a resource whose content has this digest, once more if it is watched already."""
        self.check_room((uri,))
        watch = self._watches.get(uri)
        if watch is None:
            self._watches[uri] = Watch(digest)
        else:
            watch.holders += 1

    def remove(self, uri: str) -> None:
        """One holder less; nothing is remembered of a resource without holders."""
        watch = self._watches.get(uri)
        if watch is not None:
            watch.holders -= 1
            if watch.holders == 0:
                del self._watches[uri]

    def mark(self, uri: str, now: float) -> None:
        """Something happened that may have changed a resource."""
        watch = self._watches.get(uri)
        if watch is not None:
            watch.last_marked = now
            if watch.first_marked is None:
                watch.first_marked = now

    def mark_all(self, now: float) -> None:
        """Something happened that may have changed anything."""
        for uri in self._watches:
            self.mark(uri, now)

    def next_due(self) -> float | None:
        """When the first marked resource is to be looked at."""
        return min((watch.due_at for watch in self._watches.values() if watch.due_at is not None), default=None)

    def take_due(self, now: float) -> list[str]:
        """The resources to be looked at now. Their marks are taken off."""
        due = [uri for uri, watch in self._watches.items() if watch.due_at is not None and watch.due_at <= now]
        for uri in due:
            self._watches[uri].first_marked = None
        return due

    def has_news(self, uri: str, digest: str) -> bool:
        """Whether that digest is another than the one last told; it counts as told from now on."""
        watch = self._watches.get(uri)
        if watch is None or watch.told == digest:
            return False
        watch.told = digest
        return True


def concerns(operation: Operation, uri: str, project_id: str, session_id: str) -> bool:
    """Whether a write may change what a resource says to a session. False only when that is certain."""
    change = operation.change
    if isinstance(change, StartSession | EndSession | RecordEvents):
        is_its_own = (operation.project.id, change.session_id) == (project_id, session_id)
        return is_its_own and uri in (SUMMARY, STATUS)
    memory_id: str | None
    if isinstance(change, StoreMemory):
        memory_id, scope, owner = change.memory_id, change.scope, change.session_id
    elif isinstance(change, ImportMemory):
        memory_id, scope, owner = change.memory.id, change.memory.scope, change.memory.session_id
    else:  # the memory, or memories, may be anybody's that the writer can see, the user's included
        memory_id, scope, owner = changed_memory(change), None, None
    is_everybodys = scope is None or scope == "user"
    if operation.project.id != project_id and not is_everybodys:
        return False
    if scope == "session" and owner != session_id:
        return False
    if uri == PREFERENCES:
        return is_everybodys
    if uri == SUMMARY:
        return owner is None or session_id in (owner, operation.session_id)
    if uri in (STATUS, GRAPH):
        return True
    return memory_id is None or memory_id_of(uri) == memory_id
