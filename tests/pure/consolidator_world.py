"""Memories for plans to be made about, and what becomes of them when a plan is carried out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
import numpy as np
from hypothesis import strategies as st

from remembrancer.actors.consolidator.store_connection import Group
from remembrancer.protocol.consolidation import Material
from remembrancer.protocol.kinds import KINDS, Kind, type_of_kind
from remembrancer.protocol.runs import AddLink, AddMemory, ReviseMemory
from tests.pure.reflection_world import memory

NOW = 1_800_000_000.0
DAY_S = 86_400.0
DIMENSIONS = 8
SESSION = "session:one"


def direction(*weights: float) -> bytes:
    """A unit vector as it travels; what is not given is 0."""
    row = np.zeros(DIMENSIONS, dtype=np.float32)
    row[: len(weights)] = weights
    return bytes((row / np.linalg.norm(row)).astype("<f4").tobytes())


def material(number: int, content: str = "", *, kind: Kind = "convention", **fields: Any) -> Material:
    given: dict[str, Any] = {"id": f"memory:{number:026d}", "number": number, "kind": kind, "type": type_of_kind(kind)}
    given |= {"scope": "session", "session_id": SESSION, "vector": direction(1.0), "created_at": NOW - 3600 + number}
    return memory(number, content or f"note {number}", **given | fields)


def carried_out(memories: Iterable[Material], groups: Iterable[Group]) -> list[Material]:
    """The memories after the edits, as the store leaves them. A version that is not the expected one fails the test."""
    known = {memory.id: memory for memory in memories}
    forgotten: set[str] = set()
    for edit in (edit for group in groups for edit in group):
        match edit:
            case AddMemory(memory=new, made_of=made_of):
                assert new.id not in known
                assert all(known[source].version == version for source, version in made_of)
                made = material(
                    len(known) + 1000,
                    new.content,
                    kind=new.kind,
                    scope=new.scope,
                    session_id=new.session_id,
                    importance=new.importance,
                    confidence=new.confidence,
                    vector=known[made_of[0][0]].vector,
                    derived_from=tuple(source for source, _ in made_of),
                )
                known[new.id] = msgspec.structs.replace(made, id=new.id)
            case ReviseMemory():
                before = known[edit.memory_id]
                assert edit.expected_version == before.version
                given = {"status": edit.status, "scope": edit.scope, "importance": edit.importance}
                given |= {"confidence": edit.confidence}
                changed = {name: value for name, value in given.items() if value is not None}
                known[before.id] = msgspec.structs.replace(before, version=before.version + 1, **changed)
                if edit.forget is not None:
                    forgotten.add(before.id)
            case AddLink(source=source, target=target):
                assert source != target
                assert {source, target} <= set(known)
            case _:
                pass
    return [memory for memory in known.values() if memory.id not in forgotten]


def contents(memories: Iterable[Material]) -> set[str]:
    return {memory.content for memory in memories}


WORDS = (
    *("the build", "the gateway", "a test", "the cache", "fails", "is slow"),
    *("at night", "never", "uses", "port", "7", "8"),
)


@st.composite
def materials(draw: st.DrawFn, /, **fixed: Any) -> list[Material]:
    """Some memories in a few directions, so that many are near each other."""
    made = []
    for number in range(draw(st.integers(0, 14))):
        words = draw(st.lists(st.sampled_from(WORDS), min_size=1, max_size=5))
        weights: Sequence[float] = draw(st.lists(st.sampled_from([0.0, 0.1, 1.0]), min_size=3, max_size=3))
        fields = {
            "kind": draw(st.sampled_from(KINDS)),
            "importance": draw(st.floats(0, 1)),
            "confidence": draw(st.floats(0, 1)),
            "access_count": draw(st.integers(0, 20)),
            "vector": direction(*weights) if any(weights) else b"",
            "version": draw(st.integers(1, 3)),
            **fixed,
        }
        made.append(material(number, " ".join(words), **fields))
    return made
