"""A memory as `get_memory` shows it: all of it, and why it is where it is."""

from __future__ import annotations

from remembrancer.protocol.reads import MemoryShown
from remembrancer.protocol.runs import ChainLink, LoggedPromotion
from remembrancer.protocol.writes import HistoryEntry, MemoryLink, MemoryVersion, PortableMemory
from remembrancer.toolsets.memory.get_memory import shown
from tests.actors.gateway_rig import RawClient

NEAR = "memory:01ARZ3NDEKTSV4RRFFQ69G5FAV"


async def test_a_memory_is_shown_whole_with_its_history(client: RawClient) -> None:
    stored = await client.store(
        "Java 17",
        source={"file": "pom.xml"},
        related_entities=[{"name": "Maven", "type": "tool", "relationship": "uses"}],
    )
    assert stored["graph_edges_created"] == 1
    identity = (await client.call("get_memory", memory_id=stored["memory_id"]))["id"]
    await client.call("update_memory", memory_id=identity, content="Java 21", metadata={"a": [1, None]})
    await client.call("forget_memory", memory_id=identity, reason="outdated")
    answer = await client.call("get_memory", memory_id=identity.removeprefix("memory:").lower(), detail=True)
    times = {name: answer.pop(name) for name in ("created_at", "updated_at", "forgotten_at")}
    assert all(time.startswith("20") and time.endswith("Z") for time in times.values())
    history = answer.pop("history")
    assert answer.pop("sessions_used") == 1, "by the one that has changed it"
    assert answer.pop("why")
    assert answer.pop("strength") > 0
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
        "embedded": False,
        "is_stale": False,
        "access_count": 0,
    }
    assert [(line["version"], line["change"]) for line in history] == [(1, "stored"), (2, "updated"), (3, "forgotten")]
    assert history[2]["reason"] == "outdated"
    assert history[2]["session_id"] == "session:test"
    assert all("content" not in line for line in history)


def test_a_memory_was_changed_when_it_was_forgotten_or_restored() -> None:
    now = MemoryVersion(content="Java 21", type="semantic", scope="project", session_id="session:test")
    history = tuple(
        HistoryEntry(version, change, at, "session:test", "", now)
        for version, change, at in ((1, "stored", 1.0), (2, "forgotten", 86_400.0), (3, "restored", 172_800.0))
    )
    memory = PortableMemory(**now.recorded(), id=NEAR, created_at=1.0, updated_at=1.0, version=3, history=history)
    answer = shown(MemoryShown(memory, embedded=True))
    assert (answer["version"], answer["updated_at"]) == (3, "1970-01-03T00:00:00Z")


def test_a_memory_is_explained() -> None:
    at, at_s = "2023-11-14T22:13:20Z", 1_700_000_000.0
    memory = PortableMemory(
        id="memory:m",
        content="Java 21",
        type="semantic",
        scope="project",
        session_id="session:test",
        created_at=at_s,
        updated_at=at_s,
        kind="decision",
        summary="Java",
        structured={"version": 21},
        domain="build",
        valid_until=at_s,
        status="consolidated",
        promotion_chain=(ChainLink("session", "memory:m", at_s, score=0.71234, reason="of use"),),
        source_project="p_0123456789ab",
        accessed_in=("session:a", "session:b"),
        links=(MemoryLink(NEAR, "similar_to", 0.97654321, at_s),),
        last_accessed_at=at_s,
        history=(
            HistoryEntry(
                1,
                "stored",
                at_s,
                "session:test",
                "op",
                MemoryVersion(content="Java 21", type="semantic", scope="project", session_id="session:test"),
            ),
        ),
    )
    log_entry = LoggedPromotion(memory.id, "decision", "session", "project", "importance", 0.7, "s", NEAR, None, at_s)
    reply = MemoryShown(
        memory,
        embedded=True,
        near_duplicates=(NEAR,),
        strength=0.41,
        is_stale=True,
        incoming=(MemoryLink(NEAR, "derived_from", 1.0, 1.0),),
        promotions=(log_entry,),
        observed_in=("p_0123456789ab",),
        reasons=("Stored by session s.",),
    )
    answer, then = shown(reply), shown(reply, 1)
    expected = {
        "kind": "decision",
        "summary": "Java",
        "structured": {"version": 21},
        "domain": "build",
        "valid_until": at,
        "status": "consolidated",
        "strength": 0.41,
        "is_stale": True,
        "links": [{"target": NEAR, "relation": "similar_to", "strength": 0.9765}],
        "near_duplicates": [NEAR],
        "incoming_links": [{"source": NEAR, "relation": "derived_from", "strength": 1.0}],
        "last_accessed": at,
        "promotion_chain": [
            {"action": "promoted", "from_scope": "session", "memory_id": "memory:m", "at": at}
            | {"score": 0.712, "reason": "of use"}
        ],
        "promotions": [
            {"memory_id": "memory:m", "from_scope": "session", "to_scope": "project", "at": at}
            | {"reason": "importance", "score": 0.7, "source_session": "s", "merged_into": NEAR}
        ],
        "source_project": "p_0123456789ab",
        "sessions_used": 2,
        "observed_in_projects": ["p_0123456789ab"],
        "why": ["Stored by session s."],
    }
    assert {name: answer[name] for name in expected} == expected
    assert not {"why", "strength", "is_stale"} & set(then), "what is true now is not said of what was then"
