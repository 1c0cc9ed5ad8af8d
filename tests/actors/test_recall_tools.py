import sys
from functools import partial
from pathlib import Path

import pytest

from remembrancer.memory.relevance import LIKELY, PERHAPS
from remembrancer.protocol.consolidation import ConsolidatedMemory, Pattern, Reflect, Reflected
from remembrancer.toolsets.memory.context_block import ALL, ALL_OF_THIS, MARKED, NOTHING, NOTHING_OF_THIS, PART
from remembrancer.toolsets.memory.recall_memories import NEAREST, NOTHING_OPEN, STANDING_NOTE, given_whole
from remembrancer.toolsets.tools import DATA
from tests.actors.gateway_rig import AWAY, RawClient, Rig
from tests.cases import cases
from tests.patience import until


async def test_what_is_said_twice_is_shown_once_and_the_other_is_named_and_can_be_looked_at(client: RawClient) -> None:
    ids = [(await client.store(text))["memory_id"] for text in ("The lantern is green.", "the Lantern is  green")]
    other = await client.store("The lantern is not green.")
    answer = await client.call("recall_memories", query="green lantern")
    shown = {memory["id"]: memory.get("stands_for", []) for memory in answer["memories"]}
    (kept,) = set(ids) & set(shown)
    (hidden,) = set(ids) - set(shown)
    assert shown == {kept: [hidden], other["memory_id"]: []}
    assert (await client.call("get_memory", memory_id=hidden))["id"].endswith(hidden)


async def test_a_ranking_by_name_orders_by_its_formula_and_judges_nothing(client: RawClient) -> None:
    important = (await client.store("A lantern, and much else that nobody asked for", importance=1.0))["memory_id"]
    relevant = (await client.store("Lantern lantern lantern", importance=0.0))["memory_id"]
    for ranking, first in (("fitted", relevant), ("composite", important)):
        answer = await client.call("recall_memories", query="lantern", ranking=ranking)
        assert answer["memories"][0]["id"] == first
        assert ("answers" in answer["memories"][0]) == (ranking == "fitted")
    assert {each["id"] for each in answer["memories"]} == {relevant, important}
    refused = await client.call("recall_memories", query="lantern", ranking="best")
    assert (refused["error"], refused["field"]) == ("invalid_input", "ranking")


WORDS = {"likely": (LIKELY, 1.0), "perhaps": (PERHAPS, LIKELY), "hardly": (0.0, PERHAPS)}
"""The least and the greatest probability of each."""
FILLER = "and whoever comes by in the evening sees its light from the pier and from the ferry"


async def test_each_result_says_how_surely_it_answers_or_has_one_line_unless_nothing_is_nearer(served: Rig) -> None:
    async with served.session("01" * 16, session="session:author") as author:
        await author.store(f"The lantern at the quay was painted green {FILLER}.")
        for number in range(11):
            await author.store(f"Lantern {number} of the quay has {number + 2} lamps {FILLER}.")
    for row, (query, more, whole, lines) in enumerate(cases("recall_tools", "answers")):
        async with served.session(session=f"session:{row}") as client:
            answer = await client.call("recall_memories", query=query, **more)
            memories = answer["memories"]
            assert [len(each["content"].split()) > 15 for each in memories] == [True] * whole + [False] * lines, row
            logged = [each for each in served.gateway.access.shown_log.read() if each.session_id == f"session:{row}"]
            assert [each.place for each in logged] == list(range(1, len(memories) + 1))
            assert all(one.memory_id.endswith(each["id"]) for one, each in zip(logged, memories, strict=True))
            for least, most, each in ((*WORDS[each["answers"]], each) for each in memories[:whole]):
                assert least <= each["relevance_score"] <= most
            for each in memories[whole:]:
                assert set(each) == {"id", "content"}
                assert each["content"].endswith(" …")
                assert "light from the pier" in (await client.call("get_memory", memory_id=each["id"]))["content"]
            assert (answer.get("hint") == NEAREST) == ("mends" in query), row


