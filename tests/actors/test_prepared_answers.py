"""The bridge's answers before a gateway is there are the gateway's own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS

from remembrancer.actors.bridge.bridge import PREPARED_FILE
from remembrancer.actors.bridge.replay import HANDSHAKE, PreparedAnswers
from remembrancer.config.settings import Settings
from tests.actors.gateway_rig import Rig

CLIENT: dict[str, Any] = {"capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
LATEST = HANDSHAKE_PROTOCOL_VERSIONS[-1]


async def test_the_prepared_answers_are_the_gateways_own(home: Path) -> None:
    """This writes the file anew and fails when the gateway has changed: look at the difference and commit it."""
    given: dict[str, dict[str, Any]] = {}
    async with Rig(home, Settings()).running():
        for version in (*HANDSHAKE_PROTOCOL_VERSIONS, "1999-01-01"):
            async with Rig(home, Settings()).client() as client:
                answers = {HANDSHAKE: await client.request(HANDSHAKE, protocolVersion=version, **CLIENT)}
                await client.send(method="notifications/initialized")
                for method in sorted(PreparedAnswers.METHODS - {HANDSHAKE}):
                    answers[method] = await client.request(method)
                given[version] = {method: answer["result"] for method, answer in answers.items()}
    file = Path(PREPARED_FILE)
    prepared = json.loads(file.read_bytes())
    current = {"protocolVersions": list(HANDSHAKE_PROTOCOL_VERSIONS), **given[LATEST]}
    if prepared != current:
        file.write_text(json.dumps(current, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        pytest.fail(f"{file.name} was of another state of the gateway, and has been written anew: commit it")
    for version, answers in given.items():
        for method, result in answers.items():
            message = {"method": method, "params": {"protocolVersion": version}}
            assert PreparedAnswers(PREPARED_FILE).result(message) == result


@pytest.mark.parametrize("declared", [{}, {"io.modelcontextprotocol/ui": {"mimeTypes": ["text/html;profile=mcp-app"]}}])
async def test_a_client_with_mcp_apps_is_shown_a_card_with_two_tools(home: Path, declared: dict[str, Any]) -> None:
    async with Rig(home, Settings()).running(), Rig(home, Settings()).client() as client:
        capabilities = {"extensions": declared} if declared else {}
        shaken = {"protocolVersion": LATEST, **CLIENT, "capabilities": capabilities}
        await client.request(HANDSHAKE, **shaken)
        await client.send(method="notifications/initialized")
        tools = (await client.request("tools/list"))["result"]["tools"]
        with_card = {each["name"] for each in tools if "ui" in each.get("_meta", {})}
        (card,) = (await client.request("resources/read", uri="ui://remembrancer/card"))["result"]["contents"]
    assert with_card == ({"store_memory", "recall_memories"} if declared else set())
    assert card["mimeType"] == "text/html;profile=mcp-app"
    prepared = PreparedAnswers(PREPARED_FILE)
    prepared.result({"method": HANDSHAKE, "params": shaken})
    assert ("tools/list" in prepared.methods) is not bool(declared)  # the gateway's list is waited for
