"""The words of the model: complete, and consistent with each other."""

from __future__ import annotations

from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remembrancer.memory.fields import FIELDS
from remembrancer.protocol.kinds import ENTITY_KINDS, EntityKind, entity_kind
from remembrancer.protocol.writes import MemoryVersion


def test_each_field_of_a_memory_has_one_row_in_the_table_of_fields() -> None:
    assert sorted(each.name for each in FIELDS) == sorted(MemoryVersion.__struct_fields__)


@pytest.mark.parametrize(
    ("given_as", "kind"),
    [
        *((spelled, kind) for kind in get_args(EntityKind) for spelled in (kind, kind.upper(), f"  {kind.title()}\n")),
        ("library", "package"),
        ("Language", "technology"),
        ("programming_language", "technology"),
        ("Programming-Language", "technology"),
        ("repo", "project"),
        ("repository", "project"),
        ("method", "function"),
        ("source file", "file"),
        *((other, "custom") for other in ("component", "snake", " Wild Card ", "", "topic", "Käfer")),
    ],
)
def test_an_entity_is_of_the_type_that_its_word_or_a_synonym_names_else_custom(given_as: str, kind: str) -> None:
    assert entity_kind(given_as) == kind


@given(st.text(max_size=40))
def test_every_type_is_of_a_kind(given_as: str) -> None:
    assert entity_kind(given_as) in ENTITY_KINDS
