"""ULIDs (https://github.com/ulid/spec): 16 bytes that sort by time, in 26 characters. Bridges import this."""

import os

_DIGITS = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"


def new_identity(now: float) -> bytes:
    """The 16 bytes of a ULID: `now` in milliseconds since the epoch, and 80 random bits."""
    return int(now * 1000).to_bytes(6, "big") + os.urandom(10)


def as_ulid(identity: bytes) -> str:
    number = int.from_bytes(identity, "big")
    return "".join(_DIGITS[number >> shift & 31] for shift in range(125, -1, -5))
