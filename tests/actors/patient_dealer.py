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


class _Told(Speaker):
    """Leaves this side's own patience out of the deadlines that it tells."""

    def envelope(self, *, timeout_s: float | None = None, **fields: Any) -> Envelope:
        told_s = None if timeout_s is None else timeout_s - LATE_S
        return super().envelope(timeout_s=told_s, **fields)


class PatientDealer(Dealer[OthersWrote]):
    """The peer has to answer within `timeout_s`, as it is told; that its answer is on its way for longer, or is read
    late, on a machine that stalls, is no error. What it reads too late it is asked again: it has to bear that."""

    def __init__(self, endpoint: str, speaker: Speaker) -> None:
        told = _Told(speaker.name, speaker.incarnation)
        super().__init__(endpoint, told, msgspec.msgpack.Decoder(OthersWrote))

    async def exchange(self, question: Request[T], *, timeout_s: float) -> Reply[T | Failure]:
        give_up_at = time.monotonic() + timeout_s + PATIENCE_S
        while True:
            try:
                return await super().exchange(question, timeout_s=timeout_s + LATE_S)
            except DeadlineExceeded:
                if time.monotonic() + timeout_s > give_up_at:
                    raise
