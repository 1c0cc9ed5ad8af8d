"""Markdown is cut into chunks between headings and blocks; nothing is lost, and nothing is too long."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remembrancer.memory.chunks import chunks_of, line_starts
from remembrancer.memory.tokens import estimate_tokens

SAMPLE = "the harbour is lit 我們 決定 été 1234567 {x: **bold** `code` ]( ~~ <b> 👩‍👩‍👧"
WORDS = st.sampled_from(SAMPLE.split())
LINE = st.lists(WORDS, max_size=40).map(" ".join)
BLOCK = st.one_of(
    LINE,
    st.builds("{} {}".format, st.sampled_from(["#", "##", "######", "-", "1.", ">", "   -", "[a]:"]), LINE),
    st.builds("{}\n===".format, LINE),
    st.builds("```py\n{}\n\n{}\n```".format, LINE, LINE),
    st.builds("| a | b |\n| - | - |\n| {} | x |".format, LINE),
    st.builds("- {}\n\n  - {}\n  - {}".format, LINE, LINE, LINE),
    st.sampled_from(["---", "```", "<!--", "    indented", "\t", "  ", "* * *", "~~~~"]),
)
MARKDOWN = st.builds(
    lambda front, blocks, between: front + between.join(blocks),
    st.sampled_from(["", "---\ntitle: x\n---\n", "---\n"]),
    st.lists(BLOCK, max_size=30),
    st.sampled_from(["\n", "\n\n", "\r\n\r\n", "\r"]),
)
ANY_TEXT = st.one_of(
    MARKDOWN, st.text(max_size=400), st.text("ab \n#-`|>\r\t", max_size=400), LINE.map(lambda s: s * 30)
)
SIZES = st.sampled_from([(32, 0), (32, 16), (40, 8), (100, 20), (400, 80)])


def _lines(text: str) -> list[str]:
    starts = line_starts(text)
    return [text[start:end] for start, end in pairwise(starts)]


def test_lines_end_at_cr_lf_or_both() -> None:
    assert _lines("a\nb\r\nc\rd") == ["a\n", "b\r\n", "c\r", "d"]
    assert _lines("a\n") == ["a\n"]
    assert _lines("") == [""]
    assert _lines("\x0b\u2028\x0c") == ["\x0b\u2028\x0c"]


@given(ANY_TEXT, SIZES)
def test_every_line_is_in_a_chunk_and_no_chunk_is_too_long(text: str, size: tuple[int, int]) -> None:
    lines = _lines(text)
    chunks = chunks_of(text, *size)
    covered = {number for chunk in chunks for number in range(chunk.start_line, chunk.end_line + 1)}
    assert {number for number, line in enumerate(lines, 1) if line.strip()} <= covered
    for chunk in chunks:
        assert 1 <= chunk.start_line <= chunk.end_line <= len(lines)
        shown = "".join(lines[chunk.start_line - 1 : chunk.end_line])
        assert chunk.text.strip()
        assert chunk.text in shown
        assert estimate_tokens(chunk.text) <= size[0]
    assert [chunk.start_line for chunk in chunks] == sorted(chunk.start_line for chunk in chunks)


@given(st.lists(st.characters(exclude_categories=["Cs"]), unique=True, max_size=600), SIZES, st.booleans())
def test_no_character_is_lost(characters: list[str], size: tuple[int, int], spaced: bool) -> None:
    """Each stands once in the text, and so do blanks between them, if any."""
    chunks = chunks_of((" " if spaced else "").join(characters), *size)
    assert {each for each in characters if not each.isspace()} <= {each for chunk in chunks for each in chunk.text}


PROSE = "\n".join(f"The lantern number {n} is lit at dusk by the keeper of the harbour." for n in range(200))
ONE_LINE = PROSE.replace("\n", " ")


@pytest.mark.parametrize("text", [PROSE, PROSE.replace("\n", "\n\n"), ONE_LINE, ONE_LINE.replace(". ", " ")])
@pytest.mark.parametrize("overlap", [0, 40, 80])
def test_a_chunk_begins_with_the_end_of_the_one_before(text: str, overlap: int) -> None:
    chunks = chunks_of(text, 400, overlap)
    assert len(chunks) > 5
    for before, after in pairwise(chunks):
        shared = next(
            n for n in range(len(before.text), -1, -1) if after.text.startswith(before.text[len(before.text) - n :])
        )
        tokens = estimate_tokens(before.text[len(before.text) - shared :])
        assert tokens <= overlap
        assert tokens >= overlap * 0.6  # whole lines or sentences, of which each has some twenty tokens
        assert estimate_tokens(before.text) > 300


def test_it_is_cut_before_a_heading_unless_headings_are_lines_like_others() -> None:
    lights, green, boats = PROSE[:1200], PROSE[:900], PROSE[:800]
    text = f"# Harbour\n\nIntro.\n\n## Lights\n\n{lights}\n\n### Green *one*\n\n{green}\n\nBoats\n-----\n\n{boats}\n"
    chunks = chunks_of(text)
    assert [(chunk.heading, chunk.text.splitlines()[0]) for chunk in chunks] == [
        ("Harbour", "# Harbour"),
        ("Harbour > Lights > Green *one*", "### Green *one*"),
        ("Harbour > Boats", "Boats"),
    ]
    assert (chunks[1].start_line, chunks[2].end_line) == (text[: text.index("###")].count("\n") + 1, text.count("\n"))
    text = f"# Harbour\n\n{PROSE[:1000]}\n\n# Lights\n\n{PROSE[:400]}"
    assert [chunk.heading for chunk in chunks_of(text)] == ["Harbour", "Lights"]
    (chunk, *others) = chunks_of(text, at_blocks=False)
    assert "# Lights" in chunk.text
    assert {each.heading for each in (chunk, *others)} == {""}


@pytest.mark.parametrize(
    "block",
    [
        "```python\n" + "\n\n".join(f"value_{n} = {n}" for n in range(30)) + "\n```",
        "| lamp | lit |\n| --- | --- |\n" + "\n".join(f"| {n} | yes |" for n in range(30)),
        "\n\n".join(f"- lantern {n}\n\n  is lit" for n in range(20)),
        "> quoted\n>\n> " + "and quoted\n> " * 30 + "again",
    ],
    ids=["fence", "table", "list", "quotation"],
)
def test_a_block_that_fits_stays_whole(block: str) -> None:
    text = f"{PROSE[:1500]}\n\n{block}\n\n{PROSE[:1500]}"
    assert any(block in chunk.text for chunk in chunks_of(text))


def test_a_block_that_does_not_fit_is_cut_between_its_lines_and_a_letter_of_accents_anywhere() -> None:
    fence = "```\n" + "\n".join(f"line {n} of a long listing" for n in range(200)) + "\n```"
    chunks = chunks_of(f"# Listing\n\n{fence}", 100, 20)
    assert len(chunks) > 10
    assert all(re.fullmatch(r"(?:# Listing|```|line \d+ of a long listing|\n)*", chunk.text) for chunk in chunks)
    assert {chunk.heading for chunk in chunks} == {"Listing"}
    text = "a" + "\u0301" * 5_000
    assert all(estimate_tokens(chunk.text) <= 100 for chunk in chunks_of(text, 100, 20))


@pytest.mark.parametrize(("tokens", "overlap"), [(10, 0), (100, 51), (100, -1)])
def test_sizes_that_make_no_sense_are_refused(tokens: int, overlap: int) -> None:
    with pytest.raises(ValueError, match="overlap"):
        chunks_of("text", tokens, overlap)
