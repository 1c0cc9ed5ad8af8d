"""Processes are light: what they import when they run.

Who else may import whom is in pyproject.toml, held by import-linter.
"""

import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

import remembrancer

ROOT = Path(remembrancer.__file__).parent
BRIDGE = (
    *(f"remembrancer.actors.bridge.{name}" for name in ("bridge", "places", "remote", "replay", "starter")),
    *("remembrancer.config.home", "remembrancer.protocol.environment", "remembrancer.protocol.paths"),
)
"""The bridge, with what it imports only when it needs it."""
GATEWAY = "remembrancer.actors.gateway.actor"
SERVED = (GATEWAY, "remembrancer.actors.gateway.http_server", "remembrancer.toolsets.memory.recall_memories")
HOOK = (
    *(f"remembrancer.commands.{name}" for name in ("hook", "gateway_client")),
    "remembrancer.actors.bridge.starter",
)
"""A hook, likewise."""
PROCESSES = (
    "remembrancer.actors.bridge.bridge",
    "remembrancer.actors.consolidator.actor",
    GATEWAY,
    "remembrancer.actors.launcher.runtime",
    "remembrancer.actors.store.actor",
)


def test_one_module_of_commands_opens_databases() -> None:
    commands = (ROOT / "commands").rglob("*.py")
    opening = [
        path.stem for path in commands if re.search(r"^\s*(import|from) sqlite3", path.read_text(), re.MULTILINE)
    ]
    assert opening == ["home_reader"]


def test_one_module_knows_what_linux_or_macos_alone_has() -> None:
    knowing = [
        path.stem for path in ROOT.rglob("*.py") if re.search(r"sys\.platform|/proc/|/dev/shm", path.read_text())
    ]
    assert sorted(knowing) == ["clients", "runtime", "system"]  # the clients' own files, and a docstring


@cache
def loaded_by(*modules: str) -> set[str]:
    """The modules that a process has once it has imported these, beside those that every process has."""
    program = f"import sys; before = set(sys.modules); import {', '.join(modules)}; print(*(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-P", "-c", program], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


@pytest.mark.parametrize(
    ("modules", "left_out"),
    [
        (HOOK, "pathlib asyncio subprocess argparse hashlib typing dataclasses"),
        (("remembrancer.command_line",), "argparse msgspec zmq"),
        (PROCESSES, "nats remembrancer.journal ulid"),  # who shares nothing pays nothing
        (SERVED, "jinja2 remembrancer.browser numpy"),
    ],
)
def test_a_process_does_not_load_what_it_does_not_always_need(modules: tuple[str, ...], left_out: str) -> None:
    within = tuple(f"{each}." for each in left_out.split())
    assert [name for name in loaded_by(*modules) if f"{name}.".startswith(within)] == []


@pytest.mark.parametrize("modules", [BRIDGE, HOOK])
def test_what_bridge_and_hooks_may_import_needs_the_standard_library_alone(modules: tuple[str, ...]) -> None:
    assert {name.partition(".")[0] for name in loaded_by(*modules)} - sys.stdlib_module_names == {"remembrancer"}
