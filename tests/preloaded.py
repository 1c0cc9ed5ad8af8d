"""The server that forks the processes of tests imports this: whatever each of them would import, or compute, anew.

Nothing here starts a thread or opens a socket, which a fork would not take along.
"""

from __future__ import annotations

import gc
import importlib
import os
from typing import Any
from unittest import mock

import anyio
import anyio._core._signals  # which anyio imports at its first use

from remembrancer.actors.embedder import onnx
from remembrancer.actors.embedder.int8_graph import int8_graph
from remembrancer.toolsets.tools import load_tools

COMMANDS = ("runtime_commands", "status", "doctor", "shell", "backup", "export")
MODULES = (
    *(f"remembrancer.actors.{role}.actor" for role in ("store", "gateway", "consolidator", "embedder", "indexer")),
    *("remembrancer.actors.launcher.process_control", "remembrancer.actors.bridge.bridge", "remembrancer.command_line"),
    *(f"remembrancer.commands.{name}" for name in COMMANDS),
    *("tests.forked", "onnxruntime"),
)


def _load_the_default_model_once() -> None:
    """Have the model that each embedder begins with in memory, which has no thread. Any other is loaded as ever."""
    weights, parts = onnx._packaged()
    session, loaded = onnx.open_session(int8_graph(weights.read_bytes()), 1), b"the default graph"

    def opened(graph: str | bytes, threads: int) -> Any:
        return session if graph is loaded else open_session(graph, threads)

    def rewritten(graph: bytes) -> bytes:
        return graph if graph is loaded else int8_graph(graph)

    open_session, there = onnx.open_session, mock.Mock(read_bytes=lambda: loaded)
    mock.patch.object(onnx, "_packaged", return_value=(there, parts)).start()
    mock.patch.object(onnx, "int8_graph", rewritten).start()
    mock.patch.object(onnx, "open_session", opened).start()


# As an embedder has it before it imports onnxruntime, which would start a thread.
os.environ["ORT_DISABLE_TELEMETRY"] = "1"
for name in MODULES:
    importlib.import_module(name)
load_tools()
anyio.run(anyio.lowlevel.checkpoint)
_load_the_default_model_once()
gc.collect()
gc.freeze()
