import re
import sqlite3
import threading
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, closing, suppress
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from remembrancer.actors.gateway import shown_log
from remembrancer.actors.gateway.shown_log import ShownLog
from remembrancer.config.project import project_of
from remembrancer.memory.replacement import PROBABLE
from remembrancer.protocol.errors import InvalidInput, RecordsUnusable
from remembrancer.protocol.reads import MemoryShown
from remembrancer.protocol.runs import ApplyRun, ChainLink, LoggedPromotion, ReviseMemory
from remembrancer.protocol.session_life import RecordEvents, Turn
from remembrancer.protocol.writes import HistoryEntry, MemoryLink, MemoryVersion, Operation, PortableMemory
from remembrancer.toolsets.memory.get_memory import FORMER_TEXTS, answer_of
from remembrancer.toolsets.tools import DATA
from tests.actors.gateway_rig import RawClient, Rig
from tests.cases import cases
from tests.patience import PATIENCE_S, until
from tests.spaces import connect_space, locked, write_rows

pytestmark = pytest.mark.usefixtures("at_noon")


async def test_any_beginning_or_ending_of_an_id_will_do(client: RawClient) -> None:
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
    assert "updated_fields" not in linked
    (link,) = (await client.call("get_memory", memory_id=short))["links"]
    assert link["target"].endswith(other)
    missing = await client.call("forget_memory", memory_id="ZZZZ")
    assert (missing["error"], missing["field"]) == ("not_found", "memory_id")
    await client.call("forget_memory", memory_id=other)
    assert (await client.call("restore_memory", memory_id=other))["status"] == "active"


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
    cleared = await client.call("update_memory", memory_id=end, due="")
    assert cleared["updated_fields"] == ["due"]
    changed = await client.call("update_memory", memory_id=end, done=True)
    assert changed == {"memory_id": end, "version": 4}
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
    moved = await client.call("update_memory", memory_id=end, kind="fact", due="2030-07-01")
    assert [each["code"] for each in moved["warnings"]] == ["kind_changed"]
    whole = await client.call("get_memory", memory_id=end, detail=True)
    assert (whole["kind"], whole["due"], whole["done"]) == ("open_end", "2030-07-01", False)
    assert whole["version"] == moved["version"]
    for kind, becomes in (("fact", "open_end"), ("decision", None)):
        gone = (await client.store("Talk about the lantern", kind="open_end"))["memory_id"]
        fields: dict[str, Any] = {"kind": kind, "supersedes": [gone]}
        newer = await client.store(f"The {kind} is put off to 16 December 2036", **fields)
        assert (newer.get("kind"), newer.get("due")) == (becomes, becomes and "2036-12-16")
    over = {"content": "The licence is renewed until 2032", "kind": "fact"}
    await client.call("update_memory", memory_id=end, done=True, **over)
    whole = await client.call("get_memory", memory_id=end)
    assert (whole["kind"], whole["content"], "done" in whole, "due" in whole) == (
        *reversed(over.values()),
        False,
        False,
    )
    refused = await client.call("update_memory", memory_id=end, done=True)
    assert refused["message"] == "only an open end can be done"
    await client.call("update_memory", memory_id=end, due="2036-12-16")
    assert (await client.call("get_memory", memory_id=end))["kind"] == "open_end"
    draft = await client.store("Perhaps it opens at noon", kind="scratchpad")
    assert (draft["scope"], [each["code"] for each in draft["warnings"]]) == ("session", ["scope_changed"])


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
    dated = await client.call("store_memory", content="Next: pay the dues by 2030-06-01; call Ove until 2030-13-01")
    dues = [(await client.call("get_memory", memory_id=each)).get("due") for each in dated["ids"]]
    assert dues == ["2030-06-01", None]
    assert dated["memories"] == [{"memory_id": dated["ids"][0], "due": "2030-06-01"}]
    said = await client.call("store_memory", content="Renew it by 2030-06-01", kind="open_end", due="2030-05-01")
    assert "due" not in said, "it is as the call says"
    assert "due" not in await client.call("store_memory", content="The bridge is shut until 2030-06-01", kind="fact")
    one = await client.call("store_memory", content="Next: a; b", kind="decision")
    assert "ids" not in one, "it was said to be no open end"


