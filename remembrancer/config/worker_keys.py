"""The keys of embedders on other hosts: `keys/embedders.json` in the home lists the workers' public keys, and
`keys/embedders.secret` is the store's own key pair. A worker's secret key is only in the file that `invite` returns."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import msgspec
import zmq
from msgspec import Meta

from remembrancer.config.json_list import JsonList, Named
from remembrancer.protocol.errors import FileUnusable, HomeUnusable
from remembrancer.protocol.paths import read_file, write_whole
from remembrancer.protocol.sockets import CurveKeys
from remembrancer.protocol.work import ModelChoice

Key = Annotated[str, Meta(min_length=40, max_length=40)]
"""32 bytes in Z85 (ZeroMQ RFC 32)."""


class InvitedWorker(Named, frozen=True):
    """`created_at` is in seconds since the epoch."""

    public: str
    created_at: float


class Invitation(msgspec.Struct, frozen=True):
    """A worker's key file: everything that the other host needs."""

    name: str
    public: Key
    secret: Key
    store: Key
    choice: ModelChoice

    @property
    def keys(self) -> CurveKeys:
        return CurveKeys(self.public, self.secret, self.store)

    @classmethod
    def read(cls, path: Path) -> Invitation:
        """Raises `FileUnusable`."""
        try:
            return _decode_invitation(read_file(path))
        except (OSError, msgspec.DecodeError) as error:
            raise FileUnusable(f"{path} is no key file of 'remembrancer admin embedder --invite' ({error})") from error


class _Pair(msgspec.Struct, frozen=True):
    public: str
    secret: str


_decode_invitation: Final = msgspec.json.Decoder(Invitation).decode
_decode_pair: Final = msgspec.json.Decoder(_Pair).decode


class WorkerKeys(JsonList[InvitedWorker]):
    """The invited embedders, and the store's own keys."""

    def __init__(self, keys: Path) -> None:
        self._own = keys / "embedders.secret"
        super().__init__(keys / "embedders.json", InvitedWorker, "embedder")

    def own(self) -> CurveKeys:
        """The store's keys, created on first use. Raises `HomeUnusable`."""
        if not self._own.exists():
            with self.writing():
                if not self._own.exists():
                    write_whole(self._own, msgspec.json.encode(_Pair(*_new_pair())))
        try:
            pair = _decode_pair(read_file(self._own))
        except (OSError, msgspec.DecodeError) as error:
            advice = "fix it, or remove it and invite the embedders again"
            raise HomeUnusable(f"{self._own} cannot be read ({error}): {advice}") from error
        return CurveKeys(pair.public, pair.secret)

    def find(self, public: str) -> InvitedWorker | None:
        """None if the worker may not connect, or if the list cannot be read."""
        try:
            return next((key for key in self.all() if key.public == public), None)
        except HomeUnusable:
            return None

    def invite(self, name: str, choice: ModelChoice, now: float) -> Invitation:
        """Returns the new embedder's key file. Raises `InvalidInput` if the name is taken."""
        store = self.own()
        public, secret = _new_pair()
        self.add(InvitedWorker(name, public, now))
        return Invitation(name, public, secret, store.public, choice)


def _new_pair() -> tuple[str, str]:
    public, secret = zmq.curve_keypair()
    return public.decode(), secret.decode()
