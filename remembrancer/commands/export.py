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
from remembrancer.commands.output_files import PRIVATE_UMASK, cannot, new_file, stamp, target_of
from remembrancer.commands.runtime_client import ask_home, paths_here
from remembrancer.config.project import project_of
from remembrancer.memory.export_format import PROJECT_ID, MemoryLine, ProjectLine, decode_line, encode_line
from remembrancer.memory.markdown_files import DETAILS, details_of, file_of
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
    parser.add_argument(
        "--markdown", action="store_true", help="FILE is a new directory: a Markdown file a memory, to read and to keep"
    )
    parser.add_argument("--force", action="store_true", help="replace the file")
    parser.add_argument("--json", action="store_true", help="the summary for programs (on stderr when FILE is -)")
    arguments = parser.parse_args(argv)
    os.umask(PRIVATE_UMASK)
    to_stdout = arguments.file == "-" and not arguments.markdown
    default = f"remembrancer-{stamp(time.time())}" + ("" if arguments.markdown else ".jsonl")
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
    elif arguments.markdown:
        with NamedTemporaryFile(prefix="remembrancer-export-") as file:
            written = _write(choice, file.name)
            _write_markdown(Path(file.name), target)
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


def _write_markdown(export: Path, directory: Path) -> None:
    """Write the memories of an export as files, and its other lines beside them."""
    folders: dict[str | None, str] = {None: "user"}
    try:
        directory.mkdir(mode=0o700, parents=True)
        with export.open("rb") as lines, (directory / DETAILS).open("xb") as details:
            details.write(lines.readline())
            for line in map(decode_line, lines):
                match line:
                    case MemoryLine():
                        name, text = file_of(line, folders[line.project])
                        path = directory / name
                        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                        path.write_text(text, encoding="utf-8", newline="")
                        details.write(msgspec.json.encode(details_of(line.memory)) + b"\n")
                    case _:
                        if isinstance(line, ProjectLine):
                            folders[line.id] = f"{Path(line.path.removesuffix('/.git')).name} {line.id}"
                        details.write(encode_line(line))
    except OSError as error:
        raise cannot("written", directory, error) from error


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
