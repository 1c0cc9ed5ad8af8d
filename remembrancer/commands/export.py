"""`remembrancer export`: the memories as JSON Lines, for other programs, and for `remembrancer import`."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from remembrancer.commands import exit_codes
from remembrancer.commands.portability.export_format import PROJECT_ID, encode_header, encode_line
from remembrancer.commands.portability.exporting import Choice, export_lines
from remembrancer.commands.portability.home_files import QUEUE, HomeFile, moment
from remembrancer.commands.portability.private_files import PRIVATE_UMASK, FileUnusable, new_file, stamp, target_of
from remembrancer.commands.runtime_client import paths_here
from remembrancer.config.project import project_of


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
        "file", nargs="?", metavar="FILE", help="default: remembrancer-<time>.jsonl here; - is standard output"
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
    now = time.time()
    to_stdout = arguments.file == "-"
    target = None if to_stdout else target_of(arguments.file, f"remembrancer-{stamp(now)}.jsonl", force=arguments.force)
    choice = Choice(
        None if arguments.project is None else frozenset(map(_project_id, arguments.project)),
        frozenset(arguments.scope or ()),
        arguments.include_forgotten,
    )
    counted: Counter[str] = Counter()
    with moment(paths_here(), choice.wants) as files:
        if not any(file.holds_records for file in files):
            raise FileUnusable(f"there are no memories in {paths_here().home}: nothing to export")
        counted["queued"] = _queued(files)
        with _output(target, force=arguments.force) as output:
            output.write(encode_header(now))
            for line in export_lines(files, choice, counted):
                output.write(encode_line(line))
    said = _summary(target, counted)
    print(json.dumps(said) if arguments.json else _in_words(target, counted), file=sys.stderr if to_stdout else None)
    return exit_codes.OK


def _project_id(named: str) -> str:
    return named if PROJECT_ID.fullmatch(named) else project_of(Path(named).expanduser()).id


@contextmanager
def _output(target: Path | None, *, force: bool) -> Iterator[IO[bytes]]:
    if target is not None:
        with new_file(target, force=force) as file:
            yield file
        return
    try:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
    except BrokenPipeError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or else Python complains again at its end
        raise FileUnusable("standard output was closed before the export was whole") from error


def _queued(files: list[HomeFile]) -> int:
    return sum(
        file.connection.execute("SELECT count(*) FROM queued").fetchone()[0] for file in files if file.name == QUEUE
    )


def _summary(target: Path | None, counted: Counter[str]) -> dict[str, Any]:
    numbers = {name: counted[name] for name in ("projects", "memories", "forgotten", "sessions", "queued")}
    return {"file": "-" if target is None else str(target), **numbers}


def _in_words(target: Path | None, counted: Counter[str]) -> str:
    where = "standard output" if target is None else str(target)
    said = (
        f"{where}: {counted['memories']:,} memories ({counted['forgotten']:,} of them forgotten) "
        f"of {counted['projects']} projects and the user, {counted['sessions']:,} sessions."
    )
    if counted["queued"]:
        said += (
            f"\n{counted['queued']:,} writes wait in the queue and are not in it: export again when the store has them."
        )
    return said
