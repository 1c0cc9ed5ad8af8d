import json
from typing import Any

from remembrancer.protocol.reads import Recall
from remembrancer.toolsets.tools import DATA
from tests.actors.gateway_rig import RawClient, Rig
from tests.patience import until

UNKNOWN = "memory:01ARZ3NDEKTSV4RRFFQ69G5FAV"


GRAPH = {"REMEMBRANCER_TOOLSETS": "graph"}


async def contents(client: RawClient, tool: str, **arguments: Any) -> list[str]:
    answer = await client.call(tool, **arguments)
    assert "error" not in answer, answer
    return [each["content"] for each in answer["memories"]]


async def test_a_fact_is_asked_for_then_and_now(served: Rig) -> None:
    async with served.session(environment=GRAPH) as client:
        old = await client.call(
            "store_memory",
            content="Invoices are kept in MySQL",
            memory_type="semantic",
            metadata={"page": {"number": 3}},
            valid_from="2024-01-01",
        )
        new = await client.call("store_memory", content="Invoices are kept in Postgres", valid_from="2025-06-01T12:00")
        reason = {"reason": "we moved", "replaced_by": new["memory_id"]}
        ended = await client.call("invalidate", id=old["memory_id"], **reason)
        assert {**ended, "valid_until": ""} == {
            **{"id": old["memory_id"], "valid_until": "", "reason": "we moved", "version": 2},
            "note": DATA,
            "replaced_by": new["memory_id"],
        }
        assert (await client.call("invalidate", id=old["memory_id"], **reason))["already_invalid"]
        assert await contents(client, "get_valid") == ["Invoices are kept in Postgres"]
        assert await contents(client, "get_valid_at", timestamp="2024-05-05T00:00:00+02:00") == [
            "Invoices are kept in MySQL"
        ]
        assert await contents(client, "get_valid_at", timestamp="2023-12-31") == []
        now = [f"Invoices are kept in {each}" for each in ("Postgres", "MySQL")]
        assert await contents(client, "get_valid_at", timestamp="2025-07-01") == now
        assert await contents(client, "get_valid_at", timestamp="2025-07-01", limit=1, offset=1) == now[1:]
        for tool in ("search_text", "recall", "search"):
            assert await contents(client, tool, query="where are invoices kept") == now[:1]
        uses = "SELECT access_count FROM memories ORDER BY number"
        assert await until(lambda: served.rows(uses), lambda rows: rows[1] == (3,)) == [(0,), (3,)]
        asked = [(each.strategy, each.ranking) for each in served.asked if isinstance(each, Recall)]
        assert asked == [("keyword", "fitted"), ("hybrid", "pagerank"), ("vector", "fitted")]
        found = await client.call("recall", query="where are invoices kept", include_invalid=True)
        (over,) = (each for each in found["memories"] if "valid" in each)
        assert {name: over[name] for name in ("id", "valid", "invalid_reason", "superseded_by", "metadata")} == {
            "id": old["memory_id"],
            "valid": False,
            "invalid_reason": "we moved",
            "superseded_by": [new["memory_id"]],
            "metadata": {"page": {"number": 3}},
        }
        async with served.session(bridge="11" * 16, environment={"REMEMBRANCER_TOOLSETS": "nodes,memory"}) as other:
            nodes = (await other.call("recall", query="where are invoices kept"))["nodes"]
            assert [each["content"] for each in nodes] == now[:1], "a node does not say that it is over"
            (marked,) = (
                each
                for each in (await other.call("recall_memories", query="where are invoices kept"))["memories"]
                if each.get("expired")
            )
            assert (marked["id"], marked["invalid_reason"]) == (old["memory_id"], "we moved")
        shown = await client.call("get_memory", id=old["memory_id"])
        assert (shown["invalid_reason"], shown["valid_from"]) == ("we moved", "2024-01-01T00:00:00Z")
        assert [each["change"] for each in shown["history"]] == ["stored", "invalidated"]
        await client.call("update_memory", id=old["memory_id"], valid_until="", metadata={"page": None, "seen": True})
        listed = (await client.call("list_memories", limit=1, offset=1))["memories"]
        assert [(each["id"], each["metadata"], "valid" in each) for each in listed] == [
            (old["memory_id"], {"seen": True}, False)
        ]
        refused = await client.call("get_valid_at", timestamp="last week")
        assert (refused["field"], "ISO 8601" in refused["message"]) == ("timestamp", True)
        assert (await client.call("invalidate", id=UNKNOWN))["error"] == "not_found"
        assert (await client.call("delete_memory", id=old["memory_id"]))["status"] == "erased"
        assert (await client.call("delete_memory", id=old["memory_id"]))["already_erased"]
        assert (await client.call("get_status"))["counts"]["total"] == 1


