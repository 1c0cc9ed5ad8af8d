"""Splits source code into chunks: functions, methods, types and the text between them, by syntax if a grammar is
installed, otherwise at blank lines. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Final, NamedTuple

from remembrancer.code.languages import parser_of

if TYPE_CHECKING:
    import tree_sitter

MOST_LINES: Final = 80
"""A longer function is split; a longer class gets one chunk per member."""
MOST_CHARACTERS: Final = 8000
LEAST_LINES: Final = 2
MAX_DEPTH: Final = 12
SIGNATURE_CHARACTERS: Final = 300

_FUNCTION: Final = "function"
_KINDS: Final = {
    _FUNCTION: """function_definition function_declaration function_item function generator_function_declaration
        local_function_statement function_signature function_signature_item macro_definition preproc_function_def
        protocol_function_declaration abstract_function_declaration""",
    "method": """method_definition method_declaration method singleton_method constructor_declaration init_declaration
        deinit_declaration destructor_declaration operator_declaration property_declaration method_signature
        abstract_method_signature secondary_constructor compact_constructor_declaration indexer_declaration
        subscript_declaration method_elem""",
    "class": "class_definition class_declaration class abstract_class_declaration class_specifier object_declaration "
    "object_definition record_declaration companion_object",
    "struct": "struct_specifier struct_item struct_declaration union_specifier union_item",
    "enum": "enum_specifier enum_item enum_declaration enum_definition",
    "interface": "interface_declaration trait_item trait_definition trait_declaration protocol_declaration "
    "annotation_type_declaration",
    "impl": "impl_item extension_declaration extension_definition",
    "module": "module mod_item namespace_definition namespace_declaration internal_module package_object "
    "file_scoped_namespace_declaration",
    "type": "type_alias_declaration type_item type_definition type_spec alias_declaration delegate_declaration "
    "type_alias typealias_declaration",
    "constant": "const_item static_item",
}
_KIND_OF: Final = {name: kind for kind, names in _KINDS.items() for name in names.split()}
OPEN: Final = frozenset({"class", "struct", "enum", "interface", "impl", "module"})
_AROUND: Final = """
    export_statement decorated_definition template_declaration linkage_specification preproc_ifdef preproc_if
    preproc_else declaration_list block statement_block class_body expression_statement ambient_declaration body
    body_statement field_declaration_list enum_body interface_body object_type ERROR template_body enum_class_body
    protocol_body program source_file if_statement try_statement type_declaration singleton_class
"""
_THROUGH: Final = frozenset(_AROUND.split())
_BODIES: Final = frozenset({"class_body", "enum_class_body", "function_body", "field_declaration_list"})
"""The node types of bodies that the grammar does not mark with the field `body`."""
_TYPES: Final = {"struct_type": "struct", "interface_type": "interface"}
_VALUES: Final = re.compile(
    r"arrow_function|function|class|lambda|closure|struct|object|call_expression|new_expression"
)
_COMMENT_LINE: Final = re.compile(r"\s*(?:#[\s\[!]|//|/?\*|--|@)")
"""A comment, a decorator or an attribute, in any language."""
_LINE_DEFINES: Final = re.compile(
    r"""^\s*(?:(?:export|default|public|private|protected|internal|static|final|abstract|async|pub(?:\([^)]*\))?|open|
    override|inline|unsafe|extern|virtual|sealed|data|case|local|mutable|partial|external)\s+)*
    (?P<kind>def|defp|defn-?|defmacro|defmodule|class|function|func|fun|fn|sub|proc|struct|interface|trait|protocol|enum|
    module|namespace|object|record|impl|type|method|let|create\s+(?:table|view|function)|message|service|resource|
    macro)\s+["']?(?P<name>[^\W\d][\w.:!?-]*)""",
    re.VERBOSE | re.IGNORECASE,
)
_TYPES_IN_LINES: Final = {"class", "struct", "interface", "trait", "protocol", "enum", "module", "namespace", "type"}


class Chunk(NamedTuple):
    """Line numbers start at 1 and are inclusive. `name` is dotted, as in `Class.method`. `head` is the signature."""

    start_line: int
    end_line: int
    kind: str
    name: str
    head: str
    text: str


class Definition(NamedTuple):
    node: tree_sitter.Node
    """The definition with any wrappers, such as decorators or `export`."""
    inner: tree_sitter.Node
    kind: str
    name: str


def chunks_of(text: str, language: str, *, is_plain: bool = False) -> list[Chunk]:
    """`is_plain` splits without a parser."""
    parser = None if is_plain else parser_of(language)
    return cut_by_lines(text) if parser is None else list(Source(text, parser).chunks())


