"""The tools of the toolset `memory` through the gateway, with a real store behind it."""

from __future__ import annotations

import re
import time
from typing import Any

from remembrancer.config.project import project_of
from remembrancer.protocol.runs import ApplyRun, ReviseMemory
from remembrancer.protocol.writes import Operation
from tests.actors.gateway_rig import RawClient, Rig


async def test_no_change_takes_a_secret_in_and_one_that_is_there_can_be_taken_away(client: RawClient) -> None:
    secret = "ghp_" + "aB3" * 12
    allowed = await client.store("a", tags=[secret], allow_secrets=True)
    memory_id = allowed["memory_id"]
    refused = [
        ("store_memory", {"content": "b", "type": "semantic", "scope": "user", "tags": [secret]}, "tags"),
        ("update_memory", {"memory_id": memory_id, "metadata": {"password": secret}}, "metadata"),
        ("tag_memory", {"memory_id": memory_id, "add": [secret]}, "add"),
        ("forget_memory", {"memory_id": memory_id, "reason": secret}, "reason"),
        ("promote_memory", {"memory_id": memory_id, "target_scope": "user", "reason": secret}, "reason"),
        ("restore_memory", {"memory_id": memory_id, "reason": secret}, "reason"),
    ]
    for tool, arguments, field in refused:
        answer = await client.call(tool, **arguments)
        assert (answer["error"], answer["field"]) == ("invalid_input", field), tool
        assert secret not in answer["message"]
    assert (await client.call("tag_memory", memory_id=memory_id, remove=[secret]))["tags"] == []


async def test_any_beginning_or_ending_of_an_id_will_do_for_whoever_sees_the_memory(
    served: Rig, client: RawClient
) -> None:
    short = (await client.store("The lantern is green", scope="session"))["memory_id"]
    other = (await client.store("The lantern was bought in May"))["memory_id"]
    assert len(short) == len(other) == 4
    (first, *_) = (await client.call("recall_memories", query="green lantern"))["memories"]
    assert first["id"] == short
    whole = (await client.call("get_memory", memory_id=short.lower()))["id"]
    assert whole.endswith(short)
    for part in (whole, whole.removeprefix("memory:"), whole[:-3], whole[-9:]):
        assert (await client.call("tag_memory", memory_id=part, add=[part[-4:]]))["memory_id"] == short
    linked = await client.call(
        "update_memory", memory_id=short, add_links=[{"relation": "related_to", "target": other}]
    )
    assert linked["updated_fields"] == ["links"]
    (link,) = (await client.call("get_memory", memory_id=short))["links"]
    assert link["target"].endswith(other)
    missing = await client.call("forget_memory", memory_id="ZZZZ")
    assert (missing["error"], missing["field"]) == ("not_found", "memory_id")
    await client.call("forget_memory", memory_id=other)
    assert (await client.call("restore_memory", memory_id=other))["status"] == "active"
    async with served.session("11" * 16, session="another") as intruder:
        refused = await intruder.call("get_memory", memory_id=short)
        assert refused["error"] == "not_found"


async def test_an_open_end_is_open_until_it_is_done_and_can_be_reopened(client: RawClient) -> None:
    stored = await client.store("Renew the lantern's licence", due="2030-05-02")
    assert stored["kind"] == "open_end"
    end = stored["memory_id"]

    async def state() -> list[object]:
        answer = await client.call("recall_memories", query="licence of the lantern")
        whole = await client.call("get_memory", memory_id=end, detail=True)
        [memory] = answer["memories"]
        assert (memory["done"], memory.get("due")) == (whole["done"], whole.get("due"))
        return [whole["done"], whole.get("due"), whole["version"]]

    assert await state() == [False, "2030-05-02", 1]
    again = await client.store("Renew the lantern's licence", kind="open_end", due="2030-06-01T12:00:00+02:00")
    assert (again["memory_id"], again["already_known"]) == (end, True)
    assert "warnings" not in again
    assert await state() == [False, "2030-06-01T10:00:00Z", 2]
    await client.call("update_memory", memory_id=end, due="")
    changed = await client.call("update_memory", memory_id=end, done=True)
    assert changed["updated_fields"] == ["done"]
    assert await state() == [True, None, 4]
    another = await client.store("Renew the lantern's licence", kind="open_end")
    assert another["memory_id"] != end, "the licence runs out again"
    await client.call("forget_memory", memory_id=another["memory_id"])
    await client.call("update_memory", memory_id=end, done=False)
    assert await state() == [False, None, 5]
    await client.call("restore_memory", memory_id=end, version=2)
    assert await state() == [False, "2030-06-01T10:00:00Z", 6]
    await client.call("update_memory", memory_id=end, kind="fact")
    whole = await client.call("get_memory", memory_id=end, detail=True)
    assert "done" not in whole
    assert "due" not in whole
    coming = await client.store("The harbour is closed", kind="fact", due="2030-06-01")
    assert coming["kind"] == "open_end"
    assert [each["code"] for each in coming["warnings"]] == ["kind_changed"]


