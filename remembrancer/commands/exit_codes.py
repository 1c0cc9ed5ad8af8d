"""The exit statuses of commands. Scripts rely on these numbers."""

from typing import Final

OK: Final = 0
FAILED: Final = 1
USAGE: Final = 2
DEGRADED: Final = 3
NOT_RUNNING: Final = 4
ALREADY_RUNNING: Final = 5
HOME_UNUSABLE: Final = 6
CONFIGURATION: Final = 7
REFUSED: Final = 8
NO_ANSWER: Final = 9
FILE_UNUSABLE: Final = 10
INTERRUPTED: Final = 130

MEANINGS: Final = {
    OK: "done, or all is well",
    FAILED: "done, but the result is negative",
    USAGE: "the command line is wrong, or a value or text in it is not allowed, such as a credential",
    DEGRADED: "there is a problem",
    NOT_RUNNING: "no runtime is running for this home",
    ALREADY_RUNNING: "a runtime is already running for this home",
    HOME_UNUSABLE: "the home cannot be created, written or locked",
    CONFIGURATION: "a setting is unknown or not allowed, or its file cannot be read",
    REFUSED: "the runtime refused, and gave a reason",
    NO_ANSWER: "the runtime does not answer or does not stop",
    FILE_UNUSABLE: "a file is damaged, comes from a newer release, or cannot be read or written",
    INTERRUPTED: "interrupted",
}

OF_ERRORS: Final = {
    "invalid_input": USAGE,
    "not_found": FAILED,
    "already_running": ALREADY_RUNNING,
    "home_unusable": HOME_UNUSABLE,
    "configuration_error": CONFIGURATION,
    "file_unusable": FILE_UNUSABLE,
    "records_unusable": FILE_UNUSABLE,
    "schema_too_new": FILE_UNUSABLE,
    "schema_too_old": FILE_UNUSABLE,
    "journal_away": NO_ANSWER,
    "memory_unavailable": NO_ANSWER,
    "peer_unavailable": NO_ANSWER,
    "peer_lost": NO_ANSWER,
    "query_timeout": NO_ANSWER,
    "protocol_version": NO_ANSWER,
}
"""All other errors exit with `REFUSED`."""
