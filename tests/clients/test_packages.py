"""The wheel in empty environments, as people install it: with pipx and uv it stores, finds and brings the plugin.

`make packages` builds the wheel and installs pipx and uv, without which these are skipped; `make package` tries pip.
"""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from remembrancer import __version__

ROOT = Path(__file__).parents[2]
TOOLS = ROOT / ".packages" / "bin"
INSTALL_S = 1200.0
FACT = "Production is deployed on Tuesdays by the release train."

pytestmark = pytest.mark.timeout(1800)


def run(environ: dict[str, str], *command: str | Path, timeout_s: float = 120.0) -> str:
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=timeout_s, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def by_pipx(environ: dict[str, str], place: Path, wheel: Path) -> Path:
    environ = environ | {"PIPX_HOME": str(place / "pipx"), "PIPX_BIN_DIR": str(place / "bin")}
    run(environ, TOOLS / "pipx", "install", "--python", sys.executable, wheel, timeout_s=INSTALL_S)
    return place / "bin/remembrancer"


def by_uv(environ: dict[str, str], place: Path, wheel: Path) -> Path:
    environ = environ | {"UV_TOOL_DIR": str(place / "uv"), "UV_TOOL_BIN_DIR": str(place / "bin")}
    run(environ, TOOLS / "uv", "tool", "install", "--python", sys.executable, wheel, timeout_s=INSTALL_S)
    return place / "bin/remembrancer"


@pytest.mark.parametrize("install", [by_pipx, by_uv])
def test_the_wheel_works_in_an_empty_environment(
    home: Path, tmp_path: Path, install: Callable[[dict[str, str], Path, Path], Path]
) -> None:
    wheel = ROOT / "dist" / f"remembrancer-{__version__}-py3-none-any.whl"
    if not wheel.exists() or not (TOOLS / "uv").exists():
        pytest.skip("the wheel, pipx or uv is not there: run `make packages`")
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}
    remembrancer = install(environ, tmp_path, wheel)
    assert run(environ, remembrancer, "--version").split() == ["remembrancer", __version__]
    try:
        run(environ, remembrancer, "add", FACT)
        assert FACT in run(environ, remembrancer, "search", "when do we deploy to production?")
    finally:
        run(environ, remembrancer, "down")
    assert (Path(run(environ, remembrancer, "claude-plugin-path").strip()) / ".mcp.json").is_file()
    assert "gemini-cli" in run(environ, remembrancer, "setup", "--json")
