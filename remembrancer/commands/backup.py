"""`remembrancer backup`, `backup restore` and `export`, and `doctor --repair`. A backup has everything that cannot be
rebuilt, as SQLite files in one tar archive, whose gzip checksum reveals damage. A restore checks the archive, then
replaces the home's files one by one, so a killed restore can be repeated or abandoned."""

import gzip
import json
import lzma
import os
import re
import shutil
import sys
import tarfile
import time
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile, gettempdir
from typing import IO, Any, Final, cast

import click
import msgspec

from remembrancer.actors.gateway import write_queue
from remembrancer.actors.gateway.write_queue import read_queue
from remembrancer.actors.launcher.home import claim_home, take_home, unusable
from remembrancer.actors.migrations import BACKUPS, daily_copies, version_of
from remembrancer.actors.repair import Repaired, rebuild
from remembrancer.actors.snapshots import copy_database, damage_of, fold_log
from remembrancer.actors.store.daily_copies import made_at
from remembrancer.actors.store.old_home_migration import migrate_old_home
from remembrancer.actors.store.records.schema import FORMER, MEMORY, recount
from remembrancer.commands import exit_codes
from remembrancer.commands.home_reader import RECORDS, copy_records, export_records, memories_in
from remembrancer.commands.import_ import import_
from remembrancer.commands.output_files import PRIVATE_UMASK, cannot, new_file, stamp, target_of
from remembrancer.commands.report import YES, Group, Report, argument, command, confirm, flag, option
from remembrancer.commands.runtime_client import is_up, paths_here
from remembrancer.commands.selection import Where
from remembrancer.commands.terminal import notice_when_slow
from remembrancer.config.home import locate
from remembrancer.memory.export_format import MemoryLine, ProjectLine, decode_line
from remembrancer.memory.markdown_files import DETAILS, details_of, file_of
from remembrancer.memory.text import count
from remembrancer.protocol.errors import FileUnusable, HomeUnusable, InvalidInput
from remembrancer.protocol.file_locks import FileLock
from remembrancer.protocol.paths import RuntimePaths, sync_directory

FORMER_LISTS: Final = ("manifest.json", "manifest.sha256")
"""The files that contain the checksums in backups from release 0.2.0."""
CHUNK_BYTES: Final = 1024 * 1024
COMPRESSION_LEVEL: Final = 1
"""Most of the data is vectors, which hardly compress at any level."""
QUEUE: Final = "queue.db"
SCHEMAS: Final = {QUEUE: write_queue.SCHEMA, RECORDS: MEMORY}
FORMER_FILES: Final = re.compile(
    r"projects/p_[0-9a-f]{12}/memory\.db|lanes/l_[0-9a-f]{12}\.db|user/memory\.db|catalog\.db|lanes/projects\.json"
)
LEFT_OUT: Final = ("config.toml", "sharing", "keys", "tokens.json", "vectors", "hooks", "shown.db", "logs")
"""The files and directories in a home that are never backed up."""
STAGING: Final = "restore.staging"
REPLACED: Final = "before-restore-"
LOCK_WAIT_S: Final = 3.0
"""The time to wait for locks: `status` holds a lock briefly, and a crashed runtime takes a moment to end."""
NAMED: Final = "memories"
"""Lost rows of this table are listed by id; those of other tables are only counted."""
MOST_NAMED: Final = 20
"""The number of memories restored from a copy that are listed for the user."""
_UNREADABLE: Final = (tarfile.TarError, EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile)


# --- the archive ---


def write_archive(file: IO[bytes], staged: Path) -> IO[bytes]:
    with tarfile.open(fileobj=file, mode="w:gz", compresslevel=COMPRESSION_LEVEL) as archive:
        for path in sorted(staged.glob("*.db")):
            archive.add(path, path.name)
    file.seek(0)
    return file


