"""What `remembrancer hook` leaves for the gateway: a file for each event. Standard library only, and little of it.

The files lie in the home's `hooks`. Their names sort by time, and each holds one JSON object: `format`, `event`, `at`
(seconds since the epoch), `session`, `directory`, and what belongs to the event: `text` of a turn, `tool`,
`arguments`, `result`, `success` and `duration_ms` of a tool call, `metadata` of either. A name that begins with a dot
is no event yet. A path that is not UTF-8 stands there as Python writes it.
"""

FORMAT = 1
SUFFIX = ".json"

SESSION_START = "SessionStart"
PROMPT = "UserPromptSubmit"
TOOL_BEGINS = "PreToolUse"
TOOL_DONE = "PostToolUse"
TOOL_FAILED = "PostToolUseFailure"
STOP = "Stop"
SUBAGENT_STOP = "SubagentStop"
SESSION_END = "SessionEnd"
EVENTS = (SESSION_START, PROMPT, TOOL_BEGINS, TOOL_DONE, STOP, SUBAGENT_STOP, SESSION_END, TOOL_FAILED)
"""The events that are understood. The last one is not known to every release of the client that sends them."""

MAX_WAITING = 5000
"""Events that wait for a gateway. When there are more, the oldest are dropped."""
MAX_EVENT_BYTES = 256 * 1024
"""The longest file of an event: a turn of the longest sort has a fraction of it."""
MAX_TURN_BYTES = 32 * 1024
MAX_TOOL_BYTES = 2 * 1024
"""What is kept of a turn, and of a tool's arguments and of its result; the rest is cut off, and that is said."""

DROPPED = ".dropped"
"""A file with a byte for each event that was dropped since the gateway looked last."""
REJECTED = "rejected"
"""The directory of files that are no events."""
RUNNING = "running"
"""The directory in which a hook notes when a tool began."""


def event_name(at_ns: int, distinction: str) -> str:
    """The name of an event's file: `at_ns` is its time in nanoseconds since the epoch."""
    return f"{at_ns:020d}-{distinction}{SUFFIX}"
