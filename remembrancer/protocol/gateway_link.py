"""The messages of bridges and hooks to the gateway, and the gateway's messages to the bridge. Imports only a little of
the standard library.

On the gateway's socket, lines end with a newline. A bridge's first line is its hello, a JSON object. Every other line
is the time at which the bridge read it (milliseconds since the epoch), a space, and the client's line; or `!end` after
the last one. The gateway's lines are JSON-RPC for the client, except those that start with `!`, which no JSON text can:
they are for the bridge. Both sides ignore `!` lines that they do not know.

`remembrancer hook` writes a file for each event into the home's `hooks`. Their names sort by time, and each holds one
JSON object: `format`, `event`, `at` (seconds since the epoch), `session`, `directory`, and the fields of the event:
`text` of a turn, `tool`, `arguments`, `result`, `success` and `duration_ms` of a tool call, `metadata` of either. A
name that begins with a dot is not an event yet.
"""

LINK_VERSION = 1
MAX_LINE_BYTES = 16 * 1024 * 1024
"""The longest line of a client. A memory's content is much shorter."""
MAX_STAMP_BYTES = 32
MAX_HELLO_BYTES = 64 * 1024

CONTROL = b"!"
WELCOME = b"!welcome "
"""Followed by a JSON object: the gateway's `version` and `incarnation`."""
REFUSED = b"!refused "
"""Followed by the reason, for a person: this bridge cannot be served, and the connection ends."""
INVALID = b"!invalid "
"""Followed by the reason, before `REFUSED`: the bridge's own environment is at fault, and a person has to correct
it."""
BYE = b"!bye "
"""Followed by the reason: the runtime stops in good order. The bridge starts no new one until it has a request."""
END = b"!end"
"""From the bridge: its client has gone for good. If a connection breaks without it, the bridge was lost."""
REPLAY_ID = "remembrancer-replay-"
"""Prefix of the ids of requests that a bridge repeats to a new gateway although its client already has the answer."""

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
INVALID_PARAMS = -32602
UNAVAILABLE = -32000
"""JSON-RPC error codes that both sides use: all are JSON-RPC's own but the last, which is in the range for servers."""

HOOK_FORMAT = 1
HOOK_SUFFIX = ".json"
SESSION_START = "SessionStart"
PROMPT = "UserPromptSubmit"
TOOL_BEGINS = "PreToolUse"
TOOL_DONE = "PostToolUse"
TOOL_FAILED = "PostToolUseFailure"
STOP = "Stop"
SUBAGENT_STOP = "SubagentStop"
SESSION_END = "SessionEnd"
COMPACTS = "PreCompact"
COMPACTED = "PostCompact"
HOOK_EVENTS = (
    *(SESSION_START, PROMPT, TOOL_BEGINS, TOOL_DONE, STOP, SUBAGENT_STOP, COMPACTS, SESSION_END),
    *(TOOL_FAILED, COMPACTED),
)
"""The known events. Not every release of the client that sends them has the last two."""
GIVEN = "ContextGiven"
"""The hook's own event: the memories that it gave the assistant."""
MAX_WAITING_EVENTS = 5000
"""The most events that wait for a gateway. Beyond that none is recorded."""
MAX_EVENT_BYTES = 256 * 1024
"""The largest file of an event: the longest turn takes a fraction of it."""
MAX_TURN_BYTES = 32 * 1024
MAX_TOOL_BYTES = 2 * 1024
"""The bytes that are kept of a turn, of a tool's arguments and of its result; the rest is cut, with a note."""
RUNNING = "running"
"""The directory where a hook notes which memories it has given to a session."""


def stamped(line: bytes, stamp_ms: int) -> bytes:
    """A client's line as it is sent to the gateway."""
    return b"%d %b\n" % (stamp_ms, line)


def split_stamp(line: bytes) -> tuple[int, bytes]:
    """The time in milliseconds and the client's line. Raises `ValueError` if there is no timestamp."""
    stamp, space, rest = line.partition(b" ")
    if not space or len(stamp) > MAX_STAMP_BYTES or not stamp.isdigit():
        raise ValueError("a line without its time stamp")
    return int(stamp), rest


def event_name(at_ns: int, distinction: str) -> str:
    """The file name of a hook event: `at_ns` is its time in nanoseconds since the epoch."""
    return f"{at_ns:020d}-{distinction}{HOOK_SUFFIX}"
