"""Any sequence of changes, and `kill -9` in between: what is derived from the memories (words, tallies, tags, graph)
says what they say, and all is as where nobody was killed. What comes of an operation depends on the file and the
operation alone."""

import os
import shutil
import signal
import sqlite3
import tempfile
from collections import Counter
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import msgspec
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule, run_state_machine_as_test

from remembrancer.actors.sqlite_file import SqliteFile
from remembrancer.actors.store.records.moves import snapshot_of
from remembrancer.actors.store.records.schema import MEMORY
from remembrancer.actors.store.records.sqlite_records import Limits, Records
from remembrancer.actors.store.records.types import Filters, Phrase
from remembrancer.memory.names import name_key
from remembrancer.protocol.errors import InvalidInput, NotFound, RemembrancerError
from remembrancer.protocol.reads import Counts
from remembrancer.protocol.runs import CloseSession, Edit
from remembrancer.protocol.session_life import EndSession, RecordEvents, StartSession, ToolCall, Turn
from remembrancer.protocol.writes import (
    Applied,
    Change,
    EntityRef,
    EraseMemory,
    ForgetMemory,
    HistoryEntry,
    InvalidateMemory,
    LinkRef,
    Operation,
    PortableMemory,
    PromoteMemory,
    RestoreMemory,
    Result,
    StoreMemory,
    TagMemory,
    TextEdit,
    UndoChange,
    UpdateMemory,
)
from tests.cases import cases
from tests.contracts.dying_process import dies_of, kill_after
from tests.contracts.records_rig import MODEL, RecordsRig, apply, check_derived, ids_of, pending, run_operation
from tests.contracts.runs_rig import EDITS, undo_operation
from tests.operations import (
    OTHER_SESSION,
    PROJECT,
    REQUESTED_AT,
    SESSION,
    change_operation,
    memory_id_of,
)

