"""Moves of memories between spaces: from a project's to the user's, or back, or to a shared lane."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from remembrancer.actors.store.records.contract import Outcome
from remembrancer.actors.store.records.sqlite_records import Records
from remembrancer.protocol.writes import Operation


@dataclass(frozen=True, slots=True)
class Move:
    """Moves memories that a project's sessions see from `source` to `destination`; one of them may be a shared lane.

    An outcome's `to_embed` is a number in the destination.
    """

    source: Records
    destination: Records

    @property
    def name(self) -> str:
        """The file whose thread does the move: a shared lane's, since its server may be slow."""
        return self.source.name if self.source.is_shared else self.destination.name

    def apply(self, operations: Sequence[Operation]) -> list[Outcome]:
        """Move the memory of each promotion, in order. If the operation was applied before, its outcome is returned."""
        if self.destination.is_shared:
            return [self.destination.move(operation, self.source) for operation in operations]
        if self.source.is_shared:
            return [self.source.move(operation, self.destination) for operation in operations]
        return self.source.promote(operations, self.destination)
