"""Sessions over HTTP: how long they last, and whose events they have.

Against the gateway's own transport in this process, behind which is no memory.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest

from remembrancer.toolsets.tools import Result
from tests.actors.test_http_stop import BEGIN, CALL, VERSION, listening
from tests.clients.conformance_server import http_server
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning")


async def answered(*_: object) -> Result:
    return Result({}, "")


def of(begun: httpx.Response) -> dict[str, Any]:
    return {"mcp-session-id": begun.headers["mcp-session-id"], "mcp-protocol-version": VERSION}


async def test_a_session_is_in_use_as_long_as_its_tools_are_called_and_over_with_its_end(home: Path) -> None:
    door = http_server(home, answered)
    async with anyio.create_task_group() as serving, httpx.AsyncClient(timeout=PATIENCE_S) as client:
        url = await listening(door, serving)
        session = of(await client.post(url, json=BEGIN))
        (transport,) = door._manager._server_instances.values()
        assert transport.idle_scope is not None
        transport.idle_scope.deadline = soon = anyio.current_time() + PATIENCE_S
        assert (await client.post(url, json=CALL, headers=session)).status_code == 200
        assert transport.idle_scope.deadline > soon
        assert door.sessions == 1
        transport.idle_scope.cancel()
        with anyio.fail_after(PATIENCE_S):
            while door.sessions:  # noqa: ASYNC110 - its task ends in the next moment
                await anyio.sleep(0.01)
        assert (await client.post(url, json=CALL, headers=session)).status_code == 404
        serving.cancel_scope.cancel()


async def test_no_session_has_the_events_of_another(home: Path) -> None:
    door = http_server(home)
    async with anyio.create_task_group() as serving, httpx.AsyncClient(timeout=PATIENCE_S) as client:
        url = await listening(door, serving)
        client.headers["Accept"] = "text/event-stream"
        mine, theirs = await client.post(url, json=BEGIN), await client.post(url, json=BEGIN)
        seen = [line.removeprefix("id: ") for line in mine.text.splitlines() if line.startswith("id: ")]
        assert seen
        stores = [each._event_store for each in door._manager._server_instances.values()]
        assert len({id(each) for each in stores}) == 2
        assert of(mine) != of(theirs)
        serving.cancel_scope.cancel()
