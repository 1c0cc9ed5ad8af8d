"""The words of the model: complete, and consistent with each other."""

from __future__ import annotations

from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remembrancer.protocol.kinds import (
    ENTITY_KINDS,
    KINDS,
    MEMORY_TYPES,
    RELATIONS,
    SCOPES,
    STATUSES,
    EntityKind,
    Kind,
    MemoryType,
    entity_kind,
    kind_of_type,
    type_of_kind,
)

TYPES: dict[MemoryType, set[Kind]] = {
    "episodic": {"observation", "error_fix", "scratchpad", "tool_outcome", "open_end"},
    "semantic": {"fact", "preference", "architecture", "entity", "pattern", "convention", "decision"},
    "procedural": {"procedure"},
}


def test_there_are_as_many_words_as_the_design_has() -> None:
    assert (len(KINDS), len(RELATIONS), len(ENTITY_KINDS), len(STATUSES)) == (13, 8, 12, 4)
    assert SCOPES == ("session", "project", "user")
    assert all(len(set(words)) == len(words) for words in (KINDS, RELATIONS, ENTITY_KINDS, STATUSES))


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_belongs_to_one_type(kind: Kind) -> None:
    assert kind in TYPES[type_of_kind(kind)]
    assert sum(kind in kinds for kinds in TYPES.values()) == 1


@pytest.mark.parametrize(
    ("memory_type", "kind"), [("episodic", "observation"), ("semantic", "fact"), ("procedural", "procedure")]
)
def test_a_type_without_a_kind_has_its_plainest(memory_type: MemoryType, kind: Kind) -> None:
    assert kind_of_type(memory_type) == kind


@pytest.mark.parametrize("memory_type", MEMORY_TYPES)
def test_the_kind_of_a_type_is_of_that_type(memory_type: MemoryType) -> None:
    assert type_of_kind(kind_of_type(memory_type)) == memory_type


@pytest.mark.parametrize("kind", get_args(EntityKind))
def test_an_entity_type_of_the_design_is_spelled_as_there(kind: EntityKind) -> None:
    for given_as in (kind, kind.upper(), f"  {kind.title()}\n"):
        assert entity_kind(given_as) == kind


@pytest.mark.parametrize(
    ("synonym", "kind"),
    [
        ("library", "package"),
        ("Language", "technology"),
        ("programming_language", "technology"),
        ("Programming-Language", "technology"),
        ("repo", "project"),
        ("repository", "project"),
        ("method", "function"),
        ("source file", "file"),
    ],
)
def test_a_synonym_is_the_type_that_it_stands_for(synonym: str, kind: str) -> None:
    assert entity_kind(synonym) == kind


@pytest.mark.parametrize("other", ["component", "snake", " Wild Card ", "", "topic", "Käfer"])
def test_any_other_entity_type_counts_as_custom(other: str) -> None:
    assert entity_kind(other) == "custom"


@given(st.text(max_size=40))
def test_every_type_is_of_a_kind(given_as: str) -> None:
    assert entity_kind(given_as) in ENTITY_KINDS
