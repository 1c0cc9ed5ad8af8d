"""The writes of this gateway, the last ones in one list. The answers that are kept for a store that is away, those
that were asked for ahead, and the subscriptions read in it what has changed since they looked."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import takewhile
from typing import Final, Literal, NamedTuple

import anyio

from remembrancer.protocol.wire import encoder
from remembrancer.protocol.writes import ImportMemory, Operation, StoreMemory, memory_id_of

MAX_CHANGES: Final = 1000
MAX_CHANGE_BYTES: Final = 2_000_000

Stage = Literal["queued", "applied", "repeated"]
"""`queued`: it waits for the store, and is noted again when that has it. `applied`: the store has applied it after all
that was noted before. `repeated`: the store had it already, or applied it without this gateway."""


class Write(NamedTuple):
    """An operation, the number under which it was noted, and how far it had come."""

    number: int
    operation: Operation
    stage: Stage
    size_bytes: int


class _Log:
    """Writes in their order, the oldest going first when there is no more room."""

    def __init__(self) -> None:
        self.kept: deque[Write] = deque()
        self.known_since = 0
        """Every write with this number, or a higher one, is here."""
        self.size_bytes = 0


class RecentWrites:
    """The last writes. What is older than the oldest of its sort is not known any more.

    New memories have a log of their own: they change no answer that was given before, so many of them must not cost
    the changes their room. So have writes that are not applied now.
    """

    def __init__(self) -> None:
        self._changes = _Log()
        self._made = _Log()
        self._others = _Log()
        self.next_number = 0
        self.happened = anyio.Event()
        """Set at the next write, and replaced by another."""

    def note(self, operation: Operation, stage: Stage = "applied", size_bytes: int | None = None) -> None:
        """A write has come to a stage. `size_bytes` is its size as a message, where that is known."""
        log = self._others
        if stage == "applied":
            log = self._made if isinstance(operation.change, StoreMemory | ImportMemory) else self._changes
        size = len(encoder.encode(operation)) if size_bytes is None else size_bytes
        log.kept.append(Write(self.next_number, operation, stage, size))
        log.size_bytes += size
        self.next_number += 1
        while len(log.kept) > MAX_CHANGES or log.size_bytes > MAX_CHANGE_BYTES:
            gone = log.kept.popleft()
            log.size_bytes -= gone.size_bytes
            log.known_since = gone.number + 1
        self.happened.set()
        self.happened = anyio.Event()

    def erase(self, memory_id: str) -> None:
        """Forget what was done to a memory."""
        for log in (self._changes, self._made, self._others):
            log.kept = deque(each for each in log.kept if memory_id_of(each.operation.change) != memory_id)
            log.size_bytes = sum(each.size_bytes for each in log.kept)

    def knows_all_since(self, number: int) -> bool:
        """True if every change of a memory that was there from that number on is still here."""
        return number >= self._changes.known_since

    def changes(self) -> Iterator[tuple[int, Operation]]:
        """The new memories of which is known what they are now, then the changes: each oldest first."""
        for write in (*self._made.kept, *self._changes.kept):
            if self.knows_all_since(write.number):
                yield write.number, write.operation

    def since(self, number: int) -> list[Write] | None:
        """All writes from a number on, in no particular order; None if some of them are not known any more."""
        logs = (self._changes, self._made, self._others)
        if any(log.known_since > number for log in logs):
            return None
        return [write for log in logs for write in takewhile(lambda each: each.number >= number, reversed(log.kept))]