TAGS: Final = ("red", "blue", "green")
SESSIONS: Final = (SESSION, OTHER_SESSION)
IDS = st.sampled_from(["mem_one", "mem_two", "mem_three", "mem_four"])
TEXTS = st.sampled_from(["a red lantern", "a blue candle", "next: mend the green torch", "an old bottle"])
ANY_TAGS = st.lists(st.sampled_from(TAGS), max_size=2, unique=True).map(tuple)
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
ANY_SESSION = st.sampled_from(SESSIONS)
STORES = st.builds(
    StoreMemory,
    memory_id=IDS,
    content=TEXTS,
    type=st.just("semantic"),
    scope=st.sampled_from(["session", "project"]),
    session_id=ANY_SESSION,
    importance=SHARES,
    tags=ANY_TAGS,
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
        add_tags=ANY_TAGS,
        remove_tags=ANY_TAGS,
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
    st.builds(TagMemory, IDS, ANY_TAGS, ANY_TAGS),
    st.builds(ForgetMemory, IDS, st.just("outdated")),
    st.builds(RestoreMemory, IDS, st.none() | st.integers(1, 3)),
    st.builds(UndoChange, IDS, st.none() | st.integers(1, 4)),
    st.builds(InvalidateMemory, IDS, st.just("it moved"), st.none() | IDS),
    st.builds(PromoteMemory, IDS, st.just("project")),
    st.builds(StartSession, ANY_SESSION),
    st.builds(EndSession, ANY_SESSION, st.sampled_from(["completed", "abandoned"])),
    st.builds(
        RecordEvents,
        ANY_SESSION,
        st.just((Turn("user", "light it", 5.0),)),
        st.just((ToolCall("Read", 6.0, {"path": "a"}),)),
    ),
)
"""Any change but for the erasing of a memory, with which the answers to earlier ones go."""
WITH_ERASING = ANY_CHANGE | st.builds(EraseMemory, IDS)
RUN_EDITS = EDITS | st.builds(CloseSession, ANY_SESSION, st.just("completed"), st.just(REQUESTED_AT))
Step = tuple[Change, str] | tuple[Edit, ...] | int
"""A change and the session that asks for it, a run's edits, or the number of a run that is undone."""
STEPS: st.SearchStrategy[Step] = st.one_of(
    st.tuples(WITH_ERASING, ANY_SESSION), st.lists(RUN_EDITS, min_size=1, max_size=4).map(tuple), st.integers(0, 5)
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


PLACES = st.integers(0, 7)
WORDS: Final = ("lantern", "candle", "torch", "bottle")


class Changing(RuleBasedStateMachine):
    """Applies operations in groups, repeats some, embeds some memories, and closes and opens the file. Processes that
    apply them are killed, after which they are applied again. Another file has each group once."""

    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp(prefix="rmb-state-"))
        self.rig = RecordsRig(self.directory / "memory.db")
        self.undisturbed = RecordsRig(self.directory / "undisturbed.db")
        self.waiting: list[Operation] = []
        self.sent: list[Operation] = []
        self.answers: dict[str, Applied] = {}
        self.embedded_at: dict[str, int] = {}
        """The versions of memories for which vectors came."""

    @rule(change=ANY_CHANGE, session=ANY_SESSION)
    def change(self, change: Change, session: str) -> None:
        number = len(self.sent) + len(self.waiting)
        asker = change.session_id if isinstance(change, StoreMemory) else session
        self.waiting.append(Operation(f"op{number}", PROJECT, asker, REQUESTED_AT + len(self.sent), change))

    @rule(place=PLACES)
    @precondition(lambda self: bool(self.sent))
    def repeat(self, place: int) -> None:
        self.waiting.append(self.sent[-1 - place % len(self.sent)])

    @rule()
    def commit(self) -> None:
        group, self.waiting = self.waiting, []
        expected = apply(self.undisturbed.records, group)
        for operation, wanted, outcome in zip(group, expected, apply(self.rig.records, group), strict=True):
            if operation.operation_id in self.answers:
                earlier = self.answers[operation.operation_id]
                assert outcome == msgspec.structs.replace(earlier, replayed=True)
            elif isinstance(outcome, Applied):
                assert wanted == msgspec.structs.replace(outcome, replayed=False), "killed or not"
                self.answers[operation.operation_id] = outcome
            else:
                assert isinstance(outcome, (InvalidInput, NotFound))
                assert type(outcome) is type(wanted)
        self.sent.extend(group)

    @rule(statements=st.integers(1, 150))
    @precondition(lambda self: bool(self.waiting))
    def die(self, statements: int) -> None:
        """A process that commits is killed before one of its statements, or when it is done: before it can answer. What
        it refused then may be applied when it is repeated, so the undisturbed file has such a commit, too."""
        before = self.rig.everything()
        self.rig.close()

        def commit() -> None:
            with RecordsRig(self.rig.path) as dying:
                kill_after(dying.records._file.file.writer, statements)
                apply(dying.records, self.waiting)
                os.kill(os.getpid(), signal.SIGKILL)

        assert dies_of(commit)
        self.rig = RecordsRig(self.rig.path)
        if self.rig.everything() == before:
            return
        for operation, outcome in zip(self.waiting, apply(self.undisturbed.records, self.waiting), strict=True):
            if isinstance(outcome, Applied):
                self.answers.setdefault(operation.operation_id, msgspec.structs.replace(outcome, replayed=False))

    @rule(place=PLACES, age=st.integers(0, 2))
    @precondition(lambda self: bool(ids_of(self.rig.records)))
    def embed(self, place: int, age: int) -> None:
        """Vectors come of what a memory is, or of what it was some versions ago."""
        memory_id = ids_of(self.rig.records)[place % len(ids_of(self.rig.records))]
        memory, is_embedded = self.rig.shown(memory_id), self.is_embedded(memory_id)
        text = memory.history[-1 - min(age, memory.version - 1)].record.content
        saved = self.rig.embed(memory_id, text=text)
        assert bool(saved) == (text == memory.content and not is_embedded)
        if saved:
            self.embedded_at[memory_id] = memory.version

    def is_embedded(self, memory_id: str) -> bool:
        """True if vectors came for a memory, and it has had the same text since."""
        memory, since = self.rig.shown(memory_id), self.embedded_at.get(memory_id)
        texts = {entry.record.content for entry in memory.history if since is not None and entry.version >= since}
        return texts == {memory.content}

    @rule()
    def open_again(self) -> None:
        self.commit()
        self.rig.close()
        self.rig = RecordsRig(self.rig.path)

    def teardown(self) -> None:
        try:
            self.commit()
            check(self.rig)
            assert self.rig.everything() == self.undisturbed.everything()
            embedded = {self.rig.number(each) for each in ids_of(self.rig.records) if self.is_embedded(each)}
            with_vectors = self.rig.records.passages(MODEL, range(1000)).memories
            assert sorted(with_vectors) == sorted(embedded)
            assert embedded.isdisjoint(pending(self.rig.records))
        finally:
            self.rig.close()
            self.undisturbed.close()
            shutil.rmtree(self.directory)


def check(rig: RecordsRig) -> None:
    """Everything that can be asked of the records is as the memories say, and so are the derived rows."""
    records = rig.records
    memories = dict(sorted((rig.number(each), rig.shown(each)) for each in ids_of(records)))
    for memory in memories.values():
        assert memory.history[-1].record == snapshot_of(memory)
        assert [entry.version for entry in memory.history] == list(range(1, memory.version + 1))
    check_counts(records, list(memories.values()), None)
    for session in SESSIONS:
        visible = {number: each for number, each in memories.items() if is_visible(each, session)}
        for each in memories.values():
            seen = records.portable(each.id, session)
            assert (seen is not None) == (each in visible.values())
            if seen is not None:
                history = (entry for entry in each.history if is_visible(entry.record, session))
                assert seen.history == tuple(map(without_links, history))
        check_counts(records, list(visible.values()), session)
        for forgotten in (False, True):
            check_searches(records, visible, Filters(session, include_forgotten=forgotten))
    check_rows(rig.path, list(memories.values()))


