"""Sessions of the SDK's client with a runtime in its own home, for the examples."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

import anyio
from mcp import Client, StdioServerParameters
from rich.console import Console

PATIENCE_S: Final = 120.0

Json = dict[str, Any]
Part = Callable[[Path, Console], Awaitable[bool]]


async def in_a_home_of_its_own(part: Part, console: Console) -> bool:
    """Run a demonstration in a temporary home, then stop its runtime and remove the home. Returns whether it went as
    promised."""
    home = Path(tempfile.mkdtemp(prefix="rmb-demo-", dir="/tmp"))  # socket paths must be short
    try:
        return await part(home, console)
    finally:
        with anyio.CancelScope(shield=True):
            await command(home, "down")
        shutil.rmtree(home, ignore_errors=True)


def executable() -> str:
    """Return the path of the installed command beside this Python."""
    return str(Path(sys.executable).with_name("remembrancer"))


def server(home: Path, project: Path, **environ: str) -> StdioServerParameters:
    """Return the command with which a client starts a session in a project."""
    return StdioServerParameters(command=executable(), args=["mcp"], env={**_of(home), **environ}, cwd=project)


async def call(client: Client, tool: str, /, **arguments: Any) -> Json:
    """Return the structured answer of a tool, whether a result or an error."""
    result = await client.call_tool(tool, arguments)
    content: Json = result.structured_content or {}
    return content


async def command(home: Path, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    """Run a `remembrancer` command on a home, with no settings but these."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("REMEMBRANCER_", "MEMORY_"))}
    return await anyio.run_process([executable(), *arguments], env={**kept, **_of(home)}, check=False)


async def until(
    condition: Callable[[], Awaitable[bool]], *, what: str = "the condition", within_s: float = PATIENCE_S
) -> None:
    """Poll until a condition holds, as a client has to. Raises `TimeoutError`, naming the condition, after a while."""
    with anyio.move_on_after(within_s) as patience:
        while not await condition():  # noqa: ASYNC110 - the other side of a protocol has no event of ours
            await anyio.sleep(0.05)
    if patience.cancelled_caught:
        raise TimeoutError(f"{what} has not come about in {within_s:g} s")


def _of(home: Path) -> dict[str, str]:
    """Return the settings of a demonstration, in which a stall of seconds ends no call."""
    return {
        "REMEMBRANCER_HOME": str(home),
        "REMEMBRANCER_CALL_BUDGET_S": "40",
        "REMEMBRANCER_BRIDGE_BUDGET_S": "60",
    }
