"""The gateway's overlay makes the same of a change as the store does."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from remembrancer.actors.gateway.overlay import after, as_recalled
from remembrancer.memory.changes import tagged, updated
from remembrancer.protocol.writes import (
    Change,
    EntityRef,
    Operation,
    PortableMemory,
    ProjectRef,
    PromoteMemory,
    RestoreMemory,
    Snapshot,
    TagMemory,
    UpdateMemory,
)

NAMES = st.sampled_from(["Maven", "maven", "Gradle", "Ant"])
ENTITIES = st.lists(st.builds(EntityRef, NAMES, st.just("tool"), st.sampled_from(["uses", "is"])), max_size=3).map(
    tuple
)
TAGS = st.lists(st.sampled_from("abcde"), max_size=3, unique=True).map(tuple)
METADATA = st.dictionaries(st.sampled_from("abc"), st.none() | st.integers(0, 2), max_size=3)
MEMORIES = st.builds(
    PortableMemory,
    id=st.just("m"),
    content=st.sampled_from(["one", "two"]),
    type=st.just("semantic"),
    scope=st.sampled_from(["session", "project", "user"]),
    session_id=st.just("s"),
    created_at=st.just(1.0),
    updated_at=st.just(1.0),
    importance=st.sampled_from([0.5, 0.9]),
    tags=TAGS,
    related_entities=ENTITIES.map(lambda found: tuple(dict.fromkeys(found))),
    metadata=METADATA,
    kind=st.sampled_from(["fact", "preference"]),
    summary=st.none() | st.just("in short"),
    structured=METADATA,
    valid_until=st.none() | st.just(9.0),
)
UPDATES = st.builds(
    UpdateMemory,
    memory_id=st.just("m"),
    content=st.none() | st.sampled_from(["one", "two"]),
    importance=st.none() | st.sampled_from([0.5, 0.9]),
    add_tags=TAGS,
    metadata=st.none() | METADATA,
    add_entities=ENTITIES,
    remove_entities=st.lists(NAMES, max_size=2).map(tuple),
    kind=st.none() | st.sampled_from(["fact", "decision"]),
    summary=st.none() | st.sampled_from(["", "in brief"]),
    structured=st.none() | METADATA,
    confidence=st.none() | st.sampled_from([0.5, 0.7]),
    domain=st.none() | st.sampled_from(["", "testing"]),
    valid_from=st.none() | st.just(3.0),
    valid_until=st.none() | st.sampled_from([7.0, 9.0]),
    cleared=st.sampled_from([(), ("valid_until",), ("valid_from", "valid_until")]),
)


def asked(change: Change) -> Operation:
    return Operation("0" * 32, ProjectRef("p", "/"), "s", 5.0, change)


def snapshot(memory: PortableMemory) -> Snapshot:
    shared = {field.name for field in msgspec.structs.fields(Snapshot)}
    fields: dict[str, Any] = {name: value for name, value in msgspec.structs.asdict(memory).items() if name in shared}
    return Snapshot(**fields, forgotten=memory.forgotten_at is not None)


@given(MEMORIES, UPDATES)
def test_an_update_comes_to_the_same_here_and_in_the_store(memory: PortableMemory, change: UpdateMemory) -> None:
    changed = after(memory, asked(change))
    assert changed is not None
    assert snapshot(changed) == updated(snapshot(memory), change)
    assert changed.version == memory.version + (changed is not memory)


@given(MEMORIES, TAGS, TAGS)
def test_tags_come_to_the_same_here_and_in_the_store(
    memory: PortableMemory, add: tuple[str, ...], remove: tuple[str, ...]
) -> None:
    change = TagMemory("m", add, tuple(tag for tag in remove if tag not in add))
    changed = after(memory, asked(change))
    assert changed is not None
    assert changed.tags == tagged(snapshot(memory), change).tags


@given(MEMORIES, UPDATES)
def test_what_a_recall_shows_is_changed_as_the_whole_memory_is(memory: PortableMemory, change: UpdateMemory) -> None:
    whole, part = after(memory, asked(change)), after(as_recalled(memory), asked(change))
    assert whole is not None
    assert part is not None
    expected = as_recalled(whole)
    # What a recall does not show may have changed too: the version, and when that was.
    assert msgspec.structs.replace(part, version=expected.version, updated_at=expected.updated_at) == expected


@given(MEMORIES, st.sampled_from(["project", "user"]))
def test_a_promotion_never_narrows(memory: PortableMemory, target: Any) -> None:
    order = ["session", "project", "user"]
    changed = after(memory, asked(PromoteMemory("m", target)))
    assert changed is not None
    assert order.index(changed.scope) == max(order.index(memory.scope), order.index(target))


def test_what_an_earlier_version_was_is_not_known_here() -> None:
    memory = PortableMemory(
        id="m", content="x", type="semantic", scope="project", session_id="s", created_at=1.0, updated_at=1.0
    )
    assert after(memory, asked(RestoreMemory("m", 1))) is None
