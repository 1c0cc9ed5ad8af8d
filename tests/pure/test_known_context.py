"""A context of what is known without the store."""

from __future__ import annotations

from typing import Any

from remembrancer.protocol.reads import GatherContext, RecalledMemory, Scores
from remembrancer.protocol.writes import ProjectRef
from remembrancer.toolsets.memory.get_memory_context import with_known


def memory(identity: str, **fields: Any) -> RecalledMemory:
    scores = Scores(final=0.5, relevance=0.5, importance=0.5, recency=0.5)
    known = {"type": "semantic", "scope": "user", "created_at": 0.0, **fields}
    return RecalledMemory(id=identity, content="x", scores=scores, **known)


def test_an_earlier_answer_is_followed_by_what_else_holds_and_belongs_there() -> None:
    earlier = [memory("had")]
    known = [
        memory("had"),
        memory("long ago", occurred_at=1.0),
        memory("lately", occurred_at=9.0),
        memory("important", importance=0.9),
        memory("over", status="archived"),
        memory("done", kind="open_end", type="episodic", done=True),
        memory("elsewhere", scope="project"),
    ]
    request = GatherContext(ProjectRef("p_000000000001", "/here"), "s", sections=("preferences", "open_ends"))
    assert [each.id for each in with_known(request, earlier, known)] == ["had", "important", "lately", "long ago"]
