"""Texts are cut into chunks, passages and tokens: nothing is lost, and nothing is too long."""

import re
from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remembrancer.actors.embedder.engine import default_tokenizer
from remembrancer.actors.embedder.passages import MeasuredPassage, TokenCounter, split_passages
from remembrancer.memory.chunks import chunks_of, line_starts
from remembrancer.memory.tokens import estimate_tokens, truncate, whole_characters
from tests.cases import cases

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


def test_a_chunk_is_filled_to_its_last_token_and_a_line_that_is_longer_is_cut() -> None:
    line = " ".join(["lamp"] * 32)
    assert [len(chunks_of(f"{line}\n\n{line}", size, 0)) for size in (65, 66)] == [2, 1], "with three line breaks"
    chunks = chunks_of(f"lamp\n{line}\nlamp", 20, 0)
    assert [estimate_tokens(chunk.text) for chunk in chunks] == [1, 20, 14]


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


# --- Splitting: over the default model's own tokenizer, and over one that counts differently where words are cut.
WORD_PIECES = default_tokenizer()
WINDOW = 254
SENTENCES = cases("tokens", "sentences")
TEXTS = st.one_of(
    st.text(max_size=300),
    st.lists(st.one_of(st.sampled_from(SENTENCES), st.text(max_size=12)), max_size=60).map("".join),
)


class Characters:
    """A tokenizer of one token a character, without words: and a piece that does not begin a text costs one more."""

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        return [len(text) + (not text.startswith("^")) for text in texts]


def assert_covers(text: str, passages: list[MeasuredPassage]) -> None:
    assert passages
    assert passages[0].start >= 0
    assert passages[-1].end <= len(text)
    for earlier, later in pairwise(passages):
        assert earlier.start < later.start
        assert earlier.end < later.end
    covered = set[int]().union(*(range(each.start, each.end) for each in passages))
    assert all(index in covered for index, character in enumerate(text) if not character.isspace())


@pytest.mark.parametrize("tokenizer", [WORD_PIECES, Characters()], ids=["word pieces", "characters"])
@given(text=TEXTS, budget=st.integers(min_value=4, max_value=80))
def test_passages_cover_the_text_in_order_and_fit_the_window(tokenizer: TokenCounter, text: str, budget: int) -> None:
    passages = split_passages(text, tokenizer, budget)
    assert_covers(text, passages)
    measured = tokenizer.count_tokens([text[each.start : each.end] for each in passages])
    if len(passages) > 1:
        assert [each.tokens for each in passages] == measured
    for passage in passages:
        assert passage.tokens <= budget or passage.end - passage.start == 1


@pytest.mark.parametrize("text", ["", " ", "\n" * 5000, "\u200d"])
def test_a_text_without_tokens_is_still_one_passage(text: str) -> None:
    assert split_passages(text, WORD_PIECES, WINDOW) == [MeasuredPassage(0, len(text), 0)]


def test_passages_end_where_sentences_end_and_without_spaces_where_tokens_allow() -> None:
    sentences = [f"Sentence number {index} says a thing of its own." for index in range(200)]
    text = " ".join(sentences)
    passages = split_passages(text, WORD_PIECES, WINDOW)
    assert len(passages) > 5
    for passage in passages:
        said = text[passage.start : passage.end]
        assert said.startswith("Sentence number")
        assert said.endswith("own.")
    for earlier, later in pairwise(passages):
        again = text[later.start : earlier.end]
        assert 1 <= len(re.findall(r"own\.", again)) <= 5
        assert sum(WORD_PIECES.count_tokens([again])) <= 254 * 0.2
    text = "我们今天去公园散步" * 100
    passages = split_passages(text, WORD_PIECES, WINDOW)
    assert_covers(text, passages)
    assert sum(each.tokens for each in passages[:-1]) / (len(passages) - 1) > 200
    assert split_passages("  Tea at five. \n", WORD_PIECES, WINDOW) == [MeasuredPassage(2, 14, 4)]


def test_no_more_of_a_huge_text_is_cut_into_tokens_at_once_than_fits_the_memory() -> None:
    asked: list[int] = []

    class Counting(Characters):
        def count_tokens(self, texts: Sequence[str]) -> list[int]:
            asked.append(sum(map(len, texts)))
            return super().count_tokens(texts)

    text = "every line says a thing\n" * 20_000 + "x" * 100_000
    passages = split_passages(text, Counting(), 200)
    assert max(asked) <= 250_000
    assert_covers(text, passages)


# --- Tokens are estimated, rather too many than too few, and no cut takes a character apart.
SAMPLES = cases("tokens", "samples")
COUNTED = cases("tokens", "counted")
"""Texts and how many tokens they have in cl100k_base, counted with tiktoken 0.14."""


@pytest.mark.parametrize(("text", "tokens"), COUNTED)
def test_the_estimate_errs_upwards_and_not_by_much(text: str, tokens: int) -> None:
    assert tokens <= estimate_tokens(text) <= 2 * tokens


def test_an_empty_text_has_no_tokens_and_a_cut_is_between_words_where_there_are_any() -> None:
    assert estimate_tokens("") == 0
    assert estimate_tokens(" " * 1000) == 1
    assert truncate("x" + " " * 1_000_000 + "y", 1) == "x"
    text = "internationalisation considerations notwithstanding " * 10
    cut = truncate(text, 11)
    assert text[len(cut)] == " "
    assert truncate("漢字" * 50, 11) != ""


@given(st.one_of(st.text(max_size=200), st.sampled_from(SAMPLES).map(lambda text: text * 5)), st.integers(0, 60))
def test_a_cut_is_a_beginning_of_the_text_that_fits(text: str, max_tokens: int) -> None:
    text = text.encode(errors="ignore").decode()
    cut = truncate(text, max_tokens)
    assert text.startswith(cut)
    assert estimate_tokens(cut) <= max_tokens
    if estimate_tokens(text) <= max_tokens:
        assert cut == text


@pytest.mark.parametrize("character", ["e\u0301\u0323", "👩‍👩‍👧‍👦", "👍🏽", "कि", "한", "❤️"])
def test_no_cut_takes_a_character_apart(character: str) -> None:
    text = f"{character}" * 3
    whole = {len(character) * count for count in range(4)}
    for end in range(len(text) + 1):
        assert whole_characters(text, end) in whole, end
    for max_tokens in range(1, estimate_tokens(text) + 1):
        cut = truncate(text, max_tokens)
        assert len(cut) in whole or cut == text.rstrip()
