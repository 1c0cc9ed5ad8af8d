"""An embedder that works for the store of another host, over TCP with CURVE.

No launcher watches it: it runs until it is told to stop, or until its store refuses it for good.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from remembrancer.actors.actor_process import LaunchSpec
from remembrancer.actors.embedder.actor import EmbedderActor
from remembrancer.actors.embedder.engine import Engine
from remembrancer.protocol.errors import Failure, WorkerRefused
from remembrancer.protocol.sockets import CurveKeys, Dealer
from remembrancer.protocol.work import CALIBRATED, CosineScale, ToWorker, to_worker

NOT_ADMITTED: Final = "the store does not admit this embedder: it was revoked there, or never invited"


class RemoteEmbedderActor(EmbedderActor):
    """Works for the store at `endpoint`, and reports to a person through `say`. `ended` is done when it should end."""

    def __init__(self, spec: LaunchSpec, endpoint: str, keys: CurveKeys, say: Callable[[str], None]) -> None:
        self._endpoint = endpoint
        self._keys = keys
        self._tell = say
        self._is_doubted = False
        super().__init__(spec)
        self.ended: asyncio.Future[None] = self._loop.create_future()
        """`stop` was called; or `WorkerRefused`."""

    def stop(self) -> None:
        if not self.ended.done():
            self.ended.set_result(None)

    def _dealer(self) -> Dealer[ToWorker]:
        return Dealer(
            self._endpoint,
            self.speaker,
            to_worker,
            on_message=self._hear,
            on_connection=self._on_connection,
            keys=self._keys,
            on_refused=self._refused,
        )

    def _hear(self, message: ToWorker) -> None:
        if isinstance(message, Failure):
            self._refused(message.message)
        else:
            super()._hear(message)

    def _use(self, engine: Engine | None, scale: CosineScale = CALIBRATED, error: str | None = None) -> None:
        super()._use(engine, scale, error)
        unusable = f"the model cannot be used, and will be tried again: {error}"
        self._tell(unusable if engine is None else f"the model {engine.identity.model} is loaded")

    def _on_connection(self, up: bool) -> None:
        self._tell(f"connected to {self._endpoint}" if up else f"{self._endpoint} is gone, and will be tried again")
        super()._on_connection(up)

    def _refused(self, reason: bool | str) -> None:
        """Handle a refusal: the store does not admit this worker (True), gives a reason, or (False) did not complete
        the handshake. Then the next attempt may succeed, unless the key file belongs to another store."""
        if reason is False:
            if not self._is_doubted:
                self._tell(f"{self._endpoint} does not accept this key file: does it belong to another memory?")
            self._is_doubted = True
        elif not self.ended.done():
            self.ended.set_exception(WorkerRefused(NOT_ADMITTED if reason is True else reason))
