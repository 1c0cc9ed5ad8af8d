"""The data sets of the retrieval benchmarks: a file of any form, as memories and questions.

The forms are told in `bench/data_forms.py`. A file may be packed with xz or gzip.
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
    """A file is none of the forms, or holds nothing to ask; the message says what and where."""


class Dataset(msgspec.Struct, frozen=True):
    """The contents of a file. `left_out` counts by their reason the questions that are not asked, `passed_over` what
    else of the file was no use, and what it lacks."""

    form: Literal["LongMemEval", "LoCoMo"]
    haystacks: tuple[Haystack, ...]
    left_out: dict[str, int] = {}
    passed_over: dict[str, int] = {}

    def first(self, count: int | None) -> Dataset:
        """The same with its first `count` questions alone; None: all."""
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
        """The size of the longest memory in UTF-8."""
        return max((len(item.text.encode()) for each in self.haystacks for item in each.items), default=0)


def load(path: Path) -> Dataset:
    """Read a file of either form.

    Raises:
        DataUnusable: it cannot be read, is neither form, or holds nothing to ask.
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
    """The sets of a file of any form by their names; LongMemEval, LoCoMo and an invented week are one set each.

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
    """The JSON of a file, whatever its characters. What is packed is let go of before the values are looked at."""
    data = _unpacked(path.read_bytes())
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError):  # half characters, a byte order mark, NaN
        return json.loads(data.decode("utf-8-sig", "replace"))


def _unpacked(data: bytes) -> bytes:
    if data.startswith(_XZ):
        return lzma.decompress(data)
    return gzip.decompress(data) if data.startswith(_GZIP) else data


def parse(read: Any) -> Dataset:
    """The data in JSON of either form.

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
