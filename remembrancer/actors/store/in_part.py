"""Answers in part: a file that cannot be read takes its own memories out of an answer, and a notice says so.

Only a file that is needed alone, or that may hold the one memory that was asked for, makes an answer impossible.
"""

from __future__ import annotations

import contextlib
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

T = TypeVar("T")
R = TypeVar("R", Recalled, GraphFound, ContextGathered, StoreDescription, SessionDescription)


class Readable(NamedTuple):
    """The files of a question: the user's first. `error` says why the project's is not among them, if it should be."""

    files: tuple[Records, ...]
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
        return Readable(found)
    try:
        return Readable((*found, await files.project(project)))
    except (RecordsUnusable, SchemaTooNew) as error:
        return Readable(found, error)


async def answered(
    question: Readable, work: Callable[[Sequence[Records]], Awaitable[T]]
) -> tuple[T, tuple[Notice, ...]]:
    """What `work` makes of the files that can be read, and what is missing from it.

    Damage may show only when a page is read: `work` is done again then, without the file that has it.

    Raises:
        RecordsUnusable, SchemaTooNew: no file is left, or what was asked for may be in the one that is missing.
        RemembrancerError: what `work` raises.
    """
    files, error = question
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
                return reply, (_missing("user" if damaged.name == USER else "project", damage),)
        raise


def told(reply: R, missing: tuple[Notice, ...]) -> R:
    """The reply, which says what is missing from it."""
    return msgspec.structs.replace(reply, notices=(*missing, *reply.notices)) if missing else reply


def _missing(whose: str, error: RemembrancerError) -> Notice:
    return Notice(error.code, f"The {whose}'s memories are missing from this answer: {error.message} ({WHAT_TO_DO}).")
