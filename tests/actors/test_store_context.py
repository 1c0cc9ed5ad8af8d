"""The store gathers a session's context: the right memories in the right section, each once, and nobody else's."""

from __future__ import annotations

import time
from typing import Any, get_args

from remembrancer.memory.contexts import in_sections, section_of
from remembrancer.protocol.reads import ContextGathered, GatherContext, Section
from remembrancer.protocol.writes import ProjectRef
from tests.actors.store_process import Gateway, StoreRig
from tests.operations import PROJECT, SESSION


async def gather(
    gateway: Gateway, *, project: ProjectRef = PROJECT, session_id: str = SESSION, **fields: Any
) -> ContextGathered:
    return await gateway.ask(GatherContext(project, session_id, **fields))


def ids(gathered: ContextGathered, sections: tuple[Section, ...] = get_args(Section)) -> dict[Section, list[str]]:
    found: dict[Section, list[str]] = {name: [] for name in sections}
    for memory in gathered.memories:
        name = section_of(memory, sections)
        assert name is not None
        found[name].append(memory.id)
    assert list(gathered.memories) == list(in_sections(gathered.memories, sections))
    return found


async def test_without_a_task_each_section_has_its_own_in_its_own_order(rig: StoreRig) -> None:
    gateway = rig.gateway
    now = time.time()
    tabs = await gateway.store("Prefers tabs", scope="user", importance=0.5, requested_at=now - 60)
    terse = await gateway.store("Likes terse answers", scope="user", importance=0.9, requested_at=now - 90)
    late = await gateway.store("Prefers dark themes", scope="user", importance=0.5, requested_at=now)
    steps = await gateway.store("Always run the linter first", scope="user", type="procedural", importance=0.7)
    lunch = await gateway.store("Had lunch", scope="user", type="episodic", importance=1.0)
    grpc = await gateway.store("The service uses gRPC", importance=0.4)
    ports = await gateway.store("The service listens on port 7000", importance=0.8)
    deploy = await gateway.store("Deploy with make ship", type="procedural", importance=0.3)
    first = await gateway.store("Talked about auth", scope="session", type="episodic", requested_at=now - 50)
    second = await gateway.store("Talked about tokens", scope="session", type="episodic", requested_at=now - 40)
    noted = await gateway.store("The branch is called wip", scope="session", requested_at=now)
    gathered = await gather(gateway)
    assert ids(gathered) == {
        "preferences": [lunch, terse, late, tabs],
        "project_context": [ports, grpc],
        "session_history": [noted, second, first],
        "relevant_procedures": [steps, deploy],
        "open_ends": [],
    }
    assert rig.gateway.notices == (), "no question, nothing missed"
    assert gathered.is_all


async def filled(gateway: Gateway) -> None:
    """Far more than a budget of 500 tokens has room for, of what no task is about."""
    for number in range(60):
        await gateway.store(f"Accounts of the year {number} are closed in March of the next one", importance=0.9)


async def test_where_not_all_fits_what_holds_for_every_task_and_what_it_asks_for_are_given(rig: StoreRig) -> None:
    gateway = rig.gateway
    await rig.worker()
    await filled(gateway)
    rule = await gateway.store("Never log request bodies", kind="convention", importance=0.4, tags=["privacy"])
    tabs = await gateway.store("Prefers tabs over spaces", kind="preference", scope="user", importance=0.4)
    call = await gateway.store("Call the harbour master", kind="open_end", importance=0.2, tags=["privacy"])
    harbour = await gateway.store("The lantern stands in the harbour", importance=0.1)
    light = await gateway.store("To light the lantern turn the key", type="procedural", importance=0.1)
    await gateway.until_embedded()
    gathered = await gather(gateway, task="mend the lantern", tokens=500)
    found = ids(gathered)
    assert rule in found["project_context"]
    assert found["preferences"] == [tabs]
    assert found["open_ends"] == [call]
    assert found["relevant_procedures"] == [light]
    assert harbour in found["project_context"]
    assert not gathered.is_all
    assert ("privacy", 2) in gathered.subjects
    everything = [memory_id for section in found.values() for memory_id in section]
    assert len(everything) == len(set(everything)), "no memory is in two sections"