async def test_what_a_session_has_seen_and_hardly_answers_is_not_repeated_but_for_the_nearest(
    client: RawClient,
) -> None:
    for number in range(5):
        await client.store(f"Lantern {number} of the quay has {number + 2} lamps {FILLER}.")
    answer = await client.call("recall_memories", query="who mends a broken lantern")
    assert (len(answer["memories"]), answer["hint"]) == (1, NEAREST)
    assert answer["memories"][0]["content"].endswith(" …"), "the session knows the rest"
    assert len((await client.call("recall_memories", query="who mends a broken lantern", limit=4))["memories"]) == 4


async def test_what_a_session_has_stored_stays_among_its_lines_until_it_is_shown(client: RawClient) -> None:
    for number in range(5):
        await client.store(f"The broken lantern {number} of the quay has {number + 2} lamps {FILLER}.")
    answer = await client.call("recall_memories", query="who mends a broken lantern")
    assert len(answer["memories"]) == 5, "they have half of the words"


async def test_what_holds_for_every_task_is_given_once_to_a_query_that_nothing_answers(served: Rig) -> None:
    rules = ("Start names with f_, also those of private ones, and end them with nothing.", "Never use floats.")
    task = "merges two sorted lists"
    async with served.session("01" * 16, session="session:one") as client:
        first, second = [(await client.store(rule, kind="convention"))["memory_id"] for rule in rules]
        doubt = {"relation": "contradicts", "target": first, "strength": 0.4}
        await client.call("update_memory", memory_id=second, add_links=[doubt])
        await client.store("The ferry leaves at six.", kind="fact")
        own = await client.call("recall_memories", query=task)
    async with served.session("02" * 16, session="session:two") as client:
        filtered = await client.call("recall_memories", query=task, kind=["convention"])
        few = await client.call("recall_memories", query=task, limit=2)
        asked = await client.call("recall_memories", query=task)
        again = await client.call("recall_memories", query=task)
    async with served.session("04" * 16, session="session:four") as client:
        question = await client.call("recall_memories", query="Which phone number has the harbour master")
        words = await client.call("recall_memories", query="sorted lists")
    async with served.session("03" * 16, session="session:three") as client:
        await client.call("get_memory_context")
        after_context = await client.call("recall_memories", query=task)
    assert {each["content"] for each in asked["memories"]} >= set(rules)
    assert asked["hint"] == STANDING_NOTE
    doubted = {
        each["content"]: each["possibly_superseded_by"]
        for each in asked["memories"]
        if "possibly_superseded_by" in each
    }
    assert (list(doubted), "to_settle" in asked) == ([rules[0]], True), "it is in Review"
    assert {each["content"] for each in asked["memories"] if "answers" not in each} == set(rules), "as the hint says"
    assert len(few["memories"]) <= 2
    for other in (own, filtered, few, again, after_context, question, words):
        assert other.get("hint") != STANDING_NOTE
    assert (question["memories"], question["hint"][:18]) == ([], "Nothing was found."), "it is no task"


async def test_a_replaced_memory_has_no_line_beside_its_successor_among_those_for_every_task_nor_once_that_is_seen(
    served: Rig,
) -> None:
    async with served.session("01" * 16, session="session:one") as client:
        for number in range(3):
            await client.store(f"The broken lantern {number} of the quay has {number + 2} lamps {FILLER}.")
        old = (await client.store("Each broken lantern is mended on the pier.", kind="decision"))["memory_id"]
        new = (await client.store("Sailmakers mend what breaks.", kind="decision", supersedes=old))["memory_id"]
    async with served.session("02" * 16, session="session:two") as client:
        for query, is_task in (
            ("hang up a broken lantern in the evening", True),
            ("which lantern has two lamps and light", False),
        ):
            answer = await client.call("recall_memories", query=query)
            ids = [each["id"] for each in answer["memories"]]
            assert (len(ids) > 1, answer.get("hint") == STANDING_NOTE) == (True, is_task)
            assert (new.endswith(ids[-1]), any(map(old.endswith, ids))) == (is_task, False)


