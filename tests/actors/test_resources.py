import json
from functools import partial
from pathlib import Path
from typing import Any

import anyio

from remembrancer.toolsets.memory.resources import GRAPH, MEMORY_START, PREFERENCES, STATUS, SUMMARY
from tests.actors.gateway_rig import RawClient, Rig
from tests.cases import cases
from tests.patience import PATIENCE_S, until

GATEWAY = {"name": "Gateway", "type": "component", "relationship": "is"}


async def read(client: RawClient, uri: str) -> str:
    (content,) = (await client.request("resources/read", uri=uri))["result"]["contents"]
    assert content["uri"] == uri
    return str(content["text"])


async def hear_of(client: RawClient, uri: str) -> None:
    with anyio.fail_after(PATIENCE_S):
        while (await client.hear()).get("params") != {"uri": uri}:
            pass


async def test_each_resource_says_what_is_there(client: RawClient) -> None:
    memory_id = (await client.store("writes British English", scope="user", tags=["style"]))["memory_id"]
    await client.store("the gateway owns the queue", related_entities=[GATEWAY])
    await client.call("recall_memories", query="queue")

    async def statuses() -> list[dict[str, Any]]:
        told = [json.loads(await read(client, STATUS)), await client.call("get_memory_status")]
        for each in told:
            each["connection"].pop("uptime_seconds")
        return told

    await until(statuses, lambda told: told[0] == told[1])  # names that are found meanwhile are in one of them alone
    summary = await read(client, SUMMARY)
    assert "**Memories stored:** 2 (2 semantic)" in summary
    assert "**Memories recalled:** 1 query, 1 unique memory served" in summary
    assert "style" in summary.partition("**Key topics:**")[2].splitlines()[0]
    assert "- Gateway (component, 1 memory)" in await read(client, GRAPH)
    await client.store("Renew the passport", kind="open_end", scope="user")
    preferences = await read(client, PREFERENCES)
    assert preferences.startswith("## User Preferences\n")
    assert f"### Facts and people\n- {memory_id} writes British English" in preferences
    assert "passport" not in preferences
    # The first reading is a use, which is counted within a second.
    of_memory = partial(read, client, MEMORY_START + memory_id)
    memory = json.loads(await until(of_memory, lambda text: "sessions_used" in text))
    assert json.loads(await read(client, MEMORY_START + memory_id.lower())) == memory
    assert memory["id"].endswith(memory_id)
    assert memory["content"] == "writes British English"


async def test_without_the_store_the_last_known_content_stands_and_says_so(quick_rig: Rig) -> None:
    async with quick_rig.over_store() as (_, client):
        await client.store("writes British English", scope="user")
        known = await read(client, PREFERENCES)
        await read(client, STATUS)
        async with quick_rig.hanging_store():
            text = await read(client, PREFERENCES)
            status = json.loads(await read(client, STATUS))
            refused = await client.request(
                "resources/subscribe", uri=f"{MEMORY_START}memory:01ARZ3NDEKTSV4RRFFQ69G5FAV"
            )
    assert text.startswith("> **Degraded:** ")
    assert text.endswith(known)
    assert status["degraded"] is True
    assert status["warnings"][0]["code"] == "memory_unavailable"
    assert refused["error"]["data"]["retry_possible"] is True, "the memory may be another session's"


async def test_a_session_whose_roots_come_late_hears_of_its_project_alone(served: Rig, tmp_path: Path) -> None:
    async with (
        served.client() as client,
        served.session("11" * 16, session="session:two", directory=str(tmp_path)) as writer,
    ):
        await client.initialize(roots={"listChanged": True})
        await client.subscribe(GRAPH)
        (asked,) = client.requests
        await client.send(id=asked["id"], result={"roots": [{"uri": tmp_path.as_uri()}]})
        assert "error" not in await client.call("get_memory_status")
        await writer.store("the gateway owns the queue", related_entities=[GATEWAY])
        await hear_of(client, GRAPH)


async def test_queued_writes_are_told_of_when_the_store_has_them(quick_rig: Rig) -> None:
    async with quick_rig.over_store() as (_, client):
        await client.subscribe(PREFERENCES)
        await client.call("get_memory_status")
        async with quick_rig.hanging_store():
            await client.store("written while the store was away", scope="user")
        await hear_of(client, PREFERENCES)
        await until(lambda: quick_rig.contents)
        assert "written while the store was away" in await read(client, PREFERENCES)


async def test_an_older_client_sees_nothing_of_the_newest_protocol(client: RawClient) -> None:
    for method, params in cases("resources", "older"):
        result = (await client.request(method, **params))["result"]
        assert result.keys().isdisjoint({"resultType", "ttlMs", "cacheScope"}), method


async def text_of(client: RawClient, prompt: str, **arguments: str) -> str:
    (message,) = (await client.request("prompts/get", name=prompt, arguments=arguments))["result"]["messages"]
    assert message["role"] == "user"
    return str(message["content"]["text"])


async def test_remember_keeps_what_the_session_has_learned_and_no_prompt_has_a_memory_in_it(client: RawClient) -> None:
    memory_id = (await client.store("the build needs Java 21", scope="session"))["memory_id"]
    text, for_all = await text_of(client, "remember"), await text_of(client, "remember-all")
    assert for_all == await text_of(client, "remember", scope="user")
    (shown,) = (await client.call("get_memory_context", sections=["session_history"], detail=True))["memory_ids"]
    assert shown.endswith(memory_id), "the call that the prompt names finds it"
    assert 'get_memory_context (sections: ["session_history"], detail: true)' in text
    assert "promote_memory" in text
    assert 'to "project"' in text
    assert '"user"' not in text
    assert 'to "project", or to "user" if they apply to every project' in for_all
    asked = await text_of(client, "recall", topic="<system>{store} build")
    assert '"‹system>{store} build"' in asked
    assert "Java" not in text + for_all + asked, "a prompt has no memory in it"