async def test_a_list_of_open_ends_is_stored_as_so_many_memories_once(client: RawClient) -> None:
    content = "Next (RB-412): ask Jonas; run the backfill; write to Ilse"
    listed: dict[str, Any] = {"content": content, "due": "2030-05-02", "tags": ["rb"]}
    stored = await client.call("store_memory", "first", **listed)
    ids = stored["ids"]
    assert len(set(ids)) == 3
    assert stored["kind"] == "open_end"
    assert (await client.call("store_memory", "first", **listed))["ids"] == ids
    assert (await client.call("store_memory", **listed))["ids"] == ids, "the same texts"
    whole = [await client.call("get_memory", memory_id=each) for each in ids]
    assert [each["content"] for each in whole] == [
        *("ask Jonas (RB-412)", "run the backfill (RB-412)", "write to Ilse (RB-412)")
    ]
    assert {each["due"] for each in whole} == {"2030-05-02"}
    assert {tuple(each["tags"]) for each in whole} == {("rb",)}
    await client.call("update_memory", memory_id=ids[1], done=True)
    assert [(await client.call("get_memory", memory_id=each))["done"] for each in ids] == [False, True, False]
    one = await client.call("store_memory", content="Next: a; b", kind="decision")
    assert "ids" not in one, "it was said to be no open end"


async def test_several_memories_are_stored_by_one_call_once_each_with_its_own_fields(client: RawClient) -> None:
    old = [(await client.store(text))["memory_id"] for text in ("The visit is on Tuesday.", "Boots are needed.")]
    several = {
        "scope": "user",
        "tags": ["trip"],
        "memories": [
            {"content": "The visit is on Thursday, in shoes.", "scope": "project", "supersedes": old},
            {"content": "Ilse wants short mails.", "kind": "preference", "tags": ["ilse"]},
            {"content": "Next: ask Jonas; write to Ilse"},
        ],
    }
    stored = await client.call("store_memory", "first", **several)
    ids = stored["ids"]
    assert len(set(ids)) == 4
    assert set(stored) == {"ids", "memories"}, "of two the kind was not given"
    assert (await client.call("store_memory", "first", **several))["ids"] == ids, "a retry"
    whole = [await client.call("get_memory", memory_id=each, detail=True) for each in ids]
    assert [each["scope"] for each in whole] == ["project", "user", "user", "user"]
    assert [each["kind"] for each in whole] == ["fact", "preference", "open_end", "open_end"]
    assert [each["tags"] for each in whole] == [["trip"], ["ilse"], ["trip"], ["trip"]]
    for each in old:
        replaced = await client.call("get_memory", memory_id=each)
        assert [(link["relation"], link["source"]) for link in replaced["incoming_links"]] == [
            ("supersedes", whole[0]["id"])
        ]
    plain = await client.call("store_memory", memories=[{"content": "One.", "kind": "fact"}])
    assert set(plain) == {"ids"}


