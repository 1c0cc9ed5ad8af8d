"""What a backup is: a tar archive of SQLite files, with a manifest in front that says what each of them must be."""

from __future__ import annotations

import gzip
import hashlib
import io
import tarfile
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Final, Literal

import msgspec

from remembrancer import __version__
from remembrancer.commands.portability.home_files import is_known
from remembrancer.commands.portability.private_files import FileUnusable, cannot
from remembrancer.protocol.errors import SchemaTooNew
from remembrancer.protocol.wire import UNDECODABLE

FORMAT: Final = "remembrancer-backup"
FORMAT_VERSION: Final = 1
MANIFEST: Final = "manifest.json"
SEAL: Final = "manifest.sha256"
"""The member after the manifest: the checksum of it, as the manifest has those of the others."""
MAX_MANIFEST_BYTES: Final = 16 * 1024 * 1024
CHUNK_BYTES: Final = 1024 * 1024
COMPRESSION_LEVEL: Final = 1
"""Vectors, the greater part, hardly become smaller however long one tries."""
_UNREADABLE: Final = (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile)


class ArchivedFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A database of the backup. `counts` says what is in it: memories, queued operations, projects."""

    name: str
    sha256: str
    size_bytes: int
    schema_version: int
    counts: dict[str, int]


class Manifest(msgspec.Struct, frozen=True):
    """The first member of the archive."""

    format: Literal["remembrancer-backup"]
    version: int
    release: str
    made_at: str
    home: str
    files: tuple[ArchivedFile, ...]

    def total(self, what: str) -> int:
        """The sum of one count over all files."""
        return sum(file.counts.get(what, 0) for file in self.files)


class _FormatOnly(msgspec.Struct):
    format: str
    version: int


def make_manifest(home: Path, files: tuple[ArchivedFile, ...], now: float) -> Manifest:
    """The manifest of a backup that is made at `now` (seconds since the epoch)."""
    made_at = datetime.fromtimestamp(now, UTC).isoformat(timespec="seconds")
    return Manifest(FORMAT, FORMAT_VERSION, __version__, made_at, str(home), files)


def decode_manifest(content: bytes) -> Manifest:
    """The manifest.

    Raises:
        SchemaTooNew: a newer release made the archive.
        FileUnusable: it is no manifest of a backup, or names what has no place in one.
    """
    try:
        head = msgspec.json.decode(content, type=_FormatOnly)
        if head.format == FORMAT and head.version > FORMAT_VERSION:
            raise SchemaTooNew(
                f"the backup has format {head.version}, and this release reads up to {FORMAT_VERSION}: "
                "install the newer release that made it"
            )
        manifest = msgspec.json.decode(content, type=Manifest)
    except UNDECODABLE as error:
        raise FileUnusable(f"it is no backup of Remembrancer: {error}") from error
    names = [file.name for file in manifest.files]
    strange = [name for name in names if not is_known(name)]
    if strange or len(set(names)) < len(names):
        raise FileUnusable(f"it is no backup of Remembrancer: it names {', '.join(map(repr, strange or names))}")
    return manifest


def write_archive(file: IO[bytes], staged: Path, manifest: Manifest, *, compress: bool) -> None:
    """Write the manifest, then the files that it names from the directory `staged`."""
    with (
        tarfile.open(fileobj=file, mode="w:gz", compresslevel=COMPRESSION_LEVEL, format=tarfile.PAX_FORMAT)
        if compress
        else tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as archive
    ):
        content = msgspec.json.format(msgspec.json.encode(manifest), indent=2)
        seal = hashlib.sha256(content).hexdigest().encode()
        archive.addfile(_member(MANIFEST, len(content)), io.BytesIO(content))
        archive.addfile(_member(SEAL, len(seal)), io.BytesIO(seal))
        for each in manifest.files:
            with (staged / each.name).open("rb") as source:
                archive.addfile(_member(each.name, each.size_bytes), source)


def read_manifest(path: Path) -> Manifest:
    """The manifest of an archive, without a look at the rest. Raises as `read_archive`."""
    with _opened(path) as archive:
        return _first_member(archive)


def read_archive(path: Path, unpack: Callable[[ArchivedFile], IO[bytes]] | None = None) -> Manifest:
    """Read all of an archive and hold it to its manifest. `unpack` gives the file that a database is written into.

    Raises:
        SchemaTooNew: a newer release made it.
        FileUnusable: it is damaged, or no backup; or what is unpacked cannot be written.
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
                raise FileUnusable(f"{path} is damaged: {member.name!r} is not what its manifest says")
            if unpack is None:
                digest = _digest(source)
            else:
                with unpack(expected) as target:
                    digest = _digest(source, target)
            if digest != expected.sha256:
                raise FileUnusable(f"{path} is damaged: the checksum of {member.name} is wrong")
        if awaited:
            raise FileUnusable(f"{path} is damaged: {', '.join(awaited)} is missing from it")
        return manifest


def sha256_of(path: Path) -> str:
    """The SHA-256 of a file, in hexadecimal."""
    with path.open("rb") as file:
        return _digest(file)


@contextmanager
def _opened(path: Path) -> Iterator[tarfile.TarFile]:
    """The one place where what is wrong with an archive becomes an error of ours."""
    try:
        with tarfile.open(path, mode="r:*") as archive:
            yield archive
    except _UNREADABLE as error:
        said = str(error).partition("\n")[0].rstrip(":")  # below it each way to read an archive says what it missed
        raise FileUnusable(f"{path} is damaged, or no backup: {said}") from error
    except OSError as error:
        raise cannot("read", path, error) from error


def _first_member(archive: tarfile.TarFile) -> Manifest:
    """The manifest, which may be damaged like anything else: the seal says."""
    content = _small_member(archive, MANIFEST)
    manifest = decode_manifest(content)
    if _small_member(archive, SEAL) != hashlib.sha256(content).hexdigest().encode():
        raise FileUnusable(f"{archive.name!s} is damaged: the checksum of its manifest is wrong")
    return manifest


def _small_member(archive: tarfile.TarFile, name: str) -> bytes:
    member = archive.next()
    source = archive.extractfile(member) if member is not None and member.isreg() else None
    if member is None or source is None or member.name != name or member.size > MAX_MANIFEST_BYTES:
        raise FileUnusable(f"{archive.name!s} is no backup of Remembrancer: it does not begin with its manifest")
    return source.read()


def _digest(source: IO[bytes], target: IO[bytes] | None = None) -> str:
    """The SHA-256 of what is read, which is written to `target` as well."""
    digest = hashlib.sha256()
    while chunk := source.read(CHUNK_BYTES):
        digest.update(chunk)
        if target is not None:
            target.write(chunk)
    return digest.hexdigest()


def _member(name: str, size: int) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.size = size
    member.mode = 0o600
    member.mtime = int(time.time())
    return member
