"""Memories as Markdown files: nothing is lost on the way out and back, and sections of notes become memories."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remembrancer.memory.export_format import MemoryLine
from remembrancer.memory.markdown_files import details_of, file_of, line_of, sections_of
from remembrancer.protocol.errors import InvalidInput
from tests.operations import PROJECT
from tests.pure.test_export_format import memory

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1).filter(str.strip)


@given(content=TEXTS, tags=st.lists(TEXTS, max_size=3), metadata=st.dictionaries(TEXTS, TEXTS | st.floats(0, 1)))
def test_a_memory_comes_back_from_its_file_as_it_was(content: str, tags: list[str], metadata: dict[str, Any]) -> None:
    line = MemoryLine(memory("a", content=content, tags=tuple(tags), metadata=metadata), PROJECT.id)
    details = details_of(line.memory)
    name, text = file_of(line, "folder")
    assert name.count("/") == 2
    assert name.isprintable()
    assert line_of(text, {details.pop("id"): details}) == line


def test_front_matter_that_cannot_be_read_is_an_error_and_that_of_others_is_none() -> None:
    _, text = file_of(MemoryLine(memory("a"), PROJECT.id), "folder")
    with pytest.raises(InvalidInput, match="front matter"):
        line_of(text.replace('type: "semantic"', "type: strange"), {})
    assert line_of("---\nname: a note\n---\ntext\n", {}) is None
    assert line_of("# A note", {}) is None


NOTE = """---
name: deploy
description: how it is deployed
---
Before anything.

# Deploy

## Staging

- Push to `staging`.
- Wait.

## Production

Never on Fridays.

# Empty
"""


def test_each_section_of_a_note_is_a_memory_under_its_headings() -> None:
    def sections(text: str) -> dict[str, str]:
        return {each.id: each.content for each in sections_of("deploy.md", text, 1e9, "project", lambda _: "fact")}

    found = sections(NOTE)
    assert list(found.values()) == [
        "Before anything.",
        "Deploy > Staging: - Push to `staging`.\n- Wait.",
        "Deploy > Production: Never on Fridays.",
    ]
    changed = sections(NOTE.replace("Fridays", "Mondays"))
    assert len(found.keys() & changed.keys()) == 2, "what says the same is the same memory"
