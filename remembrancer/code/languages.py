"""Maps file names to languages, and languages to their parsers if the grammar is installed."""

from __future__ import annotations

import importlib
from functools import cache
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import tree_sitter

_PARSED: Final = {
    "python": "py pyi pyx pxd",
    "javascript": "js jsx mjs cjs",
    "typescript": "ts mts cts",
    "tsx": "tsx",
    "go": "go",
    "rust": "rs",
    "java": "java",
    "c": "c h",
    "cpp": "cc cpp cxx hpp hh hxx ipp cu cuh",
    "c_sharp": "cs",
    "ruby": "rb rake gemspec",
    "php": "php",
    "bash": "sh bash zsh",
    "scala": "scala sc sbt",
    "kotlin": "kt kts",
    "swift": "swift",
    "lua": "lua",
}
_ENDINGS: Final = _PARSED | {
    "haskell": "hs",
    "elixir": "ex exs",
    "zig": "zig",
    "clojure": "clj cljs cljc",
    "crystal": "cr",
    "dart": "dart",
    "erlang": "erl hrl",
    "fsharp": "fs fsi fsx",
    "julia": "jl",
    "nim": "nim",
    "objective-c": "m mm",
    "ocaml": "ml mli",
    "perl": "pl pm",
    "r": "r",
    "sql": "sql",
    "svelte": "svelte",
    "vue": "vue",
    "html": "html htm",
    "css": "css scss less",
    "protobuf": "proto",
    "graphql": "graphql gql",
    "terraform": "tf",
    "cmake": "cmake",
    "markdown": "md markdown rst",
    "toml": "toml",
    "yaml": "yml yaml",
}
_NAMES: Final = {"makefile": "make", "dockerfile": "docker", "rakefile": "ruby", "gemfile": "ruby"}
LANGUAGE_OF: Final = {ending: language for language, endings in _ENDINGS.items() for ending in endings.split()}
PROSE: Final = frozenset({"markdown"})
DATA: Final = frozenset({"toml", "yaml"})
_FUNCTIONS: Final = {
    "typescript": ("tree_sitter_typescript", "language_typescript"),
    "tsx": ("tree_sitter_typescript", "language_tsx"),
    "php": ("tree_sitter_php", "language_php"),
}
"""Grammars whose function is not `tree_sitter_<language>.language`."""


def language_of(path: str) -> str | None:
    """Decides by the file's name. None if such files are not read."""
    name = path.rpartition("/")[2].lower()
    return _NAMES.get(name) or LANGUAGE_OF.get(name.rpartition(".")[2] if "." in name else "")


@cache
def parser_of(language: str) -> tree_sitter.Parser | None:
    """None if the grammar is not installed, or is incompatible with the installed library."""
    if language not in _PARSED:
        return None
    package, function = _FUNCTIONS.get(language, (f"tree_sitter_{language}", "language"))
    try:
        import tree_sitter  # the `code` extra installs it with the grammars

        grammar = getattr(importlib.import_module(package), function)()
        return tree_sitter.Parser(tree_sitter.Language(grammar))
    except (ImportError, AttributeError, ValueError):
        return None
