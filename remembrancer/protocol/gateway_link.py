"""The messages of bridges and hooks to the gateway, and the gateway's messages to the bridge. Imports little of the
standard library.

On the gateway's socket, lines end with a newline. A bridge's first line is its hello, a JSON object. Every other line
is the time at which the bridge read it (milliseconds since the epoch), a space, and the client's line; or `!end` after
the last line. The gateway's lines that start with `!`, as no JSON text can, are for the bridge; all others are JSON-RPC
for the client. Both sides ignore `!` lines that they do not know.

`remembrancer hook` leaves a file for each event in the home's `hooks`. The files' names sort by time, and each file
holds one JSON object: `format`, `event` (one of `HOOK_EVENTS` or `CONTEXT_GIVEN`), `at` (seconds since the epoch),
`session`, `directory`, `client`, and `given`: the client's input, with long members cut. A file whose name begins with
a dot is not yet an event.
"""

LINK_VERSION = 1
MAX_LINE_BYTES = 16 * 1024 * 1024
"""The longest line accepted from a client. A memory's content is much shorter."""
MAX_STAMP_BYTES = 32
MAX_HELLO_BYTES = 64 * 1024

CONTROL = b"!"
WELCOME = b"!welcome "
"""Followed by an empty JSON object."""
REFUSED = b"!refused "
"""Refuses a bridge and ends the connection; the reason follows, for a person."""
INVALID = b"!invalid "
"""Like `REFUSED`, but the bridge's own environment is at fault, and a person has to correct it."""
BYE = b"!bye "
"""The runtime stops as intended, for the reason that follows. The bridge starts a new one only for a request."""
END = b"!end"
"""From the bridge: its client has gone for good. If a connection breaks without this line, the bridge was lost."""
REPLAY_ID = "remembrancer-replay-"
"""Prefix of the ids of requests that a bridge repeats to a new gateway although its client already has the answer."""

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
INVALID_PARAMS = -32602
UNAVAILABLE = -32000
"""The JSON-RPC error codes that both sides use. The last is in the range for servers; the others are JSON-RPC's own."""

HOOK_FORMAT = 2
HOOK_EVENTS = (
    *("SessionStart", "UserPromptSubmit", "PreToolUse", "PostToolUse", "Stop", "SubagentStop", "PreCompact"),
    *("SessionEnd", "PostToolUseFailure", "PostCompact"),
)
"""The known events. Older releases of the client that sends them do not have the last two."""
CONTEXT_GIVEN = "ContextGiven"
"""The hook's own event: the memories that it gave the assistant."""
MAX_EVENT_BYTES = 256 * 1024
"""The maximum size of an event's file: even the longest turn needs only a fraction of it."""


def stamped(line: bytes, stamp_ms: int) -> bytes:
    return b"%d %b\n" % (stamp_ms, line)


def split_stamp(line: bytes) -> tuple[int, bytes]:
    """The time in milliseconds and the client's line. Raises `ValueError` if there is no timestamp."""
    stamp, space, rest = line.partition(b" ")
    if not space or len(stamp) > MAX_STAMP_BYTES or not stamp.isdigit():
        raise ValueError("a line without a timestamp")
    return int(stamp), rest
