"""What the demonstration needs to use the system as others do: the SDK's client, the commands, and patience."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

import anyio
from mcp import Client, StdioServerParameters

PATIENCE_S: Final = 120.0

Json = dict[str, Any]


def executable() -> str:
    """The installed command beside this Python."""
    return str(Path(sys.executable).with_name("remembrancer"))


def server(home: Path, project: Path, **environ: str) -> StdioServerParameters:
    """What a client starts for a session in a project."""
    return StdioServerParameters(command=executable(), args=["mcp"], env={**_of(home), **environ}, cwd=project)


async def call(client: Client, tool: str, /, **arguments: Any) -> Json:
    """The structured answer of a tool, be it good or an error."""
    result = await client.call_tool(tool, arguments)
    content: Json = result.structured_content or {}
    return content


async def command(
    home: Path, *arguments: str, directory: Path | None = None, stdin: str = "", **environ: str
) -> subprocess.CompletedProcess[bytes]:
    """Run a `remembrancer` command on a home, with none of our settings but these."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("REMEMBRANCER_", "MEMORY_"))}
    return await anyio.run_process(
        [executable(), *arguments],
        input=stdin.encode(),
        env={**kept, **_of(home), **environ},
        cwd=directory,
        check=False,
    )


async def until(
    condition: Callable[[], Awaitable[bool]], *, what: str = "the condition", within_s: float = PATIENCE_S
) -> None:
    """Ask again and again, as a client has to. Raises `TimeoutError`, with what was waited for, when patience ends."""
    with anyio.move_on_after(within_s) as patience:
        while not await condition():  # noqa: ASYNC110 - the other side of a protocol has no event of ours
            await anyio.sleep(0.05)
    if patience.cancelled_caught:
        raise TimeoutError(f"{what} has not come about in {within_s:g} s")


def _of(home: Path) -> dict[str, str]:
    """The settings of a demonstration: one thread embeds and leaves the others free, and a machine that stands still
    for seconds ends no call."""
    return {
        "REMEMBRANCER_HOME": str(home),
        "REMEMBRANCER_EMBEDDER_THREADS": "1",
        "REMEMBRANCER_CALL_BUDGET_S": "40",
        "REMEMBRANCER_BRIDGE_BUDGET_S": "60",
    }
