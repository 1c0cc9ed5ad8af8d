"""The list of tools in the documents is what a client is shown."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.runtime import Runtime, Session, until

PAGE = Path(__file__).parents[2] / "docs" / "tools.md"

pytestmark = pytest.mark.anyio


async def test_the_page_of_tools_lists_the_tools_that_a_client_is_shown(home: Path) -> None:
    runtime = Runtime(home)
    async with Session(home) as client:
        shown = {tool["name"] for tool in (await client.request("tools/list"))["tools"]}
        await until(runtime.is_ready)  # the tools are shown before it is up
    section = PAGE.read_text().partition("## `memory`")[2].partition("\n## ")[0]
    assert set(re.findall(r"^- `(\w+)`", section, flags=re.MULTILINE)) == shown
    await runtime.down()
