"""The word lists of `lexicon.toml`. Pure."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files


@cache
def word_lists(module: str) -> Mapping[str, frozenset[str]]:
    """The word lists of one table of the file, by name, in order. Raises `KeyError` if there is no such table."""
    return {name: frozenset(words.split()) for name, words in _tables()[module].items()}


@cache
def _tables() -> Mapping[str, Mapping[str, str]]:
    return tomllib.loads(files(__package__).joinpath("lexicon.toml").read_text("utf-8"))
