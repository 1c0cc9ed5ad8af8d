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


class RecentChanges:
    """The changes that the store applied last, each with a number. What is older than the oldest is not known any more.

    A new memory changes no answer that was given before, so it is not among them.
    """

    def __init__(self) -> None:
        self._changes: deque[tuple[int, Operation, int]] = deque()
        self._bytes = 0
        self.next_number = 0

    def note(self, operation: Operation) -> None:
        """The store has applied this now, after all that were noted before."""
        if isinstance(operation.change, StoreMemory | ImportMemory):
            return
        size = len(encoder.encode(operation))
        self._changes.append((self.next_number, operation, size))
        self._bytes += size
        self.next_number += 1
        while len(self._changes) > MAX_CHANGES or self._bytes > MAX_CHANGE_BYTES:
            self._bytes -= self._changes.popleft()[2]

    def knows_all_since(self, number: int) -> bool:
        """Whether every change from that number on is still here."""
        return number >= self.next_number - len(self._changes)

    def numbered(self) -> Iterator[tuple[int, Operation]]:
        """Them all, oldest first."""
        return ((number, operation) for number, operation, _ in self._changes)
