"""The README's list of tools is what a client is shown."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from bench.client import StdioClient
from tests.runtime import Runtime

README = Path(__file__).parents[2] / "README.md"

pytestmark = pytest.mark.anyio


async def test_the_readme_lists_the_tools_that_a_client_is_shown(home: Path) -> None:
    async with StdioClient(home) as client:
        shown = {tool["name"] for tool in (await client.request("tools/list"))["tools"]}
    section = README.read_text().partition("## What the assistant can do")[2].partition("\n## ")[0]
    assert set(re.findall(r"^\| `(\w+)`", section, flags=re.MULTILINE)) == shown
    await Runtime(home).down()
