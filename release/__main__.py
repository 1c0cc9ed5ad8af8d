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
RELEASE: Final = Path(__file__).parent
REPOSITORY: Final = "https://github.com/remembrancer/remembrancer"
PLACEHOLDERS: Final = (
    "io.github.remembrancer/",
    "github.com/remembrancer/",
    "The Remembrancer authors",
    "The Remembrancer developers",
)
"""Names that have not been chosen yet: of the account in the MCP registry, of the repository, of the publisher and of
the copyright holder. Remove each when its name is final."""
DESCRIPTION: Final = "Long-term memory on your own machine: found by meaning and words, durable, undoable."
LONG_AGO: Final = (1980, 1, 1, 0, 0, 0)
"""The time of every file in the bundle, so that the same wheel always gives the same bundle."""


def main(argv: list[str]) -> int:
    """Build everything. `check` first fails if anything contains a placeholder, and so cannot be published. `home`
    makes the home of this release for the tests of later ones. Returns the exit status."""
    if argv == ["home"]:
        from release.home import make_homes  # it needs the packages of the tests

        print(*make_homes(), sep="\n")
        return 0
    if argv == ["check"]:
        names = [option for each in PLACEHOLDERS for option in ("-e", each)]
        command = ["git", "grep", "--no-index", "--exclude-standard", "-nF", *names, "--", ".", ":!tests"]
        if subprocess.run(command, cwd=ROOT, check=False).returncode == 0:
            print("These names are still to be chosen (PLACEHOLDERS in release/__main__.py).")
            return 1
    out = ROOT / "dist"
    wheel = build_wheel(out)
    bundle = build_bundle(wheel, out / f"remembrancer-{__version__}.mcpb")
    server = out / "server.json"
    server.write_bytes(formatted(make_server(bundle)))
    print(wheel, bundle, server, sep="\n")
    return 0


def build_wheel(out: Path) -> Path:
    out.mkdir(exist_ok=True)
    for old in out.glob("remembrancer-*"):
        old.unlink()
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", "wheel", "--no-deps"]
    subprocess.run([*pip, "--wheel-dir", str(out), str(ROOT)], check=True)
    (wheel,) = out.glob("remembrancer-*.whl")
    return wheel


def template(name: str) -> dict[str, Any]:
    """A published file with the parts that do not change between releases."""
    described = {"version": __version__, "description": DESCRIPTION}
    return msgspec.json.decode((RELEASE / name).read_bytes(), type=dict[str, Any]) | described


def formatted(content: dict[str, Any]) -> bytes:
    return msgspec.json.format(msgspec.json.encode(content), indent=2) + b"\n"


def build_bundle(wheel: Path, bundle: Path) -> Path:
    """Pack the bundle: its manifest, its program, and the wheel that it starts if nothing is installed."""
    tools = [{"name": tool.name, "description": tool.description} for tool in load_tools() if tool.toolset == "memory"]
    contents = {
        "manifest.json": formatted(template("manifest.json") | {"tools": tools}),
        "server/main.py": (RELEASE / "bundle_main.py").read_bytes(),
        "LICENSE": (ROOT / "LICENSE").read_bytes(),
        wheel.name: wheel.read_bytes(),
    }
    with zipfile.ZipFile(bundle, "w") as packed:
        for name, content in contents.items():
            packed.writestr(zipfile.ZipInfo(name, LONG_AGO), content, zipfile.ZIP_DEFLATED)
    return bundle


def make_server(bundle: Path) -> dict[str, Any]:
    """The entry for the registry, with the hash of the bundle."""
    server = template("server.json")
    for package in server["packages"]:
        package["version"] = __version__
    server["packages"][1] |= {
        "identifier": f"{REPOSITORY}/releases/download/v{__version__}/{bundle.name}",
        "fileSha256": hashlib.sha256(bundle.read_bytes()).hexdigest(),
    }
    return server


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
