"""One tree for every error that crosses a boundary; each class says when it is raised.

An error has fields, not a formatted string: `code` names its category for programs, `message` says to a person (or a
model) what to do, `retry_possible` says whether the same call can succeed later, `field` names the argument at fault,
`details` are further facts by name, for programs.
`Failure` is the same thing as it travels in a message.
"""

from __future__ import annotations

import errno
import os
import resource
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar, Final

import msgspec


class Failure(msgspec.Struct, frozen=True, omit_defaults=True, tag="Refused"):
    """An error on the wire: a question that was understood and is not answered, or done, has it for its answer."""

    code: str
    message: str
    retry_possible: bool = False
    field: str | None = None
    details: dict[str, str | int] = {}


class RemembrancerError(Exception):
    """The root. Raised only through its subclasses."""

    code: ClassVar[str] = "internal_error"
    retry_possible: ClassVar[bool] = False

    def __init__(
        self, message: str, *, field: str | None = None, details: Mapping[str, str | int] | None = None
    ) -> None:
        super().__init__(message)
        self.message = message
        self.field = field
        self.details = dict(details or {})

    def to_failure(self) -> Failure:
        """This error as it travels in a message."""
        return Failure(self.code, self.message, self.retry_possible, self.field, self.details)


class InvalidInput(RemembrancerError):
    """An argument is missing, malformed or out of bounds; the message names it and says what is allowed."""

    code = "invalid_input"


class NotFound(RemembrancerError):
    """A well-formed id names nothing that the caller may see."""

    code = "not_found"


class MemoryUnavailable(RemembrancerError):
    """The store cannot be reached and the call cannot be queued or answered from the cache."""

    code = "memory_unavailable"
    retry_possible = True


class QueueFull(RemembrancerError):
    """The store is away and the write queue holds as many operations as it may."""

    code = "queue_full"
    retry_possible = True


class StorageFull(RemembrancerError):
    """The disk, or the configured limit, has no room for the write. Nothing was written.

    `details` has `current_size` and `limit` where they are known, in words, and both in bytes.
    """

    code = "storage_full"
    retry_possible = True

    @classmethod
    def at_limit(cls, message: str, *, current_bytes: int, limit_bytes: int) -> StorageFull:
        """The error with both sizes."""
        sizes: dict[str, str | int] = {
            "current_size": size_in_words(current_bytes),
            "limit": size_in_words(limit_bytes),
            "current_size_bytes": current_bytes,
            "limit_bytes": limit_bytes,
        }
        return cls(message, details=sizes)


class DiskUnavailable(RemembrancerError):
    """The disk that a note is on does not answer. It may still be written, once, when the disk does."""

    code = "disk_unavailable"
    retry_possible = True


class DeadlineExceeded(RemembrancerError):
    """The work was not done because its deadline had passed."""

    code = "query_timeout"
    retry_possible = True


class EmbeddingUnavailable(RemembrancerError):
    """No engine can make vectors now; keyword search goes on."""

    code = "embedding_failed"
    retry_possible = True

    @property
    def effect(self) -> str:
        """A sentence for who asked: the effect on a search."""
        return f"Only words were searched, not meaning: {self.message}. (keyword_only)"


class EmbeddingStarting(EmbeddingUnavailable):
    """The first engine still loads its model: nothing has failed."""

    code = "embedding_starting"

    @property
    def effect(self) -> str:
        """A sentence for who asked: the effect on a search."""
        return "Words were searched; meaning joins in a moment, when the model is loaded. (keyword_only)"


class ConsolidatorUnavailable(RemembrancerError):
    """The consolidator is switched off, has failed, or does not take the request in time. Nothing was changed by it."""

    code = "consolidator_unavailable"
    retry_possible = True


class SchemaTooNew(RemembrancerError):
    """A database was written by a newer release. It is left untouched; the message says which release reads it."""

    code = "schema_too_new"


class SchemaTooOld(RemembrancerError):
    """A database is older than the first release whose files are kept. It is left untouched."""

    code = "schema_too_old"


class RecordsUnusable(RemembrancerError):
    """A database is damaged or is none. It is left untouched; the message says what a person can do."""

    code = "records_unusable"


class WorkerRefused(RemembrancerError):
    """An embedder on another host is given no work, and the message says why: to come again as it is is of no use."""

    code: ClassVar[str] = "worker_refused"


class FileUnusable(RemembrancerError):
    """A file that was named cannot be read or written, is damaged, or is not what it should be."""

    code: ClassVar[str] = "file_unusable"


class FileLocked(RemembrancerError):
    """Another program has locked a database. Nothing was changed; a write waits in the queue until it lets go."""

    code = "file_locked"
    retry_possible = True


class TooManyFiles(FileLocked):
    """This process may open no more files. The one that was to be opened is whole; a write waits in the queue."""

    code = "too_many_files"

    @classmethod
    def at(cls, path: Path) -> TooManyFiles:
        """The error for a file that was to be opened."""
        limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        return cls(
            f"{path} cannot be opened now: this process may have {limit:,} files open, and has as many. The file is "
            "whole; raise the limit (ulimit -n) and start the runtime anew"
        )


UNREADABLE: Final = (SchemaTooNew.code, SchemaTooOld.code, RecordsUnusable.code)
"""Codes of what keeps a file from being read."""


class HomeUnusable(RemembrancerError):
    """The home directory cannot be created, written or locked."""

    code = "home_unusable"