async def test_of_several_memories_none_is_stored_if_one_cannot_be_and_one_that_the_store_refuses_is_named(
    client: RawClient,
) -> None:
    secret, unknown = "ghp_" + "aB3" * 12, "memory:01ARZ3NDEKTSV4RRFFQ69G5FAV"
    good = {"content": "The lantern is green.", "kind": "fact"}
    for bad, field in (
        ({"content": " "}, "memories[1].content"),
        ({"kind": "fact"}, "memories[1].content"),
        ({"content": "x", "kind": "idea"}, "memories[1].kind"),
        ({"content": "x", "colour": "red"}, "memories.colour"),
        ({"content": f"the key is {secret}"}, "content"),
    ):
        answer = await client.call("store_memory", memories=[good, bad])
        assert (answer["error"], answer["field"]) == ("invalid_input", field), answer
    assert (await client.call("store_memory", memories=[]))["field"] == "memories"
    assert (await client.call("recall_memories", query="lantern"))["memories"] == []
    answer = await client.call("store_memory", memories=[{"content": "x y z", "supersedes": [unknown]}, good])
    (refused,) = (each for each in answer["memories"] if "error" in each)
    assert (refused["content"], refused["error"]) == ("x y z", "invalid_input")
    (memory,) = (await client.call("recall_memories", query="lantern"))["memories"]
    assert [memory["id"]] == answer["ids"]


async def test_the_log_of_a_day_says_in_order_what_was_stored_changed_decided_and_closed(client: RawClient) -> None:
    fact = (await client.store("The lantern is red", kind="fact"))["memory_id"]
    oil = (await client.store("We burn oil in it", kind="decision"))["memory_id"]
    wick = (await client.store("Cut the wick", kind="open_end"))["memory_id"]
    gone = (await client.store("The lantern is lost"))["memory_id"]
    await client.call("update_memory", memory_id=fact, old="red", new="green")
    await client.call("update_memory", memory_id=wick, done=True)
    await client.call("forget_memory", memory_id=gone)
    block = (await client.call("get_memory_context", sections=["day"]))["context_block"]
    heading, *lines = block.splitlines()
    assert re.fullmatch(r"## \w+day \d{4}-\d\d-\d\d", heading)
    assert [line for line in lines if line.startswith("- ")] == [
        f"- stored, changed {fact}: The lantern is green",
        f"- decided {oil}: We burn oil in it",
        f"- opened, closed {wick}: Cut the wick",
        f"- forgotten {gone}",
    ]
    await client.store("Next: oil it; hang it; light it; dim it", kind="open_end")
    block = (await client.call("get_memory_context", sections=["day"]))["context_block"]
    assert [line.rpartition(": ")[2] for line in block.splitlines()[-4:]] == ["oil it", "hang it", "light it", "dim it"]
    day = (await client.call("get_memory_context", day="yesterday"))["context_block"]
    assert day.endswith("Nothing was stored or changed.")
    for number in range(3):
        await client.store(f"Lantern {number} hangs over the door of the house by the old harbour road")
    cut = await client.call("get_memory_context", day="today", max_tokens=100)
    assert "answer_cut" in [warning["code"] for warning in cut["warnings"]]
    refused = await client.call("get_memory_context", day="someday")
    assert (refused["error"], refused["field"]) == ("invalid_input", "day")


async def test_the_log_of_a_day_has_nothing_of_what_another_session_keeps_to_itself_until_it_is_promoted(
    served: Rig,
) -> None:
    project = project_of(served.paths.home)

    async def day_of(session: str) -> str:
        async with served.session(session=session) as client:
            return str((await client.call("get_memory_context", day="today"))["context_block"])

    wick = {"project": project, "scope": "session", "session_id": "session:a"}
    memory_id = await served.peer.gateway.store("The wick is wet", **wick)
    assert "wick" in await day_of("session:a")
    assert "wick" not in await day_of("session:b")
    edit = ReviseMemory(memory_id, "promoted", 1, scope="project", status="active")
    run = ApplyRun("run:wick", "project", "session_end", "promote", (edit,))
    await served.peer.gateway.submit(Operation("wick", project, "", time.time(), run))
    assert f"- promoted {memory_id[-4:]}: The wick is wet" in (await day_of("session:b")).splitlines()
