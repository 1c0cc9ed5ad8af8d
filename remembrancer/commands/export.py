"""`remembrancer export`: the memories as JSON Lines, for other programs, and for `remembrancer import`."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import time
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

import msgspec

from remembrancer.actors.gateway.queue_contents import read_queue
from remembrancer.commands import exit_codes
from remembrancer.commands.output_files import PRIVATE_UMASK, new_file, stamp, target_of
from remembrancer.commands.runtime_client import ask_home, paths_here
from remembrancer.config.project import project_of
from remembrancer.memory.export_format import PROJECT_ID
from remembrancer.protocol.errors import FileUnusable
from remembrancer.protocol.home import ExportWritten, WriteExport


def main(argv: list[str]) -> int:
    """Write the export; says how much is in it."""
    parser = argparse.ArgumentParser(
        prog="remembrancer export",
        description="Write memories with their history as JSON Lines, also while the runtime works. docs/backup.md "
        "describes the lines; 'remembrancer import' takes them in.",
        epilog="exit status: 0 written, 2 the file is there already or a project is not known, "
        "10 a file cannot be read or written",
    )
    parser.add_argument(
        "file",
        nargs="?",
        metavar="FILE",
        help="default: remembrancer-<time>.jsonl here, or in ~ from within a repository; - is standard output",
    )
    parser.add_argument(
        "--project", action="append", metavar="DIR|ID", help="only this project (may be said several times)"
    )
    parser.add_argument(
        "--scope", action="append", choices=("session", "project", "user"), help="only this scope (several times)"
    )
    parser.add_argument(
        "--include-forgotten", action=argparse.BooleanOptionalAction, default=True, help="default: they are in it"
    )
    parser.add_argument("--force", action="store_true", help="replace the file")
    parser.add_argument("--json", action="store_true", help="the summary for programs (on stderr when FILE is -)")
    arguments = parser.parse_args(argv)
    os.umask(PRIVATE_UMASK)
    to_stdout = arguments.file == "-"
    default = f"remembrancer-{stamp(time.time())}.jsonl"
    target = None if to_stdout else target_of(arguments.file, default, force=arguments.force)
    choice = WriteExport(
        "",
        None if arguments.project is None else tuple(map(_project_id, arguments.project)),
        tuple(arguments.scope or ()),
        arguments.include_forgotten,
    )
    queued = len(read_queue(paths_here().write_queue).queued)
    if target is None:
        with NamedTemporaryFile(prefix="remembrancer-export-") as file:
            written = _write(choice, file.name)
            _print_whole(Path(file.name))
    else:
        with new_file(target, force=arguments.force) as file:
            written = _write(choice, file.name)
    said = _summary(target, written, queued)
    shown = json.dumps(said) if arguments.json else _in_words(said)
    print(shown, file=sys.stderr if to_stdout else None)
    return exit_codes.OK


def _write(choice: WriteExport, path: str) -> ExportWritten:
    paths = paths_here()
    written = ask_home(paths, msgspec.structs.replace(choice, path=str(Path(path).absolute())), ExportWritten)
    if not written.files:
        raise FileUnusable(f"there are no memories in {paths.home}: nothing to export")
    return written


def _print_whole(path: Path) -> None:
    try:
        with path.open("rb") as file:
            shutil.copyfileobj(file, sys.stdout.buffer)
        sys.stdout.buffer.flush()
    except BrokenPipeError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or else Python complains again at its end
        raise FileUnusable("standard output was closed before the export was whole") from error


def _project_id(named: str) -> str:
    return named if PROJECT_ID.fullmatch(named) else project_of(Path(named).expanduser()).id


def _summary(target: Path | None, written: ExportWritten, queued: int) -> dict[str, Any]:
    numbers = {name: getattr(written, name) for name in ("projects", "memories", "forgotten", "sessions")}
    return {"file": "-" if target is None else str(target), **numbers, "queued": queued}


def _in_words(said: dict[str, Any]) -> str:
    where = "standard output" if said["file"] == "-" else said["file"]
    words = (
        f"{where}: {said['memories']:,} memories ({said['forgotten']:,} of them forgotten) "
        f"of {said['projects']} projects and the user, {said['sessions']:,} sessions."
    )
    if said["queued"]:
        words += (
            f"\n{said['queued']:,} writes wait in the queue and are not in it: export again when the store has them."
        )
    return words
