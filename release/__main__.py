"""Builds the published files into `dist/`: the wheel, the bundle for desktop clients, and `server.json`.

Sources: the schema of the MCP registry of 2025-12-11 (https://static.modelcontextprotocol.io) and version 0.3 of the
manifest of MCP bundles (https://github.com/modelcontextprotocol/mcpb).
"""

import hashlib
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any, Final

import msgspec

from remembrancer import __version__
from remembrancer.toolsets.tools import load_tools

ROOT: Final = Path(__file__).parents[1]
SERVER_NAME: Final = "io.github.remembrancer/remembrancer"
REPOSITORY: Final = "https://github.com/remembrancer/remembrancer"
AUTHOR: Final = "The Remembrancer authors"
PLACEHOLDERS: Final = (
    "io.github.remembrancer/",
    "github.com/remembrancer/",
    "The Remembrancer authors",
    "The Remembrancer developers",
)
"""The names that are not chosen yet: of the account in the MCP registry, of the repository, of who publishes it and who
holds the copyright. Remove each here when its name is final."""
DESCRIPTION: Final = "Long-term memory on your own machine: found by meaning and words, durable, undoable."
SCHEMA: Final = "https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json"
LONG_AGO: Final = (1980, 1, 1, 0, 0, 0)
"""The time of every file in the bundle, so that the same wheel always gives the same bundle."""


def main(argv: list[str]) -> int:
    """Build everything; with `check` only if it can be published, with no placeholder in it. `home` makes the home of
    this release for the tests of later ones. Returns the exit status."""
    if argv == ["home"]:
        from release.home import make_homes  # it needs the packages of the tests

        print(*make_homes(), sep="\n")
        return 0
    if argv == ["check"]:
        names = [option for each in PLACEHOLDERS for option in ("-e", each)]
        if subprocess.run(["git", "grep", "-nF", *names, "--", ".", ":!tests"], cwd=ROOT, check=False).returncode == 0:
            print(
                "It cannot be published so: these names are still to be chosen (PLACEHOLDERS in release/__main__.py)."
            )
            return 1
    out = ROOT / "dist"
    wheel = build_wheel(out)
    bundle = build_bundle(wheel, out / f"remembrancer-{__version__}.mcpb")
    server = out / "server.json"
    server.write_bytes(msgspec.json.format(msgspec.json.encode(make_server(bundle)), indent=2) + b"\n")
    print(wheel, bundle, server, sep="\n")
    return 0


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


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