async def test_a_task_that_names_its_due_date_is_an_open_end_and_a_new_text_brings_its_own(client: RawClient) -> None:
    async def due(memory_id: str, **changes: Any) -> str:
        await client.call("update_memory", memory_id=memory_id, **changes)
        return str((await client.call("get_memory", memory_id=memory_id)).get("due", ""))

    stored = [await client.call("store_memory", **given) for given, _, _ in cases("open_ends", "stored")["rows"]]
    wanted = [[kind, day] for _, kind, day in cases("open_ends", "stored")["rows"]]
    assert [[each["kind"], each.get("due", "")] for each in stored] == wanted
    end = stored[0]["memory_id"]
    for changes, day in cases("open_ends", "edited")["rows"]:
        assert await due(end, **changes) == day, changes
    for near in ("tomorrow", "next week", "next month"):
        end = (await client.store(f"Pay the berth by {near}", kind="fact"))["memory_id"]
        assert await due(end, kind="open_end")
        assert await due(end, content="Pay the berth by 2030-06-10") == "2030-06-10", "the former date was of the text"


async def test_several_memories_are_stored_by_one_call_once_each_with_its_own_fields(client: RawClient) -> None:
    old = [(await client.store(text))["memory_id"] for text in ("The visit is in boots.", "Boots are needed.")]
    several = {
        "scope": "user",
        "tags": ["trip"],
        "memories": [
            {"content": "The visit is in shoes.", "scope": "project", "supersedes": old},
            {"content": "Ilse wants short mails.", "kind": "preference", "tags": ["ilse"]},
            {"content": "Next: ask Jonas; write to Ilse"},
        ],
    }
    stored = await client.call("store_memory", "first", **several)
    ids = stored["ids"]
    assert len(set(ids)) == 4
    assert set(stored) == {"ids", "memories", "if_wrong", "warnings"}, (
        "of two the kind was not given, one replaces others"
    )
    assert [each["code"] for each in stored["warnings"]] == ["list_split"]
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


async def test_of_several_memories_none_is_stored_if_one_cannot_be_and_the_refused_is_named(client: RawClient) -> None:
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
    await client.call("update_memory", memory_id=wick, kind="fact")
    block = (await client.call("get_memory_context", sections=["day"]))["context_block"]
    assert f"- opened, closed, changed (kind, done) {wick}" in block, "as it was then"
    new = (await client.store("We burn wax in it", kind="decision", supersedes=oil))["memory_id"]
    block = (await client.call("get_memory_context", sections=["day"]))["context_block"]
    assert f"- decided, replaced (by {new}) {oil}: We burn oil in it" in block.splitlines()
    await client.store("Next: oil it; hang it; light it; dim it", kind="open_end")
    block = (await client.call("get_memory_context", sections=["day"]))["context_block"]
    assert [line.rpartition(": ")[2] for line in block.splitlines()[-4:]] == ["oil it", "hang it", "light it", "dim it"]
    assert DATA not in block, "the answer of forget_memory said it"
    day = (await client.call("get_memory_context", day="yesterday"))["context_block"]
    assert day.endswith("Nothing was stored or changed.")
    text = "The lantern hangs over the door of the house by the old harbour road until dawn" * 3
    await client.call("store_memory", memories=[{"content": f"{text} {number}"} for number in range(40)])
    block = (await client.call("get_memory_context", day="today"))["context_block"]
    assert block.count(f": {text[:160]}\n") + block.endswith(f": {text[:160]}") == 40, "not all would fit whole"
    cut = await client.call("get_memory_context", day="today", max_tokens=100)
    assert "answer_cut" in [warning["code"] for warning in cut["warnings"]]
    assert cut["context_block"].splitlines()[-1] == block.splitlines()[-1], "the latest are kept"
    day = datetime.now().astimezone() - timedelta(days=3)
    oil = (await client.store("The oil ran out", occurred_at=f"{day:%Y-%m-%d}"))["memory_id"]
    log = (await client.call("get_memory_context", day=f"{day:%A}"))["context_block"]
    assert log.splitlines()[0] == f"## {day:%A %Y-%m-%d}"
    assert log.splitlines()[-1] == f"- happened {oil}: The oil ran out"
    refused = await client.call("get_memory_context", day="someday")
    assert (refused["error"], refused["field"]) == ("invalid_input", "day")


