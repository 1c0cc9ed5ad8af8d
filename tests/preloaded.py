"""The server that forks the processes of tests imports this: whatever each of them would import, or compute, anew.

Nothing here starts a thread or opens a socket, which a fork would not take along.
"""

import copy
import ctypes
import gc
import importlib
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast
from unittest import mock

import anyio
import anyio._core._signals  # which anyio imports at its first use

from remembrancer.actors.embedder import onnx
from remembrancer.actors.indexer import watching
from remembrancer.command_line import COMMANDS
from remembrancer.config.settings import Settings
from remembrancer.memory.credentials import find_credential
from remembrancer.memory.times.windows import time_windows
from remembrancer.protocol.work import ModelChoice
from remembrancer.toolsets.tools import load_tools

MODULES = (
    *(f"remembrancer.actors.{role}.actor" for role in ("store", "gateway", "consolidator", "embedder", "indexer")),
    *("remembrancer.actors.launcher.runtime", "remembrancer.actors.bridge.bridge"),
    # What a gateway or a store loads when it is first wanted: the MCP SDK takes a second.
    *(f"remembrancer.actors.gateway.{name}" for name in ("server", "mcp_session", "http_server")),
    *(f"remembrancer.actors.store.{name}" for name in ("shared_lane", "lane_follower", "remote_workers")),
    *("remembrancer.browser.app", "uvicorn.lifespan.off", "uvicorn.protocols.http.h11_impl", "numpy.ma"),
    *(f"remembrancer.commands.{module}" for _, module, _ in COMMANDS.values() if module),
    *("remembrancer.commands.backup", "click._textwrap", "rich._emoji_codes", "onnxruntime"),
    *("tests.forked", "tests.contracts.dying_process"),
)


def _load_the_default_model_once() -> None:
    """Have the model that each embedder begins with in memory, which has no thread. Any other is loaded as ever."""
    load, default = onnx.load, onnx.load(ModelChoice("onnx", onnx.DEFAULT_MODEL), Settings(), 1)

    def loaded(choice: ModelChoice, settings: Settings, threads: int) -> onnx.OnnxEngine:
        if choice.model != onnx.DEFAULT_MODEL:
            return load(choice, settings, threads)
        engine: Any = copy.copy(default)
        engine._threads = ThreadPoolExecutor(threads) if threads > 1 else None
        return cast(onnx.OnnxEngine, engine)

    mock.patch.object(onnx, "load", loaded).start()


LARGE = 2 << 20
MADV_COLLAPSE = 25
"""See madvise(2). A kernel that does not know it leaves the pages as they are."""


def _collapse_pages() -> None:
    """Have Linux keep all this in large pages: most of what a fork costs is the table of the pages that it shares."""
    libc = ctypes.CDLL(None)
    for line in Path("/proc/self/maps").read_text().splitlines():
        addresses, access, _, _, inode, *_ = line.split()
        first, last = (int(each, 16) for each in addresses.split("-"))
        first, last = -(-first // LARGE) * LARGE, last // LARGE * LARGE
        if (access, inode) == ("rw-p", "0") and first < last:
            libc.madvise(ctypes.c_void_p(first), ctypes.c_size_t(last - first), MADV_COLLAPSE)


# As an embedder has them before it imports the libraries, which would start threads.
os.environ.update(ORT_DISABLE_TELEMETRY="1", TOKENIZERS_PARALLELISM="false")
for name in MODULES:
    importlib.import_module(name)
load_tools()
time_windows("last week", 0.0)  # compiles its patterns for the first text, and so do credentials
find_credential("")
anyio.run(anyio.lowlevel.checkpoint)
_load_the_default_model_once()
watching.FIRST_REPORT_MS = 100  # type: ignore[misc]  # a watch that is told to end does so at its next report
gc.collect()
gc.freeze()
if sys.platform == "linux":
    _collapse_pages()
