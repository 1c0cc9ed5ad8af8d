"""`remembrancer status --trace`: the slow calls of a real runtime."""

from __future__ import annotations

import asyncio
import contextlib
import json
from pathlib import Path
from typing import Any

import psutil
from anyio import to_thread

from remembrancer.commands import exit_codes
from remembrancer.protocol.tracing import SLOW_S
from tests.patience import until
from tests.runtime import Runtime, Session, patiently


async def test_a_slow_call_is_listed_with_its_wait_for_the_store_and_nothing_of_a_memory(home: Path) -> None:
    async def traced(*options: str) -> Any:
        return await to_thread.run_sync(lambda: patiently("status", "--trace", *options, home=home))

    async def logged() -> Any:
        calls = json.loads((await traced("--json")).stdout)
        return next((call for call in calls if call["tool"] == "recall_memories"), None)

    nothing = await traced()
    assert nothing.returncode == exit_codes.OK
    assert "no call is logged" in nothing.stdout
    async with Session(home) as client:
        await client.store("The harbour master keeps a heron.")
        store = Runtime(home).process("store")
        store.suspend()
        recalling = asyncio.create_task(client.call("recall_memories", query="Who keeps a heron?", strategy="keyword"))
        await asyncio.sleep(2 * SLOW_S)
        with contextlib.suppress(psutil.NoSuchProcess):  # the launcher has put another in its place
            store.resume()
        assert "heron" in json.dumps(await recalling)
        slow = await until(logged)
        assert slow["total_ms"] >= slow["store_ms"] > SLOW_S * 1000
        shown = (await traced()).stdout
        assert ("recall_memories" in shown, "heron" in shown) == (True, False)
    await Runtime(home).down()
