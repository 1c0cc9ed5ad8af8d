"""The socket for other hosts: TCP under CURVE (RFC 26), with a list of allowed keys (ZAP, RFC 27)."""

from collections.abc import Callable
from typing import Any, Self, TypeVar

import msgspec
import zmq
import zmq.asyncio
from zmq.auth.asyncio import AsyncioAuthenticator

from remembrancer.protocol.errors import ConfigurationError
from remembrancer.protocol.sockets import CurveKeys, Peer, Router, Speaker
from remembrancer.protocol.wire import Envelope

In = TypeVar("In")


class NetworkRouter(Router[In]):
    """A router for other hosts, over TCP with CURVE. It admits only peers whose public key passes `admits` at that
    moment, and identifies a peer by its authenticated key.

    It has its own ZeroMQ context, so that it authenticates no other sockets' handshakes (ZAP, RFC 27).
    """

    def __init__(
        self,
        endpoint: str,
        speaker: Speaker,
        decoder: msgspec.msgpack.Decoder[In],
        handle: Callable[[Peer, Envelope, In], None],
        keys: CurveKeys,
        admits: Callable[[str], bool],
    ) -> None:
        super().__init__(endpoint, speaker, decoder, handle, keys)
        self._admits = admits
        self._authenticator: AsyncioAuthenticator | None = None
        self.address = endpoint
        """The address that it listens at, with the actual port where the endpoint leaves it open."""

    async def __aenter__(self) -> Self:
        """Listen. Raises `ConfigurationError` if the address is not available."""
        self._context = zmq.asyncio.Context()
        self._authenticator = AsyncioAuthenticator(self._context)
        self._authenticator.configure_curve_callback(credentials_provider=self)
        self._authenticator.start()
        try:
            await super().__aenter__()
        except zmq.ZMQError as error:
            self._end_context()
            raise ConfigurationError(f"cannot listen at {self._endpoint}: {error.strerror}") from error
        assert self._socket is not None
        self.address = self._socket.getsockopt_string(zmq.LAST_ENDPOINT).rstrip("\0")
        return self

    async def aclose(self) -> None:
        """Close. May be called twice."""
        await super().aclose()
        self._end_context()

    def callback(self, _: str, key: bytes) -> bool:
        """Answer ZAP's question whether the holder of that public key may connect."""
        return self._admits(key.decode())

    def _end_context(self) -> None:
        authenticator, self._authenticator = self._authenticator, None
        if authenticator is not None:
            authenticator.stop()
        context, self._context = self._context, None
        if context is not None:
            context.destroy(linger=0)

    def take(self, frames: list[Any], key: str = "") -> None:
        """Process a message in ZeroMQ's own frames, which know the authenticated key of their sender."""
        super().take([frame.bytes for frame in frames], str(frames[-1].get("User-Id")))
