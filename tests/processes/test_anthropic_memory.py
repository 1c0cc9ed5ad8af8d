"""The memory tool of Anthropic's SDK with real processes."""

import os
import signal
from pathlib import Path

import pytest
from anthropic.lib.tools import ToolError

from remembrancer.anthropic_memory import MemoryTool
from remembrancer.commands.runtime_client import ask
from remembrancer.protocol.control import AskStatus
from remembrancer.protocol.paths import RuntimePaths
from tests.runtime import command


def test_what_the_tool_keeps_outlives_its_session_and_a_killed_store(home: Path, tmp_path: Path) -> None:
    create = {"command": "create", "path": "/memories/repo/cache.md", "file_text": "The cache is Valkey 8.\n"}
    change = {"command": "str_replace", "path": "/memories/repo/cache.md", "old_str": "8", "new_str": "9"}
    with MemoryTool(tmp_path, home=home) as tool:
        assert tool.to_dict() == {"type": "memory_20250818", "name": "memory"}
        assert tool.call(create) == "File created successfully at: /memories/repo/cache.md"
        with pytest.raises(ToolError, match="already exists"):
            tool.call(create)
        (store,) = [each.pid for each in ask(RuntimePaths(home), AskStatus()).processes if each.name == "store"]
        os.kill(store, signal.SIGKILL)
        assert "The cache is Valkey 9." in str(tool.call(change))
    tool.close()
    with MemoryTool(tmp_path, home=home) as tool:
        assert str(tool.call({"command": "view", "path": "/memories/repo/cache.md"})).splitlines()[1:] == [
            "     1\tThe cache is Valkey 9.",
            "     2\t",
        ]
    found = command("search", "what do we cache with", home=home, directory=tmp_path)
    assert "The cache is Valkey 9." in found.stdout
