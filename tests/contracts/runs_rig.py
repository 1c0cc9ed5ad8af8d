"""Runs as the consolidator sends them, for the tests that carry them out."""

from pathlib import Path

from hypothesis import strategies as st

from remembrancer.protocol.runs import (
    AddLink,
    AddMemory,
    ChainLink,
    CloseSession,
    Edit,
    LogPromotion,
    NewMemory,
    NotePattern,
    ReviseMemory,
    UndoneResult,
    UndoRun,
)
from remembrancer.protocol.writes import Operation
from tests.contracts.records_rig import RecordsRig, work_of
from tests.operations import PROJECT, REQUESTED_AT, SESSION, store_operation

ONE, TWO, THREE, FOUR = "mem_one", "mem_two", "mem_three", "mem_four"
CONTENTS = {ONE: "a red lantern", TWO: "a blue candle", THREE: "a green torch", FOUR: "an old bottle"}
SUMMARY = "mem_summary"
STEP = ChainLink("session", THREE, REQUESTED_AT, "merged", SESSION, score=0.75, content=CONTENTS[THREE])

KNOWN = st.sampled_from([*CONTENTS, SUMMARY])
LEVELS = st.none() | st.sampled_from([0.25, 0.5, 1.0])
EDITS: st.SearchStrategy[Edit] = st.one_of(
    st.builds(
        ReviseMemory,
        memory_id=KNOWN,
        change=st.just("merged"),
        expected_version=st.none() | st.integers(1, 3),
        status=st.none() | st.sampled_from(["active", "consolidated", "archived", "promoted"]),
        scope=st.none() | st.just("project"),
        kind=st.none() | st.sampled_from(["fact", "procedure"]),
        summary=st.none() | st.sampled_from(["short", "shorter"]),
        importance=LEVELS,
        confidence=LEVELS,
        valid_until=st.none() | st.just(9.0),
        tags=st.lists(st.sampled_from(["red", "blue"]), max_size=2).map(tuple),
        accessed=st.booleans(),
        chain=st.none() | st.just(STEP),
        only_with=st.none() | KNOWN,
    ),
    st.builds(
        AddMemory,
        st.builds(NewMemory, KNOWN, st.just("more lights"), st.just("fact"), st.just("project"), st.just(SESSION)),
    ),
    st.builds(AddLink, KNOWN, KNOWN, st.sampled_from(["derived_from", "supports", "contradicts", "similar_to"])),
    st.builds(NotePattern, KNOWN, st.just(PROJECT.id)),
)
"""Any edit of a run."""


def undo_operation(name: str, run_id: str) -> Operation:
    return Operation(name, PROJECT, SESSION, REQUESTED_AT, UndoRun(run_id, "project"))


class RunsRig(RecordsRig):
    """A rig with four memories, two of the project and two of its session, for runs to be carried out and undone."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        scopes = dict.fromkeys((ONE, TWO), "project")
        self.apply(
            *(
                store_operation(each, content, memory_id=each, scope=scopes.get(each, "session"), importance=0.5)
                for each, content in CONTENTS.items()
            )
        )

    def undo(self, run_id: str = "run", *, session: str = SESSION) -> UndoneResult:
        result = self.do(UndoRun(run_id, "project"), session=session, at=REQUESTED_AT)
        assert isinstance(result, UndoneResult)
        return result

    def closing(self, session_id: str = SESSION) -> CloseSession:
        """What closes a session whose end waits to be dealt with."""
        (ended_at,) = (each.ended_at for each in work_of(self.records).sessions if each.session_id == session_id)
        assert ended_at is not None
        return CloseSession(session_id, "completed", ended_at)


def consolidating() -> tuple[Edit, ...]:
    """A run that does a little of everything: a summary of two memories, and a session's memory merged and promoted."""
    return (
        AddMemory(NewMemory(SUMMARY, "lights of several colours", "fact", "project", SESSION, "lights")),
        ReviseMemory(ONE, "consolidated", expected_version=1, status="consolidated", tags=("light",)),
        ReviseMemory(TWO, "merged", importance=0.75, confidence=0.55, accessed=True, chain=STEP),
        ReviseMemory(THREE, "promoted", expected_version=1, status="promoted", only_with=TWO),
        LogPromotion(THREE, "observation", "session", "project", "importance", SESSION, 0.75, merged_into=TWO),
        ReviseMemory(FOUR, "promoted", scope="project", chain=ChainLink("session", FOUR, 5.0, session_id=SESSION)),
        LogPromotion(FOUR, "observation", "session", "project", "importance", SESSION, 0.875),
        AddLink(SUMMARY, ONE, "derived_from"),
        AddLink(SUMMARY, TWO, "derived_from"),
    )
