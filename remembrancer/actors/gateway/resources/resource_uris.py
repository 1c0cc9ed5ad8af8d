"""The URIs of the resources, and how they are read. Pure."""

from __future__ import annotations

from typing import Final

from remembrancer.actors.gateway.toolkit.text import shown
from remembrancer.protocol.errors import InvalidInput
from remembrancer.protocol.ids import MEMORY_PREFIX, parse_memory_id

STATUS: Final = "memory://status"
SUMMARY: Final = "memory://session/summary"
GRAPH: Final = "memory://project/knowledge-graph"
PREFERENCES: Final = "memory://user/preferences"
MEMORY_START: Final = "memory://memory/"
MEMORY_TEMPLATE: Final = MEMORY_START + "{id}"
FIXED: Final = (STATUS, SUMMARY, GRAPH, PREFERENCES)
LONGEST_QUOTED: Final = 200
_ESCAPED_COLON: Final = ("%3A", "%3a")


def memory_id_of(uri: str) -> str | None:
    """The id of the memory that a URI names, with its prefix; None when it names none.

    The id may have its prefix or not, and a client may have escaped the colon.
    """
    if not uri.startswith(MEMORY_START):
        return None
    text = uri.removeprefix(MEMORY_START)
    for escaped in _ESCAPED_COLON:
        text = text.replace(escaped, ":", 1)
    try:
        return parse_memory_id(text)
    except InvalidInput:
        return None


def is_known(uri: str) -> bool:
    """Whether a URI is one of ours."""
    return uri in FIXED or memory_id_of(uri) is not None


def quoted(uri: str) -> str:
    """A URI as an error gives it back: whole, unless it is longer than any of ours."""
    return uri if len(uri) <= LONGEST_QUOTED else f"{uri[:LONGEST_QUOTED]}…"


def unknown_resource(uri: str) -> str:
    """A message about a URI that is none of ours."""
    bare = MEMORY_PREFIX + "<ULID>"
    return f"there is no resource {shown(uri)}: known are {', '.join(FIXED)} and {MEMORY_TEMPLATE} (id: {bare})"