async def test_of_too_many_standing_only_the_nearest_are_given(served: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules[given_whole.__module__], "MOST_STANDING", 2)
    async with served.session("01" * 16, session="session:one") as client:
        for rule in ("Start names with f_.", "Never use floats.", "Sort lists by name."):
            await client.store(rule, kind="convention")
    async with served.session("02" * 16, session="session:two") as client:
        asked = await client.call("recall_memories", query="merges two sorted lists of apples by weight")
    assert [each["content"] for each in asked["memories"]] == ["Sort lists by name."]


async def test_a_question_for_what_is_left_to_do_is_answered_by_open_ends_alone(client: RawClient) -> None:
    await client.store("Run the linter first", kind="convention")
    none = await client.call("recall_memories", query="what is left to do?")
    assert (none["memories"], none["hint"], none["total_matched"]) == ([], NOTHING_OPEN, 0)
    await client.store("Paint the boat", kind="open_end")
    asked = await client.call("recall_memories", query="what is left to do?")
    (boat,) = asked["memories"]
    assert (boat["content"], "answers" in boat, "hint" in asked) == ("Paint the boat", False, False)
    assert asked["total_matched"] == 1
    await client.store("Renew the mooring", kind="open_end", due="2020-02-20")
    late, boat = (await client.call("recall_memories", query="what is left to do?"))["memories"]
    assert (late["due"], late["overdue"], "overdue" in boat) == ("2020-02-20", True, False)
    first = await client.call("recall_memories", query="what is left to do?", limit=1)
    assert ([each["id"] for each in first["memories"]], first["total_matched"]) == ([late["id"]], 2)
    best = await client.call("recall_memories", query="the boat", kind="open_end", limit=1)
    assert [each["id"] for each in best["memories"]] == [boat["id"]]
    asked = await client.call("recall_memories", query="which open ends are there for the mooring?")
    given = [(each["content"], each["done"]) for each in asked["memories"]]
    assert given == [("Renew the mooring", False), ("Paint the boat", False)]
    later = await client.store("What is due this week is paid in spring", kind="open_end", due="2199-04-01")
    this_week = await client.call("recall_memories", query="what is due this week?")
    assert [each["content"] for each in this_week["memories"]] == ["Renew the mooring"]
    assert this_week["hint"].startswith("Of 3 open ends, only those due by ")
    await client.call("forget_memory", memory_id=later["memory_id"])
    await client.call("update_memory", memory_id=late["id"], done=True)
    assert "overdue" not in await client.call("get_memory", memory_id=late["id"])
    this_week = await client.call("recall_memories", query="what is due this week?")
    assert [each["content"] for each in this_week["memories"]] == ["Paint the boat"], this_week["hint"]


async def test_all_that_holds_is_one_line_each_with_its_id_whatever_the_task_is(client: RawClient) -> None:
    ts = (await client.call("store_memory", content="Prefers TypeScript", scope="user", kind="preference"))["memory_id"]
    grpc = (await client.store("This service uses gRPC"))["memory_id"]
    lint = (await client.store("Run the linter first", type="procedural"))["memory_id"]
    await client.call("update_memory", memory_id=grpc, content="This service uses HTTP")
    answer = await client.call("get_memory_context", detail=True, task_description="write a haiku")
    today = (await client.call("get_memory", memory_id=grpc))["updated_at"][:10]
    assert answer == {
        "context_block": (
            f"{MARKED}\n\n"
            f"### Preferences\n- {ts} Prefers TypeScript\n\n"
            f"### How to, and fixes\n- {lint} Run the linter first\n\n"
            f"### Facts and people\n- {grpc} This service uses HTTP (changed {today})\n\n"
            f"{ALL}"
        ),
        "memories_used": 3,
        "tokens_used": answer["tokens_used"],
        "truncated": False,
        "memory_ids": answer["memory_ids"],
    }
    assert {each[-4:] for each in answer["memory_ids"]} == {ts, grpc, lint}
    some = await client.call("get_memory_context", sections="relevant_procedures")
    assert some["context_block"] == f"{MARKED}\n\n### How to, and fixes\n- {lint} Run the linter first\n\n{ALL_OF_THIS}"
    none = await client.call("get_memory_context", sections="open_ends")
    assert none["context_block"] == f"## Memory Context\n\n{NOTHING_OF_THIS}"


