"""`remembrancer backup` and `backup restore`: everything that cannot be rebuilt, in one tar archive of SQLite files.

A manifest at the front describes each file. A restore unpacks and checks the whole archive beside the home's files
while it holds the home's locks. Then it sets the replaced files aside, and renames the new ones into place. After a
`kill -9` each file is whole, and a mark in the home makes the next restore start over.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import shutil
import tarfile
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Final, Literal

import msgspec

from remembrancer import __version__
from remembrancer.actors.gateway import write_queue
from remembrancer.actors.gateway.queue_contents import copy_queue
from remembrancer.actors.launcher.home import prepare_home, take_home, unusable
from remembrancer.actors.migrations import BACKUPS, Schema
from remembrancer.actors.snapshots import check_copy, fold_log
from remembrancer.actors.store.bring_forward import decode_shares
from remembrancer.commands.export import export
from remembrancer.commands.home_reader import (
    CATALOG,
    RECORDS,
    SHARED,
    USER_RECORDS,
    CopiedFile,
    HomeReader,
    former_names_in,
    lane_of_file,
    names_in,
    project_of_file,
    refuse_unfinished,
    schema_of,
)
from remembrancer.commands.import_ import import_
from remembrancer.commands.output_files import PRIVATE_UMASK, cannot, new_directory, new_file, stamp, target_of
from remembrancer.commands.report import Group, Report, argument, command, confirm, count, flag
from remembrancer.commands.runtime_client import is_up, paths_here
from remembrancer.config.home import locate
from remembrancer.protocol.errors import FileUnusable, HomeUnusable, InvalidInput, SchemaTooNew
from remembrancer.protocol.file_locks import FileLock
from remembrancer.protocol.paths import RuntimePaths, sync_directory, write_whole
from remembrancer.protocol.wire import UNDECODABLE

FORMAT: Final = "remembrancer-backup"
FORMAT_VERSION: Final = 1
MANIFEST: Final = "manifest.json"
SEAL: Final = "manifest.sha256"
"""The member after the manifest, with its checksum. The manifest has the checksums of the others."""
MAX_MANIFEST_BYTES: Final = 16 * 1024 * 1024
CHUNK_BYTES: Final = 1024 * 1024
COMPRESSION_LEVEL: Final = 1
"""Most of the data are vectors, which hardly compress at any level."""
QUEUE: Final = "queue.db"
LEFT_OUT: Final = ("config.toml", "sharing", "keys", "tokens.json", "vectors", "hooks", "shown.db", "logs")
"""The files and directories of a home that no backup has."""
STAGING: Final = "restore.staging"
LOCK_WAIT_S: Final = 3.0
"""The time to wait for locks: a status holds one briefly, and processes of a crashed runtime are about to end."""
BESIDE_A_DATABASE: Final = ("-wal", "-shm", "-journal")
SPARE_BYTES: Final = 16 * 1024 * 1024
_UNREADABLE: Final = (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile)


class Manifest(msgspec.Struct, frozen=True):
    """The first member of the archive."""

    format: Literal["remembrancer-backup"]
    version: int
    release: str
    made_at: str
    home: str
    files: tuple[CopiedFile, ...]

    def total(self, what: str) -> int:
        """The sum of one count over all files."""
        return sum(file.counts.get(what, 0) for file in self.files)


def _is_known(name: str) -> bool:
    """True if a file in a home may have this name. Nothing else gets into a backup, or out of one."""
    is_fixed = name in (QUEUE, CATALOG, RECORDS, USER_RECORDS, SHARED)
    return is_fixed or project_of_file(name) is not None or lane_of_file(name) is not None


def _schema(name: str) -> Schema | None:
    """The schema of the file of that name; None if it is not a database."""
    if name == SHARED:
        return None
    return write_queue.SCHEMA if name == QUEUE else schema_of(name)


def _files_in(paths: RuntimePaths) -> list[str]:
    """The files in a home that belong into a backup."""
    there = [name for name in (QUEUE, CATALOG, SHARED) if os.path.lexists(paths.home / name)]
    return [*there, *dict.fromkeys((*names_in(paths), *former_names_in(paths)))]


# --- the archive ---


def make_manifest(home: Path, files: tuple[CopiedFile, ...], now: float) -> Manifest:
    """The manifest of a backup made at `now` (seconds since the epoch)."""
    made_at = datetime.fromtimestamp(now, UTC).isoformat(timespec="seconds")
    return Manifest(FORMAT, FORMAT_VERSION, __version__, made_at, str(home), files)


def write_archive(file: IO[bytes], staged: Path, manifest: Manifest, *, compress: bool) -> None:
    """Write the manifest, then the files that it names from the directory `staged`."""
    content = msgspec.json.format(msgspec.json.encode(manifest), indent=2)
    seal = hashlib.sha256(content).hexdigest().encode()
    with (
        tarfile.open(fileobj=file, mode="w:gz", compresslevel=COMPRESSION_LEVEL, format=tarfile.PAX_FORMAT)
        if compress
        else tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as archive
    ):
        archive.addfile(_member(MANIFEST, len(content)), io.BytesIO(content))
        archive.addfile(_member(SEAL, len(seal)), io.BytesIO(seal))
        for each in manifest.files:
            with (staged / each.name).open("rb") as source:
                archive.addfile(_member(each.name, each.size_bytes), source)


def _member(name: str, size: int) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.size, member.mode, member.mtime = size, 0o600, int(time.time())
    return member


def read_manifest(path: Path) -> Manifest:
    """The manifest of an archive, without reading the rest. Raises like `read_archive`."""
    with _opened(path) as archive:
        return _first_member(archive)


def read_archive(path: Path, unpack: Callable[[CopiedFile], IO[bytes]] | None = None) -> Manifest:
    """Read a whole archive and check it against its manifest. `unpack` gives the file to write a database to.

    Raises:
        SchemaTooNew: a newer release made it.
        FileUnusable: it is damaged or not a backup, or cannot be unpacked.
    """
    with _opened(path) as archive:
        manifest = _first_member(archive)
        awaited = {file.name: file for file in manifest.files}
        for member in archive:
            if member.name in (MANIFEST, SEAL):
                continue
            expected = awaited.pop(member.name, None)
            source = archive.extractfile(member) if member.isreg() else None
            if expected is None or source is None or member.size != expected.size_bytes:
                raise FileUnusable(f"{path} is damaged: {member.name!r} differs from its manifest")
            digest = hashlib.sha256()
            with ExitStack() as stack:
                target = None if unpack is None else stack.enter_context(unpack(expected))
                while chunk := source.read(CHUNK_BYTES):
                    digest.update(chunk)
                    if target is not None:
                        target.write(chunk)
            if digest.hexdigest() != expected.sha256:
                raise FileUnusable(f"{path} is damaged: the checksum of {member.name} is wrong")
        if awaited:
            raise FileUnusable(f"{path} is damaged: {', '.join(awaited)} is missing from it")
        return manifest


@contextmanager
def _opened(path: Path) -> Iterator[tarfile.TarFile]:
    """Opens an archive; the one place that turns its faults into our errors."""
    try:
        with tarfile.open(path, mode="r:*") as archive:
            yield archive
    except _UNREADABLE as error:
        reason = str(error).partition("\n")[0].rstrip(":")  # later lines hold a message for each format
        hint = "'remembrancer backup import' reads exports" if _is_export(path) else f"or it is damaged ({reason})"
        raise FileUnusable(f"{path} is not a backup; {hint}") from error
    except OSError as error:
        raise cannot("read", path, error) from error


def _is_export(path: Path) -> bool:
    """True if a file begins as an export in JSON Lines does."""
    with path.open("rb") as file:
        return file.read(1) == b"{"


def _first_member(archive: tarfile.TarFile) -> Manifest:
    """The manifest, which may be damaged, too: the seal tells."""
    content = _small_member(archive, MANIFEST)
    try:
        manifest = msgspec.json.decode(content, type=Manifest)
    except UNDECODABLE as error:
        raise FileUnusable(f"it is not a backup: {error}") from error
    if manifest.version > FORMAT_VERSION:
        raise SchemaTooNew(
            f"the backup has format {manifest.version}, and this release reads up to {FORMAT_VERSION}: "
            "install the newer release that made it"
        )
    names = [file.name for file in manifest.files]
    strange = [name for name in names if not _is_known(name)]
    if strange or len(set(names)) < len(names):
        raise FileUnusable(f"it is not a backup: it names {', '.join(map(repr, strange or names))}")
    if _small_member(archive, SEAL) != hashlib.sha256(content).hexdigest().encode():
        raise FileUnusable(f"{archive.name!s} is damaged: the checksum of its manifest is wrong")
    return manifest


def _small_member(archive: tarfile.TarFile, name: str) -> bytes:
    member = archive.next()
    source = archive.extractfile(member) if member is not None and member.isreg() else None
    if member is None or source is None or member.name != name or member.size > MAX_MANIFEST_BYTES:
        raise FileUnusable(f"{archive.name!s} is not a backup: it does not begin with a manifest")
    return source.read()


# --- backup ---


@command(
    argument(
        "file",
        required=False,
        metavar="[FILE]",
        help="Default: remembrancer-<time>.tar.gz here, or in ~ from within a repository; .tar is not compressed.",
    ),
    flag("--force", help="Replace the file."),
    slow="Backing up",
)
def create(file: str | None, force: bool) -> Report:
    """Write all memories, their history and vectors, and the write queue into one file, also while the runtime works.
    Keys (keys/, sharing/), logs and shown.db are not in it."""
    os.umask(PRIVATE_UMASK)
    if file is not None and not Path(file).suffix:  # a word that was meant as a command, such as `list`
        raise InvalidInput(f"{file!r} is no name of a backup: let it end with .tar.gz or .tar")
    now, paths = time.time(), paths_here()
    target = target_of(file, f"remembrancer-{stamp(now)}.tar.gz", force=force)
    manifest = back_up(paths, target, force=force, now=now)
    memories, queued, size = manifest.total("memories"), manifest.total("queued"), target.stat().st_size
    files = [
        {"name": each.name, "size_bytes": each.size_bytes, "schema_version": each.schema_version, **each.counts}
        for each in manifest.files
    ]
    facts = {"file": str(target), "size_bytes": size, "made_at": manifest.made_at, "memories": memories}
    left_out = [name for name in LEFT_OUT if (paths.home / name).exists()]
    facts |= {"queued": queued, "files": files, "left_out": left_out}
    waiting = f" and {count(queued, 'queued write')}" if queued else ""
    projects, lanes = manifest.total("project_spaces"), manifest.total("lane_spaces")
    shared = f" (what {lanes} share with other machines among them)" if lanes else ""
    lines = [
        f"{target}: {count(memories, 'memory')} of {count(projects, 'project')}{shared} and the user{waiting}, "
        f"{size / 2**20:.1f} MiB, read back and checked.",
        *([f"Not in it: {', '.join(left_out)}."] if left_out else []),
        "Only you can read it, and it is not encrypted: keep it as private as your memories.",
    ]
    return Report(facts, lines)


def back_up(paths: RuntimePaths, target: Path, *, force: bool, now: float) -> Manifest:
    """Write the backup of a home and read it back. `now` is in seconds since the epoch.

    Raises:
        FileUnusable: there is nothing to back up, the file cannot be written, or a restore was interrupted.
        RecordsUnusable: a database of the home is damaged.
        SchemaTooNew, SchemaTooOld: another release wrote one.
        InvalidInput: the file already exists (and not `force`).
    """
    refuse_unfinished(paths)
    with new_directory(target) as staged:
        # The queue first: an operation leaves it only once the records have it.
        copied = copy_queue(paths.write_queue, staged / QUEUE)
        records = HomeReader(paths).copy(staged)
        if not records:
            raise FileUnusable(f"there are no memories in {paths.home}: nothing to back up")
        queue = [] if copied is None else [CopiedFile(QUEUE, *copied[0][:2], copied[1], copied[0].counts)]
        manifest = make_manifest(paths.home, (*queue, *records), now)
        with new_file(target, force=force) as file:
            write_archive(file, staged, manifest, compress=target.suffix != ".tar")
            file.flush()
            read_archive(Path(file.name))
    return manifest


# --- restore ---


@command(
    argument("file", metavar="FILE", help="A file that 'remembrancer backup create' wrote."),
    flag("--yes", help="Do not ask."),
    name="restore",
)
def put_back(file: str, yes: bool) -> Report:
    """Replace the home's files with a backup. Nothing is deleted: the present files are moved to
    before-restore-<time> in the home."""
    os.umask(PRIVATE_UMASK)
    archive = Path(file).expanduser()
    paths = paths_here()
    if locate(os.environ).in_memory:
        raise InvalidInput("this memory is kept in RAM only, and ends with its runtime: restore into another home")
    manifest = check_manifest(archive)
    if not is_up(paths):
        there = _files_in(paths)
        kept = (
            f" The {count(len(there), 'file')} that {paths.home} has now will be kept in a directory beside them."
            if there
            else ""
        )
        number = count(manifest.total("memories"), "memory")
        what = f"The backup of {manifest.made_at} has {number}. They replace the memories of {paths.home}.{kept}"
        confirm(f"{what}\nRestore it?", yes=yes)
    with locked(paths):
        manifest, aside = restore(paths, archive, time.time())
    memories = manifest.total("memories")
    facts = {"home": str(paths.home), "archive": str(archive), "made_at": manifest.made_at, "memories": memories}
    facts |= {"queued": manifest.total("queued"), "files": [each.name for each in manifest.files]}
    lines = [f"{paths.home} has the {count(memories, 'memory')} of the backup of {manifest.made_at}."]
    if aside is not None:
        lines.append(f"The files that were there before are in {aside}: delete them when you no longer need them.")
    return Report(facts | {"set_aside": aside and str(aside)}, lines)


def check_manifest(archive: Path) -> Manifest:
    """The manifest of an archive, if this release can restore it. Raises like `read_archive`."""
    manifest = read_manifest(archive)
    for file in manifest.files:
        if (schema := _schema(file.name)) is not None:
            schema.refuse(archive / file.name, file.schema_version)
    return manifest


@contextmanager
def locked(paths: RuntimePaths) -> Iterator[None]:
    """Exclusive use of the home: no runtime is up or starting, and no process of a crashed one has the files open.

    Raises:
        AlreadyRunning: a runtime is up.
        HomeUnusable: the home cannot be made or locked.
    """
    prepare_home(paths)
    with ExitStack() as stack:
        stack.enter_context(take_home(paths, LOCK_WAIT_S / 10))
        for path in (paths.store_lock, paths.gateway_lock):
            try:
                is_held = stack.enter_context(FileLock(path)).acquire(LOCK_WAIT_S)
            except OSError as error:
                raise unusable(paths.home, error) from error
            if not is_held:
                raise HomeUnusable(f"a process of a crashed runtime still holds {path}: end it, or wait for its end")
        yield


def restore(paths: RuntimePaths, archive: Path, now: float) -> tuple[Manifest, Path | None]:
    """Put the files of an archive in place. Returns its manifest, and the directory with the replaced files.

    `now` is in seconds since the epoch. Only inside `locked`.

    Raises:
        FileUnusable: the archive is damaged, or the disk is full; nothing was changed.
        SchemaTooNew, SchemaTooOld: another release made it; nothing was changed.
    """
    staging = paths.home / STAGING
    try:
        if os.path.lexists(staging):
            shutil.rmtree(staging)
        manifest = _unpack(archive, staging)
        return manifest, _put_in_place(paths, archive, manifest, _unused(paths.home / f"before-restore-{stamp(now)}"))
    except OSError as error:
        raise cannot("changed", paths.home, error) from error
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _unpack(archive: Path, staging: Path) -> Manifest:
    """Unpack and check everything, durably. All names are known ones: see `_is_known`."""
    manifest = check_manifest(archive)
    staging.mkdir(mode=0o700)
    needed = sum(file.size_bytes for file in manifest.files) + SPARE_BYTES
    if (free := shutil.disk_usage(staging).free) < needed:
        raise FileUnusable(f"{staging.parent} has {free / 2**20:,.0f} MiB free, and {needed / 2**20:,.0f} are needed")
    read_archive(archive, lambda file: _made_room(staging / file.name).open("xb"))
    for file in manifest.files:
        _check_file(staging / file.name, file, archive)
    for directory in sorted({(staging / file.name).parent for file in manifest.files}):
        sync_directory(directory)
    return manifest


def _check_file(path: Path, file: CopiedFile, archive: Path) -> None:
    with path.open("rb") as written:
        os.fsync(written.fileno())
    if file.name == SHARED:
        try:
            decode_shares(path.read_bytes())
        except msgspec.DecodeError as error:
            raise FileUnusable(f"{archive} is damaged: {file.name} cannot be read ({error})") from error
        return
    state = check_copy(path, file.schema_version)
    if state != "ok":
        raise FileUnusable(f"{archive} is damaged: {file.name} is not an intact database ({state})")


def _put_in_place(paths: RuntimePaths, archive: Path, manifest: Manifest, aside: Path) -> Path | None:
    """Replace the files. Once the mark is set, nothing but the next restore uses the home, so a kill leaves the rest to
    that one; each file is whole at any moment, in its place or set aside."""
    home = paths.home
    mark = {"archive": str(archive.absolute()), "set_aside": str(aside)}
    write_whole(paths.restore_mark, msgspec.json.encode(mark))
    aside.mkdir(mode=0o700)
    _rename(paths.vectors, aside / paths.vectors.name)  # first, since it only fits the old records
    for copies in {(home / name).parent / BACKUPS for name in _files_in(paths)}:  # of another history
        _rename(copies, aside / copies.relative_to(home))
    restored = {file.name for file in manifest.files}
    for name in {*_files_in(paths), *restored}:  # of a file that a killed restore set aside, the log may still be there
        _set_aside(home, aside, name)
    for name in sorted(restored):
        (home / STAGING / name).replace(_made_room(home / name))
    for directory in {home, paths.projects, paths.lanes, *((home / name).parent for name in restored)}:
        if directory.is_dir():
            sync_directory(directory)
    has_old_files = any(aside.iterdir())
    if not has_old_files:
        aside.rmdir()
    paths.restore_mark.unlink()
    sync_directory(home)
    return aside if has_old_files else None


def _set_aside(home: Path, aside: Path, name: str) -> None:
    """Keep an existing file with everything that belongs to it: the old log would corrupt the new file."""
    schema = _schema(name)
    if (home / name).exists() and schema is not None:
        fold_log(home / name, schema)
    for ending in ("", *BESIDE_A_DATABASE):
        _rename(home / f"{name}{ending}", aside / f"{name}{ending}")


def _rename(source: Path, target: Path) -> None:
    if os.path.lexists(source):
        source.rename(_made_room(target))


def _made_room(path: Path) -> Path:
    """The path, after making its directory."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    return path


def _unused(directory: Path) -> Path:
    """The path, with a number appended if it is taken."""
    path, number = directory, 2
    while os.path.lexists(path):
        path, number = directory.with_name(f"{directory.name}-{number}"), number + 1
    return path


COMMANDS = {
    "backup": Group(
        "backup",
        *(create, put_back, export, import_),
        default="create",
        help="Back up everything irreplaceable in one checked file, or restore it; export memories as JSON Lines or "
        "Markdown.",
    )
}
