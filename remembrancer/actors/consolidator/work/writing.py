"""How decisions become operations: runs in parts of a bounded size, with ids that a repetition derives again.

An operation's id is made from its edits, and the edits say which versions they are about. So what was planned twice
from the same memories is one operation, and what was planned from older ones is passed over by the store.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from remembrancer.actors.consolidator.store_access import StoreAccess
from remembrancer.protocol.errors import InternalError
from remembrancer.protocol.runs import (
    AddLink,
    AddMemory,
    ApplyRun,
    Edit,
    Method,
    Place,
    ReviseMemory,
    RunKind,
    RunResult,
)
from remembrancer.protocol.writes import Operation, ProjectRef

PART_EDITS: Final = 200
"""Edits in one transaction: what comes after them waits for as long as these take."""
NO_PROJECT: Final = ProjectRef("", "")
"""Where an operation belongs that is about the user's file alone."""
_canonical: Final = msgspec.json.Encoder(order="deterministic")

_MAKING: Final = frozenset({AddMemory.__name__, ReviseMemory.__name__})

Group = tuple[Edit, ...]
"""Edits that belong together: they are in one part, so that they are applied in one transaction."""


class Head(msgspec.Struct, frozen=True):
    """What all parts of a run have in common."""

    run_id: str
    place: Place
    kind: RunKind
    method: Method
    session_id: str = ""


def derive(*parts: object) -> str:
    """32 hexadecimal digits that stand for these parts: the same for the same ones, whoever derives them."""
    return hashlib.sha256(_canonical.encode(parts)).hexdigest()[:32]


def run_id_of(*parts: object) -> str:
    """The id of a run."""
    return "run:" + derive("run", *parts)


def parts_of(
    head: Head,
    groups: Iterable[Group],
    *,
    first: int = 0,
    sources: Sequence[str] = (),
    results: Sequence[str] = (),
) -> list[ApplyRun]:
    """The parts of a run in their order. No group is divided; one that is larger than a part is a part of its own.

    `sources` and `results`, for the log, go with the part of which they are.
    """
    packed: list[list[Edit]] = []
    for group in groups:
        if group and (not packed or len(packed[-1]) + len(group) > PART_EDITS):
            packed.append([])
        if group:
            packed[-1].extend(group)
    return [
        ApplyRun(
            run_id=head.run_id,
            place=head.place,
            kind=head.kind,
            method=head.method,
            edits=tuple(edits),
            session_id=head.session_id,
            part=first + number,
            source_ids=_named(edits, sources),
            result_ids=_named(edits, results),
        )
        for number, edits in enumerate(packed)
    ]


async def submit_run(
    store: StoreAccess, project: ProjectRef | None, run: ApplyRun, now: float, *, operation_id: str | None = None
) -> RunResult:
    """Have a part of a run carried out, once; what came of it."""
    where = project or NO_PROJECT
    name = operation_id or derive("part", where.id, run.place, run.session_id, run.edits)
    applied = await store.submit(Operation(name, where, "", now, run))
    if not isinstance(applied.result, RunResult):
        raise InternalError(f"a run was answered with a {type(applied.result).__name__}")
    return applied.result


def lost(result: RunResult) -> set[str]:
    """The memories that a part of a run did not make or change as it meant to. A link that was there is no loss."""
    return {skipped.memory_id for skipped in result.skipped if skipped.edit in _MAKING}


def _named(edits: Iterable[Edit], ids: Sequence[str]) -> tuple[str, ...]:
    """Those of the ids that the edits make or change."""
    if not ids:
        return ()
    mentioned = {_subject_of(edit) for edit in edits}
    return tuple(each for each in ids if each in mentioned)


def _subject_of(edit: Edit) -> str | None:
    match edit:
        case AddMemory(memory=memory):
            return memory.id
        case ReviseMemory(memory_id=memory_id):
            return memory_id
        case AddLink(relation="derived_from", target=target):
            return target  # a procedure leaves its sources as they are
        case _:
            return None
