"""Reads the data sets of the retrieval benchmarks: a file of any format, as memories and questions.

The formats are described in `bench/data_forms.py`. A file may be compressed with xz or gzip.
"""

from __future__ import annotations

import gzip
import json
import lzma
import zlib
from collections import Counter
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from bench.data_forms import Haystack, Left, advice, locomo, longmemeval, named_sets, week

_XZ: Final = b"\xfd7zXZ\x00"
_GZIP: Final = b"\x1f\x8b"


class DataUnusable(Exception):
    """A file has no known format, or no questions; the message says what is wrong and where."""


class Dataset(msgspec.Struct, frozen=True):
    """The contents of a file. `left_out` counts the questions left out, by reason, and `passed_over` other unusable or
    missing content."""

    form: Literal["LongMemEval", "LoCoMo"]
    haystacks: tuple[Haystack, ...]
    left_out: dict[str, int] = {}
    passed_over: dict[str, int] = {}

    def first(self, count: int | None) -> Dataset:
        """Return the data set with only its first `count` questions; None: all."""
        if count is None:
            return self
        left, kept = count, []
        for haystack in self.haystacks:
            questions = haystack.questions[:left]
            left -= len(questions)
            if questions:
                kept.append(msgspec.structs.replace(haystack, questions=questions))
        return msgspec.structs.replace(self, haystacks=tuple(kept))

    @property
    def longest_bytes(self) -> int:
        """The size of the longest memory in UTF-8 bytes."""
        return max((len(item.text.encode()) for each in self.haystacks for item in each.items), default=0)


def load(path: Path) -> Dataset:
    """Read a file of either format.

    Raises:
        DataUnusable: it cannot be read, has neither format, or has no questions.
    """
    try:
        read = _decoded(path)
    except (OSError, EOFError, lzma.LZMAError, zlib.error) as error:
        raise DataUnusable(f"{path} cannot be read: {error}") from error
    except (ValueError, RecursionError) as error:
        raise DataUnusable(f"{path} is no JSON: {error}") from error
    try:
        return parse(read)
    except DataUnusable as error:
        raise DataUnusable(f"{path}: {error}") from error


def load_sets(path: Path) -> dict[str, tuple[Haystack, ...]]:
    """Read the sets of a file of any format by name; LongMemEval, LoCoMo and an invented week are one set each.

    Raises:
        DataUnusable: see `load`.
    """
    try:
        read = _decoded(path)
        if isinstance(read, dict) and all(isinstance(each, dict) and "haystacks" in each for each in read.values()):
            return named_sets(read)
        if isinstance(read, dict) and "facts" in read:
            return {path.stem: (advice(path.stem, read),)}
        if isinstance(read, dict) and "memories" in read:
            return {path.stem: tuple(week(path.stem, read))}
    except (OSError, EOFError, ValueError, KeyError, TypeError, lzma.LZMAError, zlib.error) as error:
        raise DataUnusable(f"{path} cannot be read: {error!r}") from error
    dataset = parse(read)
    return {dataset.form: dataset.haystacks}


def _decoded(path: Path) -> Any:
    """Decode the JSON of a file in any encoding. Compressed data is freed before the values are read."""
    data = _unpacked(path.read_bytes())
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError):  # lone surrogates, a byte order mark, NaN
        return json.loads(data.decode("utf-8-sig", "replace"))


def _unpacked(data: bytes) -> bytes:
    if data.startswith(_XZ):
        return lzma.decompress(data)
    return gzip.decompress(data) if data.startswith(_GZIP) else data


def parse(read: Any) -> Dataset:
    """Parse JSON data of either format.

    Raises:
        DataUnusable: see `load`.
    """
    left = Left(questions=Counter(), others=Counter())
    form: Literal["LongMemEval", "LoCoMo"]
    match read:
        case {"questions": list(questions), "sessions": dict(sessions)}:
            form, haystacks = "LongMemEval", longmemeval(questions, sessions, left)
        case list(samples) if any(isinstance(each, dict) and {"conversation", "qa"} <= each.keys() for each in samples):
            form, haystacks = "LoCoMo", locomo(samples, left)
        case _:
            raise DataUnusable(
                f"neither LongMemEval (an object with `questions` and `sessions`) nor LoCoMo (a list of objects with "
                f"`conversation` and `qa`), but {_shape(read)}"
            )
    if not any(haystack.questions for haystack in haystacks):
        why = ", ".join(f"{count} {reason}" for reason, count in left.questions.items())
        raise DataUnusable(f"there is no question that can be asked ({why or 'there is none at all'})")
    return Dataset(form, tuple(haystacks), dict(left.questions), dict(left.others))


def _shape(read: Any) -> str:
    if isinstance(read, dict):
        return f"an object with {', '.join(f'`{key}`' for key in list(read)[:8]) or 'nothing in it'}"
    if isinstance(read, list):
        return f"a list that begins with {_shape(read[0])}" if read else "an empty list"
    return f"a {type(read).__name__}"
