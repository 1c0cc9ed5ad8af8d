"""The README's list of tools is what a client is shown."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.runtime import Runtime, Session, until

README = Path(__file__).parents[2] / "README.md"

pytestmark = pytest.mark.anyio


async def test_the_readme_lists_the_tools_that_a_client_is_shown(home: Path) -> None:
    runtime = Runtime(home)
    async with Session(home) as client:
        shown = {tool["name"] for tool in (await client.request("tools/list"))["tools"]}
        await until(runtime.is_ready)  # the tools are shown before it is up
    section = README.read_text().partition("## What the assistant can do")[2].partition("\n## ")[0]
    rows = re.findall(r"^- .*", section, flags=re.MULTILINE)
    assert set(re.findall(r"`(\w+)`", "\n".join(rows))) == shown
    await runtime.down()
