"""The store as a process: each change finds its memory's file, is embedded anew, and is not found by what it was."""

from __future__ import annotations

import asyncio

from remembrancer.protocol.writes import (
    BatchApplied,
    ForgetMemory,
    PromoteMemory,
    RestoreMemory,
    SubmitBatch,
    TagMemory,
    UpdateMemory,
)
from tests.actors.store_process import StoreRig
from tests.operations import OTHER_PROJECT, OTHER_SESSION, change_operation, memory_id_of, store_operation
from tests.patience import until

# Where a change goes


async def test_a_batch_goes_to_where_each_memory_is_by_then(rig: StoreRig) -> None:
    before = await rig.gateway.store("was there before", scope="user")
    new = store_operation("new", "a lantern", scope="session")
    other = store_operation("other", "another lantern", project=OTHER_PROJECT)
    new_id, other_id = memory_id_of(new), memory_id_of(other)
    batch = [
        new,
        change_operation("update new", UpdateMemory(new_id, "a candle")),
        change_operation("tag before", TagMemory(before, ("x",))),
        change_operation("to project", PromoteMemory(new_id, "project")),
        other,
        change_operation("to user", PromoteMemory(new_id, "user")),
        change_operation("again to user", PromoteMemory(new_id, "user")),
        change_operation("tag new", TagMemory(new_id, ("y",))),
        change_operation("tag other", TagMemory(other_id, ("z",)), project=OTHER_PROJECT),
        change_operation("tag other from here", TagMemory(other_id, ("z",))),
        change_operation("forget new", ForgetMemory(new_id)),
        change_operation("update forgotten", UpdateMemory(new_id, "x")),
        change_operation("restore new", RestoreMemory(new_id, 1)),
    ]
    refused = {
        "again to user": "invalid_input",
        "tag other from here": "not_found",
        "update forgotten": "invalid_input",
    }
    good = [each for each in batch if each.operation_id not in refused]
    done = await rig.gateway.submit_batch(*batch)
    assert {operation_id: failure.code for operation_id, failure in done.rejected.items()} == refused
    assert done.applied == tuple(each.operation_id for each in good)
    assert (await rig.gateway.submit_batch(*good)).applied == done.applied
    shown = (await rig.gateway.show(new_id, project=OTHER_PROJECT, session_id=OTHER_SESSION)).memory
    assert (shown.scope, shown.content, shown.tags, shown.version) == ("user", "a lantern", (), 7)
    since = ["promoted", "tagged", "forgotten", "restored"]
    assert [entry.change for entry in shown.history] == since, "from when it was the user's"
    own = (await rig.gateway.show(new_id)).memory
    assert [entry.change for entry in own.history] == ["stored", "updated", "promoted", *since]
    assert (await rig.gateway.show(before)).memory.tags == ("x",)
    assert (await rig.gateway.show(other_id, project=OTHER_PROJECT)).memory.tags == ("z",)


async def test_changes_of_one_memory_that_are_sent_at_once_are_all_made_and_none_twice(rig: StoreRig) -> None:
    memory_id = await rig.gateway.store("a lantern", scope="session")
    operations = [change_operation(f"tag{n}", TagMemory(memory_id, (f"t{n}",))) for n in range(20)]
    operations.insert(10, change_operation("promote", PromoteMemory(memory_id, "user")))
    operations.insert(16, change_operation("take back", PromoteMemory(memory_id, "project")))
    first = await asyncio.gather(*(rig.gateway.submit(operation) for operation in operations))
    again = await asyncio.gather(*(rig.gateway.submit(operation) for operation in operations))
    assert not any(each.replayed for each in first)
    assert all(each.replayed for each in again)
    assert [each.result for each in again] == [each.result for each in first]
    batch = await rig.gateway.ask(SubmitBatch((change_operation("new", TagMemory(memory_id, ("new",))), *operations)))
    assert batch == BatchApplied(("new", *(operation.operation_id for operation in operations)), {})
    shown = (await rig.gateway.show(memory_id)).memory
    assert set(shown.tags) == {"new", *(f"t{n}" for n in range(20))}
    assert (shown.scope, shown.version, len(shown.history)) == ("project", 24, 24)


# Vectors


async def meaning_of(rig: StoreRig, memory_id: str, query: str) -> float:
    """The part of a memory's score that likeness of meaning adds: some four points where it says the same."""
    answer = await rig.gateway.recall(query, strategy="vector")
    return next(each.scores.shares.get("meaning", 0.0) for each in answer.memories if each.id == memory_id)


async def test_vectors_of_the_old_text_that_come_late_are_neither_kept_nor_reported(rig: StoreRig) -> None:
    worker = await rig.worker(holds=True)
    memory_id = await rig.gateway.store("a brass lantern")
    await until(lambda: worker.jobs)
    waiting = asyncio.create_task(rig.gateway.embedding_of(memory_id))
    await rig.gateway.change(UpdateMemory(memory_id, "seven green bottles"))
    worker.answer(worker.jobs[:1])
    await until(lambda: len(worker.jobs) == 2)
    assert worker.jobs[1].text == "seven green bottles"
    assert not waiting.done()
    assert not (await rig.gateway.show(memory_id)).embedded
    worker.answer(worker.jobs[1:])
    assert (await waiting).embedded
    assert (await rig.gateway.found("seven green bottles", strategy="vector")) == [memory_id]
    assert await meaning_of(rig, memory_id, "a brass lantern") < 1.0