async def test_the_log_of_a_day_marks_what_was_otherwise_then(served: Rig, client: RawClient) -> None:
    yesterday = {"project": project_of(served.paths.home), "requested_at": time.time() - 86_400}
    memory_id = await served.peer.gateway.store("The lantern is red", **yesterday)
    await client.call("update_memory", memory_id=memory_id, content="The lantern was sold")
    block = (await client.call("get_memory_context", day="yesterday"))["context_block"]
    assert f"- stored {memory_id[-4:]}: The lantern is red | changed later" in block.splitlines()


async def test_the_log_of_a_day_has_nothing_of_another_session_until_it_is_promoted(served: Rig) -> None:
    project = project_of(served.paths.home)

    async def day_of(session: str) -> str:
        async with served.session(session=session) as client:
            return str((await client.call("get_memory_context", day="today"))["context_block"])

    wick = {"project": project, "scope": "session", "session_id": "session:a"}
    memory_id = await served.peer.gateway.store("The wick is wet", **wick)
    first = await day_of("session:a")
    assert ("wick" in first, first.count(DATA)) == (True, 1)
    assert "wick" not in await day_of("session:b")
    edit = ReviseMemory(memory_id, "promoted", 1, scope="project", status="active")
    run = ApplyRun("run:wick", "project", "session_end", (edit,))
    await served.peer.gateway.submit(Operation("wick", project, "", time.time(), run))
    assert f"- promoted {memory_id[-4:]}: The wick is wet" in (await day_of("session:b")).splitlines()


NEAR = "memory:01ARZ3NDEKTSV4RRFFQ69G5FAV"


async def test_a_memory_is_shown_whole_with_its_history(client: RawClient) -> None:
    stored = await client.store(
        "Java 17",
        source={"file": "pom.xml"},
        related_entities=[{"name": "Maven", "type": "tool", "relationship": "uses"}],
    )
    assert stored["graph_edges_created"] == 1
    identity = (await client.call("get_memory", memory_id=stored["memory_id"]))["id"]
    await client.call("update_memory", memory_id=identity, content="Java 21", metadata={"a": [1, None]})
    await client.call("forget_memory", memory_id=identity, reason="outdated")
    answer = await client.call("get_memory", memory_id=identity.removeprefix("memory:").lower(), detail=True)
    times = {name: answer.pop(name) for name in ("created_at", "updated_at", "forgotten_at")}
    assert all(time.startswith("20") and time.endswith("Z") for time in times.values())
    history = answer.pop("history")
    assert answer.pop("sessions_used") == 1, "by the one that has changed it"
    assert answer.pop("why")
    assert answer.pop("strength") > 0
    assert answer == {
        "id": identity,
        "content": "Java 21",
        "type": "semantic",
        "scope": "project",
        "importance": 0.5,
        "tags": [],
        "metadata": {"a": [1, None]},
        "source": {"file": "pom.xml"},
        "related_entities": [{"name": "Maven", "type": "tool", "relationship": "uses", "stale": True}],
        "session_id": "session:test",
        "version": 3,
        "kind": "fact",
        "confidence": 0.8,
        "status": "forgotten",
        "forgotten_reason": "outdated",
        "embedded": False,
        "is_stale": False,
        "access_count": 0,
    }
    assert [(line["version"], line["change"]) for line in history] == [(1, "stored"), (2, "updated"), (3, "forgotten")]
    assert history[2]["reason"] == "outdated"
    assert history[2]["session_id"] == "session:test"
    assert all("content" not in line for line in history)
    listed = await client.call("get_memory", memory_id=identity)
    assert listed["hint"] == FORMER_TEXTS
    assert listed["history"] == [
        {"version": 1, "change": "stored", "at": history[0]["at"][:10]},
        {"version": 2, "at": history[1]["at"][:10], "fields": ["content", "metadata"]},
        {"version": 3, "change": "forgotten", "at": history[2]["at"][:10]}
        | {"fields": ["status"], "reason": "outdated"},
    ]
    former = await client.call("get_memory", memory_id=identity, version=1)
    assert (former["content"], "hint" in former) == ("Java 17", False)


