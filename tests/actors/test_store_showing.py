"""A memory is shown with why it is where it is, a session and the graph with their topics: by a real store."""

from __future__ import annotations

from typing import Any

from remembrancer.protocol.reads import (
    DescribeSession,
    SearchGraph,
)
from remembrancer.protocol.runs import (
    AddLink,
    AddMemory,
    ApplyRun,
    ChainLink,
    LogPromotion,
    NewMemory,
    ReviseMemory,
    SaveTopics,
    Topic,
)
from remembrancer.protocol.session_life import RecordEvents, StartSession, ToolCall, Turn
from remembrancer.protocol.writes import EntityRef
from tests.actors.store_process import StoreRig
from tests.operations import (
    OTHER_PROJECT,
    OTHER_SESSION,
    PROJECT,
    REQUESTED_AT,
    SESSION,
    memory_id_of,
    store_operation,
)

SUMMARY = "memory:01ARZ3NDEKTSV4RRFFQ69G5FAV"


def a_run_with(*topics: Topic) -> ApplyRun:
    return ApplyRun("topics", "project", "maintenance", "promote", (SaveTopics(topics),))


async def stored(rig: StoreRig, content: str, **fields: Any) -> str:
    """A memory of 14 November 2023."""
    operation = store_operation(content, content, **fields)
    await rig.gateway.submit(operation)
    return memory_id_of(operation)


async def test_what_a_run_did_to_a_memory_is_told(rig: StoreRig) -> None:
    source = await stored(rig, "the lantern is lit", scope="session", type="episodic")
    step = ChainLink("session", source, REQUESTED_AT, score=0.71, reason="its score 0.71 reaches 0.6")
    new = NewMemory(SUMMARY, "the lantern is lit. The oil is fresh.", "fact", "project", SESSION)
    run = ApplyRun(
        "run",
        "project",
        "session_end",
        "promote",
        (
            ReviseMemory(source, "promoted", scope="project", chain=step, accessed=True),
            LogPromotion(source, "observation", "session", "project", "importance", SESSION, 0.71),
            AddMemory(new),
            AddLink(SUMMARY, source, "derived_from"),
            ReviseMemory(source, "consolidated", status="consolidated"),
        ),
        SESSION,
    )
    await rig.gateway.change(run, session_id="")
    shown = await rig.gateway.show(source, session_id=OTHER_SESSION)
    assert shown.memory.status == "consolidated"
    assert [(link.target, link.relation) for link in shown.incoming] == [(SUMMARY, "derived_from")]
    assert shown.reasons == (
        f"Stored by session {SESSION} on 2023-11-14.",
        "Promoted from the session to the project on 2023-11-14 with the score 0.71: its score 0.71 reaches 0.6.",
        f"Consolidated: {SUMMARY} stands for it. It is still found, ranked a little lower.",
    )
    assert (await rig.gateway.show(SUMMARY)).reasons[0].startswith("Derived from 1 memory for the project")


async def test_a_session_and_the_graph_are_described_with_their_topics(rig: StoreRig) -> None:
    entities = (EntityRef("Lamp", "component", "is"), EntityRef("Oil", "component", "burns"))
    await rig.gateway.change(StartSession(SESSION))
    await rig.gateway.store("the lamp burns oil", related_entities=entities)
    await rig.gateway.change(a_run_with(Topic("light", ("Lamp", "Oil"))), session_id="")
    turns = (Turn("user", "hello", REQUESTED_AT),)
    calls = (ToolCall("Bash", REQUESTED_AT, success=False), ToolCall("Read", REQUESTED_AT))
    await rig.gateway.change(RecordEvents(SESSION, turns, calls))
    story = await rig.gateway.ask(DescribeSession(PROJECT, SESSION))
    assert (story.status, story.turns, story.tool_calls, story.tool_failures) == ("active", 1, 2, 1)
    assert story.topics == ("light",)
    found = await rig.gateway.ask(SearchGraph(PROJECT, SESSION))
    assert found.topics == (Topic("light", ("Lamp", "Oil")),)
    elsewhere = await rig.gateway.ask(SearchGraph(OTHER_PROJECT, SESSION))
    assert elsewhere.topics == ()