class AlreadyRunning(RemembrancerError):
    """Another runtime holds the lock of this home."""

    code = "already_running"


class ConfigurationError(RemembrancerError):
    """A setting is unknown or has a value that is not allowed; the message names it and the nearest known one."""

    code = "configuration_error"


class ModelUnusable(RemembrancerError):
    """The weights or the vocabulary are missing, or their checksum is not the pinned one."""

    code = "model_unusable"


class FrameRejected(RemembrancerError):
    """A frame does not decode. It is counted, logged and dropped; the sender gets no answer."""

    code = "frame_rejected"


class VersionMismatch(RemembrancerError):
    """The peer speaks another version of the protocol. It is answered with a refusal that names both versions."""

    code = "protocol_version"


class PeerUnavailable(RemembrancerError):
    """There is no connection to the peer: the message was not sent."""

    code = "peer_unavailable"
    retry_possible = True


class PeerLost(RemembrancerError):
    """The connection broke after the message was sent: whether the peer worked on it is unknown."""

    code = "peer_lost"
    retry_possible = True


class JournalAway(RemembrancerError):
    """The journal of a shared lane does not answer. Writes wait; reads go on with the copy that is here."""

    code = "journal_away"
    retry_possible = True


class JournalChanged(RemembrancerError):
    """The journal is not the one that this host knows. The host stops applying and appending to the lane; the message
    says what a person can do."""

    code = "journal_changed"

    @classmethod
    def missing(cls) -> JournalChanged:
        """The error when there is no such journal."""
        return cls("the server has no such journal (any more): have it restored, or leave the lane and share it anew")

    @classmethod
    def shorter(cls, position: int, head: int) -> JournalChanged:
        """The error when the journal ends before what this host has read of it."""
        return cls(
            f"the journal ends at {head} although {position} was read here: an older backup of it was restored. Leave "
            "the lane on this host and join it again, or have a newer backup restored"
        )

    @classmethod
    def other(cls) -> JournalChanged:
        """The error when the journal is another one of the same name, or went another way since it was restored."""
        return cls(
            "the journal is not the one that this host has read: it was made anew, or an older backup of it was "
            "restored. Leave the lane on this host and join it again"
        )


class JournalRefused(RemembrancerError):
    """The server does not let this host in, or not do this: its membership has ended, or its role does not allow it."""

    code = "journal_refused"


class EntryTooLarge(RemembrancerError):
    """An entry is larger than a journal takes. Nothing was appended."""

    code = "entry_too_large"


class EntryDamaged(RemembrancerError):
    """An entry or a snapshot of a journal is not what a member wrote. Nothing of it was applied."""

    code = "entry_damaged"


class KeyMissing(RemembrancerError):
    """An entry or a snapshot is sealed with a key that this host does not have: it needs a new invitation."""

    code = "key_missing"


class InternalError(RemembrancerError):
    """A fault of ours. The log of the actor holds the traceback."""

    code = "internal_error"
    retry_possible = True


def size_in_words(size_bytes: int) -> str:
    """A size for a person: not 0.0 MiB for what is a small file."""
    for unit, name in ((2**30, "GiB"), (2**20, "MiB")):
        if size_bytes >= unit:
            return f"{size_bytes / unit:.1f} {name}"
    return f"{size_bytes / 2**10:.1f} KiB"


def _subclasses(root: type[RemembrancerError]) -> dict[str, type[RemembrancerError]]:
    found: dict[str, type[RemembrancerError]] = {}
    for child in root.__subclasses__():
        found.update(_subclasses(child))
        found[child.code] = child
    return found


_BY_CODE = _subclasses(RemembrancerError)


def from_failure(failure: Failure) -> RemembrancerError:
    """The exception that a `Failure` was made from (`InternalError` if its code is unknown here)."""
    kind = _BY_CODE.get(failure.code, InternalError)
    return kind(failure.message, field=failure.field, details=failure.details)


def size_on_disk(path: Path) -> int:
    """Bytes of a SQLite file with its write-ahead log."""
    files = (path, path.with_name(path.name + "-wal"))
    return sum(file.stat().st_size for file in files if file.exists())


FULL_BELOW_BYTES: Final = 1024 * 1024
"""With less than this free, a file that cannot be opened or written is more likely whole than damaged."""


def is_disk_full(path: Path) -> bool:
    """True if the disk of a file has no room for what opening it takes: a log, and its index."""
    try:
        return shutil.disk_usage(path.parent).free < FULL_BELOW_BYTES
    except OSError:
        return False


SPARE_DESCRIPTORS: Final = 16
"""With fewer left, a file that cannot be opened is more likely whole than damaged: others are closed meanwhile."""


def are_files_used_up() -> bool:
    """True if this process may open no more files, or only a few."""
    try:
        used = len(os.listdir("/dev/fd"))  # noqa: PTH208 - the fewest steps
    except OSError as error:
        return error.errno in (errno.EMFILE, errno.ENFILE)
    return used + SPARE_DESCRIPTORS > resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def disk_full(message: str, path: Path) -> StorageFull:
    """The error with both sizes: the limit is the file's size and what the file system has free for this user."""
    try:
        current_bytes = size_on_disk(path)
        free_bytes = shutil.disk_usage(path.parent).free
    except OSError:  # the file or its directory is gone, which is another error's to tell
        return StorageFull(message)
    said = f"{message} ({size_in_words(free_bytes)} are free on the disk of {path})"
    return StorageFull.at_limit(said, current_bytes=current_bytes, limit_bytes=current_bytes + free_bytes)
