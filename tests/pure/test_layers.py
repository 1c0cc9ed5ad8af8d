"""Processes are light: what they import, read from the source and seen when they run.

Who else may import whom is in pyproject.toml, held by import-linter.
"""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import remembrancer

ROOT = Path(remembrancer.__file__).parent
BRIDGE_MAY = (
    "remembrancer.actors.bridge",
    "remembrancer.protocol.environment",
    "remembrancer.protocol.file_locks",
    "remembrancer.protocol.paths",
    "remembrancer.protocol.gateway_link",
    "remembrancer.protocol.ulids",
    "remembrancer.config.home",
    "remembrancer.config.named_home",
)
HOOK, GATEWAY = "remembrancer.commands.hook", "remembrancer.actors.gateway.actor"
PROCESSES = (
    "remembrancer.actors.bridge.bridge",
    "remembrancer.actors.consolidator.actor",
    GATEWAY,
    "remembrancer.actors.launcher.runtime",
    "remembrancer.actors.store.actor",
)


def module_of(path: Path) -> str:
    parts = path.relative_to(ROOT.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def sources(*parts: str) -> list[Path]:
    """Every source file under a folder of the package, or the one file."""
    place = ROOT.joinpath(*parts)
    return sorted(place.rglob("*.py")) if place.is_dir() else [place.with_suffix(".py")]


def imports(path: Path) -> Iterator[str]:
    """The modules that a file imports, anywhere in it: `from a import b` is `a.b` when that is a module, and else
    `a`."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: a relative import"
            assert node.module is not None
            for alias in node.names:
                inner = ROOT.parent.joinpath(*node.module.split("."), alias.name)
                is_module = inner.is_dir() or inner.with_suffix(".py").exists()
                yield f"{node.module}.{alias.name}" if is_module else node.module


def is_within(name: str, allowed: tuple[str, ...]) -> bool:
    return any(name == each or name.startswith(each + ".") for each in allowed)


def test_the_bridge_imports_very_little_of_ours_and_one_module_of_commands_opens_databases() -> None:
    foreign = [
        f"{module_of(path)} imports {name}"
        for path in sources("actors", "bridge")
        for name in imports(path)
        if name != "remembrancer"
        and not is_within(name, BRIDGE_MAY)
        and name.partition(".")[0] not in sys.stdlib_module_names
    ]
    assert foreign == []
    opening = [module_of(path) for path in sources("commands") if "sqlite3" in imports(path)]
    assert opening == ["remembrancer.commands.home_reader"]


def loaded_by(*modules: str) -> set[str]:
    """The modules that a process has once it has imported these, beside those that every process has."""
    program = f"import sys; before = set(sys.modules); import {', '.join(modules)}; print(*(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-P", "-c", program], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


@pytest.mark.parametrize(
    ("modules", "left_out"),
    [
        ((HOOK, f"{HOOK}_context"), "pathlib asyncio subprocess argparse hashlib typing dataclasses"),
        (("remembrancer.command_line",), "argparse msgspec zmq"),
        (PROCESSES, "nats remembrancer.journal ulid"),  # who shares nothing pays nothing
        ((GATEWAY, "remembrancer.actors.gateway.http_server"), "jinja2 remembrancer.browser"),
        ((GATEWAY, "remembrancer.toolsets.memory.recall_memories"), "mcp.client mcp.server.mcpserver numpy"),
    ],
)
def test_a_process_does_not_load_what_it_does_not_always_need(modules: tuple[str, ...], left_out: str) -> None:
    assert [name for name in loaded_by(*modules) if is_within(name, tuple(left_out.split()))] == []


@pytest.mark.parametrize("modules", [("remembrancer.actors.bridge.bridge",), (HOOK, f"{HOOK}_context")])
def test_what_bridge_and_hooks_may_import_needs_the_standard_library_alone(modules: tuple[str, ...]) -> None:
    """The same, as it is when it runs: what those modules import in their turn counts too."""
    assert {name.partition(".")[0] for name in loaded_by(*modules)} - sys.stdlib_module_names == {"remembrancer"}


def test_whoever_wants_the_parts_of_the_mcp_sdk_that_the_gateway_leaves_out_has_them() -> None:
    program = f"import {GATEWAY}\nfrom mcp import Client\nfrom mcp.server import Server"
    subprocess.run([sys.executable, "-c", program], check=True)
