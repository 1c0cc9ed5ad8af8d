"""A SentencePiece unigram tokenizer (Kudo, 2018), as XLM-RoBERTa has it, for a vocabulary of 250,000 pieces.

The tokenizers library reads the same pieces into a trie of 240 MB; a dictionary of them takes 40, and words that were
met before are looked up whole. Normalising and splitting between words are the library's.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

from tokenizers import PreTokenizedString, Token, normalizers, pre_tokenizers

from remembrancer.actors.embedder.passages import TokenSpans

WORD_START: Final = "▁"
"""Stands before each word in SentencePiece's pieces."""
UNKNOWN_COSTS: Final = 10.0
"""So much less than the least likely piece is a character that is in none."""
CACHED_WORDS: Final = 16_384
LONGEST_CACHED: Final = 32
"""Characters of a word: 4 MB in all, at the most."""


class UnigramTokenizer:
    """See `ModelTokenizer`: the likeliest pieces of each word, with `▁` before it.

    `pieces` are those that a text may have, with their ids, and `scores`, by id, the logarithms of their probabilities.
    `begin` and `end` are the ids of the marks around a text, `padding` of what fills a row, `unknown` of a character
    without a piece.
    """

    marks = 2

    def __init__(
        self,
        pieces: Mapping[str, int],
        scores: Sequence[float],
        *,
        begin: int,
        end: int,
        padding: int,
        unknown: int,
    ) -> None:
        self.pad_id = padding
        self._pieces, self._scores = pieces, scores
        self._begin, self._end = begin, end
        self._unknown = unknown, min(scores) - UNKNOWN_COSTS
        self._lengths = array("B", bytes(len(scores)))
        self._lengths[unknown] = 1
        for piece, piece_id in pieces.items():
            self._lengths[piece_id] = len(piece)
        self._longest = max(self._lengths)
        self._normalizer: Any = normalizers.Sequence([normalizers.Nmt(), normalizers.NFKC()])
        self._words: Any = pre_tokenizers.WhitespaceSplit()
        self._cached = lru_cache(CACHED_WORDS)(self._find_pieces)

    def spans(self, text: str) -> TokenSpans:
        """The tokens of a text, without the marks."""
        split = PreTokenizedString(text)
        split.normalize(self._normalizer.normalize)
        self._words.pre_tokenize(split)
        split.tokenize(self._tokens)
        encoding = split.to_encoding(0, None)
        words = encoding.word_ids
        opens = [word != previous for word, previous in zip(words, [None, *words], strict=False)]
        return TokenSpans([start for start, _ in encoding.offsets], [end for _, end in encoding.offsets], opens)

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """The number of tokens of each text, without the marks."""
        return [len(self._ids(text)) for text in texts]

    def token_ids(self, texts: Sequence[str], window: int) -> list[list[int]]:
        """See `ModelTokenizer`."""
        return [[self._begin, *self._ids(text)[: window - self.marks], self._end] for text in texts]

    def _ids(self, text: str) -> list[int]:
        words = self._normalizer.normalize_str(text).split()
        return [piece for word in words for piece in self._pieces_of(word)]

    def _tokens(self, word: str) -> list[Token]:
        """The tokens of a word, with offsets in bytes. A `▁` by itself stands where the word begins, and is empty."""
        tokens: list[Token] = []
        begin = end = 0
        reached = -len(WORD_START)
        for piece in self._pieces_of(word):
            length = self._lengths[piece]
            end += len(word[max(reached, 0) : reached + length].encode())
            reached += length
            tokens.append(Token(piece, "", (begin, end)))
            begin = end
        return tokens

    def _pieces_of(self, word: str) -> tuple[int, ...]:
        return self._cached(word) if len(word) <= LONGEST_CACHED else self._find_pieces(word)

    def _find_pieces(self, word: str) -> tuple[int, ...]:
        """The likeliest pieces of `▁` and a word (Viterbi, 1967)."""
        text = WORD_START + word
        unknown, least = self._unknown
        best = [(0.0, unknown)]  # by end: the score, and the last piece
        for end in range(1, len(text) + 1):
            score, last = best[end - 1][0] + least, unknown
            for begin in range(max(0, end - self._longest), end):
                piece = self._pieces.get(text[begin:end])
                if piece is not None and (found := best[begin][0] + self._scores[piece]) > score:
                    score, last = found, piece
            best.append((score, last))
        pieces: list[int] = []
        end = len(text)
        while end > 0:
            pieces.append(best[end][1])
            end -= self._lengths[pieces[-1]]
        return tuple(reversed(pieces))