async def test_all_is_given_up_to_six_thousand_tokens_and_of_more_a_part_in_two_thousand(client: RawClient) -> None:
    for number in range(40):
        await client.store(f"The lantern {number} of the quay is lit by {'one and another and ' * 20}nobody else")
    answer = await client.call("get_memory_context")
    assert ALL in answer["context_block"]
    assert 3000 < answer["tokens_used"] <= 6000
    for number in range(40, 70):
        await client.store(f"The lantern {number} of the quay is lit by {'one and another and ' * 20}nobody else")
    answer = await client.call("get_memory_context")
    assert PART in answer["context_block"]
    assert 1500 < answer["tokens_used"] <= 2000
    assert (await client.call("get_memory_context", max_tokens=5000))["tokens_used"] > 3000


async def accesses(client: RawClient, *memory_ids: str) -> list[int]:
    shown = [await client.call("get_memory", memory_id=each, detail=True) for each in memory_ids]
    return [each["access_count"] for each in shown]


async def test_an_access_is_to_have_been_given_whole_as_an_answer_or_as_one_of_an_entity(client: RawClient) -> None:
    lantern = [{"name": "Lantern", "type": "device", "relationship": "about"}]
    lit = (await client.store("The lantern is lit at dusk", related_entities=lantern))["memory_id"]
    other = (await client.store("The lantern of the baker opens at four, before the bread"))["memory_id"]
    answer = await client.call("recall_memories", query="When is the lantern lit?", limit=10)
    assert [each.get("answers") for each in answer["memories"]] == ["likely", None], "the other has a line"
    await client.call("search_knowledge_graph", entity="Lantern")
    assert await until(partial(accesses, client, lit, other), lambda counts: counts[0] == 2) == [2, 0]


async def test_a_complete_context_is_no_use_of_its_memories_but_a_chosen_part_is(client: RawClient) -> None:
    lit = (await client.store("The lantern is lit at dusk", importance=0.9))["memory_id"]
    for name in ("harbour", "pier", "quay"):  # each of which is cut to 64 tokens
        long = (await client.store(f"The log of the {name}: {'wind and rain, ' * 200}"))["memory_id"]
    for most, is_part in ((8000, False), (200, True)):
        answer = await client.call("get_memory_context", task_description="When is the lantern lit?", max_tokens=most)
        assert ("lit at dusk" in answer["context_block"], answer["truncated"]) == (True, is_part)
        assert ("wind and rain" in answer["context_block"]) != is_part
    assert await until(partial(accesses, client, lit, long), any) == [1, 0]


async def test_what_a_session_saw_or_wrote_is_not_said_again_till_others_write(served: Rig, client: RawClient) -> None:
    later = {"unseen": True, "sections": ["preferences", "project_context", "relevant_procedures", "open_ends"]}
    async with served.session("11" * 16, session="session:other") as other:
        nothing = await client.call("get_memory_context", unseen=True, task_description="begin")
        assert NOTHING in nothing["context_block"]
        mine = (await client.store("The lantern is green"))["memory_id"]
        assert (await client.call("get_memory_context", unseen=True, task_description="x"))["context_block"] == ""
        theirs = (await other.store("The lantern stands in the harbour"))["memory_id"]
        first = await other.call("get_memory_context", unseen=True, task_description="write a haiku")
        assert mine in first["context_block"]
        assert theirs not in first["context_block"]
        assert (await other.call("get_memory_context", task_description="y", **later))["context_block"] == ""
        await client.call("update_memory", memory_id=mine, content="The lantern is blue")
        news = await other.call("get_memory_context", task_description="y", **later)
        assert "The lantern is blue" in news["context_block"]
        await client.call("recall_memories", query="Where does the lantern stand?")
        assert (await client.call("get_memory_context", task_description="y", **later))["memories_used"] <= 1


