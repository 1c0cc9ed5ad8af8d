"""Every change of a memory through a real bridge and a whole runtime, with the SDK's client in both eras."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import Any

import pytest

from tests.actors.sdk_client import ERAS
from tests.runtime import Caller, Runtime, bridged


class Session(Caller):
    """As its base, with what most calls are about."""

    async def store(self, content: str, **arguments: Any) -> str:
        given = {"content": content, "type": "semantic", "scope": "session", **arguments}
        memory_id: str = (await self("store_memory", **given))["memory_id"]
        return memory_id

    async def recalled(self, query: str, **arguments: Any) -> list[str]:
        answer = await self("recall_memories", query=query, strategy="keyword", **arguments)
        return [memory["content"] for memory in answer["memories"]]


async def test_one_sentence_of_four_clients_is_one_memory_and_forgotten_once(runtime: Runtime) -> None:
    sentence = "Deploys happen on Tuesdays"
    async with AsyncExitStack() as stack:
        callers = [Session(await stack.enter_async_context(bridged(f"session:{place}"))) for place in range(4)]
        answers = [
            await call("store_memory", content=sentence, tags=[f"by {place}"], importance=0.1 * place)
            for place, call in enumerate(callers)
        ]
        (memory_id,) = {answer["memory_id"] for answer in answers}
        assert [answer.get("already_known", False) for answer in answers] == [False, True, True, True]
        shown = await callers[0]("get_memory", memory_id=memory_id, detail=True)
        assert shown["tags"] == ["by 0", "by 1", "by 2", "by 3"]
        assert shown["importance"] == pytest.approx(0.3)
        assert await callers[3].recalled("deploys") == [sentence]

        of_user = await callers[0].store(sentence, scope="user")
        own = await callers[0].store(sentence, scope="session")
        answer = await callers[0]("forget_memory", memory_id=memory_id)
        named = {copy["id"]: copy["scope"] for copy in answer["copies"]}
        assert named == {of_user: "user", own: "session"}
        assert await callers[1].recalled("deploys") == [sentence], "the user's is left"
        answer = await callers[0]("forget_memory", memory_id=memory_id, copies=True)
        assert set(answer["copies_forgotten"]) == {of_user, own}
        assert [await call.recalled("deploys") for call in callers] == [[], [], [], []]
        assert "copies" not in await callers[0]("forget_memory", memory_id=memory_id)


@pytest.mark.parametrize("era", ERAS)
async def test_a_memory_lives_through_every_change_and_back(runtime: Runtime, era: str) -> None:
    async with bridged("session:one", era) as one, bridged("session:two", era) as two:
        mine, other = Session(one), Session(two)
        identity = await mine.store(
            "The build needs Java 17",
            tags=["build"],
            related_entities=[{"name": "BuildServer", "type": "component", "relationship": "is"}],
        )
        assert (await other("get_memory", memory_id=identity, fails=True))["error"] == "not_found"
        assert (await other("forget_memory", memory_id=identity, fails=True))["error"] == "not_found"

        answer = await mine(
            "update_memory",
            memory_id=identity,
            content="The build needs Java 21",
            importance=0.9,
            metadata={"checked": True},
            related_entities={"add": [{"name": "Maven", "type": "tool", "relationship": "uses"}]},
        )
        assert answer["updated_fields"] == ["content", "importance", "metadata", "related_entities"]
        assert (answer["re_embedded"], answer["version"]) == (True, 2)
        assert await mine.recalled("Java") == ["The build needs Java 21"]

        again = await mine("update_memory", memory_id=identity, importance=0.9)
        assert (again["updated_fields"], again["version"]) == ([], 2)
        answer = await mine("tag_memory", memory_id=identity, add=["java"], remove=["build"])
        assert answer == {"memory_id": identity, "tags": ["java"]}
        answer = await mine("promote_memory", memory_id=identity, target_scope="project")
        assert (answer["previous_scope"], answer["new_scope"]) == ("session", "project")
        assert await other.recalled("Java", tags=["java"]) == ["The build needs Java 21"]
        answer = await other("promote_memory", memory_id=identity, target_scope="user", reason="of use everywhere")
        assert (answer["previous_scope"], answer["new_scope"]) == ("project", "user")
        assert await mine.recalled("Java", scope="user") == ["The build needs Java 21"]
        answer = await mine("promote_memory", memory_id=identity, target_scope="project", reason="not everywhere")
        assert (answer["previous_scope"], answer["new_scope"]) == ("user", "project")
        assert await mine.recalled("Java", scope="user") == []
        assert await other.recalled("Java", scope="project") == ["The build needs Java 21"]
        again = await mine("promote_memory", memory_id=identity, target_scope="session", fails=True)
        assert (again["error"], again["field"]) == ("invalid_input", "target_scope")
        answer = await other("promote_memory", memory_id=identity, target_scope="user", reason="of use everywhere")
        assert answer["previous_scope"] == "project"

        answer = await mine("forget_memory", memory_id=identity, reason="outdated")
        assert answer == {"memory_id": identity, "status": "forgotten", "reason": "outdated"}
        assert await other.recalled("Java") == []
        assert await other.recalled("Java", include_forgotten=True) == ["The build needs Java 21"]
        assert (await mine("tag_memory", memory_id=identity, add=["x"], fails=True))["error"] == "invalid_input"
        assert (await mine("restore_memory", memory_id=identity))["status"] == "active"
        answer = await mine("restore_memory", memory_id=identity, version=1, reason="it was right")
        assert set(answer["restored_fields"]) == {"content", "importance", "tags", "metadata", "related_entities"}
        assert await mine.recalled("Java") == ["The build needs Java 17"]

        shown = await mine("get_memory", memory_id=identity, detail=True)
        assert (shown["content"], shown["scope"], shown["status"]) == ("The build needs Java 17", "user", "active")
        assert (shown["tags"], shown["metadata"], shown["session_id"]) == (["build"], {}, "session:one")
        assert [edge["name"] for edge in shown["related_entities"]] == ["BuildServer"]
        changes = ["stored", "updated", "tagged", "promoted", "promoted", "taken back", "promoted"]
        changes += ["forgotten", "restored", "restored"]
        assert [line["change"] for line in shown["history"]] == changes
        assert [line["version"] for line in shown["history"]] == list(range(1, 11))
        assert shown["history"][7]["reason"] == "outdated"
        old = await mine("get_memory", memory_id=identity, version=3, detail=True)
        assert (old["content"], old["tags"], old["scope"]) == ("The build needs Java 21", ["java"], "session")
