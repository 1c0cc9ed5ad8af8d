"""A process that moves a memory from a project's file to the user's, and dies by `kill -9` at one of the steps.

Arguments: the project's file, the user's file, the memory, the operation, and the step at which to die.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from remembrancer.actors.store.moves import Move
from remembrancer.actors.store.records.contract import USER, Outcome
from remembrancer.actors.store.records.sqlite_records import SqliteRecords
from remembrancer.memory.edits import Edits
from remembrancer.memory.planner import Planner
from remembrancer.protocol.writes import Operation, PromoteMemory, Result
from tests.operations import PROJECT, REQUESTED_AT, change_operation

STEPS = ("begun", "received", "ended")
T = TypeVar("T")


class Mortal(SqliteRecords):
    """Dies as soon as the step is done."""

    step = ""

    def prepare(self, operation: Operation, step: Callable[[Planner], Edits[T]]) -> T | Outcome:
        return self._die_after("begun", super().prepare(operation, step))

    def complete(self, operation: Operation, step: Callable[[Planner], Edits[Result]]) -> Outcome:
        done = super().complete(operation, step)
        return self._die_after("received" if self.name == USER else "ended", done)

    def _die_after(self, step: str, result: T) -> T:
        if step == self.step:
            os.kill(os.getpid(), signal.SIGKILL)
        return result


def promotion(memory_id: str, name: str) -> Operation:
    """The operation that the process applies."""
    return change_operation(name, PromoteMemory(memory_id, "user", "of use everywhere"))


def main() -> None:
    project, user, memory_id, name, Mortal.step = sys.argv[1:]

    def clock() -> float:
        return REQUESTED_AT

    move = Move(Mortal(Path(project), PROJECT.id, clock), Mortal(Path(user), USER, clock), PROJECT.id)
    move.apply([promotion(memory_id, name)])


if __name__ == "__main__":
    main()
