"""What a bridge and the gateway say to each other around the client's lines. Standard library only, and little of it.

Lines end with a newline. The bridge's first line is its hello, a JSON object; every other one is the time at which
the bridge first saw it (milliseconds since the epoch), a space, and the client's line; or `!end`, when there will be
no more of them. The gateway's lines are JSON-RPC for the client, except those that start with `!`, which no JSON text
can: they are for the bridge. Neither side minds a line of that kind that it does not know.
"""

LINK_VERSION = 1
MAX_LINE_BYTES = 16 * 1024 * 1024
"""The longest line of a client. A memory's content is much shorter than that."""
MAX_STAMP_BYTES = 32
MAX_HELLO_BYTES = 64 * 1024

CONTROL = b"!"
WELCOME = b"!welcome "
"""Followed by a JSON object: the gateway's `version` and `incarnation`."""
REFUSED = b"!refused "
"""Followed by the reason, for a person: this bridge cannot be served, and the connection ends."""
INVALID = b"!invalid "
"""Followed by the reason, before `REFUSED`: it is the bridge's own environment, which a person has to mend."""
BYE = b"!bye "
"""Followed by the reason: the runtime stops in good order. The bridge starts no other until it has a request."""
END = b"!end"
"""From the bridge: its client has gone for good. A connection that breaks without it is a bridge that was lost."""
REPLAY_ID = "remembrancer-replay-"
"""How the ids of requests begin that a bridge repeats to a new gateway though its client has had the answer."""

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
INVALID_PARAMS = -32602
UNAVAILABLE = -32000
"""JSON-RPC codes that both sides answer with: all but the last, which is a server's to define, are JSON-RPC's own."""


def stamped(line: bytes, stamp_ms: int) -> bytes:
    """A client's line as it travels to the gateway."""
    return b"%d %b\n" % (stamp_ms, line)


def split_stamp(line: bytes) -> tuple[int, bytes]:
    """The time in milliseconds and the client's line.

    Raises:
        ValueError: there is no stamp.
    """
    stamp, space, rest = line.partition(b" ")
    if not space or len(stamp) > MAX_STAMP_BYTES or not stamp.isdigit():
        raise ValueError("a line without its time stamp")
    return int(stamp), rest
