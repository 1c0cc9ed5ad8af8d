"""The server that forks the processes of tests imports this: whatever each of them would import, or compute, anew.

Nothing here starts a thread or opens a socket, which a fork would not take along.
"""

import copy
import gc
import importlib
import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast
from unittest import mock

import anyio
import anyio._core._signals  # which anyio imports at its first use

from remembrancer.actors.embedder import onnx
from remembrancer.toolsets.tools import load_tools

COMMANDS = ("runtime_commands", "status", "doctor", "finding", "backup", "export")
MODULES = (
    *(f"remembrancer.actors.{role}.actor" for role in ("store", "gateway", "consolidator", "embedder", "indexer")),
    *("remembrancer.actors.launcher.runtime", "remembrancer.actors.bridge.bridge", "remembrancer.command_line"),
    # What a gateway or a store loads when it is first wanted: the MCP SDK takes a second.
    *(f"remembrancer.actors.gateway.{name}" for name in ("server", "mcp_session", "http_server")),
    *(f"remembrancer.actors.store.{name}" for name in ("shared_lane", "lane_follower", "remote_workers")),
    "remembrancer.browser.app",
    *(f"remembrancer.commands.{name}" for name in COMMANDS),
    *("tests.forked", "onnxruntime"),
)


def _load_the_default_model_once() -> None:
    """Have the model that each embedder begins with in memory, which has no thread. Any other is loaded as ever."""
    load_onnx, default = onnx.load_onnx, onnx.load_onnx(onnx.DEFAULT_MODEL, 1)

    def loaded(model: str, threads: int) -> onnx.OnnxEngine:
        if model != onnx.DEFAULT_MODEL:
            return load_onnx(model, threads)
        engine: Any = copy.copy(default)
        engine._threads = ThreadPoolExecutor(threads) if threads > 1 else None
        return cast(onnx.OnnxEngine, engine)

    mock.patch.object(onnx, "load_onnx", loaded).start()


# As an embedder has them before it imports the libraries, which would start threads.
os.environ.update(ORT_DISABLE_TELEMETRY="1", TOKENIZERS_PARALLELISM="false")
for name in MODULES:
    importlib.import_module(name)
load_tools()
anyio.run(anyio.lowlevel.checkpoint)
_load_the_default_model_once()
gc.collect()
gc.freeze()
