"""A session and the graph are shown with their topics: by a real store."""

from __future__ import annotations

from remembrancer.protocol.reads import DescribeSession, SearchGraph
from remembrancer.protocol.runs import ApplyRun, SaveTopics, Topic
from remembrancer.protocol.session_life import RecordEvents, StartSession, ToolCall, Turn
from remembrancer.protocol.writes import EntityRef
from tests.actors.store_process import StoreRig
from tests.operations import OTHER_PROJECT, PROJECT, REQUESTED_AT, SESSION


def a_run_with(*topics: Topic) -> ApplyRun:
    return ApplyRun("topics", "project", "maintenance", "promote", (SaveTopics(topics),))


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