def read_archive(path: Path, target: Path | None = None) -> str:
    """Returns when it was made (ISO 8601). `path` may be a directory that a restore has kept. Raises `FileUnusable`."""
    latest, names = 0.0, set[str]()
    try:
        with (
            TemporaryFile() as packed,
            tarfile.open(path, fileobj=write_archive(packed, path) if path.is_dir() else None) as archive,
        ):
            for member in archive:
                is_known = member.name in (*FORMER_LISTS, *SCHEMAS) or FORMER_FILES.fullmatch(member.name)
                if not (member.isreg() and is_known) or member.name in names:
                    raise FileUnusable(f"{path} is not a backup: it contains {member.name!r}")
                names.add(member.name)
                latest = max(latest, member.mtime)
                if target is not None:
                    place = target / member.name
                    place.parent.mkdir(parents=True, exist_ok=True)
                    with cast(IO[bytes], archive.extractfile(member)) as source, place.open("wb") as file:
                        shutil.copyfileobj(source, file, CHUNK_BYTES)
            assert archive.fileobj is not None
            while archive.fileobj.read(CHUNK_BYTES):  # the checksum is at the end
                pass
    except _UNREADABLE as error:
        reason = str(error).partition("\n")[0].rstrip(":")
        raise FileUnusable(f"{path} is not a backup, or damaged ({reason}); 'backup import' reads exports") from error
    except OSError as error:
        raise cannot("read", path, error) from error
    if names <= {*FORMER_LISTS, QUEUE}:
        raise FileUnusable(f"{path} is not a backup, or it is damaged: it has no memories")
    return datetime.fromtimestamp(latest, UTC).isoformat(timespec="seconds")


# --- backup ---


@command(
    argument(
        "file",
        required=False,
        metavar="[FILE]",
        help="The file to write (default: remembrancer-<time>.tar.gz here, or in ~ if this is a repository).",
    ),
    flag("--force", help="Replace an existing file."),
)
def create(file: str | None, force: bool) -> Report:
    """Write all memories, their history and vectors, and the write queue into one file, even while the runtime is up.
    Keys (keys/, sharing/), logs and shown.db are left out."""
    os.umask(PRIVATE_UMASK)
    if file is not None and not Path(file).suffix:  # a word meant as a command, such as `list`
        raise InvalidInput(f"{file!r} cannot be the name of a backup: it must end in .tar.gz or .tar")
    paths = paths_here()
    target = target_of(file, f"remembrancer-{stamp(time.time())}.tar.gz", force=force)
    with notice_when_slow("Backing up"):
        memories, queued = back_up(paths, target, force=force)
    size = target.stat().st_size
    left_out = [name for name in LEFT_OUT if (paths.home / name).exists()]
    facts = {"file": str(target), "size_bytes": size, "memories": memories, "queued": queued, "left_out": left_out}
    waiting = f" and {count(queued, 'queued write')}" if queued else ""
    lines = [f"{target}: {count(memories, 'memory')}{waiting}, {size / 2**20:.1f} MiB, read back and checked."]
    lines += [f"Not included: {', '.join(left_out)}."] if left_out else []
    lines.append("Only you can read it, and it is not encrypted: keep it as private as your memories.")
    return Report(facts, lines)


def back_up(paths: RuntimePaths, target: Path, *, force: bool) -> tuple[int, int]:
    """Returns the numbers of memories and queued writes. Raises `FileUnusable` if there is nothing to back up."""
    with (
        new_file(target, force=force) as file,
        TemporaryDirectory(prefix="remembrancer-backup-", dir=target.parent) as directory,
    ):
        staged = Path(directory)
        # The queue is copied first: an operation leaves it only once the operation is in the records.
        copy_database(paths.write_queue, write_queue.SCHEMA, staged / QUEUE)
        if not copy_records(paths, staged / RECORDS):
            raise FileUnusable(f"there are no memories in {paths.home}: nothing to back up")
        write_archive(file, staged)
        read_archive(Path(file.name))
        return memories_in(staged / RECORDS), len(read_queue(staged / QUEUE)[0])


# --- restore ---