def test_a_memory_is_explained() -> None:
    at, at_s = "2023-11-14T22:13:20Z", 1_700_000_000.0
    said: dict[str, Any] = {"content": "Java 21", "type": "semantic", "scope": "project", "session_id": "session:test"}
    version = MemoryVersion(**said)
    as_it_is: dict[str, Any] = {"kind": "decision", "summary": "Java", "structured": {"version": 21}, "domain": "build"}
    as_it_is |= {"status": "consolidated", "source_project": "p_0123456789ab"}
    memory = PortableMemory(
        id="memory:m",
        created_at=at_s,
        updated_at=at_s,
        valid_until=at_s,
        promotion_chain=(ChainLink("session", "memory:m", at_s, score=0.71234, reason="of use"),),
        accessed_in=("session:a", "session:b"),
        links=(MemoryLink(NEAR, "similar_to", 0.97654321, at_s), MemoryLink("memory:p", "contradicts", 0.2, at_s)),
        last_accessed_at=at_s,
        history=tuple(
            HistoryEntry(number, change, at_s + late_s, "session:test", "op", version)
            for number, change, late_s in ((1, "stored", 0.0), (2, "restored", 60.0))
        ),
        **said,
        **as_it_is,
    )
    entry = LoggedPromotion(memory.id, "decision", "session", "project", "importance", "s", 0.7, NEAR, promoted_at=at_s)
    incoming = tuple(
        MemoryLink(f"memory:{name}", "contradicts", strength, 1.0)
        for name, strength in (("n", PROBABLE), ("q", PROBABLE - 0.01))
    )
    reply = MemoryShown(
        memory=memory,
        embedded=True,
        near_duplicates=(NEAR,),
        strength=0.41,
        is_stale=True,
        incoming=incoming,
        promotions=(entry,),
        observed_in=("p_0123456789ab",),
        reasons=("Stored by session s.",),
    )
    answer, then = answer_of(reply), answer_of(reply, 1)
    expected = as_it_is | {
        **{"updated_at": "2023-11-14T22:14:20Z", "valid_until": at, "last_accessed": at},
        **{"strength": 0.41, "is_stale": True, "sessions_used": 2, "why": ["Stored by session s."]},
        "links": [
            {"target": NEAR, "relation": "similar_to", "strength": 0.9765},
            {"target": "memory:p", "relation": "contradicts", "strength": 0.2},
        ],
        "near_duplicates": [NEAR],
        "incoming_links": [
            {"source": each.target, "relation": "contradicts", "strength": each.strength} for each in incoming
        ],
        "promotion_chain": [
            {"action": "promoted", "from_scope": "session", "memory_id": "memory:m", "at": at}
            | {"score": 0.712, "reason": "of use"}
        ],
        "promotions": [
            {"memory_id": "memory:m", "from_scope": "session", "to_scope": "project", "at": at}
            | {"reason": "importance", "score": 0.7, "source_session": "s", "merged_into": NEAR}
        ],
        "observed_in_projects": ["p_0123456789ab"],
    }
    assert {name: answer[name] for name in expected} == expected
    assert not {"why", "strength", "is_stale"} & set(then), "what is true now is not said of what was then"
    with pytest.raises(InvalidInput, match="memory:m has no version 3, only 1"):
        answer_of(reply, 3)
    told = answer_of(reply, detail=False)
    assert [told[name] for name in ("links", "incoming_links")] == [
        answer[name][:1] for name in ("links", "incoming_links")
    ]
    assert not {"embedded", "version", "updated_at", "history"} & set(told)
    assert answer_of(msgspec.structs.replace(reply, embedded=False), detail=False) == told | {"embedded": False}


