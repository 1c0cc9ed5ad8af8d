"""Runs the SDK's own tests of its file-based memory tool on ours: `python -m bench.sdk_tests FILE`.

FILE is `tests/lib/tools/memory_tools/test_filesystem.py` of the source distribution of `anthropic` (`pip download
--no-deps --no-binary :all: anthropic`). The tests run unchanged; their fixture gets our `MemoryTool`, and a snapshot of
the directory is the content that the tool shows. Tests of symbolic links and of a directory's mode, which do not exist
here, and those of the asynchronous class are left out.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from bench.harness import Runtime
from remembrancer.anthropic_memory import MemoryTool

LEFT_OUT: Final = "TestBetaLocalFilesystemMemoryTool and not symlink and not mkdir"
ADDED: Final = "\n\nfrom bench.sdk_tests import snapshot as get_directory_snapshot, sync_local_filesystem_tool\n"


class ShownPath(str):
    """The tests' `base_path`, with the tool that it belongs to."""

    tool: MemoryTool

    def __str__(self) -> str:
        return self


class ShownFile:
    """A file of the tests' `memory_root`, read and written through the tool."""

    def __init__(self, tool: MemoryTool, path: str) -> None:
        self._tool, self._path = tool, path

    def write_bytes(self, data: bytes) -> None:
        self._tool.call({"command": "create", "path": self._path, "file_text": data.decode()})

    def read_bytes(self) -> bytes:
        return text_of(self._tool, self._path).encode()


class Tool(MemoryTool):
    """Our tool with the attributes of the SDK's tool that its tests read."""

    @property
    def base_path(self) -> ShownPath:
        path = ShownPath("/no/such/directory")
        path.tool = self
        return path

    @property
    def memory_root(self) -> Tool:
        return self

    def __truediv__(self, name: str) -> ShownFile:
        return ShownFile(self, f"/memories/{name}")

    def is_dir(self) -> bool:
        return "\t/memories" in str(self.call({"command": "view", "path": "/memories"}))


def text_of(tool: MemoryTool, path: str) -> str:
    """Return a file's text."""
    shown = str(tool.call({"command": "view", "path": path}))
    return "\n".join(line.partition("\t")[2] for line in shown.split("\n")[1:])


def snapshot(path: ShownPath) -> dict[str, str]:
    """Return the texts of all files, by path without the first slash."""
    files: dict[str, str] = {}
    folders = ["/memories"]
    while folders:
        for line in str(path.tool.call({"command": "view", "path": folders.pop()})).split("\n")[2:]:
            name = line.partition("\t")[2]
            if name.endswith("/"):
                folders.append(name[:-1])
            else:
                files[name[1:]] = text_of(path.tool, name)
    return files


@pytest.fixture
def sync_local_filesystem_tool(tmp_path: Path) -> Iterator[Tool]:
    with Tool(tmp_path, home=os.environ["SDK_TESTS_HOME"]) as tool:
        yield tool
        for name in snapshot(tool.base_path):
            tool.call({"command": "delete", "path": f"/{name}"})


def main() -> int:
    """Run the tests."""
    running = Runtime()
    os.environ |= {"SDK_TESTS_HOME": str(running.home), "REMEMBRANCER_EMBEDDERS": "0"}
    with tempfile.TemporaryDirectory() as directory:
        copy = Path(directory, "test_filesystem.py")
        copy.write_text(Path(sys.argv[1]).read_text() + ADDED)
        try:
            return int(
                pytest.main(
                    [
                        "-q",
                        "-p",
                        "no:cacheprovider",
                        f"--rootdir={directory}",
                        "-c",
                        "/dev/null",
                        str(copy),
                        "-k",
                        LEFT_OUT,
                    ]
                )
            )
        finally:
            asyncio.run(running.aclose())


if __name__ == "__main__":
    raise SystemExit(main())
