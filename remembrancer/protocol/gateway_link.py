"""The messages of bridges and hooks to the gateway, and its own to the bridge. Standard library only, and little of it.

On the gateway's socket, lines end with a newline. A bridge's first line is its hello, a JSON object; every other one is
the time at which the bridge first saw it (milliseconds since the epoch), a space, and the client's line; or `!end`,
when there will be no more of them. The gateway's lines are JSON-RPC for the client, except those that start with `!`,
which no JSON text can: they are for the bridge. Neither side minds a line of that kind that it does not know.

`remembrancer hook` leaves a file for each event in the home's `hooks`. Their names sort by time, and each holds one
JSON object: `format`, `event`, `at` (seconds since the epoch), `session`, `directory`, and what belongs to the event:
`text` of a turn, `tool`, `arguments`, `result`, `success` and `duration_ms` of a tool call, `metadata` of either. A
name that begins with a dot is no event yet.
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
"""The beginning of the ids of requests that a bridge repeats to a new gateway though its client has had the answer."""

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
INVALID_PARAMS = -32602
UNAVAILABLE = -32000
"""JSON-RPC codes that both sides answer with: all but the last, which is a server's to define, are JSON-RPC's own."""

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
"""The events that are understood. The last two are not known to every release of the client that sends them."""
GIVEN = "ContextGiven"
"""The event that the hook itself tells of: which memories it gave the assistant."""
MAX_WAITING_EVENTS = 5000
"""Events that wait for a gateway. When there are more, the oldest are dropped."""
MAX_EVENT_BYTES = 256 * 1024
"""The longest file of an event: a turn of the longest sort has a fraction of it."""
MAX_TURN_BYTES = 32 * 1024
MAX_TOOL_BYTES = 2 * 1024
"""The bytes that are kept of a turn, and of a tool's arguments and of its result; the rest is cut off, and that is
said."""
DROPPED = ".dropped"
"""A file with a byte for each event that was dropped since the gateway looked last."""
REJECTED = "rejected"
"""The directory of files that are no events."""
RUNNING = "running"
"""The directory in which a hook notes when a tool began, and which memories it has given to a session."""


def stamped(line: bytes, stamp_ms: int) -> bytes:
    """A client's line as it travels to the gateway."""
    return b"%d %b\n" % (stamp_ms, line)


def split_stamp(line: bytes) -> tuple[int, bytes]:
    """The time in milliseconds and the client's line. Raises `ValueError`: there is no stamp."""
    stamp, space, rest = line.partition(b" ")
    if not space or len(stamp) > MAX_STAMP_BYTES or not stamp.isdigit():
        raise ValueError("a line without its time stamp")
    return int(stamp), rest


def event_name(at_ns: int, distinction: str) -> str:
    """The name of a hook event's file: `at_ns` is its time in nanoseconds since the epoch."""
    return f"{at_ns:020d}-{distinction}{HOOK_SUFFIX}"
