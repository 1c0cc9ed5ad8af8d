"""`get_memory_context` through the gateway, with a real store behind it that comes and goes."""

from __future__ import annotations

from remembrancer.toolsets.memory.context_block import ALL, ALL_OF_THIS, MARKED, NOTHING, NOTHING_OF_THIS, PART
from tests.actors.gateway_rig import RawClient, Rig


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
            f"### How to\n- {lint} Run the linter first\n\n"
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
    assert some["context_block"] == f"{MARKED}\n\n### How to\n- {lint} Run the linter first\n\n{ALL_OF_THIS}"
    none = await client.call("get_memory_context", sections="open_ends")
    assert none["context_block"] == f"## Memory Context\n\n{NOTHING_OF_THIS}"


async def test_all_is_given_up_to_six_thousand_tokens_and_a_part_in_two_thousand_where_there_is_more(
    client: RawClient,
) -> None:
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


async def test_what_the_session_was_shown_or_wrote_is_not_said_again_until_another_one_writes(
    served: Rig, client: RawClient
) -> None:
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


async def test_with_a_later_prompt_only_what_likely_answers_it_is_given_where_not_all_fits(
    served: Rig, client: RawClient
) -> None:
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
