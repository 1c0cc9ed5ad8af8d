"""Code is cut at functions, methods and types, in every language that has a grammar and in some way in all others."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remembrancer.code.chunks import (
    MOST_CHARACTERS,
    MOST_LINES,
    OPEN,
    Source,
    body_of,
    chunks_of,
    cut_by_lines,
    parsed,
)
from remembrancer.code.languages import language_of, parser_of
from tests.cases import cases

LONG_BODY = "\n".join(f"        step_{number}()" for number in range(60))
PYTHON = f'''import os

LIMIT = 3


class Pool(Base):
    """Keeps connections."""

    size = 1

    def acquire(self, timeout: float) -> Connection:
        """Waits for one."""
{LONG_BODY}

    # Comes back.
    @traced
    def release(self):
        return None


async def connect(
    host: str,
) -> Pool:
    pass
'''
SAMPLES = dict(cases("code_chunks", "samples"))

MORE_NAMES = dict(cases("code_chunks", "names"))
COMMENTS = {
    "ruby": ("module Net\n  # Keeps them.\n  class Pool\n  end\nend", "Net.Pool", "class Pool"),
    "elixir": (
        'defmodule A do\n  @doc "Keeps them."\n  @spec go(a) :: b\n  def go(1), do: 2\n  def go(2), do: 3\nend',
        "A.go",
        "def go(2)",
    ),
    "haskell": ("module A where\n\nx = 1\n\n-- | Keeps them.\ngo :: Int -> Int\ngo 1 = 2\ngo n = 3", "go", "go n = 3"),
}


def test_a_class_is_cut_into_its_members_under_the_path_of_their_names() -> None:
    named = {chunk.name: chunk for chunk in chunks_of(PYTHON, "python") if chunk.kind != "block"}
    assert list(named) == ["Pool", "Pool.acquire", "Pool.release", "connect"]
    assert (named["Pool"].kind, named["Pool"].start_line, named["Pool"].signature) == ("class", 6, "class Pool(Base)")
    assert "Keeps connections" in named["Pool"].head
    assert named["Pool.acquire"].signature == "def acquire(self, timeout: float) -> Connection"
    assert "Waits for one" in named["Pool.acquire"].head
    assert named["Pool.release"].text.lstrip().startswith("# Comes back.")
    assert named["connect"].signature == "async def connect( host: str, ) -> Pool"


@pytest.mark.parametrize("language", SAMPLES)
def test_a_definition_of_each_language_has_its_kind_and_its_name(language: str) -> None:
    text, kind, name = SAMPLES[language]
    assert parser_of(language) is not None
    assert (kind, name) in [(chunk.kind, chunk.name) for chunk in chunks_of(text, language)]


def defined(source: Source, body: Any, above: str = "") -> Iterator[tuple[str, str]]:
    """The path of names and the kind of each definition, with those in it."""
    for each in source.definitions(body):
        name = f"{above}.{each.name}" if above and each.name else each.name or above
        if each.name:
            yield name, "method" if each.kind == "function" and "." in name else each.kind
        if each.kind in OPEN:
            yield from defined(source, body_of(each.inner) or each.inner, name)


@pytest.mark.parametrize("language", MORE_NAMES)
def test_every_definition_of_a_language_has_the_path_of_its_names(language: str) -> None:
    text, names = MORE_NAMES[language]
    source = parsed(text, language)
    assert source is not None
    assert dict(defined(source, source.root)) == names


@pytest.mark.parametrize("language", COMMENTS)
def test_a_definition_has_the_comment_before_it_and_all_its_parts_in_one_chunk(language: str) -> None:
    text, name, within = COMMENTS[language]
    (chunk,) = [chunk for chunk in chunks_of(text, language) if chunk.name == name and chunk.kind != "block"]
    assert "Keeps them." in chunk.head
    assert within in chunk.text


def test_a_long_function_makes_several_chunks_and_what_has_no_grammar_is_cut_at_blank_lines() -> None:
    text = "def long():\n" + "\n".join(f"    step({number})" for number in range(3 * MOST_LINES))
    chunks = chunks_of(text, "python")
    assert len(chunks) == 4
    assert {chunk.name for chunk in chunks} == {"long"}
    assert [chunk.start_line for chunk in chunks] == [1, *(chunk.end_line + 1 for chunk in chunks[:-1])]
    text = "library a;\n\nimport 'b';\n\nclass Box {\n  int x;\n\n  int open() => 1;\n}\n\nvoid main() {\n}\n"
    assert language_of("lib/box.dart") == "dart"
    assert parser_of("dart") is None
    assert [(chunk.name, chunk.start_line) for chunk in chunks_of(text, "dart") if chunk.name] == [("Box", 5)]


@given(
    st.text(alphabet="abc{}()\n\t :=#'\"defclassé漢", max_size=600), st.sampled_from(["python", "typescript", "dart"])
)
def test_no_line_with_a_name_in_it_is_lost_or_found_twice(text: str, language: str) -> None:
    chunks = chunks_of(text, language)
    lines = text.split("\n")
    found = [line for chunk in chunks for line in range(chunk.start_line, chunk.end_line + 1)]
    assert len(found) == len(set(found))
    assert all(line in set(found) for line, content in enumerate(lines, 1) if any(map(str.isalnum, content)))
    assert all(chunk.text == "\n".join(lines[chunk.start_line - 1 : chunk.end_line]) for chunk in chunks)


def test_without_a_grammar_a_definition_has_its_name_and_nothing_behind_it() -> None:
    text = "class ConnectionPool:\n    pass\n\n\ndef acquire(self):\n    pass\n\n\ndefmodule My.App do\nend\n"
    chunk, *others = cut_by_lines(text)
    assert (chunk.kind, chunk.name, chunk.signature) == ("class", "ConnectionPool", "class ConnectionPool")
    assert [each.name for each in others] == ["acquire", "My.App"]
    assert [each.name for each in cut_by_lines("namespace a::b\nfunc x\n")] == ["a::b"]


@given(st.lists(st.text(alphabet="ab c", max_size=40), max_size=300))
def test_no_chunk_is_longer_than_allowed(lines: list[str]) -> None:
    for chunk in cut_by_lines("\n".join(lines)):
        assert chunk.end_line - chunk.start_line < MOST_LINES
        assert len(chunk.text) <= MOST_CHARACTERS