async def recalled(client: RawClient, query: str, **arguments: Any) -> list[str]:
    answer = await client.call("recall_memories", query=query, strategy="keyword", **arguments)
    return [memory["content"] for memory in answer["memories"]]


async def test_a_sentence_said_again_with_another_end_blanks_or_first_letter_is_the_same_memory(
    client: RawClient,
) -> None:
    first = await client.store("deploys  happen on Tuesdays")
    once = await client.store("deploys happen on Tuesdays.")
    assert "already_known" not in once, "its blanks were stored, and are not looked for"
    for again in ("Deploys happen on Tuesdays!", " deploys happen  on Tuesdays", "Deploys happen on Tuesdays"):
        answer = await client.store(again)
        assert (answer["memory_id"], answer.get("already_known")) == (once["memory_id"], True), again
    assert (await client.store("deploys  happen on Tuesdays"))["memory_id"] == first["memory_id"]
    for other in ("Deploys happen on Tuesdays?", "Deploys happen on tuesdays"):
        assert "already_known" not in await client.store(other)
    kept = await client.store("Deploys happen on Tuesdays", metadata={"path": "when.md"})
    assert "already_known" not in kept, "a file has exactly the text that was written"


async def test_one_sentence_of_two_clients_is_one_memory_and_forgotten_once(served: Rig) -> None:
    sentence = "Deploys happen on Tuesdays"
    async with served.session() as mine, served.session("11" * 16, session="session:two") as other:
        memory_id = (await mine.store(sentence))["memory_id"]
        again = await other.store(sentence)
        assert (again["memory_id"], again["already_known"]) == (memory_id, True)
        of_user, own = [(await mine.store(sentence, scope=each))["memory_id"] for each in ("user", "session")]
        answer = await mine.call("forget_memory", memory_id=memory_id)
        named = {copy["id"]: copy["scope"] for copy in answer["copies"]}
        assert named == {of_user: "user", own: "session"}
        assert await recalled(other, "deploys") == [sentence], "the user's is left"
        answer = await mine.call("forget_memory", memory_id=memory_id, copies=True)
        assert set(answer["copies_forgotten"]) == {of_user, own}
        assert [await recalled(client, "deploys") for client in (mine, other)] == [[], []]
        assert "copies" not in await mine.call("forget_memory", memory_id=memory_id)


async def test_each_change_of_a_memory_is_answered_by_its_tool(served: Rig) -> None:
    text = "The build needs Java 21"
    async with served.session() as mine, served.session("11" * 16, session="session:two") as other:
        identity = (await mine.store("The build needs Java 17", scope="session", tags=["build"]))["memory_id"]
        answer = await mine.call("update_memory", memory_id=identity, content=text, importance=0.9)
        assert answer.pop("updated_fields") == ["content", "importance"]
        assert answer == {"memory_id": identity, "version": 2, "former": "The build needs Java 17"}
        assert await recalled(mine, "Java") == [text]
        again = await mine.call("update_memory", memory_id=identity, importance=0.9)
        assert (again["updated_fields"], again["version"]) == ([], 2)
        answer = await mine.call("tag_memory", memory_id=identity, add=["java"], remove=["build"])
        assert answer == {"memory_id": identity, "tags": ["java"]}
        moves = (mine, "session", "project"), (other, "project", "user"), (mine, "user", "project")
        for client, before, after in moves:
            answer = await client.call("promote_memory", memory_id=identity, target_scope=after, reason="of use")
            assert (answer["previous_scope"], answer["new_scope"], answer["reason"]) == (before, after, "of use")
            assert await recalled(other, "Java", scope=after) == [text]
        refused = await mine.call("promote_memory", memory_id=identity, target_scope="session")
        assert (refused["error"], refused["field"]) == ("invalid_input", "target_scope")

        answer = await mine.call("forget_memory", memory_id=identity, reason="outdated")
        assert answer == {"memory_id": identity, "status": "forgotten", "reason": "outdated"}
        assert await recalled(other, "Java") == []
        assert await recalled(other, "Java", include_forgotten=True) == [text]
        assert (await mine.call("tag_memory", memory_id=identity, add=["x"]))["error"] == "invalid_input"
        assert (await mine.call("restore_memory", memory_id=identity))["status"] == "active"
        answer = await mine.call("restore_memory", memory_id=identity, version=1, reason="it was right")
        assert answer["restored_fields"] == ["content", "importance", "tags"]
        old = await mine.call("get_memory", memory_id=identity, version=3, detail=True)
        assert (old["content"], old["tags"], old["scope"]) == (text, ["java"], "session")


