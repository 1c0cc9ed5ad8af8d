"""The tools that change a memory or show one, while the store answers."""

from __future__ import annotations

from typing import Any

import msgspec

from remembrancer.actors.store.records.types import NearDuplicate
from remembrancer.protocol.reads import GetMemory, MemoryShown, Promotion
from remembrancer.protocol.runs import ChainLink
from remembrancer.protocol.writes import HistoryEntry, MemoryLink, MemoryVersion, PortableMemory
from remembrancer.toolsets.memory.get_memory import shown
from tests.actors.gateway_rig import NEAR, PlayedStore, Rig


async def test_a_memory_is_shown_whole_with_its_history(patient_rig: Rig) -> None:
    async with PlayedStore(patient_rig.paths).open() as store, patient_rig.running(), patient_rig.session() as client:
        stored = await client.store(
            "Java 17",
            source={"file": "pom.xml"},
            related_entities=[{"name": "Maven", "type": "tool", "relationship": "uses"}],
        )
        identity = stored["memory_id"]
        await client.call("update_memory", memory_id=identity, content="Java 21", metadata={"a": [1, None]})
        await client.call("forget_memory", memory_id=identity, reason="outdated")
        near = (await client.store("Java 21 it is"))["memory_id"]
        number, other = store.records.number_of(identity), store.records.number_of(near)
        assert number is not None
        assert other is not None
        store.records.link_similar([NearDuplicate(number, other, 0.97654321)])
        store.records.touch([number] * 4, 1_700_000_000.0)
        answer = await client.call("get_memory", memory_id=identity.removeprefix("memory:").lower(), detail=True)
        *_, question = (each for each in store.requests if isinstance(each, GetMemory))
    assert question.memory_id == identity
    times = {name: answer.pop(name) for name in ("created_at", "updated_at", "forgotten_at")}
    assert all(time.startswith("20") and time.endswith("Z") for time in times.values())
    history = answer.pop("history")
    assert answer.pop("sessions_used") == 1, "by the one that has changed it"
    assert answer == {
        "id": identity,
        "content": "Java 21",
        "type": "semantic",
        "scope": "project",
        "importance": 0.5,
        "tags": [],
        "metadata": {"a": [1, None]},
        "source": {"file": "pom.xml"},
        "related_entities": [{"name": "Maven", "type": "tool", "relationship": "uses", "stale": True}],
        "session_id": "session:test",
        "version": 3,
        "kind": "fact",
        "confidence": 0.8,
        "status": "forgotten",
        "forgotten_reason": "outdated",
        "embedded": True,
        "links": [{"target": near, "relation": "similar_to", "strength": 0.9765}],
        "near_duplicates": [NEAR],
        "access_count": 4,
        "last_accessed": "2023-11-14T22:13:20Z",
    }
    assert [(line["version"], line["change"]) for line in history] == [(1, "stored"), (2, "updated"), (3, "forgotten")]
    assert history[2]["reason"] == "outdated"
    assert history[2]["session_id"] == "session:test"
    assert all("content" not in line for line in history)


class ExplainingStore(PlayedStore):
    """Knows all about a memory that there is to know."""

    def _reply(self, message: Any) -> Any:
        reply = super()._reply(message)
        if not isinstance(reply, MemoryShown):
            return reply
        memory = msgspec.structs.replace(
            reply.memory,
            kind="decision",
            summary="Java",
            structured={"version": 21},
            confidence=0.8,
            domain="build",
            valid_until=1_700_000_000.0,
            status="consolidated",
            promotion_chain=(ChainLink("session", reply.memory.id, 1_700_000_000.0, score=0.71234, reason="of use"),),
            source_project="p_0123456789ab",
            accessed_in=("session:a", "session:b"),
        )
        return MemoryShown(
            memory,
            embedded=True,
            strength=0.41,
            is_stale=True,
            incoming=(MemoryLink(NEAR, "derived_from", 1.0, 1.0),),
            promotions=(Promotion(memory.id, "session", "project", 1_700_000_000.0, "importance", "s", 0.7, NEAR),),
            observed_in=("p_0123456789ab",),
            reasons=("Stored by session s.",),
        )


def test_a_memory_was_changed_when_it_was_forgotten_or_restored() -> None:
    now = MemoryVersion(content="Java 21", type="semantic", scope="project", session_id="session:test")
    history = tuple(
        HistoryEntry(version, change, at, "session:test", "", now)
        for version, change, at in ((1, "stored", 1.0), (2, "forgotten", 86_400.0), (3, "restored", 172_800.0))
    )
    memory = PortableMemory(**now.recorded(), id=NEAR, created_at=1.0, updated_at=1.0, version=3, history=history)
    answer = shown(MemoryShown(memory, embedded=True))
    assert (answer["version"], answer["updated_at"]) == (3, "1970-01-03T00:00:00Z")


async def test_a_memory_is_explained(patient_rig: Rig) -> None:
    async with ExplainingStore(patient_rig.paths).open(), patient_rig.running(), patient_rig.session() as client:
        identity = (await client.store("Java 21"))["memory_id"]
        answer = await client.call("get_memory", memory_id=identity, detail=True)
        then = await client.call("get_memory", memory_id=identity, version=1, detail=True)
    at = "2023-11-14T22:13:20Z"
    expected = {
        "kind": "decision",
        "summary": "Java",
        "structured": {"version": 21},
        "confidence": 0.8,
        "domain": "build",
        "valid_until": at,
        "status": "consolidated",
        "strength": 0.41,
        "is_stale": True,
        "incoming_links": [{"source": NEAR, "relation": "derived_from", "strength": 1.0}],
        "promotion_chain": [
            {"action": "promoted", "from_scope": "session", "memory_id": identity, "at": at}
            | {"score": 0.712, "reason": "of use"}
        ],
        "promotions": [
            {"memory_id": identity, "from_scope": "session", "to_scope": "project", "at": at}
            | {"reason": "importance", "score": 0.7, "source_session": "s", "merged_into": NEAR}
        ],
        "source_project": "p_0123456789ab",
        "sessions_used": 2,
        "observed_in_projects": ["p_0123456789ab"],
        "why": ["Stored by session s."],
    }
    assert {name: answer[name] for name in expected} == expected
    assert not {"why", "strength", "is_stale"} & set(then), "what is true now is not said of what was then"
