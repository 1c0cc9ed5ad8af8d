"""The symbols of a source file, each with a digest of its content that ignores white space, comments and formatting.
Pure."""

from __future__ import annotations

import re
import zlib
from array import array
from collections.abc import Iterable, Iterator
from functools import cache
from hashlib import blake2b
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from remembrancer.code.chunks import DEEPEST, OPEN, Definition, Source, body_of
from remembrancer.code.languages import parser_of

if TYPE_CHECKING:
    import tree_sitter

FILE: Final = "file"
"""The kind of the symbol that stands for the file."""
MOST_PIECES: Final = 64
"""Pieces kept of a symbol, those with the lowest numbers, so that two symbols can be compared (Broder, 1997)."""
LEAST_PIECE: Final = 4
"""Shorter lines, in bytes, are not distinctive."""

_SPACE: Final = b" \t\r\f\\"
_QUOTES: Final = bytes.maketrans(b'"`', b"''")
_BLANKED: Final = b" " * 10 + b"\n" + b" " * 245
_TRAILING: Final = re.compile(rb",(?=[)\]}])|;")
_ENDS: Final = b"\x0e\x0f\x10\x11\x12\x13\x14\x15\x16\x17\x18\x19\x1a\x1b\x1c\x1d\x1e\x1f"
"""Bytes that occur in no text. In indented languages each stands for the number of blocks that end there."""
_ENDED: Final = bytes.maketrans(_ENDS, b"\n" * len(_ENDS))
_LEFT_OUT: Final = re.compile(
    r"comment|^import$|import_(?:from_)?(?:statement|declaration)$|^(?:namespace_)?use_declaration$|^preproc_include$"
)
"""The kinds of nodes for comments and imports."""
_OPERATION: Final = re.compile(r"operator|unary|binary|comparison|call|attribute|subscript|member|await|not|splat")
"""Nodes in which parentheses have a meaning."""
_DOCSTRINGS: Final = {
    "python": "(block . (expression_statement (string)) @out) (module . (expression_statement (string)) @out)"
    " (block) @block"
}


class Symbol(msgspec.Struct, frozen=True, array_like=True):
    """A definition in a file, or the file itself (with an empty name). Lines count from 1. `pieces` are 32-bit numbers:
    of its lines, or, if it is open, of the signatures and statements in it. `digest` covers all of them."""

    name: str
    kind: str
    start_line: int
    end_line: int
    digest: int
    pieces: bytes = b""

    @property
    def is_open(self) -> bool:
        """True if it has members. Their content is theirs, and a new member does not change it."""
        return self.kind in OPEN or self.kind == FILE


class PlacedSymbol(NamedTuple):
    """A symbol and its file."""

    path: str
    symbol: Symbol


def symbols_of(source: Source | None, text: str) -> list[Symbol]:
    """The symbols of a file, the file itself first. Without a grammar it is the only one."""
    rows = 0, text.count("\n")
    if source is None:
        return [Symbol("", FILE, 1, rows[1] + 1, _digest([_joined(_bare(text.encode("utf-8", "replace")))]))]
    data = _cleaned(source)
    return [_outline(source, data, "", FILE, source.root, rows), *_members(source, data, source.root, "", 0)]


def _members(source: Source, data: bytes, body: tree_sitter.Node, above: str, depth: int) -> Iterator[Symbol]:
    for definition in source.definitions(body):
        outer, inner = definition.node, definition.inner
        name = f"{above}.{definition.name}" if above and definition.name else definition.name or above
        kind = "method" if definition.kind == "function" and "." in name else definition.kind
        rows = outer.start_point.row, outer.end_point.row - (outer.end_point.column == 0)
        if kind in OPEN and depth < DEEPEST:
            within = body_of(inner) or inner
            if definition.name:
                yield _outline(source, data, name, kind, within, rows)
            yield from _members(source, data, within, name, depth + 1)
        elif definition.name:
            said = _bare(_unnamed(data, definition))
            pieces = said.translate(_ENDED).split(b"\n")
            yield Symbol(name, kind, rows[0] + 1, rows[1] + 1, _digest([_joined(said)]), _packed(pieces))


