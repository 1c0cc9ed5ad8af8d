"""The program that a desktop client starts from the bundle: it runs the installed Remembrancer, or the bundle's own
wheel through `uv`. Standard library only; it replaces this process, so that the client talks to the bridge itself."""

import os
import shutil
import sys
from pathlib import Path

# A client started by an icon has a shorter PATH than a shell.
PLACES = (Path.home() / ".local" / "bin", Path("/opt/homebrew/bin"), Path("/usr/local/bin"))


def command(bundle: Path, path: str) -> list[str] | None:
    """Return the command line to run, or None if there is no way to run it. `path` is searched like PATH."""
    installed = shutil.which("remembrancer", path=path)
    if installed is not None:
        return [installed, "mcp"]
    uv = shutil.which("uv", path=path)
    wheels = sorted(bundle.glob("*.whl"))
    return None if uv is None or not wheels else [uv, "tool", "run", "--from", str(wheels[-1]), "remembrancer", "mcp"]


def main() -> None:
    """Replace this process with the command."""
    path = os.pathsep.join([os.environ.get("PATH", ""), *map(str, PLACES)])
    found = command(Path(__file__).resolve().parents[1], path)
    if found is None:
        sys.exit(
            "Remembrancer is not installed, nor is uv, which could run it: 'pipx install remembrancer' installs it"
        )
    os.execv(found[0], found)


if __name__ == "__main__":
    main()
