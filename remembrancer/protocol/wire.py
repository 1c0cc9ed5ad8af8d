"""The wire format of the processes: an envelope in a separate frame before the body, and requests that name the type of
their answer."""

import math
import time
from functools import cache
from typing import Any, Final, Generic, TypeVar, get_args, get_origin

import msgspec

from remembrancer.protocol.errors import Failure, FrameRejected, VersionMismatch

PROTOCOL_VERSION: Final = 3
"""Release 0.2.0 has version 1. Increase it once in each release that changes a message or the envelope."""
UNDECODABLE: Final = (ValueError, RecursionError)
"""The errors that msgspec raises for bytes that are not a message: its own errors and `UnicodeDecodeError` are
ValueErrors, and arrays nested thousands deep cause a RecursionError."""


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
    """A caveat about an answer: the missing part, and the reason."""

    code: str
    message: str


class Envelope(msgspec.Struct, frozen=True, array_like=True):
    """The sender of a message, its deadline, and the request that it answers.

    `version` comes first, so that any later version can still be refused by name. `deadline` is wall-clock seconds
    since the epoch (processes of one runtime share a clock); None means that the message never expires. `incarnation`
    is the ULID of one start of the sender's process. `notices` are the caveats of an answer.
    """

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
    """Decode an envelope. Raises `VersionMismatch` if its first element is not our version, `FrameRejected` if it is
    not an envelope."""
    try:
        envelope = _decoder.decode(frame)
    except UNDECODABLE as error:
        version = _version_of(frame)
        if version is not None and version != PROTOCOL_VERSION:
            raise VersionMismatch(_mismatch(version)) from error
        raise FrameRejected(f"not an envelope: {error}") from error
    if envelope.version != PROTOCOL_VERSION:
        raise VersionMismatch(_mismatch(envelope.version))
    return envelope


def _version_of(frame: bytes) -> int | None:
    try:
        return _int_decoder.decode(_version_decoder.decode(frame)[0])
    except (*UNDECODABLE, IndexError):
        return None


def _mismatch(version: int) -> str:
    return (
        f"the peer uses version {version} of the protocol, this process uses version {PROTOCOL_VERSION}: "
        "stop the runtime (remembrancer down) so that all its processes start from one release, and install that "
        "release for embedders on other hosts"
    )
