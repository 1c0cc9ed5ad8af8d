"""An operation does the same in every file: what comes of it depends on the file and the operation alone."""

import sqlite3
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
from hypothesis import example, given
from hypothesis import strategies as st

from remembrancer.actors.sqlite_file import SqliteFile
from remembrancer.actors.store.records.schema import MEMORY
from remembrancer.actors.store.records.sqlite_records import Limits, Records
from remembrancer.protocol.errors import RemembrancerError
from remembrancer.protocol.runs import CloseSession, Edit
from remembrancer.protocol.session_life import EndSession, RecordEvents, StartSession, ToolCall, Turn
from remembrancer.protocol.writes import (
    Change,
    EntityRef,
    EraseMemory,
    ForgetMemory,
    InvalidateMemory,
    LinkRef,
    Operation,
    PromoteMemory,
    RestoreMemory,
    StoreMemory,
    TagMemory,
    TextEdit,
    UndoChange,
    UpdateMemory,
)
from tests.contracts.records_rig import apply
from tests.contracts.runs_rig import EDITS, run_operation, undo_operation
from tests.operations import OTHER_SESSION, PROJECT, REQUESTED_AT, SESSION

IDS = st.sampled_from(["mem_one", "mem_two", "mem_three", "mem_four"])
TEXTS = st.sampled_from(["a red lantern", "a blue candle", "next: mend the green torch", "an old bottle"])
TAGS = st.lists(st.sampled_from(["red", "blue", "green"]), max_size=2, unique=True).map(tuple)
ENTITIES = st.builds(
    EntityRef,
    st.sampled_from(["AuthService", "auth-service", "store", "???"]),
    st.sampled_from(["service", "module"]),
    st.sampled_from(["about", "breaks"]),
)
NAMED = st.lists(ENTITIES, max_size=3, unique=True).map(tuple)
SHARES = st.sampled_from([0.0, 0.25, 1.0])
OBJECTS = st.none() | st.dictionaries(
    st.sampled_from(["a", "b"]), st.none() | st.sampled_from([1, True, 1.0, "x", {"deep": [1]}]), max_size=2
)
RELATIONS = st.sampled_from(["supersedes", "related_to", "supports", "derived_from"])
LINKS = st.lists(st.builds(LinkRef, RELATIONS, IDS, st.sampled_from([0.5, 1.0])), max_size=2).map(tuple)
SESSIONS = st.sampled_from([SESSION, OTHER_SESSION])
STORES = st.builds(
    StoreMemory,
    memory_id=IDS,
    content=TEXTS,
    type=st.just("semantic"),
    scope=st.sampled_from(["session", "project"]),
    session_id=SESSIONS,
    importance=SHARES,
    tags=TAGS,
    related_entities=NAMED,
    supersedes=st.none() | IDS,
    related=st.lists(IDS, max_size=2).map(tuple),
)
ANY_CHANGE: st.SearchStrategy[Change] = st.one_of(
    STORES,
    st.builds(
        UpdateMemory,
        IDS,
        content=st.none() | TEXTS | st.builds(TextEdit, st.sampled_from(["red", "lantern", "e"]), TEXTS),
        importance=st.none() | SHARES,
        add_tags=TAGS,
        remove_tags=TAGS,
        metadata=OBJECTS,
        add_entities=NAMED,
        remove_entities=st.lists(st.sampled_from(["AuthService", "Store", "???", "none"]), max_size=2).map(tuple),
        kind=st.none() | st.sampled_from(["decision", "preference", "procedure"]),
        summary=st.none() | st.sampled_from(["", "glimmer", "glow"]),
        structured=OBJECTS,
        confidence=st.none() | SHARES,
        valid_until=st.none() | st.just(REQUESTED_AT + 1e6),
        cleared=st.sampled_from([(), ("valid_until",)]),
        add_links=LINKS,
        remove_links=LINKS,
    ),
    st.builds(UpdateMemory, IDS, kind=st.just("open_end"), due=st.none() | st.just(9.0), done=st.booleans()),
    st.builds(TagMemory, IDS, TAGS, TAGS),
    st.builds(ForgetMemory, IDS, st.just("outdated")),
    st.builds(RestoreMemory, IDS, st.none() | st.integers(1, 3)),
    st.builds(UndoChange, IDS, st.none() | st.integers(1, 4)),
    st.builds(InvalidateMemory, IDS, st.just("it moved"), st.none() | IDS),
    st.builds(PromoteMemory, IDS, st.just("project")),
    st.builds(StartSession, SESSIONS),
    st.builds(EndSession, SESSIONS, st.sampled_from(["completed", "abandoned"])),
    st.builds(
        RecordEvents,
        SESSIONS,
        st.just((Turn("user", "light it", 5.0),)),
        st.just((ToolCall("Read", 6.0, {"path": "a"}),)),
    ),
)
"""Any change but for the erasing of a memory, with which the answers to earlier ones go."""
WITH_ERASING = ANY_CHANGE | st.builds(EraseMemory, IDS)
RUN_EDITS = EDITS | st.builds(CloseSession, SESSIONS, st.just("completed"), st.just(REQUESTED_AT))
Step = tuple[Change, str] | tuple[Edit, ...] | int
"""A change and the session that asks for it, a run's edits, or the number of a run that is undone."""
STEPS: st.SearchStrategy[Step] = st.one_of(
    st.tuples(WITH_ERASING, SESSIONS), st.lists(RUN_EDITS, min_size=1, max_size=4).map(tuple), st.integers(0, 5)
)


