"""Other assistants' command lines find what `setup` wrote for them, and most start it: no model is needed for that.

`make clients` installs them; without them these tests are skipped.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.clients.test_inspector import CLIENTS
from tests.clients.test_real_clients import COMMAND, environ, run

__all__ = ["environ"]
pytestmark = pytest.mark.timeout(300)

LISTS = {
    "claude-code": ("claude mcp list", r"remembrancer: .* Connected"),
    "gemini-cli": ("gemini mcp list", r"remembrancer: .* \(stdio\) - Connected"),
    "qwen-code": ("qwen mcp list", r"remembrancer: .* \(stdio\) - Connected"),
    "opencode": ("opencode mcp list", r"✓ remembrancer .*connected"),
    "copilot-cli": ("copilot mcp get remembrancer", r"Type: local\s+Command: .*mcp\b"),
    "codex": ("codex mcp list", r"remembrancer +\S+ +mcp .*enabled"),
}
"""The command with which a client lists its servers, and its words for one that is there (and answers)."""


@pytest.mark.parametrize("scope", ["user", "project"])
@pytest.mark.parametrize("client", LISTS)
def test_a_clients_own_command_line_finds_what_was_written_for_it(
    home: Path, environ: dict[str, str], client: str, scope: str
) -> None:
    command, said = LISTS[client]
    program, *arguments = command.split()
    if not (CLIENTS / program).exists():
        pytest.skip(f"{program} is not installed: run `make clients`")
    if scope == "project" and client in ("claude-code", "codex", "copilot-cli"):
        pytest.skip(f"{program} wants a person to trust a project first")
    path = f"{Path(COMMAND).parent}:{CLIENTS}:{environ['PATH']}"
    environ |= {"PATH": path, "GEMINI_CLI_TRUST_WORKSPACE": "true"}
    where = ["--project"] if scope == "project" else []
    assert "entry added\n" in run(environ, COMMAND, "setup", client, *where, "--no-check").stdout
    assert re.search(said, listed(environ, program, *arguments)), client
    assert "entry removed\n" in run(environ, COMMAND, "setup", client, *where, "--remove").stdout
    assert "remembrancer" not in listed(environ, program, "mcp", "list"), client


def listed(environ: dict[str, str], program: str, *arguments: str) -> str:
    """What a client prints, without its colours."""
    done = subprocess.run(
        [str(CLIENTS / program), *arguments],
        env=environ,
        cwd=Path(environ["HOME"], "app"),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    return re.sub(r"\x1b\[[0-9;]*m", "", done.stdout + done.stderr)