def without_links(entry: HistoryEntry) -> HistoryEntry:
    details = {name: value for name, value in entry.details.items() if name != "links"}
    return msgspec.structs.replace(entry, details=details)


def is_visible(memory: Any, session: str) -> bool:
    return bool(memory.scope != "session" or memory.session_id == session)


def check_counts(records: Records, memories: list[PortableMemory], session: str | None) -> None:
    alive = [memory for memory in memories if memory.forgotten_at is None]
    edges = [(entity.name, entity.type) for memory in memories for entity in memory.related_entities]
    assert records.counts(session) == Counts(
        total=len(alive),
        by_scope=dict(Counter(each.scope for each in alive)),
        by_type=dict(Counter(each.type for each in alive)),
        forgotten=len(memories) - len(alive),
        entities=len(set(edges)),
        relationships=len(edges),
    )


def check_searches(records: Records, visible: dict[int, PortableMemory], filters: Filters) -> None:
    seen = {number: each for number, each in visible.items() if filters.include_forgotten or each.forgotten_at is None}
    for word in (*WORDS, *TAGS):
        found = set(records.keyword_hits([Phrase(word)], filters, 1000))
        assert found == {number for number, each in seen.items() if word in each.content.split() or word in each.tags}
    for tag in TAGS:
        with_tag = Filters(filters.session_id, tags=(tag,), include_forgotten=filters.include_forgotten)
        assert set(records.matching(with_tag, 1000) or ()) == {
            number for number, each in seen.items() if tag in each.tags
        }


def check_rows(path: Path, memories: list[PortableMemory]) -> None:
    check_derived(path)
    with closing(sqlite3.connect(path)) as connection:
        edges = connection.execute(
            """SELECT m.id, s.name, s.type, me.relationship, e.name, e.type FROM memory_entities AS me
               JOIN memories AS m ON m.number = me.memory JOIN entities AS e ON e.number = me.entity
               LEFT JOIN entities AS s ON s.number = me.subject ORDER BY m.number, me.ordinal"""
        ).fetchall()
        entities_there = connection.execute("SELECT name, type, key FROM entities").fetchall()
    expected = []
    for memory in memories:
        for place, entity in enumerate(memory.related_entities):
            first = memory.related_entities[0]
            is_subject = place == 0 or (entity.name, entity.type) == (first.name, first.type)
            subject = (None, None) if is_subject else (first.name, first.type)
            expected.append((memory.id, *subject, entity.relationship, entity.name, entity.type))
    assert edges == expected
    named = {(name, kind) for *_, name, kind in expected}
    assert sorted(entities_there) == sorted((name, kind, name_key(name)) for name, kind in named)


def test_any_changes_leave_what_is_derived_as_the_memories_say() -> None:
    fewer = settings().max_examples // 2  # each has many steps, and processes that die
    long = settings(max_examples=fewer, stateful_step_count=40, report_multiple_bugs=False)
    run_state_machine_as_test(Changing, settings=long)


IN_CASES: Final[dict[str, Any]] = {"nothing": None} | {
    each: {"name": name, "type": kind, "relationship": "about"}
    for each, name, kind in cases("records_state", "entities")
}


def meant(value: Any) -> Any:
    """A value of a case, with null and entities in the places of their names."""
    match value:
        case dict():
            return {name: meant(each) for name, each in value.items()}
        case list():
            return [meant(each) for each in value]
        case str():
            return IN_CASES.get(value, value)
    return value


def test_each_sort_of_change_is_answered_and_made_once(rig: RecordsRig) -> None:
    changes, answers, shown = zip(*meant(cases("records_state", "changes")), strict=True)
    operations = [
        change_operation(f"change {place}", msgspec.convert(change, Change), requested_at=REQUESTED_AT + place)
        for place, change in enumerate(changes)
    ]
    replayed = []
    for operation, answer, fields in zip(operations, answers, shown, strict=True):
        first, again = apply(rig.records, [operation, operation])
        if isinstance(answer, str):
            assert (type(first).__name__, type(again).__name__) == (answer, answer), operation
        else:
            assert first == Applied(operation.operation_id, msgspec.convert(answer, Result))
            replayed.append(msgspec.structs.replace(first, replayed=True))
            assert again == replayed[-1]
            memory = rig.shown(memory_id_of(operation))
            assert {
                name: msgspec.json.decode(msgspec.json.encode(getattr(memory, name))) for name in fields
            } == fields, operation
            assert (rig.number(memory.id) in pending(rig.records)) is not bool(rig.passages(memory.id))
            rig.embed(memory.id)
        check(rig)
    with RecordsRig(rig.path) as opened:
        applied = {each.operation_id for each in replayed}
        assert apply(opened.records, [each for each in operations if each.operation_id in applied]) == replayed
        check(opened)
        names = [entry.change for entry in opened.shown("mem_first").history]
        before, after = ["stored", *["updated"] * 12, "tagged", "forgotten"], ["stored again", *["updated"] * 3]
        assert names == [*before, *["restored"] * 3, *after]


# --- The same in every file.
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
