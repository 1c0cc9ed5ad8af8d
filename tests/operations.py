"""Operations as a gateway sends them, for every test that writes."""

from typing import Any

from remembrancer.protocol import browsing, code, consolidation, files, sharing, work, writes  # noqa: F401
from remembrancer.protocol.ids import derive_memory_id
from remembrancer.protocol.wire import Request
from remembrancer.protocol.writes import Applied, Change, Operation, ProjectRef, StoredResult, StoreMemory

PROJECT = ProjectRef("p_0123456789ab", "/work/one")
OTHER_PROJECT = ProjectRef("p_ba9876543210", "/work/two")
SESSION = "session:one"
OTHER_SESSION = "session:two"
REQUESTED_AT = 1_700_000_000.0


def _kinds(root: type[Request[Any]]) -> set[type[Request[Any]]]:
    return {root}.union(*map(_kinds, root.__subclasses__()))


questions = [
    kind for kind in sorted(_kinds(Request), key=lambda kind: kind.__name__) if not getattr(kind, "__parameters__", ())
]
"""The types of all questions."""


def store_operation(
    name: str, content: str, *, project: ProjectRef = PROJECT, requested_at: float = REQUESTED_AT, **fields: Any
) -> Operation:
    """An operation that stores a memory. `name` is its identity; `fields` are those of `StoreMemory`."""
    change = StoreMemory(
        memory_id=fields.pop("memory_id", derive_memory_id(name, requested_at)),
        content=content,
        **{"type": "semantic", "scope": "project", "session_id": SESSION, **fields},
    )
    return Operation(name, project, change.session_id, requested_at, change)


def result_of(applied: Applied) -> StoredResult:
    assert isinstance(applied.result, StoredResult)
    return applied.result


def memory_id_of(operation: Operation) -> str:
    memory_id = writes.memory_id_of(operation.change)
    assert memory_id is not None
    return memory_id


def change_operation(
    name: str,
    change: Change,
    *,
    session_id: str = SESSION,
    project: ProjectRef = PROJECT,
    requested_at: float = REQUESTED_AT,
) -> Operation:
    return Operation(name, project, session_id, requested_at, change)