async def test_a_later_prompt_is_given_only_what_likely_answers_if_not_all_fits(served: Rig, client: RawClient) -> None:
    review = "Incident review of the autumn outage: the pool was exhausted, and the relay was restarted by hand. "
    async with served.session("11" * 16, session="session:other") as other:
        await served.peer.worker()
        await client.store(review, wait_for_embedding=True)
        await client.store("The aardvark service is deployed on Fridays.", wait_for_embedding=True)
        await client.store("The badger service is deployed on Mondays.", kind="decision", wait_for_embedding=True)
        for number in range(20):
            await client.store(f"Harbour dues of {number} boats were paid in full and on time.", tags=["dues"])
        only = {"unseen": True, "max_tokens": 300, "sections": ["project_context", "relevant_procedures"]}
        idle = await other.call("get_memory_context", task_description="write a haiku about autumn", **only)
        assert idle["memories_used"] == 0
        asked = "When is the aardvark service deployed?"
        decided = await other.call("get_memory_context", task_description=asked.replace("aardvark", "badger"), **only)
        assert "Mondays" in decided["context_block"], "what holds for every task is given if it answers, too"
        answer = await other.call("get_memory_context", task_description=asked, **only)
        assert "Fridays" in answer["context_block"]
        assert "outage" not in answer["context_block"]
        first = await other.call("get_memory_context", max_tokens=300)
        assert "Subjects: dues 20" in first["context_block"]
        assert "Subjects:" not in answer["context_block"], "the first prompt's context named them"


TOOL = "reflect_and_consolidate"


async def test_a_reflection_answers_by_design(served: Rig, client: RawClient, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Reflect] = []
    summary = ConsolidatedMemory("mem_summary", "The build needs Java 21.", "semantic", "session", ("mem_1", "mem_2"))
    pattern = Pattern("asks about error handling", 4, "user", None, ("mem_1",))

    async def reflected(request: Reflect, timeout_s: float) -> Reflected:
        asked.append(request)
        return Reflected((summary,), (pattern,), 15, "run_1", skipped=1, not_embedded=2)

    with monkeypatch.context() as patch:
        patch.setattr(served.gateway.access, "require", reflected)  # as from a consolidator
        answer = await client.call(TOOL)
    assert [each["code"] for each in answer.pop("warnings")] == ["not_embedded"]
    assert answer == {
        "note": DATA,
        "consolidated_memories": [
            {
                "id": "mem_summary",
                "content": "The build needs Java 21.",
                "type": "semantic",
                "derived_from": ["mem_1", "mem_2"],
                "scope": "session",
            }
        ],
        "patterns_detected": [{"pattern": "asks about error handling", "frequency": 4, "suggested_scope": "user"}],
        "session_stats": {"memories_analyzed": 15, "consolidated_into": 1, "patterns_found": 1},
        "run_id": "run_1",
        "skipped": 1,
    }
    (request,) = asked
    assert (request.session_id, request.strategy, request.dry_run) == ("session:test", "full", False)
    assert len(request.operation_id) == 32
    unknown = await client.call(TOOL, undo="run_2")
    assert (unknown["error"], unknown["field"]) == ("not_found", "undo")


async def test_without_the_store_a_reflection_is_an_error_that_may_be_retried(home: Path) -> None:
    rig = Rig(home, AWAY)
    async with rig.running(), rig.session() as client:
        answer = await client.call(TOOL)
        assert answer["error"] == "memory_unavailable"
        assert (answer["degraded"], answer["retry_possible"]) == (True, True)
        undone = await client.call(TOOL, undo="run_1")
    assert (undone["status"], undone["warnings"][0]["code"]) == ("queued", "queued")
