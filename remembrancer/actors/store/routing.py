"""Which file an operation belongs to: a new memory's by its scope, any other's by where the memory is."""

from __future__ import annotations

from remembrancer.actors.store.memory_files import MemoryFiles
from remembrancer.actors.store.records.contract import Records
from remembrancer.actors.store.records.transfer import Move
from remembrancer.memory.changes import unknown_memory
from remembrancer.protocol.errors import NotFound, RemembrancerError
from remembrancer.protocol.runs import ApplyRun, UndoRun
from remembrancer.protocol.session_life import EndSession, RecordEvents, SessionResult, StartSession
from remembrancer.protocol.writes import Applied, ImportMemory, Operation, PromoteMemory, StoreMemory, memory_id_of

Target = Records | Move
"""What an operation is given to."""
Answer = Applied | RemembrancerError


async def find_target(files: MemoryFiles, operation: Operation) -> Target | Answer:
    """Where an operation belongs, or its answer if it belongs nowhere. Opens the project's file where that is needed.

    A file is made for a new memory only.
    """
    if not _is_ready(files, operation):
        try:
            await files.project(operation.project)
        except RemembrancerError as error:
            return error
    return _target(files, operation)


def find_open_target(files: MemoryFiles, operation: Operation) -> Target | Answer | None:
    """As `find_target`, with the files that are open: None when one that is needed is not. Some reads of 20 µs."""
    return _target(files, operation) if _is_ready(files, operation) else None


def stays_in(target: Target, operation: Operation) -> bool:
    """Whether an operation on a memory that the one before left in `target` belongs there too."""
    if isinstance(target, Move):
        return False
    leaves = isinstance(operation.change, PromoteMemory) and operation.change.target_scope == "user"
    return not leaves and not isinstance(operation.change, StoreMemory)


def _is_ready(files: MemoryFiles, operation: Operation) -> bool:
    """Whether the project's file is open, if it is needed."""
    if files.open_project(operation.project) is not None:
        return True
    match operation.change:
        case StoreMemory(scope=scope):
            return scope == "user"
        case ApplyRun(place="user") | UndoRun(place="user"):
            return True
        case RecordEvents():
            return False
        case ImportMemory(memory=memory) if memory.scope != "user":
            return False
        case _:
            return not files.exists(operation.project)


def _target(files: MemoryFiles, operation: Operation) -> Target | Answer:
    """A memory that is in both files is on its way to the user's, which counts."""
    project, user = files.open_project(operation.project), files.user
    match operation.change:
        case StoreMemory(scope=scope):
            return user if scope == "user" or project is None else project
        case ApplyRun(place=place) | UndoRun(place=place):
            no_project = NotFound(f"the project {operation.project.id} has no memories")
            return user if place == "user" else project or no_project
        case StartSession(session_id=session_id) | EndSession(session_id=session_id) if project is None:
            # A project gets its file with its first memory: nothing is to be remembered of a session before that.
            return Applied(operation.operation_id, SessionResult(session_id, "active"))
        case StartSession() | EndSession() | RecordEvents() if project is not None:
            return project
    memory_id = memory_id_of(operation.change)
    assert memory_id is not None
    if user.number_of(memory_id) is not None:
        # The same operation may have been applied before the memory was moved there.
        earlier = None if project is None else project.outcome_of(operation.operation_id)
        return earlier or user
    if project is not None and project.number_of(memory_id) is not None:
        match operation.change:
            case PromoteMemory(target_scope="user"):
                return files.move_from(project)
            case _:
                return project
    match operation.change:
        case ImportMemory(memory=memory):
            return user if memory.scope == "user" or project is None else project
        case _:
            return unknown_memory(memory_id)
