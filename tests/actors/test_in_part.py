"""Damage shows when it is read: the answer is made of the other space, and says whose memories are missing."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from remembrancer.actors.store.memory_files import USER
from remembrancer.actors.store.read_handlers import Readable, answered
from remembrancer.actors.store.records.types import Filters
from remembrancer.actors.store.retrieval.view import View
from remembrancer.memory.changes import unknown_memory
from remembrancer.protocol.errors import RecordsUnusable, RemembrancerError
from tests.actors.spaces_rig import Spaces
from tests.operations import PROJECT, SESSION


class Damaged(Spaces):
    """The user's space and a project's, with a memory each."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.noted: list[RemembrancerError] = []
        self.ids = {name: self.store(f"a lantern of {name}", space=name, passages=0) for name in self.records}

    def damage(self, name: str) -> None:
        """Spoil the memory of a space; the database itself can be opened."""
        with closing(sqlite3.connect(self.path)) as connection, connection:
            connection.execute("UPDATE memories SET tags = char(1) WHERE id = ?", (self.ids[name],))

    def readable(self, *names: str) -> Readable:
        return Readable(self.view(*names), self.noted.append)


@pytest.fixture
def files(tmp_path: Path) -> Iterator[Damaged]:
    with closing(Damaged(tmp_path)) as spaces:
        yield spaces


async def contents(view: View) -> list[str]:
    refs = view.reader.top(Filters(SESSION), "latest", 2)
    return [each.content for each in view.load(refs, Filters(SESSION)).values()]


@pytest.mark.parametrize(("damaged", "whole"), [(USER, PROJECT.id), (PROJECT.id, USER)])
async def test_what_can_be_read_is_answered_and_the_damage_is_named(files: Damaged, damaged: str, whole: str) -> None:
    assert len((await answered(files.readable(), contents))[0]) == 2
    files.damage(damaged)
    found, (missing,) = await answered(files.readable(), contents)
    assert found == [f"a lantern of {whole}"]
    assert missing.code == "records_unusable"
    assert str(files.path) in missing.message
    assert [error.code for error in files.noted] == ["records_unusable"], "the status says so from now on"
    assert missing.message.startswith("The user's" if damaged == USER else "The project's")


@pytest.mark.parametrize(("damaged", "whole"), [(USER, PROJECT.id), (PROJECT.id, USER)])
async def test_a_memory_that_damage_may_hide_is_not_called_unknown(files: Damaged, damaged: str, whole: str) -> None:
    async def show(wanted: str, view: View) -> str:
        ref = view.find(wanted)
        if ref is None or view.reader.portable(wanted, SESSION, PROJECT.id) is None:
            raise unknown_memory(wanted)
        return view.records_of(ref).name

    files.damage(damaged)
    shown, _ = await answered(files.readable(), partial(show, files.ids[whole]))
    assert shown == whole
    with pytest.raises(RecordsUnusable):
        await answered(files.readable(), partial(show, files.ids[damaged]))


async def test_a_file_that_is_needed_alone_is_an_error(files: Damaged) -> None:
    files.damage(USER)
    with pytest.raises(RecordsUnusable):
        await answered(files.readable(USER), contents)