async def test_entities_live_without_a_memory_and_relations_have_a_time(served: Rig) -> None:
    async with served.session(environment=GRAPH) as client:
        billing = await client.call(
            "create_entity", name="Billing", entity_type="Service", description="Sends invoices"
        )
        assert "already_known" not in billing, billing
        again = await client.call("create_entity", name="billing", entity_type="service")
        assert (again["id"], again["already_known"], again["memory_id"]) == (
            *(billing["id"], True),
            billing["memory_id"],
        )
        ids = {}
        for name in ("MySQL", "Postgres", "Disk: fast"):
            ids[name] = (await client.call("create_entity", name=name, entity_type="data:base"))["id"]
        uses = {"from_id": billing["id"], "relation_type": "stores_in"}
        old = await client.call("create_relation", **uses, to_id=ids["MySQL"], valid_from="2024-01-01", weight=0.5)
        assert old["content"] == "Billing (service) stores in MySQL (data:base)"
        new = await client.call("create_relation", **uses, to_id=ids["Postgres"])
        assert (await client.call("create_relation", **uses, to_id=ids["Postgres"]))["already_known"]
        heavier = await client.call("create_relation", **uses, to_id=ids["MySQL"], valid_from="2024-01-01", weight=0.7)
        assert (heavier["id"], heavier["updated_fields"]) == (old["id"], ["weight"])
        assert "already_known" not in heavier
        await client.call("create_relation", from_id=ids["Postgres"], to_id=ids["Disk: fast"], relation_type="runs on")
        ending = {"reason": "moved", "replaced_by": new["id"], "at": "2025-06-01"}
        await client.call("invalidate", id=old["id"], **ending)

        near = await client.call("get_related", entity_id=billing["id"])
        assert near["entity"] == {
            **{"id": billing["id"], "name": "Billing", "entity_type": "service"},
            "description": "Sends invoices",
        }
        assert [(each["id"], each["distance"]) for each in near["related"]] == [(ids["Postgres"], 1), (ids["MySQL"], 1)]
        first, second = near["relations"]
        assert first == {"id": new["id"], **uses, "to_id": ids["Postgres"]}
        assert second == {
            "id": old["id"],
            **uses,
            "to_id": ids["MySQL"],
            "weight": 0.7,
            "valid": False,
            "invalid_reason": "moved",
            "valid_from": "2024-01-01T00:00:00Z",
            "valid_until": "2025-06-01T00:00:00Z",
        }
        far = await client.call("get_related", entity_id=ids["Disk: fast"], depth=2, direction="in")
        assert [(each["name"], each["distance"]) for each in far["related"]] == [("Postgres", 1), ("Billing", 2)]
        assert (await client.call("get_related", entity_id=ids["Disk: fast"], direction="out"))["related"] == []
        described = await client.call("create_entity", name="MySQL", entity_type="data:base", description="Old: slow")
        assert described["updated_fields"] == ["description"]
        assert "already_known" not in described
        assert (await client.call("get_related", entity_id=ids["MySQL"]))["entity"]["description"] == "Old: slow"

        for field, given in (("to_id", "entity:service:Nothing"), ("from_id", "Billing"), ("to_id", billing["id"])):
            arguments = {**uses, "to_id": ids["MySQL"], field: given}
            refused = await client.call("create_relation", **arguments)
            assert refused["field"] == field, refused
        assert (await client.call("get_related", entity_id="entity:service:Nothing"))["error"] == "not_found"
        found = (await client.call("recall", query="where does Billing store"))["memories"]
        assert new["id"] in [each["id"] for each in found]
        assert old["id"] not in [each["id"] for each in found]


async def test_a_search_of_the_graph_has_the_seeds_shape_and_fields(client: RawClient) -> None:
    def named(subject: str, *others: tuple[str, str]) -> list[dict[str, str]]:
        of = {"type": "component"}
        related = ({**of, "name": name, "relationship": each, "subject": subject} for name, each in others)
        return [{**of, "name": subject, "relationship": "is"}, *related]

    checks, logs_in = (
        named("AuthService", ("TokenValidator", "depends_on")),
        named("APIGateway", ("AuthService", "uses")),
    )
    first = await client.store("Tokens are checked.", related_entities=checks, importance=0.9)
    second = await client.store("The gateway logs in.", related_entities=logs_in)
    answer = await client.call("search_knowledge_graph", entity="AuthService")
    recalled = await client.call("recall_memories", query="tokens", strategy="keyword")
    assert set(answer) == {"note", "entities", "memories", "graph_stats", "relationship_types"}
    assert answer["graph_stats"] == {"entities_traversed": 3, "relationships_found": 2, "depth_reached": 1}
    assert answer["entities"][0] == {
        "name": "AuthService",
        "type": "component",
        "relationships": [
            {"type": "uses", "target": "APIGateway", "direction": "incoming"},
            {"type": "depends_on", "target": "TokenValidator", "direction": "outgoing"},
        ],
        "memory_count": 2,
    }
    assert [each["distance"] for each in answer["entities"][1:]] == [1, 1]
    assert [each["id"] for each in answer["memories"]] == [first["memory_id"], second["memory_id"]]
    assert set(answer["memories"][0]) == set(recalled["memories"][0]), "memories as recall_memories shows them"
    for asked, found in (
        ({"entity": "APIGateway", "depth": 2}, ["APIGateway", "AuthService", "TokenValidator"]),
        ({"entity": "AuthService", "direction": "outgoing"}, ["AuthService", "TokenValidator"]),
    ):
        answer = await client.call("search_knowledge_graph", **asked)
        assert [each["name"] for each in answer["entities"]] == found


