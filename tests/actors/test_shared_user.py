"""A user who shares his own scope between his machines: it goes where he goes, and nobody else sees it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest

from remembrancer.protocol.errors import InvalidInput, JournalAway, NotFound
from remembrancer.protocol.projects import MemoriesMoved
from remembrancer.protocol.sharing import LaneLeft, LeaveLane, ShareProject
from remembrancer.protocol.writes import ImportMemory, ProjectRef, PromotedResult, PromoteMemory, TagMemory
from tests.actors.test_shared_lanes import LANE, Host, two
from tests.contracts.records_factories import ids_of
from tests.in_process_journal import InProcessServer
from tests.lane_dump import dump_of
from tests.operations import OTHER_PROJECT, PROJECT, SESSION, change_operation
from tests.patience import until

USER = ShareProject(None, LANE)


class OwnHost(Host):
    is_users = True

    async def reopen(self) -> None:
        """End, and begin anew with what is in the files."""
        await self.aclose()
        self.start()
        await self.files.project(self.project)

    def contents(self) -> list[str]:
        found = [
            memory.content
            for records in self.files.users
            for each in ids_of(records)
            if (memory := records.portable(each, None)) is not None
        ]
        return sorted(found)


@pytest.fixture
async def hosts(tmp_path: Path) -> AsyncIterator[list[OwnHost]]:
    async with two(OwnHost, tmp_path, InProcessServer()) as made:
        yield made


async def both_share(here: OwnHost, there: OwnHost) -> None:
    for host in (here, there):
        await host.files.project(host.project)
        await host.ask(USER)


async def test_a_user_has_on_each_machine_what_he_had_on_any(hosts: list[OwnHost]) -> None:
    here, there = hosts
    tea = await here.store("tea", "I drink tea", "user")
    await here.change("tag", TagMemory(tea, ("kitchen",)))
    await here.store("lantern", "the lantern burns oil")
    await there.store("coffee", "I drink no coffee", "user")
    twin = await there.store("tea there", "I drink tea", "user")
    assert await here.ask(ShareProject(None, LANE, dry_run=True)) == MemoriesMoved(1)
    assert not here.paths.lanes.exists(), "it was only asked"
    assert await here.ask(USER) == MemoriesMoved(1)
    assert await here.ask(USER) == MemoriesMoved(0), "to say it again does nothing"
    assert await there.ask(USER) == MemoriesMoved(2)
    await until(lambda: here.finds("user", "coffee"))
    for host in hosts:
        assert host.contents() == ["I drink no coffee", "I drink tea"], "the same text is one memory"
    kept = here.memory("user", tea)
    assert [entry.change for entry in kept.history] == ["stored", "tagged"]
    merged = here.memory("user", twin)
    assert merged.id == tea, "who knows it by its other id finds it"
    assert here.finds("project", "lantern")
    await here.store("bed", "I go to bed late", "user")
    await until(lambda: there.finds("user", "bed"))
    assert dump_of(here.paths.database) == dump_of(there.paths.database)


async def test_what_a_user_shares_is_his_after_a_restart_and_private_again_when_he_leaves(hosts: list[OwnHost]) -> None:
    here, there = hosts
    await both_share(here, there)
    await here.store("tea", "I drink tea", "user")
    await until(lambda: there.finds("user", "tea"))
    await there.reopen()
    await here.store("coffee", "I drink no coffee", "user")
    await until(lambda: there.finds("user", "coffee"))
    assert await there.ask(LeaveLane(None)) == LaneLeft(LANE, 2)
    assert there.contents() == ["I drink no coffee", "I drink tea"]
    await there.store("bed", "I go to bed late", "user")
    with pytest.raises(InvalidInput, match="the user shares nothing"):
        await there.ask(LeaveLane(None))
    await there.reopen()
    assert there.contents() == ["I drink no coffee", "I drink tea", "I go to bed late"]
    assert not here.finds("user", "bed")
    assert await there.ask(USER) == MemoriesMoved(3)
    await until(lambda: here.finds("user", "bed"))
    assert here.contents() == there.contents() == ["I drink no coffee", "I drink tea", "I go to bed late"]


async def test_a_project_gives_a_memory_to_the_user_and_takes_it_back(hosts: list[OwnHost]) -> None:
    here, there = hosts
    await both_share(here, there)
    memory_id = await here.store("tea", "we drink tea")
    await here.done("promote", PromoteMemory(memory_id, "user", "everywhere so"))
    assert not here.finds("project", "tea")
    await until(lambda: there.finds("user", "tea"))
    refused = await there.change("not theirs", PromoteMemory(memory_id, "project"))
    assert isinstance(refused, InvalidInput)
    assert "came from another project" in refused.message
    assert there.finds("user", "tea")
    back = await here.done("back", PromoteMemory(memory_id, "project", "not so"))
    assert isinstance(back.result, PromotedResult)
    assert (back.result.previous_scope, here.finds("project", "tea"), here.finds("user", "tea")) == (
        "user",
        True,
        False,
    )
    await until(lambda: not there.finds("user", "tea"))
    for host in hosts:
        assert not any("drink" in row for row in dump_of(host.paths.database)), "its history went along"
    again = await here.done("back", PromoteMemory(memory_id, "project", "not so"))
    assert again.replayed
    assert dump_of(here.paths.database) == dump_of(there.paths.database)


async def test_a_copy_is_promoted_although_another_host_has_just_taken_back_its_own(hosts: list[OwnHost]) -> None:
    here, there = hosts
    memory_id = await here.store("tea", "we drink tea")
    copy = here.memory("project", memory_id)
    await there.done("import", ImportMemory(copy))
    await both_share(here, there)
    await here.done("promote", PromoteMemory(memory_id, "user"))
    await until(lambda: there.finds("user", "tea"))
    await there.lanes._open[LANE].stop()
    await here.done("back", PromoteMemory(memory_id, "project"))
    assert there.finds("user", "tea"), "it has not heard of it"
    await there.done("promote there", PromoteMemory(memory_id, "user"))
    assert (there.finds("project", "tea"), there.finds("user", "tea")) == (False, True)
    await until(lambda: here.finds("user", "tea"))
    assert dump_of(here.paths.database) == dump_of(there.paths.database)


async def test_what_is_taken_back_by_an_unanswered_append_is_the_project_s_when_read(hosts: list[OwnHost]) -> None:
    here, there = hosts
    await both_share(here, there)
    memory_id = await here.store("tea", "we drink tea")
    await here.done("promote", PromoteMemory(memory_id, "user"))
    here.journal.loses_answers = 1
    assert isinstance(await here.change("back", PromoteMemory(memory_id, "project")), JournalAway)
    await here.reopen()
    await until(lambda: here.finds("project", "tea"))
    assert not here.finds("user", "tea")
    await until(lambda: not there.finds("user", "tea"))
    again = await here.done("back", PromoteMemory(memory_id, "project"))
    assert again.replayed


async def test_who_does_not_see_the_user_sees_nothing_of_what_he_shares(hosts: list[OwnHost]) -> None:
    here, there = hosts
    await both_share(here, there)
    memory_id = await here.store("tea", "I drink tea", "user")
    own_alone = ProjectRef(PROJECT.id, PROJECT.path, sees_user=False)
    refused = await here.submit(change_operation("tag", TagMemory(memory_id, ("x",)), project=own_alone))
    assert isinstance(refused, NotFound)
    lost = await here.submit(change_operation("back", PromoteMemory(memory_id, "project"), project=own_alone))
    assert isinstance(lost, NotFound | InvalidInput)
    assert not any(here.records(scope).number_of(memory_id) for scope in ("session", "project"))


async def test_a_project_that_is_moved_can_still_take_back_what_it_gave(hosts: list[OwnHost]) -> None:
    here, there = hosts
    await both_share(here, there)
    memory_id = await here.store("tea", "we drink tea")
    await here.done("promote", PromoteMemory(memory_id, "user"))
    for users in here.files.users:
        await here.committer.run(users.name, partial(users.rename_project, PROJECT.id, OTHER_PROJECT.id))
    await until(lambda: there.finds("user", "tea"))

    def source() -> str | None:
        found = there.records("user").portable(memory_id, SESSION)
        return None if found is None else found.source_project

    await until(lambda: source() == OTHER_PROJECT.id)
    await there.done("back", PromoteMemory(memory_id, "project"))
    assert there.finds("project", "tea")