@command(argument("file", metavar="FILE", help="A backup, or a directory kept by a restore."), YES, name="restore")
def put_back(file: str, yes: bool) -> Report:
    """Replace the home's files with a backup. Nothing is deleted: the current files are kept in before-restore-<time>
    in the home."""
    os.umask(PRIVATE_UMASK)
    archive = Path(file).expanduser()
    paths = paths_here()
    if locate(os.environ).in_memory:
        raise InvalidInput("this memory is only kept in RAM, until its runtime ends; restore into another home")
    with notice_when_slow("Checking the backup"):
        created_at = read_archive(archive)
    when = f"{datetime.fromisoformat(created_at).astimezone():%Y-%m-%d %H:%M}"
    if not is_up(paths):
        what = (
            f"The backup of {when} will replace the memories of {paths.home}. "
            f"The current files will be kept there, in {REPLACED}<time>."
        )
        confirm(f"{what}\nRestore it?", yes=yes)
    with notice_when_slow("Restoring"), locked(paths):
        aside = restore(paths, archive, time.time())
    memories = memories_in(paths.database)
    facts = {"home": str(paths.home), "archive": str(archive), "made_at": created_at, "memories": memories}
    lines = [f"{paths.home} now has the {count(memories, 'memory')} from the backup of {when}."]
    if aside is not None:
        lines.append(f"To go back, run 'remembrancer backup restore {aside}', or else delete that directory.")
    return Report(facts | {"set_aside": aside and str(aside)}, lines)


@contextmanager
def locked(paths: RuntimePaths) -> Iterator[None]:
    """Lock out runtimes, and processes left by a crashed one. Raises `AlreadyRunning` or `HomeUnusable`."""
    claim_home(paths, in_memory=False)
    with ExitStack() as stack:
        stack.enter_context(take_home(paths, LOCK_WAIT_S / 10))
        for path in (paths.store_lock, paths.gateway_lock):
            try:
                is_held = stack.enter_context(FileLock(path)).acquire(LOCK_WAIT_S)
            except OSError as error:
                raise unusable(paths.home, error) from error
            if not is_held:
                raise HomeUnusable(f"a process of a crashed runtime still has {path} open; end it, or wait")
        yield


def restore(paths: RuntimePaths, archive: Path, now: float) -> Path | None:
    """Put an archive's files in place while `locked`. Returns the directory with the replaced files, if any. If this
    raises `FileUnusable`, `SchemaTooNew` or `SchemaTooOld`, nothing has changed."""
    home, staging = paths.home, paths.home / STAGING
    try:
        shutil.rmtree(staging, ignore_errors=True)
        staging.mkdir(mode=0o700)
        _unpack(archive, staging)
        aside, number = home / f"{REPLACED}{stamp(now)}", 2
        while os.path.lexists(aside):
            aside, number = aside.with_name(f"{REPLACED}{stamp(now)}-{number}"), number + 1
        aside.mkdir(mode=0o700)
        for path in (paths.vectors, home / BACKUPS):  # these first, since they match only the current records
            if os.path.lexists(path):
                path.rename(aside / path.name)
        for name, schema in SCHEMAS.items():
            if (home / name).exists():
                fold_log(home / name, schema)
            put_in_place(home / name, staging / name, aside / name)
        if any(aside.iterdir()):
            return aside
        aside.rmdir()
        return None
    except OSError as error:
        raise cannot("changed", home, error) from error
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _unpack(archive: Path, staging: Path) -> None:
    read_archive(archive, staging)
    files = {str(path.relative_to(staging)): path for path in staging.rglob("*.db")}
    for name, path in files.items():
        if (damage := damage_of(path)) is not None:
            raise FileUnusable(f"{archive} is damaged: {name} is not an intact database ({damage})")
        SCHEMAS.get(name, FORMER).refuse(archive / name, version_of(path))
    migrate_old_home(RuntimePaths(staging))
    for name in files.keys() & SCHEMAS.keys():
        with files[name].open("rb") as written:
            os.fsync(written.fileno())


