"""Builds the published files into `dist/` and checks them: the wheel, the bundle for desktop clients, and
`server.json`.

Sources: the schema of the MCP registry of 2025-12-11 (https://static.modelcontextprotocol.io) and version 0.3 of the
manifest of MCP bundles (https://github.com/modelcontextprotocol/mcpb).
"""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any, Final

import msgspec

from release.names import AUTHOR, REPOSITORY, SERVER_NAME, placeholders
from remembrancer import __version__
from remembrancer.toolsets.tools import load_tools

ROOT: Final = Path(__file__).parents[1]
DESCRIPTION: Final = "Long-term memory on your own machine: found by meaning and words, durable, undoable."
LONGEST_DESCRIPTION: Final = 100
SCHEMA: Final = "https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json"
IN_THE_WHEEL: Final = (
    "remembrancer/py.typed",
    "remembrancer/commands/clients.toml",
    "remembrancer/claude_plugin/.claude-plugin/marketplace.json",
    "remembrancer/claude_plugin/.mcp.json",
    "remembrancer/claude_plugin/hooks/hooks.json",
)
WITH_VERSION: Final = (
    "remembrancer/claude_plugin/.claude-plugin/plugin.json",
    "remembrancer/actors/bridge/prepared_answers.json",
)
"""The files of the wheel that repeat the version, whose single source is `remembrancer/__init__.py`."""
LONG_AGO: Final = (1980, 1, 1, 0, 0, 0)
"""The time of every file in the bundle, so that the same wheel always gives the same bundle."""


def main(argv: list[str]) -> int:
    """Build and check everything; with `check` also that it can be published, with no placeholder in it. `home`
    makes the home of this release for the tests of later ones. Returns the exit status."""
    if argv == ["home"]:
        from release.home import make_homes  # it needs the packages of the tests

        print(*make_homes(), sep="\n")
        return 0
    if argv == ["check"] and (left := placeholders(ROOT)):
        print(*left, "It cannot be published so: see release/names.py.", sep="\n")
        return 1
    out = ROOT / "dist"
    wheel = build_wheel(out)
    bundle = build_bundle(wheel, out / f"remembrancer-{__version__}.mcpb")
    server = out / "server.json"
    server.write_bytes(msgspec.json.format(msgspec.json.encode(make_server(bundle)), indent=2) + b"\n")
    faults = check(wheel, bundle, server)
    for line in faults or [str(path) for path in (wheel, bundle, server)]:
        print(line)
    return 1 if faults else 0


def build_wheel(out: Path) -> Path:
    """Build the wheel; returns its path."""
    out.mkdir(exist_ok=True)
    for old in out.glob("remembrancer-*"):
        old.unlink()
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", "wheel", "--no-deps"]
    subprocess.run([*pip, "--wheel-dir", str(out), str(ROOT)], check=True)
    (wheel,) = out.glob("remembrancer-*.whl")
    return wheel


def make_manifest() -> dict[str, Any]:
    """Return the manifest of the bundle."""
    tools = [{"name": tool.name, "description": tool.description} for tool in load_tools() if tool.toolset == "memory"]
    return {
        "manifest_version": "0.3",
        "name": "remembrancer",
        "display_name": "Remembrancer",
        "version": __version__,
        "description": DESCRIPTION,
        "author": {"name": AUTHOR},
        "license": "MIT",
        "keywords": ["memory", "recall", "local-first"],
        "server": {
            "type": "python",
            "entry_point": "server/main.py",
            "mcp_config": {"command": "python3", "args": ["${__dirname}/server/main.py"], "env": {}},
        },
        "tools": tools,
        "compatibility": {"platforms": ["linux", "darwin"], "runtimes": {"python": ">=3.11"}},
    }


def build_bundle(wheel: Path, bundle: Path) -> Path:
    """Pack the bundle: its manifest, its program, and the wheel that it starts if nothing is installed."""
    contents = {
        "manifest.json": msgspec.json.format(msgspec.json.encode(make_manifest()), indent=2),
        "server/main.py": (ROOT / "release" / "bundle_main.py").read_bytes(),
        "LICENSE": (ROOT / "LICENSE").read_bytes(),
        wheel.name: wheel.read_bytes(),
    }
    with zipfile.ZipFile(bundle, "w") as packed:
        for name, content in contents.items():
            packed.writestr(zipfile.ZipInfo(name, LONG_AGO), content, zipfile.ZIP_DEFLATED)
    return bundle


def make_server(bundle: Path) -> dict[str, Any]:
    """Return the entry for the registry, with the hash of the bundle."""
    package = {"transport": {"type": "stdio"}, "version": __version__}
    return {
        "$schema": SCHEMA,
        "name": SERVER_NAME,
        "title": "Remembrancer",
        "description": DESCRIPTION,
        "version": __version__,
        "packages": [
            {
                "registryType": "pypi",
                "identifier": "remembrancer",
                **package,
                "runtimeHint": "uvx",
                "packageArguments": [{"type": "positional", "value": "mcp"}],
            },
            {
                "registryType": "mcpb",
                "identifier": f"{REPOSITORY}/releases/download/v{__version__}/{bundle.name}",
                **package,
                "fileSha256": hashlib.sha256(bundle.read_bytes()).hexdigest(),
            },
        ],
    }


def check(wheel: Path, bundle: Path, server: Path) -> list[str]:
    """Return the faults of the built files, one line each."""
    faults: list[str] = []
    if msgspec.json.decode(server.read_bytes()) != make_server(bundle):
        faults.append(f"{server} is not that of {bundle.name}")
    if len(DESCRIPTION) > LONGEST_DESCRIPTION:
        faults.append(f"the registry takes no description of more than {LONGEST_DESCRIPTION} characters")
    if f"mcp-name: {SERVER_NAME}" not in (ROOT / "README.md").read_text(encoding="utf-8"):
        faults.append(f"README.md does not say 'mcp-name: {SERVER_NAME}', by which the registry knows the package")
    with zipfile.ZipFile(wheel) as packed:
        names = set(packed.namelist())
        faults += [f"{wheel.name} lacks {name}" for name in (*IN_THE_WHEEL, *WITH_VERSION) if name not in names]
        versions = {
            name: re.search(rb'"version": "([^"]+)"', packed.read(name)) for name in WITH_VERSION if name in names
        }
    if wheel.name.split("-")[1] != __version__:
        faults.append(f"{wheel.name} is not of {__version__}")
    for name, found in versions.items():
        if found is None or found[1].decode() != __version__:
            faults.append(f"{name} in {wheel.name} does not say that it is of {__version__}")
    with zipfile.ZipFile(bundle) as packed:
        manifest = msgspec.json.decode(packed.read("manifest.json"))
        if manifest["server"]["entry_point"] not in packed.namelist() or wheel.name not in packed.namelist():
            faults.append(f"{bundle.name} lacks its program or its wheel")
    return faults


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
