"""What the exit status of a command says. Scripts rely on these numbers."""

from __future__ import annotations

from typing import Final

OK: Final = 0
"""Done, or all is well."""
FAILED: Final = 1
"""Carried out, with a bad outcome: a promise of the demonstration was not kept."""
USAGE: Final = 2
"""The command line is wrong (as `argparse` has it)."""
DEGRADED: Final = 3
"""Something is not as it should be: with a runtime that is up, or (doctor) with anything that it looks at."""
NOT_RUNNING: Final = 4
"""No runtime of this home is up."""
ALREADY_RUNNING: Final = 5
"""A runtime of this home is up already."""
HOME_UNUSABLE: Final = 6
"""The home cannot be made, written or locked."""
CONFIGURATION: Final = 7
"""A setting is unknown or not allowed."""
REFUSED: Final = 8
"""The runtime does not do what was asked, and says why."""
NO_ANSWER: Final = 9
"""The runtime is up and does not answer, or does not end."""
FILE_UNUSABLE: Final = 10
"""A file cannot be read or written, is damaged, or belongs to a newer release."""
INTERRUPTED: Final = 130
"""Ctrl-C (128 and the signal's number, as shells have it)."""

MEANINGS: Final = {
    OK: "done, or all is well",
    FAILED: "carried out, with a bad outcome",
    USAGE: "the command line is wrong",
    DEGRADED: "something is not as it should be",
    NOT_RUNNING: "no runtime of this home is up",
    ALREADY_RUNNING: "a runtime of this home is up already",
    HOME_UNUSABLE: "the home cannot be made, written or locked",
    CONFIGURATION: "a setting is unknown or not allowed",
    REFUSED: "the runtime refuses, and says why",
    NO_ANSWER: "the runtime does not answer, or does not end",
    FILE_UNUSABLE: "a file is damaged, of a newer release, or cannot be read or written",
    INTERRUPTED: "interrupted",
}

OF_ERRORS: Final = {
    "invalid_input": USAGE,
    "already_running": ALREADY_RUNNING,
    "home_unusable": HOME_UNUSABLE,
    "configuration_error": CONFIGURATION,
    "file_unusable": FILE_UNUSABLE,
    "records_unusable": FILE_UNUSABLE,
    "schema_too_new": FILE_UNUSABLE,
    "storage_full": REFUSED,
    "memory_unavailable": NO_ANSWER,
    "peer_unavailable": NO_ANSWER,
    "peer_lost": NO_ANSWER,
    "query_timeout": NO_ANSWER,
    "protocol_version": NO_ANSWER,
}
"""By the code of an error of `protocol.errors`."""