ADMIN: dict[str, Any] = {"environment": {"REMEMBRANCER_TOOLSETS": "memory,admin"}}
SECRET = "the vault opens with marigold"


@pytest.fixture
def places(tmp_path: Path) -> tuple[Path, Path]:
    found = tmp_path / "ours", tmp_path / "theirs"
    for each in found:
        each.mkdir()
    return found


@pytest.fixture
async def both(quick_rig: Rig, places: tuple[Path, Path]) -> AsyncIterator[tuple[RawClient, RawClient]]:
    """A store, and sessions of two projects whose databases are there."""
    async with (
        quick_rig.store(),
        quick_rig.running(),
        quick_rig.session(directory=str(places[0]), **ADMIN) as us,
        quick_rig.session(directory=str(places[1]), bridge="11" * 16, session="session:theirs", **ADMIN) as them,
    ):
        for client in (us, them):
            await client.store("this makes the file")
        yield us, them


async def test_an_erasing_that_a_reader_holds_up_says_so_and_leaves_no_word_when_it_is_repeated(quick_rig: Rig) -> None:
    def having_it() -> set[str]:
        """The names of the database's files that have the secret in them. Not of its `-shm`: to close that file would
        end the reader's locks, which are this process's."""
        files = [each for each in quick_rig.paths.home.glob("memory.db*") if not each.name.endswith("-shm")]
        return {each.name for each in files if b"marigold" in each.read_bytes()}

    async with quick_rig.over_store(**ADMIN) as (_, client):
        memory_id = (await client.store(SECRET, scope="user"))["memory_id"]
        with closing(sqlite3.connect(quick_rig.paths.database, isolation_level=None)) as reader:
            reader.execute("BEGIN")
            reader.execute("SELECT count(*) FROM memories").fetchone()
            refused = await client.call("erase_memory", memory_id=memory_id)
            assert (refused["error"], refused["retry_possible"]) == ("file_locked", True)
            assert "still in the log" in refused["message"]
            assert (await client.call("get_memory", memory_id=memory_id))["error"] == "not_found"
            assert having_it(), "the reader sees it still"
        assert (await client.call("erase_memory", memory_id=memory_id))["already_erased"]
        assert not having_it()


async def test_the_status_of_damaged_memories_says_how_to_repair_them(quick_rig: Rig) -> None:
    async with quick_rig.over_store() as (_, client):
        for content in ("The quay is old.", "The quay is new."):
            await client.store(content)
        assert "degraded" not in await client.call("get_memory_status")
        write_rows(
            quick_rig.paths.database,
            "INSERT INTO memory_links SELECT max(number), min(number), 'contradicts', 1, 1 FROM memories",
            "UPDATE memories SET tags = char(1)",
        )
        status = await client.call("get_memory_status")
    assert (status["error"], "doctor --repair" in status["message"]) == ("records_unusable", True)


