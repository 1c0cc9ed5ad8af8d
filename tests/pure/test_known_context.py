"""A context of what is known without the store: by the store's rules."""

from __future__ import annotations

import msgspec

from remembrancer.protocol.reads import ContextSection, GatherContext, RecalledMemory, Scores
from remembrancer.protocol.writes import ProjectRef, Scope
from remembrancer.toolsets.memory.get_memory_context import known_sections, likely_alone

SCORES = Scores(final=0.5, relevance=0.5, importance=0.5, recency=0.5)


def memory(identity: str, scope: Scope, created_at: float, occurred_at: float | None = None) -> RecalledMemory:
    return RecalledMemory(
        id=identity,
        content="x",
        type="semantic",
        scope=scope,
        scores=SCORES,
        created_at=created_at,
        occurred_at=occurred_at,
    )


def test_what_happened_last_comes_first_and_only_else_what_was_stored_last() -> None:
    known = [
        *(memory(f"{scope} told of long ago", scope, 30.0, 1.0) for scope in ("session", "user")),
        *(memory(f"{scope} of now", scope, 20.0) for scope in ("session", "user")),
        *(memory(f"{scope} told ahead", scope, 10.0, 40.0) for scope in ("session", "user")),
    ]
    request = GatherContext(ProjectRef("p_000000000001", "/here"), "s", sections=("preferences", "session_history"))
    ids = {section.name: [each.id for each in section.memories] for section in known_sections(request, (), known)}
    assert ids == {
        "preferences": ["user told ahead", "user of now", "user told of long ago"],
        "session_history": ["session told ahead", "session of now", "session told of long ago"],
    }


def test_what_is_likely_is_told_by_its_probability_alone() -> None:
    scores = (0.9, 0.4, 0.0)
    memories = tuple(
        msgspec.structs.replace(
            memory(str(each), "project", 0.0), scores=msgspec.structs.replace(SCORES, relevance=each)
        )
        for each in scores
    )
    sections = (ContextSection("project_context", memories, more=True),)
    assert likely_alone(sections, 0.5) == (ContextSection("project_context", memories[:1]),)
    assert likely_alone(sections, 0.95) == ()
