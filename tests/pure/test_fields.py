"""The table of a memory's fields."""

from __future__ import annotations

from remembrancer.memory.fields import FIELDS
from remembrancer.protocol.writes import MemoryVersion


def test_each_field_of_a_memory_has_one_row() -> None:
    assert sorted(each.name for each in FIELDS) == sorted(MemoryVersion.__struct_fields__)
