"""`remembrancer backup`: all that cannot be made again, in one file, also while the runtime works."""

from __future__ import annotations

import argparse
import json
import os
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import Any, Final

from remembrancer.commands import exit_codes
from remembrancer.commands.portability.archive import (
    ArchivedFile,
    Manifest,
    make_manifest,
    read_archive,
    sha256_of,
    write_archive,
)
from remembrancer.commands.portability.home_files import CATALOG, QUEUE, HomeFile, moment, unreadable
from remembrancer.commands.portability.private_files import (
    PRIVATE_UMASK,
    FileUnusable,
    cannot,
    new_directory,
    new_file,
    stamp,
    target_of,
)
from remembrancer.commands.runtime_client import paths_here
from remembrancer.protocol.errors import RecordsUnusable
from remembrancer.protocol.paths import RuntimePaths

COUNTED: Final = {
    CATALOG: {"projects": "SELECT count(*) FROM projects"},
    QUEUE: {"queued": "SELECT count(*) FROM queued", "rejected": "SELECT count(*) FROM rejected"},
}
IN_RECORDS: Final = {"memories": "SELECT count(*) FROM memories"}


def main(argv: list[str]) -> int:
    """Make a backup and check it; says what is in it."""
    parser = argparse.ArgumentParser(
        prog="remembrancer backup",
        description="Write all memories, their history and vectors, and the write queue into one file, also while the "
        "runtime works. The keys of sockets (keys/), logs and the vector index, which is made again, are not in it.",
        epilog="exit status: 0 written and checked, 2 the file is there already, "
        "10 there are no memories, or a file cannot be read or written",
    )
    parser.add_argument(
        "file", nargs="?", metavar="FILE", help="default: remembrancer-<time>.tar.gz here; .tar is not compressed"
    )
    parser.add_argument("--force", action="store_true", help="replace the file")
    parser.add_argument("--json", action="store_true", help="for programs")
    arguments = parser.parse_args(argv)
    os.umask(PRIVATE_UMASK)
    now = time.time()
    target = target_of(arguments.file, f"remembrancer-{stamp(now)}.tar.gz", force=arguments.force)
    manifest = back_up(paths_here(), target, force=arguments.force, now=now)
    said = summary(target, manifest)
    print(json.dumps(said) if arguments.json else _in_words(target, manifest), flush=True)
    return exit_codes.OK


def back_up(paths: RuntimePaths, target: Path, *, force: bool, now: float) -> Manifest:
    """Write the backup of a home and read it back. `now` is seconds since the epoch.

    Raises:
        FileUnusable: there is nothing to back up, the file cannot be written, or a restore was interrupted.
        RecordsUnusable: a database of the home is damaged.
        SchemaTooNew: a newer release wrote one.
        InvalidInput: the file is there already (and not `force`).
    """
    with new_directory(target) as staged:
        with moment(paths) as files:
            if not any(file.holds_records for file in files):
                raise FileUnusable(f"there are no memories in {paths.home}: nothing to back up")
            copies = tuple(_copy(file, staged, paths) for file in files)
        manifest = make_manifest(paths.home, copies, now)
        with new_file(target, force=force) as file:
            write_archive(file, staged, manifest, compress=target.suffix != ".tar")
            file.flush()
            read_archive(Path(file.name))
    return manifest


def _copy(file: HomeFile, staged: Path, paths: RuntimePaths) -> ArchivedFile:
    """Copy a database in one step (https://sqlite.org/backup.html), and check the copy."""
    path = staged / file.name
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with closing(sqlite3.connect(path, isolation_level=None)) as copy:
            file.connection.backup(copy)
            copy.execute("PRAGMA journal_mode = DELETE")  # one file, with no log beside it; the store sets it again
            found = copy.execute("PRAGMA quick_check(1)").fetchone()[0]
            if found != "ok":
                raise RecordsUnusable(f"{paths.home / file.name} is damaged ({found}): nothing was written")
            counts = counts_of(file.name, copy)
    except sqlite3.Error as error:
        raise unreadable(paths.home / file.name, error) from error
    except OSError as error:
        raise cannot("written", path, error) from error
    return ArchivedFile(file.name, sha256_of(path), path.stat().st_size, file.version, counts)


def counts_of(name: str, connection: sqlite3.Connection) -> dict[str, int]:
    """How much is in a database."""
    queries = COUNTED.get(name, IN_RECORDS)
    return {what: connection.execute(query).fetchone()[0] for what, query in queries.items()}


def summary(target: Path, manifest: Manifest) -> dict[str, Any]:
    """The object that `--json` prints."""
    return {
        "file": str(target),
        "size_bytes": target.stat().st_size,
        "made_at": manifest.made_at,
        "memories": manifest.total("memories"),
        "queued": manifest.total("queued"),
        "files": [
            {"name": file.name, "size_bytes": file.size_bytes, "schema_version": file.schema_version, **file.counts}
            for file in manifest.files
        ],
        "left_out": ["keys", "logs", "vectors"],
    }


def _in_words(target: Path, manifest: Manifest) -> str:
    queued = manifest.total("queued")
    waiting = f" and {queued:,} queued writes" if queued else ""
    projects = sum(file.name.startswith("projects/") for file in manifest.files)
    return (
        f"{target}: {manifest.total('memories'):,} memories of {projects} projects and the user{waiting}, "
        f"{target.stat().st_size / 2**20:.1f} MiB, read back and checked.\n"
        "Not in it: keys/ (the keys of sockets), logs, and the vector index, which is made again from the records.\n"
        "It is readable by you alone, and not encrypted: keep it as private as the memories."
    )
