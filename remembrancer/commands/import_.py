"""`remembrancer import`: take in what `remembrancer export` has written, here or on another machine."""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Final

import anyio
import msgspec

from remembrancer.commands import exit_codes
from remembrancer.commands.portability.home_files import refuse_unfinished
from remembrancer.commands.portability.import_check import Checked, check, placed_lines
from remembrancer.commands.portability.importing import Importer, Report
from remembrancer.commands.portability.private_files import PRIVATE_UMASK, cannot
from remembrancer.commands.runtime_client import connected_store, paths_here
from remembrancer.config.project import project_of
from remembrancer.protocol.errors import InvalidInput, RemembrancerError
from remembrancer.protocol.writes import ProjectRef

CHUNK_BYTES: Final = 1024 * 1024
_NAMED_TARGET: Final = re.compile("(p_[0-9a-f]{12})=(.+)", re.DOTALL)


def main(argv: list[str]) -> int:
    """Import a file; says what came of it."""
    parser = argparse.ArgumentParser(
        prog="remembrancer import",
        description="Take in the memories of an export, with their ids and their history. What is there already stays "
        "as it is. Nothing is imported unless every line is sound. A runtime is started when none is up.",
        epilog="exit status: 0 imported, 1 the store refused some, 2 the command line is wrong, "
        "8 the store has no room, 9 the store stays away (run it again: it goes on), "
        "10 the file is damaged or of a newer release",
    )
    parser.add_argument("file", metavar="FILE", help="what 'remembrancer export' has written; - is standard input")
    parser.add_argument(
        "--project",
        action="append",
        default=[],
        metavar="[ID=]DIR",
        help="import the memories of the project (of that id, when there are several) into the one of this directory",
    )
    parser.add_argument("--dry-run", action="store_true", help="only check the file and say what would be imported")
    parser.add_argument("--skip-bad", action="store_true", help="pass over lines that are not sound")
    parser.add_argument("--json", action="store_true", help="for programs")
    arguments = parser.parse_args(argv)
    os.umask(PRIVATE_UMASK)
    with _input(arguments.file) as file:
        checked = check(file)
        targets = choose_targets(checked.projects, arguments.project)
        report = Report()
        refused = checked.bad > 0 and not arguments.skip_bad
        if not refused:
            report = anyio.run(_import, file, targets, arguments.dry_run)
    if arguments.json:
        print(json.dumps(_summary(checked, report, dry_run=arguments.dry_run)))
    else:
        _tell(checked, report, dry_run=arguments.dry_run, refused=refused)
    if refused:
        return exit_codes.FILE_UNUSABLE
    return exit_codes.FAILED if report.rejected else exit_codes.OK


def choose_targets(projects: Mapping[str, ProjectRef], named: list[str]) -> dict[str, ProjectRef]:
    """Which project the memories of each project of the file go to: its own, unless `named` says otherwise.

    Raises:
        InvalidInput: a directory is named for a project that the file does not have, or for no certain one, or is none.
    """
    targets = dict(projects)
    for each in named:
        match = _NAMED_TARGET.fullmatch(each)
        if match is None and len(projects) != 1:
            known = ", ".join(f"{project.id} ({project.path})" for project in projects.values())
            raise InvalidInput(
                f"the file has {len(projects)} projects: say which with --project ID=DIR: {known or '-'}"
            )
        source = match[1] if match else next(iter(projects))
        if source not in projects:
            raise InvalidInput(f"the file has no project {source}: it has {', '.join(projects) or 'none'}")
        directory = Path(match[2] if match else each).expanduser()
        if not directory.is_dir():
            raise InvalidInput(f"{directory} is not a directory: no session would find what is imported for it")
        targets[source] = project_of(directory)
    return targets


@contextmanager
def _input(named: str) -> Iterator[IO[bytes]]:
    """The file, to be read twice: what comes from standard input is put into a temporary file."""
    if named != "-":
        try:
            with Path(named).expanduser().open("rb") as file:
                yield file
        except OSError as error:
            raise cannot("read", named, error) from error
        return
    with tempfile.TemporaryFile() as spool:
        while chunk := sys.stdin.buffer.read(CHUNK_BYTES):
            spool.write(chunk)
        spool.seek(0)
        yield spool


async def _import(file: IO[bytes], targets: Mapping[str, ProjectRef], dry_run: bool) -> Report:
    paths = paths_here()
    refuse_unfinished(paths)
    if dry_run:
        importer = Importer(paths, None, time.time())
        await importer.take(placed_lines(file, targets))
        return importer.report
    async with connected_store() as ask_store:
        importer = Importer(paths, ask_store, time.time())
        try:
            await importer.take(placed_lines(file, targets))
        except RemembrancerError:
            print(f"{importer.report.imported:,} memories were imported before it ended.", file=sys.stderr)
            raise
        return importer.report


def _summary(checked: Checked, report: Report, *, dry_run: bool) -> dict[str, Any]:
    return {
        "dry_run": dry_run,
        "release": checked.header.release,
        "memories": checked.memories,
        "sessions": checked.sessions,
        "imported": report.imported,
        "present": report.present,
        "rejected": report.rejected,
        "rejections": msgspec.to_builtins(report.first_rejected),
        "bad": checked.bad,
        "bad_lines": msgspec.to_builtins(checked.first_bad),
    }


def _tell(checked: Checked, report: Report, *, dry_run: bool, refused: bool) -> None:
    for bad in checked.first_bad:
        print(f"line {bad.line}: {bad.reason}", file=sys.stderr)
    if checked.bad > len(checked.first_bad):
        print(f"and {checked.bad - len(checked.first_bad):,} lines more", file=sys.stderr)
    if refused:
        print("Nothing was imported: mend these lines, or pass over them with --skip-bad.", file=sys.stderr)
        return
    for refusal in report.first_rejected:
        print(f"{refusal.id}: {refusal.reason}", file=sys.stderr)
    verb = "would be imported" if dry_run else "imported"
    said = f"{report.imported:,} memories {verb}, {report.present:,} were there already"
    if report.rejected:
        said += f", {report.rejected:,} were refused"
    if checked.bad:
        said += f", {checked.bad:,} lines were passed over"
    print(f"{said}.")
    if report.imported and not dry_run:
        print("They are found by their words now, and by their meaning when the embedders have read them.")