class Source:
    def __init__(self, text: str, parser: tree_sitter.Parser) -> None:
        self.data = text.encode("utf-8", "replace")
        self.root = parser.parse(self.data).root_node
        self._lines = text.split("\n")

    def chunks(self) -> Iterator[Chunk]:
        yield from self._region(self.definitions(self.root), 0, len(self._lines) - 1, "", 0)

    def definitions(self, node: tree_sitter.Node, depth: int = 0) -> list[Definition]:
        found: list[Definition] = []
        for child in node.named_children:
            definition = self._definition(child, child)
            if definition is not None:
                found.append(definition)
            elif child.type in _THROUGH and depth < MAX_DEPTH:
                inner = self.definitions(child, depth + 1)
                if len(inner) == 1 and child.type not in ("ERROR", "block", "declaration_list"):
                    inner = [inner[0]._replace(node=child)]
                found += inner
        return found

    def _definition(self, node: tree_sitter.Node, inner: tree_sitter.Node) -> Definition | None:
        kind = _KIND_OF.get(inner.type)
        if kind is not None:
            if kind in OPEN and inner.type.endswith("_specifier") and inner.child_by_field_name("body") is None:
                return None
            name = self._name(inner)
            if inner.type == "type_spec" and (type_ := inner.child_by_field_name("type")) is not None:
                kind = _TYPES.get(type_.type, kind)
                inner = type_ if kind in OPEN else inner
            return Definition(node, inner, kind, name)
        if inner.type in ("public_field_definition", "field_definition"):
            value = inner.child_by_field_name("value")
            if value is None or "function" not in value.type:
                return None
            return Definition(node, value, _FUNCTION, self._name(inner))
        if inner.type in ("lexical_declaration", "variable_declaration", "assignment_statement", "val_definition"):
            for declared in inner.named_children:
                value = declared.child_by_field_name("value")
                is_import = value is not None and self.data.startswith(b"require(", value.start_byte)
                if value is not None and _VALUES.search(value.type) and not is_import:
                    kind = _FUNCTION if re.search("function|lambda|closure", value.type) else "constant"
                    name = self._name(declared) or self._name(inner.named_children[0])
                    return Definition(node, value if kind == _FUNCTION else inner, kind, name)
        if inner.type == "expression_statement" and inner.named_child_count == 1:
            assigned = inner.named_children[0]
            left, right = assigned.child_by_field_name("left"), assigned.child_by_field_name("right")
            if left and right and assigned.type == "assignment_expression" and re.search("function|class", right.type):
                name = re.sub(r"^(?:module\.)?exports(?:\.|$)", "", self._text(left)) or self._name(right)
                return Definition(node, right, _FUNCTION, name)
        return None

    def _region(
        self, definitions: Sequence[Definition], first: int, last: int, above: str, depth: int
    ) -> Iterator[Chunk]:
        at = first
        for definition in definitions:
            node, until = definition.node, definition.node.end_point
            start, end = self._with_comments(node, at), min(last, until.row - (until.column == 0))
            if end < at:  # on the same line as the previous definition
                continue
            start = max(start, at)
            if start > at:
                yield from self._between(at, start - 1, above)
            name = f"{above}.{definition.name}" if above and definition.name else definition.name or above
            yield from self._defined(definition, start, end, name, depth)
            at = end + 1
        if at <= last:
            yield from self._between(at, last, above)

    def _defined(self, definition: Definition, start: int, end: int, name: str, depth: int) -> Iterator[Chunk]:
        kind = "method" if definition.kind == _FUNCTION and "." in name else definition.kind
        head = self._signature(definition)
        is_long = end - start >= MOST_LINES // 2
        if kind in OPEN and (is_long or kind == "module") and depth < MAX_DEPTH:
            body = body_of(definition.inner) or definition.inner
            members = self.definitions(body)
            if members:
                opening = max(start, self._with_comments(members[0].node, start) - 1)
                yield self._chunk(start, opening, kind, name, head)
                yield from self._region(members, opening + 1, end, name, depth + 1)
                return
        for at, until in _portions(self._lines, start, end):
            yield self._chunk(at, until, kind, name, head)

    def _between(self, start: int, end: int, above: str) -> Iterator[Chunk]:
        while start <= end and not self._lines[start].strip():
            start += 1
        while end >= start and not self._lines[end].strip():
            end -= 1
        lines = [line for line in self._lines[start : end + 1] if line.strip() != "end"]
        if any(map(str.isalnum, chain.from_iterable(lines))):
            for at, until in _portions(self._lines, start, end):
                yield self._chunk(at, until, "block", above, "")

    def _chunk(self, start: int, end: int, kind: str, name: str, head: str) -> Chunk:
        return Chunk(start + 1, end + 1, kind, name, head, "\n".join(self._lines[start : end + 1]))

    def _with_comments(self, node: tree_sitter.Node, first: int) -> int:
        start: int = node.start_point.row
        while start > first and _COMMENT_LINE.match(self._lines[start - 1]):
            start -= 1
        return max(first, start)

    def _signature(self, definition: Definition) -> str:
        body, first = body_of(definition.inner), definition.node.start_byte
        end = definition.inner.end_byte if body is None else body.start_byte
        text = self.data[first : min(end, first + 2 * SIGNATURE_CHARACTERS)].decode(errors="replace")
        text = text.partition("\n")[0] if body is None else text
        return " ".join(text.split()).rstrip(" {:=")[:SIGNATURE_CHARACTERS]

    def _name(self, node: tree_sitter.Node) -> str:
        name = (
            node.child_by_field_name("name")
            or _innermost_declarator(node)
            or (node.child_by_field_name("type") if node.type == "impl_item" else None)
            or next((child for child in node.named_children if child.type.endswith("identifier")), None)
            or next(filter(None, map(_name_in, node.named_children)), None)
        )
        if name is None:
            return ""
        text = re.sub(r"::|->|(?<=\w):(?=\w)|(?<!^)#", ".", re.sub(r"\s+|^#", "", self._text(name)))
        if "operator" not in text:
            while (bare := re.sub(r"<[^<>]*>", "", text)) != text:
                text = bare
            text = text.partition("<")[0]
        if (receiver := node.child_by_field_name("receiver")) is not None:  # Go
            owner = re.findall(r"\w+", self._text(receiver).partition("[")[0])
            text = f"{owner[-1]}.{text}" if owner else text
        return text.strip("\"'`")[:200]

    def _text(self, node: tree_sitter.Node) -> str:
        return self.data[node.start_byte : node.end_byte].decode(errors="replace")


