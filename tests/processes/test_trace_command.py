"""`remembrancer status --trace`: where the time of a slow call went, of a real runtime."""

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


async def test_a_slow_call_is_shown_through_all_processes_and_nothing_of_a_memory(home: Path) -> None:
    async def traced(wanted: str, *options: str) -> Any:
        return await to_thread.run_sync(lambda: patiently("status", "--trace", wanted, *options, home=home))

    async def logged() -> Any:
        calls = json.loads((await traced("recent", "--json")).stdout)
        return next((call for call in calls if call["tool"] == "recall_memories"), None)

    for choice, status in (("recent", exit_codes.OK), ("last", exit_codes.REFUSED)):
        nothing = await traced(choice)
        assert (nothing.returncode, nothing.stdout) == (status, "")
        assert "no call is logged" in nothing.stderr
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
        for wanted in (slow["trace"], "slowest", "last"):
            shown = (await traced(wanted)).stdout
            assert ("ms" in shown, "heron" in shown) == (True, False)
        assert slow["total_ms"] > SLOW_S * 1000
        assert "gateway" in {each["process"] for each in slow["steps"]}
        missing = await traced("ffffffff00")
        assert (missing.returncode, "--trace recent" in missing.stderr) == (exit_codes.REFUSED, True)
    await Runtime(home).down()