def put_in_place(path: Path, fresh: Path, aside: Path) -> None:
    """Replace a database that no process has open with the file `fresh`, or remove it if that file does not exist. The
    old file is kept as `aside`, with its log. If the process is killed, one of the two files is in place."""
    for suffix in ("-journal", "-shm", "-wal", ""):
        there = path.with_name(f"{path.name}{suffix}")
        if there.exists():
            with suppress(FileExistsError):  # from an attempt that was killed in the same second
                os.link(there, aside.with_name(f"{aside.name}{suffix}"))
    for suffix in ("-journal", "-shm", "-wal"):  # the old file's log would corrupt the new file
        path.with_name(f"{path.name}{suffix}").unlink(missing_ok=True)
    if fresh.exists():
        fresh.replace(path)
    else:
        path.unlink(missing_ok=True)
    sync_directory(path.parent)


# --- repair ---


def lines_of_repair(repaired: Mapping[str, Any]) -> Iterator[str]:
    yield f"{repaired['path']} is repaired: {repaired['rows']:,} rows could be read"
    if ids := repaired["as_of_copy"]:
        when = datetime.fromtimestamp(made_at(Path(repaired["copy"])), UTC)
        more = f" and {len(ids) - MOST_NAMED:,} more" if len(ids) > MOST_NAMED else ""
        named = ", ".join(ids[:MOST_NAMED]) + more
        yield f"  {count(len(ids), 'memory')} restored from the copy of {when:%d %b %H:%M} UTC: {named}"
    if ids := repaired["lost"]:
        yield f"  {count(len(ids), 'memory')} lost: {', '.join(ids)}"
    if others := repaired["other_rows"]:
        counted = ", ".join(f"{number} of {table}" for table, number in others.items())
        yield f"  other rows lost, or restored from the copy: {counted}"
    if repaired["incomplete"]:
        yield f"  perhaps lost (this cannot be determined): rows of {', '.join(repaired['incomplete'])}"
    if damaged := repaired["damaged"]:
        yield f"  the damaged file is kept as {damaged}; delete it when you no longer need it"


def repair_home(paths: RuntimePaths) -> dict[str, Any] | None:
    """Files of release 0.2.0 are not repaired: the import waits until a damaged file is restored or moved away."""
    os.umask(PRIVATE_UMASK)
    with locked(paths):
        path = paths.database
        is_needed = damage_of(path) is not None if path.exists() else bool(daily_copies(path))
        return repair(path, time.time()) if is_needed else None


def repair(path: Path, now: float) -> dict[str, Any]:
    """Replace a database with a sound copy. If the process is killed, one of the two files is in place."""
    copy = next((copy for copy in daily_copies(path) if damage_of(copy) is None), None)
    fresh = path.with_name(f"{path.name}.repaired")
    try:
        migrate = partial(MEMORY.migrate, path=None)
        done = Repaired() if _was_made(fresh, path) else rebuild(path, copy, fresh, migrate, recount)
        aside = path.with_name(f"{path.name}.damaged-{stamp(now)}")
        put_in_place(path, fresh, aside)
    except OSError as error:
        raise FileUnusable(f"{fresh} cannot be written ({error}): {path} is unchanged") from error
    others = Counter(row.table for row in (*done.lost, *done.from_copy) if row.table != NAMED)
    return {
        "path": str(path),
        "rows": done.read,
        "lost": [row.name for row in done.lost if row.table == NAMED],
        "as_of_copy": [row.name for row in done.from_copy if row.table == NAMED],
        "other_rows": dict(others),
        "incomplete": done.incomplete,
        "copy": copy and str(copy),
        "damaged": str(aside) if aside.exists() else None,
    }


def _was_made(fresh: Path, path: Path) -> bool:
    log = path.with_name(f"{path.name}-wal")
    if not fresh.exists() or (log.exists() and log.stat().st_size):  # opening a database leaves an empty log
        return False
    return not path.exists() or fresh.stat().st_mtime >= path.stat().st_mtime


# --- export ---


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


backup = Group(
    "backup",
    *(create, put_back, export, import_),
    default="create",
    help="Back up everything irreplaceable in one checked file, or restore it; export memories as JSON Lines or "
    "Markdown.",
)
