"""The gateway's process loads of the MCP SDK only what it serves with."""

from __future__ import annotations

import subprocess
import sys

LOADED = """
import sys
import remembrancer.actors.gateway.actor
print([name for name in sys.modules if name.startswith(("mcp.client", "mcp.server.mcpserver"))])
from mcp import Client
from mcp.server import Server
print(Client.__name__, Server.__name__)
"""


def test_the_gateway_loads_no_client_and_no_high_level_server_and_whoever_wants_them_has_them() -> None:
    done = subprocess.run([sys.executable, "-c", LOADED], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["[]", "Client Server"]
