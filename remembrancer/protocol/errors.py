"""One class hierarchy for every error that crosses a boundary; each class says when it is raised.

`code` is the category of the error, for programs; by default, it is derived from the class's name, as in `queue_full`.
`message` tells a person (or a model) what to do. If `retry_possible`, the same call can succeed later. `field` is the
argument at fault, and `remedy` the tool or argument that helps. Interfaces with other names for these translate both.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar, Final

import msgspec

FULL_BELOW_BYTES: Final = 1024 * 1024
"""With less free space than this, a file that cannot be opened or written is more likely to be intact than damaged."""


class Failure(msgspec.Struct, frozen=True, omit_defaults=True, tag="Refused"):
    """An error on the wire: the answer to a request that could not be carried out."""

    code: str
    message: str
    retry_possible: bool = False
    field: str | None = None
    details: dict[str, str | int] = {}
    remedy: str | None = None


class RemembrancerError(Exception):
    code: ClassVar[str] = "internal_error"
    retry_possible: ClassVar[bool] = False

    def __init_subclass__(cls, *, code: str = "", retry_possible: bool | None = None) -> None:
        """`retry_possible` defaults to the base class's value."""
        cls.code = code or re.sub("(?<=[a-z])(?=[A-Z])", "_", cls.__name__).lower()
        if retry_possible is not None:
            cls.retry_possible = retry_possible

    def __init__(
        self,
        message: str,
        *,
        field: str | None = None,
        remedy: str | None = None,
        details: Mapping[str, str | int] | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.field = field
        self.remedy = remedy
        self.details = dict(details or {})

    def to_failure(self) -> Failure:
        return Failure(self.code, self.message, self.retry_possible, self.field, self.details, self.remedy)


class InvalidInput(RemembrancerError):
    """An argument is missing, malformed or out of bounds; the message names it and says what is allowed."""


class NotFound(RemembrancerError):
    """A well-formed id does not refer to anything that the caller may see."""


class MemoryUnavailable(RemembrancerError, retry_possible=True):
    """The store cannot be reached and the call cannot be queued or answered from the cache."""


class QueueFull(RemembrancerError, retry_possible=True):
    """The store is unavailable and the write queue is full."""


class StorageFull(RemembrancerError, retry_possible=True):
    """There is no room, and nothing was written. `details` has `current_size` and `limit`, in words and in bytes."""

    @classmethod
    def at_limit(cls, message: str, *, current_bytes: int, limit_bytes: int) -> StorageFull:
        return cls(
            message,
            details={
                "current_size": size_in_words(current_bytes),
                "limit": size_in_words(limit_bytes),
                "current_size_bytes": current_bytes,
                "limit_bytes": limit_bytes,
            },
        )


class DiskUnavailable(RemembrancerError, retry_possible=True):
    """The note's disk does not respond. The note may still be written, once, when the disk responds again."""


class DeadlineExceeded(RemembrancerError, code="query_timeout", retry_possible=True):
    """The work was not done because its deadline had passed."""


class EmbeddingUnavailable(RemembrancerError, code="embedding_failed", retry_possible=True):
    """No engine can make vectors now; keyword search still works."""

    @property
    def effect(self) -> str:
        return f"Only words were searched, not meaning: {self.message}. (keyword_only)"


class EmbeddingStarting(EmbeddingUnavailable):
    """The first engine is still loading its model: nothing has failed."""

    @property
    def effect(self) -> str:
        return "Only words were searched: the model is still loading; try again in a moment. (keyword_only)"


class ConsolidatorUnavailable(RemembrancerError, retry_possible=True):
    """The consolidator is switched off, has failed, or did not take the request in time. Nothing was changed."""


class SchemaTooNew(RemembrancerError):
    """A database was written by a newer release. It is left untouched; the message says which release can read it."""


class SchemaTooOld(RemembrancerError):
    """A database is older than the oldest supported release. It is left untouched."""


class RecordsUnusable(RemembrancerError):
    """A database is damaged or is not a database. It is left untouched; the message says what a person can do."""


class WorkerRefused(RemembrancerError):
    """An embedder on another host gets no work, and the message says why; just reconnecting does not help."""


class FileUnusable(RemembrancerError):
    """A file cannot be read or written, is damaged, or has the wrong content."""


class FileLocked(RemembrancerError, retry_possible=True):
    """Another program has locked a database. Nothing was changed; a write waits in the queue for the lock."""


UNREADABLE: Final = (SchemaTooNew.code, SchemaTooOld.code, RecordsUnusable.code)
"""The codes of errors that prevent a file from being read."""


class HomeUnusable(RemembrancerError):
    """The home directory cannot be created, written or locked."""


class AlreadyRunning(RemembrancerError):
    """Another runtime holds the lock of this home."""


class ConfigurationError(RemembrancerError):
    """A setting is unknown or has a value that is not allowed; the message names it and the most similar valid one."""


class ModelUnusable(RemembrancerError):
    """The weights or the vocabulary are missing, or do not have the pinned checksum."""


class FrameRejected(RemembrancerError):
    """A frame cannot be decoded. It is logged and dropped; the sender gets no answer."""


class VersionMismatch(RemembrancerError, code="protocol_version"):
    """The peer speaks a different version of the protocol. It is answered with a refusal that names both versions."""


class PeerUnavailable(RemembrancerError, retry_possible=True):
    """There is no connection to the peer: the message was not sent."""


class PeerLost(RemembrancerError, retry_possible=True):
    """The connection broke after the message was sent: the peer may or may not have processed it."""


class JournalAway(RemembrancerError, retry_possible=True):
    """The journal of a shared lane does not respond. Writes wait; reads continue from the local copy."""


class JournalChanged(RemembrancerError):
    """The journal differs from the one that this host has read, which stops the lane; the message says what to do."""

    @classmethod
    def missing(cls) -> JournalChanged:
        return cls(
            "the server no longer has this journal; have it restored, or run 'remembrancer share leave' on every "
            "machine, share again from one of them, and invite the rest"
        )

    @classmethod
    def shorter(cls, position: int, head: int) -> JournalChanged:
        return cls(
            f"the journal ends at {head}, but this host has read up to {position}: an older backup was restored. Leave "
            "the lane on this host and join it again, or have a newer backup restored"
        )

    @classmethod
    def other(cls) -> JournalChanged:
        return cls(
            "the journal differs from the one that this host has read: it was recreated, or an older backup was "
            "restored. Leave the lane on this host and join it again"
        )


class JournalRefused(RemembrancerError):
    """The server refuses this host (its membership has ended) or this action (its role does not allow it)."""


class EntryTooLarge(RemembrancerError):
    """An entry exceeds the size limit of the journal. Nothing was appended."""


class EntryDamaged(RemembrancerError):
    """An entry or a snapshot of a journal was not written by a member. No part of it was applied."""


class KeyMissing(RemembrancerError):
    """An entry or a snapshot is encrypted with a key that this host must wait for, or get with a new invitation."""


class InternalError(RemembrancerError, retry_possible=True):
    """A bug in Remembrancer. The actor's log has the traceback."""


def size_in_words(size_bytes: int) -> str:
    for unit, name in ((2**30, "GiB"), (2**20, "MiB")):
        if size_bytes >= unit:
            return f"{size_bytes / unit:.1f} {name}"
    return f"{size_bytes / 2**10:.1f} KiB"


_BY_CODE: Final = {
    kind.code: kind for kind in vars().values() if isinstance(kind, type) and issubclass(kind, RemembrancerError)
}


def from_failure(failure: Failure) -> RemembrancerError:
    """Returns an `InternalError` for an unknown code."""
    kind = _BY_CODE.get(failure.code, InternalError)
    return kind(failure.message, field=failure.field, remedy=failure.remedy, details=failure.details)


def size_on_disk(path: Path) -> int:
    """The size in bytes of a SQLite file with its write-ahead log."""
    files = (path, path.with_name(path.name + "-wal"))
    return sum(file.stat().st_size for file in files if file.exists())


def is_disk_full(path: Path) -> bool:
    """True if the disk has no room to open this file, which needs a write-ahead log and its index."""
    try:
        return shutil.disk_usage(path.parent).free < FULL_BELOW_BYTES
    except OSError:
        return False


def disk_full(message: str, path: Path) -> StorageFull:
    """Build the error with both sizes. The limit is the file's size plus the disk space that is free for this user."""
    try:
        current_bytes = size_on_disk(path)
        free_bytes = shutil.disk_usage(path.parent).free
    except OSError:  # a missing file or directory is reported by another error
        return StorageFull(message)
    text = f"{message} ({size_in_words(free_bytes)} free on the disk of {path})"
    return StorageFull.at_limit(text, current_bytes=current_bytes, limit_bytes=current_bytes + free_bytes)
