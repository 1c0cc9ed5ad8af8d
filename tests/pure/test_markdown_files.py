"""Memories as Markdown files: nothing is lost on the way out and back, and sections of notes become memories."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remembrancer.memory.export_format import MemoryLine
from remembrancer.memory.markdown_files import details_of, file_of, read_file, sections_of
from remembrancer.protocol.errors import InvalidInput
from tests.operations import PROJECT
from tests.pure.test_export_format import memory

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1).filter(str.strip)


LIKE_MARKS = st.sampled_from(
    ("<!-- memory {", "<\\!-- memory {", "\n", "} -->", '{"id":"memory:x"}', "---", "\r\n", "-->")
)


@given(
    contents=st.lists(TEXTS | st.lists(LIKE_MARKS, min_size=1).map("".join).filter(str.strip), min_size=1, max_size=3),
    tags=st.lists(TEXTS | LIKE_MARKS, max_size=3),
    metadata=st.dictionaries(TEXTS, TEXTS | st.floats(0, 1)),
)
def test_the_memories_of_a_file_come_back_as_they_were(
    contents: list[str], tags: list[str], metadata: dict[str, Any]
) -> None:
    lines = [
        MemoryLine(memory(str(place), content=content, tags=tuple(tags), metadata=metadata), PROJECT.id)
        for place, content in enumerate(contents)
    ]
    details = {about.pop("id"): about for line in lines for about in [details_of(line.memory)]}
    names, texts = zip(*(file_of(line, "folder") for line in lines), strict=True)
    assert set(names) == {"folder/fact.md"}
    assert read_file("".join(texts), details) == ("", lines)
    notes, back = read_file(f"# My own\n\n{''.join(texts)}".rstrip("\n"), details)
    assert notes == "# My own\n\n"
    assert [each.memory.content.rstrip("\n") for each in back] == [each.rstrip("\n") for each in contents]


def test_fields_that_cannot_be_read_are_an_error_and_files_of_others_are_notes() -> None:
    _, text = file_of(MemoryLine(memory("a"), PROJECT.id), "folder")
    with pytest.raises(InvalidInput, match="fields of a memory"):
        read_file(text.replace('"type":"semantic"', '"type":"strange"'), {})
    for note in ("---\nname: a note\n---\ntext\n", "# A note", ""):
        assert read_file(note, {}) == (note, [])


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
