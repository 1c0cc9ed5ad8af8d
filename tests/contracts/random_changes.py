"""Changes of every kind, as hypothesis may make them up."""

from collections.abc import Sequence
from typing import Any, Final

from hypothesis import strategies as st

from remembrancer.protocol.writes import (
    Change,
    EntityRef,
    ForgetMemory,
    Kind,
    PromoteMemory,
    RestoreMemory,
    TagMemory,
    UpdateMemory,
)
from tests.operations import OTHER_SESSION, SESSION

WORDS: Final = ("lantern", "candle", "torch", "bottle")
TAGS: Final = ("red", "blue", "green")
SESSIONS: Final = (SESSION, OTHER_SESSION)
KINDS: Final[tuple[Kind, ...]] = ("decision", "preference", "procedure")

contents = st.lists(st.sampled_from(WORDS), min_size=1, max_size=3).map(" ".join)
importances = st.sampled_from([0.0, 0.25, 1.0])
tags = st.lists(st.sampled_from(TAGS), max_size=2, unique=True).map(tuple)
entities = st.lists(
    st.builds(
        EntityRef,
        name=st.sampled_from(["AuthService", "auth-service", "store", "???"]),
        type=st.sampled_from(["service", "module"]),
        relationship=st.sampled_from(["about", "breaks"]),
    ),
    max_size=3,
).map(tuple)
metadata = st.none() | st.dictionaries(
    st.sampled_from(["a", "b"]), st.none() | st.sampled_from([1, True, 1.0, "x", {"deep": [1]}]), max_size=2
)
reasons = st.none() | st.just("why")


def new_memories(scopes: Sequence[str]) -> st.SearchStrategy[dict[str, Any]]:
    """The fields of any memory that is stored."""
    return st.fixed_dictionaries(
        {
            "content": contents,
            "scope": st.sampled_from(scopes),
            "session_id": st.sampled_from(SESSIONS),
            "importance": importances,
            "tags": tags,
            "related_entities": entities,
        }
    )


def changes_of(memory_ids: st.SearchStrategy[str]) -> st.SearchStrategy[Change]:
    """Any change of a memory that is there (or not), inside its file."""
    return st.one_of(
        st.builds(
            UpdateMemory,
            memory_id=memory_ids,
            content=st.none() | contents,
            importance=st.none() | importances,
            add_tags=tags,
            remove_tags=tags,
            metadata=metadata,
            add_entities=entities,
            remove_entities=st.lists(st.sampled_from(["AuthService", "Store", "???", "none"]), max_size=2).map(tuple),
            kind=st.none() | st.sampled_from(KINDS),
            summary=st.none() | st.sampled_from(["", "glimmer", "glow"]),
            structured=metadata,
            confidence=st.none() | importances,
            valid_until=st.none() | st.just(7.0),
            cleared=st.sampled_from([(), ("valid_until",)]),
        ),
        st.builds(TagMemory, memory_id=memory_ids, add=tags, remove=tags),
        st.builds(ForgetMemory, memory_id=memory_ids, reason=reasons),
        st.builds(RestoreMemory, memory_id=memory_ids, version=st.none() | st.integers(0, 5), reason=reasons),
        st.builds(PromoteMemory, memory_id=memory_ids, target_scope=st.just("project"), reason=reasons),
    )