async def test_what_another_project_queued_stays_one_s_own_goes(
    quick_rig: Rig, both: tuple[RawClient, RawClient]
) -> None:
    us, them = both
    with locked(quick_rig.paths.database):
        queued = await them.store("Theirs waits")
        assert queued["warnings"][0]["code"] == "queued"
        assert (await us.call("erase_memory", memory_id=queued["memory_id"]))["retry_possible"]
    await until(lambda: quick_rig.gateway.health().queue_depth == 0)
    assert (await them.call("get_memory", memory_id=queued["memory_id"]))["content"] == "Theirs waits"

    with locked(quick_rig.paths.database):
        queued = await us.store(SECRET)
        refused = await us.call("erase_memory", memory_id=queued["memory_id"])
        assert (refused["error"], refused["retry_possible"]) == ("memory_unavailable", True)
    await until(lambda: quick_rig.gateway.health().queue_depth == 0)
    assert (await us.call("erase_memory", memory_id=queued["memory_id"]))["status"] == "erased"
    assert (await us.call("get_memory", memory_id=queued["memory_id"]))["error"] == "not_found"


async def test_an_erasing_that_is_held_up_has_deleted_nothing_and_takes_the_quotes_in_its_project_when_repeated(
    quick_rig: Rig, places: tuple[Path, Path], both: tuple[RawClient, RawClient]
) -> None:
    us, _ = both
    said = [f"so {SECRET}, then", "we have Redis for the cache"]
    projects = [project_of(each) for each in places]

    def turns() -> list[list[str]]:
        found = []
        for each in projects:
            with closing(connect_space(quick_rig.paths, each.id)) as connection:
                found.append([text for (text,) in connection.execute("SELECT content FROM turns")])
        return found

    ids = [(await us.store(content, scope="user"))["memory_id"] for content in (SECRET, "Redis")]
    for project in projects:
        events = RecordEvents("session:any", turns=tuple(Turn("user", each, 1.0) for each in said))
        operation = Operation(f"events of {project.id}", project, "session:any", 1.0, events)
        await quick_rig.peer.gateway.submit(operation)
    with locked(quick_rig.paths.database):
        assert (await us.call("erase_memory", memory_id=ids[0]))["retry_possible"]
        assert turns() == [said, said]
    for memory_id in ids:
        assert (await us.call("erase_memory", memory_id=memory_id))["status"] == "erased"
        assert (await us.call("get_memory", memory_id=memory_id))["error"] == "not_found"
    assert turns() == [said[1:], said], "a word is no quote"


def test_a_damaged_log_of_the_shown_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / shown_log.FILE).write_bytes(b"not a database")
    with pytest.raises(RecordsUnusable, match=r"shown\.db cannot be read .*: delete it"):
        ShownLog(tmp_path, 3600.0).erase(["memory:marigold"])


@pytest.mark.parametrize("is_erased", [True, False])
def test_what_is_on_its_way_to_the_log_of_the_shown_is_erased_and_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_erased: bool
) -> None:
    log, opened = ShownLog(tmp_path, 3600.0), shown_log._opened
    log.note("p_0", "s", ["memory:marigold"], "recall", "a marigold in the cellar")
    writes, goes_on = threading.Event(), threading.Event()

    def held_up(path: Path) -> AbstractContextManager[sqlite3.Connection]:
        if not writes.is_set():
            writes.set()
            goes_on.wait(PATIENCE_S)
        return opened(path)

    monkeypatch.setattr(shown_log, "_opened", held_up)
    with ThreadPoolExecutor(2) as threads:
        written = threads.submit(log.flush)
        assert writes.wait(PATIENCE_S)
        erase: Callable[[], object] = partial(log.erase, ["memory:marigold"], ["a marigold in the cellar"], "p_0")
        done = threads.submit(erase if is_erased else log.read)
        with suppress(TimeoutError):
            done.result(0.2)  # one that does not wait for the batch is over by then
        goes_on.set()
        written.result(PATIENCE_S)
        found = done.result(PATIENCE_S)
    assert is_erased or "memory:marigold" in str(found)
    if is_erased:  # also what is in no batch yet
        log.note("p_0", "s", ["memory:marigold"], "recall", "a marigold in the cellar")
        erase()
        log.flush()
    assert is_erased is not (b"marigold" in (tmp_path / shown_log.FILE).read_bytes())
