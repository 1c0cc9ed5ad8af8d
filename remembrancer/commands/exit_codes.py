"""The exit statuses of commands. Scripts rely on these numbers."""

from typing import Final

MEANINGS: Final[dict[int, str]] = {}


def _code(number: int, meaning: str) -> int:
    MEANINGS[number] = meaning
    return number


OK: Final = _code(0, "done, or all is well")
FAILED: Final = _code(1, "done, but the result is negative")
USAGE: Final = _code(2, "the command line is wrong, or a value or text in it is not allowed, such as a credential")
DEGRADED: Final = _code(3, "there is a problem")
NOT_RUNNING: Final = _code(4, "no runtime is running for this home")
ALREADY_RUNNING: Final = _code(5, "a runtime is already running for this home")
HOME_UNUSABLE: Final = _code(6, "the home cannot be created, written or locked")
CONFIGURATION: Final = _code(7, "a setting is unknown or not allowed, or its file cannot be read")
REFUSED: Final = _code(8, "the runtime refused, and gave a reason")
NO_ANSWER: Final = _code(9, "the runtime does not answer or does not stop")
FILE_UNUSABLE: Final = _code(10, "a file is damaged, comes from a newer release, or cannot be read or written")
INTERRUPTED: Final = _code(130, "interrupted")

OF_ERRORS: Final = {
    "invalid_input": USAGE,
    "not_found": FAILED,
    "already_running": ALREADY_RUNNING,
    "home_unusable": HOME_UNUSABLE,
    "configuration_error": CONFIGURATION,
    **dict.fromkeys(("file_unusable", "records_unusable", "schema_too_new", "schema_too_old"), FILE_UNUSABLE),
    **dict.fromkeys(("journal_away", "memory_unavailable", "peer_unavailable", "peer_lost"), NO_ANSWER),
    **dict.fromkeys(("query_timeout", "protocol_version"), NO_ANSWER),
}
"""All other errors exit with `REFUSED`."""