def _outline(
    source: Source, data: bytes, name: str, kind: str, body: tree_sitter.Node, rows: tuple[int, int]
) -> Symbol:
    """A symbol with members. Its content is their signatures and its own statements, in any order."""
    members = source.definitions(body)
    spans = [(member.node.start_byte, _signature_end(member)) for member in members]
    taken = [(member.node.start_byte, member.node.end_byte) for member in members]
    at = 0
    for child in body.named_children:  # in the order of the text, like the members
        start, end = child.start_byte, child.end_byte
        while at < len(taken) and taken[at][1] <= start:
            at += 1
        if at == len(taken) or taken[at][0] >= end:
            spans.append((start, end))
    pieces = [piece for start, end in spans if len(piece := _joined(_bare(data[start:end]))) >= LEAST_PIECE]
    return Symbol(name, kind, rows[0] + 1, rows[1] + 1, _digest(sorted(pieces)), _packed(pieces))


def _signature_end(definition: Definition) -> int:
    body = body_of(definition.inner)
    return definition.node.end_byte if body is None else body.start_byte


def _unnamed(data: bytes, definition: Definition) -> bytes:
    """A definition without its own name, so that a renamed one has the same content, and without the block ends that
    follow it, so that the last one of a class has the same content as any other."""
    start, end = definition.node.start_byte, definition.node.end_byte
    name = definition.name.rpartition(".")[2].encode()
    at = data.find(name, definition.inner.start_byte, end)
    if at < 0:
        at = data.find(name, start, end)
    return data[start:at] + data[at + len(name) : end] if at >= 0 else data[start:end]


def _bare(data: bytes) -> bytes:
    """A text without white space except line ends, with all quotes alike."""
    return data.translate(_QUOTES, _SPACE)


def _joined(bare: bytes) -> bytes:
    """The same on one line, without trailing commas. Adjacent strings are joined."""
    return _TRAILING.sub(b"", bare.replace(b"\n", b"")).replace(b"''", b"")


def _digest(pieces: Iterable[bytes]) -> int:
    digest = blake2b(digest_size=8)
    for piece in pieces:
        digest.update(piece + b"\n")
    return int.from_bytes(digest.digest(), signed=True)  # SQLite's integers are signed


def _packed(pieces: Iterable[bytes]) -> bytes:
    numbers = {zlib.crc32(piece) for piece in pieces if len(piece) >= LEAST_PIECE}
    return array("I", sorted(numbers)[:MOST_PIECES]).tobytes()


@cache
def _query(language: str) -> tree_sitter.Query:
    """The query for everything that a digest leaves out, for parentheses, and for blocks that end by indentation."""
    import tree_sitter

    parser = parser_of(language)
    assert parser is not None
    assert parser.language is not None
    grammar = parser.language
    kinds = {
        kind
        for number in range(grammar.node_kind_count)
        if grammar.node_kind_is_visible(number)
        and grammar.node_kind_is_named(number)
        and (kind := grammar.node_kind_for_id(number))
    }
    queries = [f"({kind}) @out" for kind in kinds if _LEFT_OUT.search(kind)]
    if "parenthesized_expression" in kinds:
        queries.append("(parenthesized_expression) @around")
    return tree_sitter.Query(grammar, " ".join((*queries, _DOCSTRINGS.get(language, ""))))


def _cleaned(source: Source) -> bytes:
    """A file's text, with each byte and line in its place. Comments, docstrings, imports and redundant parentheses are
    blank."""
    import tree_sitter

    data = bytearray(source.data + b"\n")
    found = tree_sitter.QueryCursor(_query(source.language)).captures(source.root)
    for node in found.get("out", ()):
        start, end = node.start_byte, node.end_byte
        data[start:end] = data[start:end].translate(_BLANKED)
    for node in found.get("around", ()):
        parent = node.parent
        if parent is None or not _OPERATION.search(parent.type):
            data[node.start_byte] = data[node.end_byte - 1] = ord(" ")
    ends: dict[int, int] = {}
    for node in found.get("block", ()):
        ends[node.end_byte] = ends.get(node.end_byte, -1) + 1
    for at, count in ends.items():
        if data[at] in b" \n\r":
            data[at] = _ENDS[min(count, len(_ENDS) - 1)]
    return bytes(data)