def _innermost_declarator(node: tree_sitter.Node) -> tree_sitter.Node | None:
    """In C, pointer, function and parenthesised declarators may be nested."""
    inner = node.child_by_field_name("declarator")
    if inner is None and node.type == "parenthesized_declarator":
        inner = next(iter(node.named_children), None)
    return None if inner is None else _innermost_declarator(inner) or inner


def _name_in(child: tree_sitter.Node) -> tree_sitter.Node | None:
    is_kotlin = child.type == "variable_declaration"
    return child.child_by_field_name("name") or (next(iter(child.named_children), None) if is_kotlin else None)


def body_of(node: tree_sitter.Node) -> tree_sitter.Node | None:
    """None if the grammar does not mark the body."""
    body = node.child_by_field_name("body")
    return body or next((child for child in node.named_children if child.type in _BODIES), None)


def cut_by_lines(text: str) -> list[Chunk]:
    """Split a text without a grammar at unindented lines after blank lines."""
    lines = text.split("\n")
    starts = [0]
    for at in range(1, len(lines)):
        line = lines[at]
        if not line.strip() or line[0].isspace() or line.startswith(("}", ")", "]", "end")):
            continue
        after_blank = not lines[at - 1].strip()
        if at - starts[-1] >= LEAST_LINES and after_blank and (at - starts[-1] > 20 or _LINE_DEFINES.match(line)):
            starts.append(at)
    chunks = []
    for first, after in zip(starts, [*starts[1:], len(lines)], strict=True):
        for start, end in _portions(lines, first, after - 1):
            piece = lines[start : end + 1]
            if not any(map(str.strip, piece)):
                continue
            found = next((match for match in map(_LINE_DEFINES.match, piece[:30]) if match), None)
            name = "" if found is None else found["name"].rstrip(":.-")
            word = "" if found is None else found["kind"].lower()
            kind = "block" if not word else word if word in _TYPES_IN_LINES else _FUNCTION
            signature = "" if found is None else " ".join(found.string.split())[:SIGNATURE_CHARACTERS].rstrip(" {:=")
            chunks.append(Chunk(start + 1, end + 1, kind, name, signature, "\n".join(piece)))
    return chunks


def _portions(lines: Sequence[str], start: int, end: int) -> Iterator[tuple[int, int]]:
    """Split at the last blank line in the last third, if there is one."""
    while start <= end:
        until, size = start, len(lines[start])
        while until < end and until - start < MOST_LINES - 1 and size + len(lines[until + 1]) < MOST_CHARACTERS:
            until += 1
            size += len(lines[until]) + 1
        if until < end:
            last_third = range(until, start + 2 * (until - start) // 3, -1)
            until = next((at for at in last_third if not lines[at].strip()), until)
        yield start, until
        start = until + 1