def operations_of(steps: list[Step], ages: list[int]) -> list[Operation]:
    """The steps as operations, which are applied in this order, and need not have been asked for in it."""
    operations = []
    for number, (step, age) in enumerate(zip(steps, ages, strict=False)):
        at = REQUESTED_AT + 10 * number - age
        name = f"op{number}"
        if isinstance(step, int):
            change: Change = undo_operation(name, f"run{step}").change
            operations.append(Operation(name, PROJECT, "", at, change))
        elif len(step) == 2 and isinstance(step[1], str):
            change, session = step
            session = change.session_id if isinstance(change, StoreMemory) else session
            operations.append(Operation(name, PROJECT, session, at, change))
        else:
            operations.append(run_operation(name, *step, run_id=f"run{number}", at=at))
    return operations


def rows_after(operations: list[Operation], groups: int, clock_at: float, session_limit: int | None) -> list[str]:
    """All rows of a file to which the operations were applied in groups of a size, by a machine of its own.

    The time at which an operation was applied is the machine's: it says how long a repetition is known here.
    """
    with TemporaryDirectory() as directory:
        path = Path(directory) / "memory.db"
        records = Records(file := SqliteFile(path, MEMORY), PROJECT.id, lambda: clock_at, Limits(session=session_limit))
        for first in range(0, len(operations), groups):
            before = file.writer.total_changes
            outcomes = apply(records, operations[first : first + groups])
            is_refused = all(isinstance(outcome, RemembrancerError) for outcome in outcomes)
            assert not (is_refused and file.writer.total_changes != before), "a refusal writes nothing"
        for (memory_id,) in records._file.read("SELECT id FROM memories WHERE space = @SPACE"):
            memory = records.portable(memory_id, None)
            times = [entry.changed_at for entry in memory.history] if memory else []
            assert times == sorted(times), "what comes late from a queue is not said to be older than what was before"
        records.close()
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("UPDATE applied_operations SET applied_at = 0")
            return list(connection.iterdump())


PRIVATE = StoreMemory(
    memory_id="mem_one", content="a red lantern", type="semantic", scope="session", session_id=OTHER_SESSION
)
"""A memory that other sessions do not see: its id is taken all the same."""


@example([(PRIVATE, OTHER_SESSION), (msgspec.structs.replace(PRIVATE, session_id=SESSION), SESSION)], [0, 0])
@example([(PRIVATE, OTHER_SESSION), (TagMemory("mem_one", ("late",)), OTHER_SESSION)], [0, 99])
@given(st.lists(STEPS, min_size=1, max_size=14), st.lists(st.integers(0, 99), min_size=14, max_size=14))
def test_the_same_operations_make_the_same_file_at_any_time_on_any_machine(steps: list[Step], ages: list[int]) -> None:
    operations = operations_of(steps, ages)
    here = rows_after(operations, 1, REQUESTED_AT, None)
    there = rows_after(operations, 5, REQUESTED_AT + 1e6, 1000)
    assert here == there
