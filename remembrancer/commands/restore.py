"""`remembrancer restore`: put a backup in the place of what the home has, which is kept beside it."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from remembrancer.commands import exit_codes
from remembrancer.commands.portability.archive import Manifest
from remembrancer.commands.portability.home_files import names_in
from remembrancer.commands.portability.private_files import PRIVATE_UMASK
from remembrancer.commands.portability.restoring import check_manifest, locked, restore
from remembrancer.commands.runtime_client import is_up, paths_here
from remembrancer.config.home import locate
from remembrancer.protocol.errors import InvalidInput
from remembrancer.protocol.paths import RuntimePaths


def main(argv: list[str]) -> int:
    """Restore a backup; says what is there now and where the former files are."""
    parser = argparse.ArgumentParser(
        prog="remembrancer restore",
        description="Put a backup in the place of what the home has. Nothing is deleted: what was there is moved into "
        "before-restore-<time> in the home. The vector index is made again at the next start.",
        epilog="exit status: 0 restored, 1 not confirmed, 2 --yes is missing, 5 a runtime is up, "
        "6 the home cannot be used, 10 the backup is damaged or of a newer release",
    )
    parser.add_argument("file", metavar="FILE", help="what 'remembrancer backup' has written")
    parser.add_argument("--home", metavar="DIR", help="restore into this home (default: the one of the environment)")
    parser.add_argument("--yes", action="store_true", help="do not ask")
    parser.add_argument("--json", action="store_true", help="for programs")
    arguments = parser.parse_args(argv)
    os.umask(PRIVATE_UMASK)
    archive = Path(arguments.file).expanduser()
    paths = paths_here() if arguments.home is None else RuntimePaths(Path(arguments.home).expanduser().resolve())
    if arguments.home is None and locate(os.environ).in_memory:
        raise InvalidInput("this memory is kept in memory only, and ends with its runtime: restore with --home DIR")
    manifest = check_manifest(archive)
    if not is_up(paths) and not arguments.yes and not _confirmed(paths, manifest):
        print("Nothing was changed.", file=sys.stderr)
        return exit_codes.FAILED
    with locked(paths):
        manifest, aside = restore(paths, archive, time.time())
    said = _summary(paths, archive, manifest, aside)
    print(json.dumps(said) if arguments.json else _in_words(paths, manifest, aside), flush=True)
    return exit_codes.OK


def _confirmed(paths: RuntimePaths, manifest: Manifest) -> bool:
    if not sys.stdin.isatty():
        raise InvalidInput("there is no terminal to ask on: say --yes to restore")
    there = names_in(paths)
    kept = f" The {len(there)} databases that are there now are kept beside them." if there else ""
    print(
        f"The backup of {manifest.made_at} has {manifest.total('memories'):,} memories. "
        f"They take the place of what {paths.home} has.{kept}",
        file=sys.stderr,
    )
    print("Restore it? [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().casefold() in ("y", "yes")


def _summary(paths: RuntimePaths, archive: Path, manifest: Manifest, aside: Path | None) -> dict[str, Any]:
    return {
        "home": str(paths.home),
        "archive": str(archive),
        "made_at": manifest.made_at,
        "memories": manifest.total("memories"),
        "queued": manifest.total("queued"),
        "files": [file.name for file in manifest.files],
        "set_aside": None if aside is None else str(aside),
    }


def _in_words(paths: RuntimePaths, manifest: Manifest, aside: Path | None) -> str:
    kept = "" if aside is None else f"\nWhat was there before is in {aside}: delete it when you do not need it."
    return (
        f"{paths.home} has the {manifest.total('memories'):,} memories of the backup of {manifest.made_at}. "
        f"The vector index is made again at the next start.{kept}"
    )
