"""Identifiers: ULIDs, memory ids, and the operation id by which a retry is recognised."""

import hashlib
import re
import time
from typing import Final

import msgspec

from remembrancer.protocol.errors import InvalidInput
from remembrancer.protocol.ulids import as_ulid, new_identity

PROJECT_ID: Final = re.compile("p_[0-9a-f]{12}")
MEMORY_PREFIX: Final = "memory:"
ENTITY_PREFIX: Final = "entity:"
_ULID: Final = re.compile("[0-7][0-9A-HJKMNP-TV-Z]{25}")
MAX_ULID_MS: Final = 2**48 - 1
_canonical = msgspec.json.Encoder(order="deterministic")


def new_ulid() -> str:
    return as_ulid(new_identity(time.time()))


def check_project_id(project_id: str) -> str:
    """Raises `InvalidInput` for anything but a project's id, since ids become parts of paths."""
    if not PROJECT_ID.fullmatch(project_id):
        raise InvalidInput(f"a project's id must consist of p_ and 12 hexadecimal digits, not {project_id[:60]!r}")
    return project_id


def derive_id(*parts: object) -> str:
    """32 hexadecimal digits that depend only on these parts. The operation id of a request is derived from the bridge,
    the request's id, the tool and its arguments, so a replay has the same operation id."""
    return hashlib.sha256(_canonical.encode(parts)).hexdigest()[:32]


def derive_memory_id(operation_id: str, at: float | None = None) -> str:
    """The `memory:<ULID>` of an operation. The ULID's time is `at` (seconds since the epoch), which must be the same on
    each retry. Without `at`, the id depends only on the operation."""
    digest = hashlib.sha256(operation_id.encode()).digest()
    milliseconds = digest[10:16] if at is None else min(max(0, round(at * 1000)), MAX_ULID_MS).to_bytes(6, "big")
    return MEMORY_PREFIX + as_ulid(milliseconds + digest[:10])


def entity_id(name: str, kind: str) -> str:
    """`entity:<type>:<name>`: the id by which clients name an entity, whichever space it is in."""
    return f"{ENTITY_PREFIX}{kind.lower().replace('%', '%25').replace(':', '%3a')}:{name}"


def parse_entity_id(text: str, *, field: str) -> tuple[str, str]:
    """The name and type in an entity's id. Raises `InvalidInput`."""
    kind, _, name = text.removeprefix(ENTITY_PREFIX).partition(":")
    if not text.startswith(ENTITY_PREFIX) or not kind or not name:
        raise InvalidInput(f"{field} must be an id from create_entity, not {text[:60]!r}", field=field)
    return name, kind.replace("%3a", ":").replace("%25", "%")


def parse_memory_id(text: str, *, field: str = "memory_id") -> str:
    """The memory id in `text`, with its prefix and in upper case. Raises `InvalidInput`."""
    ulid = text.removeprefix(MEMORY_PREFIX).upper()
    if not _ULID.fullmatch(ulid):
        message = f"{field} must be a memory's id, or at least 4 characters from its start or end, not {text[:60]!r}"
        raise InvalidInput(message, field=field)
    return MEMORY_PREFIX + ulid
