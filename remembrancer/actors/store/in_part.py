"""Answers in part: a file that cannot be read takes its own memories out of an answer, and a notice says so.

Only a file that is needed alone, or that may hold the one memory that was asked for, makes an answer impossible.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, NamedTuple, TypeVar

import msgspec

from remembrancer.actors.store.memory_files import USER, MemoryFiles
from remembrancer.actors.store.records.contract import Records
from remembrancer.protocol.errors import NotFound, RecordsUnusable, RemembrancerError, SchemaTooNew
from remembrancer.protocol.reads import (
    ContextGathered,
    GraphFound,
    Notice,
    Recalled,
    SessionDescription,
    StoreDescription,
)
from remembrancer.protocol.writes import ProjectRef

WHAT_TO_DO: Final = "'remembrancer doctor' examines it, 'remembrancer restore' puts a backup in its place"

logger = logging.getLogger(__name__)

T = TypeVar("T")
R = TypeVar("R", Recalled, GraphFound, ContextGathered, StoreDescription, SessionDescription)


class Readable(NamedTuple):
    """The files of a question: the user's first. `error` says why the project's is not among them, if it should be;
    `note_unusable` is told of a file in which damage shows later."""

    files: tuple[Records, ...]
    note_unusable: Callable[[str, RemembrancerError], None]
    error: RemembrancerError | None = None


async def readable(
    files: MemoryFiles, project: ProjectRef, *, of_project: bool = True, of_user: bool = True
) -> Readable:
    """The user's file, and the project's if it has one: to ask makes none.

    Raises:
        MemoryUnavailable: the project's is being upgraded, and that takes a while.
    """
    found = (files.user,) if of_user else ()
    if not of_project or not files.exists(project):
        return Readable(found, files.note_unusable)
    try:
        return Readable((*found, await files.project(project)), files.note_unusable)
    except (RecordsUnusable, SchemaTooNew) as error:
        return Readable(found, files.note_unusable, error)


async def answered(
    question: Readable, work: Callable[[Sequence[Records]], Awaitable[T]]
) -> tuple[T, tuple[Notice, ...]]:
    """What `work` makes of the files that can be read, and what is missing from it.

    Damage may show only when a page is read: `work` is done again then, without the file that has it.

    Raises:
        RecordsUnusable, SchemaTooNew: no file is left, or what was asked for may be in the one that is missing.
        RemembrancerError: what `work` raises.
    """
    files, note_unusable, error = question
    if error is not None:
        if not files:
            raise error
        try:
            return await work(files), (_missing("project", error),)
        except NotFound:
            raise error from None
    try:
        return await work(files), ()
    except RecordsUnusable as damage:
        for damaged in files if len(files) > 1 else ():
            with contextlib.suppress(RecordsUnusable, NotFound):
                reply = await work([each for each in files if each is not damaged])
                logger.warning(
                    "answered without a file", extra={"name_of_file": damaged.name, "reason": damage.message}
                )
                note_unusable(damaged.name, damage)
                return reply, (_missing("user" if damaged.name == USER else "project", damage),)
        raise


def told(reply: R, missing: tuple[Notice, ...]) -> R:
    """The reply, which says what is missing from it."""
    return msgspec.structs.replace(reply, notices=(*missing, *reply.notices)) if missing else reply


def _missing(whose: str, error: RemembrancerError) -> Notice:
    what_to_do = f" ({WHAT_TO_DO})" if isinstance(error, RecordsUnusable) else ""
    return Notice(error.code, f"The {whose}'s memories are missing from this answer: {error.message}{what_to_do}.")
