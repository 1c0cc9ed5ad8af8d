"""`remembrancer backup export`: writes the memories as JSON Lines, for other programs and for `backup import`."""

import json
import os
import shutil
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryFile, gettempdir
from typing import IO, Any

import click
import msgspec

from remembrancer.actors.gateway.write_queue import read_queue
from remembrancer.commands import exit_codes
from remembrancer.commands.home_reader import export_records
from remembrancer.commands.output_files import PRIVATE_UMASK, cannot, new_file, stamp, target_of
from remembrancer.commands.report import Report, argument, command, flag, option
from remembrancer.commands.runtime_client import paths_here
from remembrancer.commands.selection import Where
from remembrancer.commands.terminal import notice_when_slow
from remembrancer.memory.export_format import MemoryLine, ProjectLine, decode_line
from remembrancer.memory.markdown_files import DETAILS, details_of, file_of
from remembrancer.memory.text import count


@command(
    argument(
        "file",
        required=False,
        metavar="[FILE]",
        help="The file to write, or - (default: remembrancer-<time>.jsonl here, or in ~ if this is a repository).",
    ),
    option("--project", multiple=True, metavar="DIR|ID", help="Only this project (may be given several times)."),
    flag("--markdown", help="Write Markdown files into the directory FILE, one for each project and kind of memory."),
    flag("--force", help="Replace an existing file."),
)
def export(file: str | None, project: Sequence[str], markdown: bool, force: bool) -> Report | int:
    """Write memories with their history as JSON Lines, even while the runtime is running. docs/backup.md describes the
    format; 'remembrancer backup import' reads it."""
    os.umask(PRIVATE_UMASK)
    to_stdout = file == "-"
    if to_stdout and markdown:
        raise click.UsageError("--markdown writes a directory, so it cannot go to standard output; name a directory")
    default = f"remembrancer-{stamp(time.time())}" + ("" if markdown else ".jsonl")
    target = None if to_stdout else target_of(file, default, force=force)
    if target is not None and not markdown and target.suffix not in ("", ".json", ".jsonl", ".ndjson"):
        raise click.UsageError(f"an export is JSON Lines: name it {target.stem}.jsonl, or a directory with --markdown")
    projects = dict.fromkeys(place.project.id for named in project for place in Where(named).places)
    paths = paths_here()
    queued = len(read_queue(paths.write_queue)[0])
    with TemporaryFile() if target is None or markdown else new_file(target, force=force) as lines:
        name = f"a temporary file in {gettempdir()}" if target is None or markdown else str(target)
        with notice_when_slow("Exporting"):
            written = export_records(paths, projects, lines, name)
        lines.seek(0)
        if target is None:
            shutil.copyfileobj(lines, sys.stdout.buffer)
        elif markdown:
            with notice_when_slow("Writing the Markdown"):
                _write_markdown(lines, target)
    facts = {"file": "-" if target is None else str(target), **written, "queued": queued}
    words = _in_words(facts, has_user=not projects)
    if target is None:  # the export is on standard output, so its summary is not
        as_json = click.get_current_context().params["as_json"]
        print(json.dumps(facts) if as_json else words, file=sys.stderr)
        return exit_codes.OK
    return Report(facts, words)


def _write_markdown(lines: IO[bytes], directory: Path) -> None:
    folders: dict[str | None, str] = {None: "user"}
    try:
        directory.mkdir(mode=0o700, parents=True)
        with (directory / DETAILS).open("xb") as details:
            details.write(lines.readline())
            for raw in lines:
                match line := decode_line(raw):
                    case MemoryLine():
                        name, text = file_of(line, folders[line.project])
                        path = directory / name
                        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                        with path.open("a", encoding="utf-8", newline="") as file:
                            file.write(text)
                        details.write(msgspec.json.encode(details_of(line.memory)) + b"\n")
                    case _:
                        if isinstance(line, ProjectLine):
                            folders[line.id] = f"{Path(line.path.removesuffix('/.git')).name} {line.id}".lstrip()
                        details.write(raw)
    except OSError as error:
        raise cannot("written", directory, error) from error


def _in_words(facts: dict[str, Any], *, has_user: bool) -> str:
    where = "standard output" if facts["file"] == "-" else facts["file"]
    whose = count(facts["projects"], "project") + (" and the user" if has_user else "")
    words = f"{where}: {count(facts['memories'], 'memory')} ({facts['forgotten']:,} of them forgotten) of {whose}."
    if facts["queued"]:
        words += f"\nNot included: {count(facts['queued'], 'queued write')}. Export again when the store has them."
    return words
