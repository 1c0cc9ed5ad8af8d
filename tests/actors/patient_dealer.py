"""A connection for tests in which how long the peer is given is apart from how long its answer is waited for."""

from __future__ import annotations

import time
from typing import Any, Final

import msgspec

from remembrancer.protocol.errors import DeadlineExceeded, Failure
from remembrancer.protocol.sharing import OthersWrote
from remembrancer.protocol.sockets import Dealer, Reply, Speaker, T
from remembrancer.protocol.wire import Envelope, Request
from tests.patience import PATIENCE_S

LATE_S: Final = PATIENCE_S / 5
"""An answer that has not come so long after its time does not come: the peer, held up itself, has read the question
when that time was over, and such a question is not worked on."""


class Apart(Speaker):
    """Tells deadlines that are later than its own by so much: as by a clock that is ahead."""

    def __init__(self, name: str, incarnation: str, later_s: float) -> None:
        super().__init__(name, incarnation)
        self._later_s = later_s

    def envelope(self, *, timeout_s: float | None = None, **fields: Any) -> Envelope:
        return super().envelope(timeout_s=None if timeout_s is None else timeout_s + self._later_s, **fields)


class PatientDealer(Dealer[OthersWrote]):
    """The peer has to answer within `timeout_s`, as it is told; that its answer is on its way for longer, or is read
    late, on a machine that stalls, is no error. What it reads too late it is asked again: it has to bear that."""

    def __init__(self, endpoint: str, speaker: Speaker) -> None:
        told = Apart(speaker.name, speaker.incarnation, -LATE_S)
        super().__init__(endpoint, told, msgspec.msgpack.Decoder(OthersWrote))

    async def exchange(self, question: Request[T], *, timeout_s: float) -> Reply[T | Failure]:
        give_up_at = time.monotonic() + timeout_s + PATIENCE_S
        while True:
            try:
                return await super().exchange(question, timeout_s=timeout_s + LATE_S)
            except DeadlineExceeded:
                if time.monotonic() + timeout_s > give_up_at:
                    raise
