"""The store's last answers by question, and the changes that came after them: both bounded. Pure."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterator
from typing import Final

import msgspec

from remembrancer.protocol.wire import GatewayRequest, ToGateway, encoder
from remembrancer.protocol.writes import ImportMemory, Operation, StoreMemory

MAX_ANSWERS: Final = 512
MAX_ANSWER_BYTES: Final = 8_000_000
MAX_CHANGES: Final = 1000
MAX_CHANGE_BYTES: Final = 2_000_000


class KeptAnswer(msgspec.Struct, frozen=True):
    """An answer, how large it is encoded, and when it came: by the number of the next change, and by the clock."""

    reply: ToGateway
    size_bytes: int
    since: int
    at: float


class LastAnswers:
    """The answers last given, the oldest going first when there is no more room."""

    def __init__(self) -> None:
        self._kept: OrderedDict[GatewayRequest, KeptAnswer] = OrderedDict()
        self._bytes = 0

    def put(self, request: GatewayRequest, reply: ToGateway, since: int, at: float) -> None:
        """Keep an answer of the store in place of an earlier one to the same question."""
        self._drop(request)
        kept = KeptAnswer(reply, len(encoder.encode(reply)), since, at)
        self._kept[request] = kept
        self._bytes += kept.size_bytes
        while self._kept and (len(self._kept) > MAX_ANSWERS or self._bytes > MAX_ANSWER_BYTES):
            self._drop(next(iter(self._kept)))

    def get(self, request: GatewayRequest) -> KeptAnswer | None:
        """The last answer to this very question."""
        return self._kept.get(request)

    def newest_first(self) -> Iterator[tuple[GatewayRequest, KeptAnswer]]:
        """All of them with their questions."""
        return reversed(self._kept.items())

    def _drop(self, request: GatewayRequest) -> None:
        kept = self._kept.pop(request, None)
        if kept is not None:
            self._bytes -= kept.size_bytes


class _Log:
    """Operations with their numbers, the oldest going first when there is no more room."""

    def __init__(self) -> None:
        self.kept: deque[tuple[int, Operation, int]] = deque()
        self.known_since = 0
        """Every operation with this number, or a higher one, is here."""
        self._bytes = 0

    def add(self, number: int, operation: Operation) -> None:
        size = len(encoder.encode(operation))
        self.kept.append((number, operation, size))
        self._bytes += size
        while len(self.kept) > MAX_CHANGES or self._bytes > MAX_CHANGE_BYTES:
            gone, _, gone_bytes = self.kept.popleft()
            self._bytes -= gone_bytes
            self.known_since = gone + 1


class RecentChanges:
    """The changes that the store applied last, each with a number. What is older than the oldest is not known any more.

    New memories have a log of their own: they change no answer that was given before, so many of them must not cost
    the changes their room.
    """

    def __init__(self) -> None:
        self._changes = _Log()
        self._made = _Log()
        self.next_number = 0

    def note(self, operation: Operation) -> None:
        """The store has applied this now, after all that were noted before."""
        log = self._made if isinstance(operation.change, StoreMemory | ImportMemory) else self._changes
        log.add(self.next_number, operation)
        self.next_number += 1

    def knows_all_since(self, number: int) -> bool:
        """Whether every change of a memory that was there from that number on is still here."""
        return number >= self._changes.known_since

    def numbered(self) -> Iterator[tuple[int, Operation]]:
        """The new memories of which is known what they are now, then the changes: each oldest first."""
        for number, operation, _ in (*self._made.kept, *self._changes.kept):
            if self.knows_all_since(number):
                yield number, operation