async def test_nodes_are_linked_both_ways_and_walked_over(served: Rig) -> None:
    async with served.session(environment={"REMEMBRANCER_TOOLSETS": "nodes"}) as client:
        call = client.call
        tools = (await client.request("tools/list"))["result"]["tools"]
        assert [tool["name"] for tool in tools] == ["connections", "forget", "recall", "remember", "update"]
        assert len(json.dumps(tools, separators=(",", ":"))) / 4 <= 700
        first = await call("remember", content="The cache is Redis", tags=["cache"], source="monday")
        assert first == {
            "note": DATA,
            "id": first["id"],
            "content": "The cache is Redis",
            "tags": ["cache"],
            "links": [],
            "source": "monday",
            "created_at": first["created_at"],
            "last_accessed": first["created_at"],
            "access_count": 0,
        }
        second = await call("remember", content="Redis runs on port 6380", links=[first["id"], UNKNOWN])
        assert second["links"] == [first["id"]]
        (warning,) = second["warnings"]
        assert (warning["code"], UNKNOWN in warning["message"]) == ("unknown_link", True)
        third = await call("remember", content="Port 6379 is taken by the proxy", links=[second["id"]])

        (found,) = (await call("recall", query="which cache", tags=["cache"]))["nodes"]
        assert (found["id"], found["links"], found["access_count"]) == (first["id"], [second["id"]], 0)
        assert [each["id"] for each in (await call("recall", tags=["cache", "none"]))["nodes"]] == [first["id"]]
        assert (await call("recall", query="Redis", tags=["other"]))["nodes"] == []
        assert (await call("recall"))["field"] == "query"
        foreign = "0b0f4a9e-52d1-4b8e-9d53-1c9e1c1d7f5a"  # such as a node of another server
        x = await call("remember", content="x", links=[foreign])
        assert (x["links"], [foreign in each["message"] for each in x["warnings"]]) == ([], [True])
        changed = await call("update", node_id=x["id"], links=["no id"], tags=["y"])
        assert (changed["tags"], changed["warnings"][0]["code"]) == (["y"], "unknown_link")

        near = (await call("connections", node_id=first["id"]))["nodes"]
        assert [(each["id"], each["distance"]) for each in near] == [(first["id"], 0), (second["id"], 1)]
        uses = "SELECT access_count FROM memories WHERE content = 'The cache is Redis'"
        await until(lambda: served.rows(uses) == [(3,)])  # two recalls and the walk
        far = (await call("connections", node_id=first["id"], depth=2))["nodes"]
        assert [(each["id"], each["distance"]) for each in far][2:] == [(third["id"], 2)]
        assert far[1]["links"] == [first["id"], third["id"]]
        assert (await call("connections", node_id=UNKNOWN))["error"] == "not_found"

        changed = await call("update", node_id=second["id"], content="Redis runs on port 6381", links=[third["id"]])
        assert (changed["content"], changed["links"]) == ("Redis runs on port 6381", [third["id"]])
        assert (await call("update", node_id=second["id"], tags=["port"]))["tags"] == ["port"]
        assert (await call("update", node_id=second["id"]))["field"] == "content"
        near = (await call("connections", node_id=first["id"]))["nodes"]
        assert [each["links"] for each in near] == [[]]
        assert await call("forget", node_id=third["id"]) == {"node_id": third["id"], "status": "erased"}
        assert (await call("forget", node_id=third["id"]))["already_erased"]
        assert (await call("connections", node_id=second["id"]))["nodes"][0]["links"] == []
        assert (await call("update", node_id=third["id"], content="back"))["error"] == "not_found"
        again = await call("remember", content="The cache is Redis", source="tuesday")
        assert (again["id"], again["source"]) == (first["id"], "monday")
