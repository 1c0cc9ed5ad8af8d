"""Loads the word lists in `lexicon.toml`, and other tables of words. Pure."""

import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any


@cache
def word_lists(module: str) -> Mapping[str, frozenset[str]]:
    return {name: frozenset(words.split()) for name, words in toml_file("lexicon.toml")[module].items()}


@cache
def toml_file(path: str) -> dict[str, Any]:
    """`path` is relative to this package."""
    return tomllib.loads(files(__package__).joinpath(path).read_text("utf-8"))
