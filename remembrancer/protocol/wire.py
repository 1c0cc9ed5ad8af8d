"""The wire format: an envelope in a separate frame before the body, and requests that name their answer's type."""

import math
import time
from functools import cache
from typing import Any, Final, Generic, TypeVar, get_args, get_origin

import msgspec

from remembrancer.protocol.errors import Failure, FrameRejected, VersionMismatch

PROTOCOL_VERSION: Final = 3
"""Release 0.2.0 has version 1. Increase it once in each release that changes a message or the envelope."""
UNDECODABLE: Final = (ValueError, RecursionError)
"""The errors that msgspec raises for bytes that are not a message; the second, for arrays nested thousands deep."""

encoder: Final = msgspec.msgpack.Encoder()
T_co = TypeVar("T_co", covariant=True)
T = TypeVar("T")


class Request(msgspec.Struct, Generic[T_co], frozen=True, tag=True):
    """A request; its type parameter is the type of its answer. The answer may also be a `Failure`."""


@cache
def answer_decoder(question: type[Request[T]]) -> msgspec.msgpack.Decoder[T | Failure]:
    bases = [base for kind in question.__mro__ for base in kind.__dict__.get("__orig_bases__", ())]
    answers = [get_args(base)[0] for base in bases if issubclass(get_origin(base) or object, Request)]
    decoder: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(answers[0] | Failure)
    return decoder


class Notice(msgspec.Struct, frozen=True, array_like=True):
    """A caveat about an answer."""

    code: str
    message: str


class Envelope(msgspec.Struct, frozen=True, array_like=True):
    """`version` comes first, so that any other version can be recognised and refused. `deadline` is in seconds since
    the epoch (None: the message never expires). `incarnation` is the ULID of one start of the sender's process."""

    version: int
    message_id: int
    sender: str
    incarnation: str
    deadline: float | None = None
    in_reply_to: int | None = None
    notices: tuple[Notice, ...] = ()

    @property
    def remaining_s(self) -> float:
        """Seconds until the deadline; infinite if there is none. If it has passed, the work must not be started."""
        return math.inf if self.deadline is None else self.deadline - time.time()


_decoder = msgspec.msgpack.Decoder(Envelope)
_version_decoder = msgspec.msgpack.Decoder(list[msgspec.Raw])
_int_decoder = msgspec.msgpack.Decoder(int)


def decode_envelope(frame: bytes) -> Envelope:
    """Raises `VersionMismatch` for an envelope of another version, `FrameRejected` for anything else."""
    try:
        version = _int_decoder.decode(_version_decoder.decode(frame)[0])
        if version == PROTOCOL_VERSION:
            return _decoder.decode(frame)
    except (*UNDECODABLE, IndexError) as error:
        raise FrameRejected(f"not an envelope: {error}") from error
    raise VersionMismatch(
        f"the peer uses version {version} of the protocol, this process uses version {PROTOCOL_VERSION}: "
        "stop the runtime (remembrancer down) so that all its processes start from one release, and install that "
        "release for embedders on other hosts"
    )
