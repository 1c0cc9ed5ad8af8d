"""Input schemas of tools, from their argument structs: inlined, without `$ref` and `anyOf`, and short."""

from __future__ import annotations

from typing import Any, Final

import msgspec

_DROPPED: Final = frozenset({"title", "additionalProperties"})
"""What costs every session tokens and tells a model little: unknown fields are refused at every depth, with a hint."""


def input_schema(arguments: type[msgspec.Struct]) -> dict[str, Any]:
    """The JSON Schema of a struct of arguments, flat enough for every client."""
    root = msgspec.json.schema(arguments)
    inlined: dict[str, Any] = _inline(root, root.get("$defs", {}))
    for name in ("$defs", "description"):  # the struct's docstring is for its readers
        inlined.pop(name, None)
    return inlined


def _inline(node: Any, definitions: dict[str, Any]) -> Any:
    if isinstance(node, list):
        return [_inline(each, definitions) for each in node]
    if not isinstance(node, dict):
        return node
    if "$ref" in node:
        target = definitions[node["$ref"].rpartition("/")[2]]
        return _inline({**target, **{key: value for key, value in node.items() if key != "$ref"}}, definitions)
    flat = {
        key: {name: _inline(each, definitions) for name, each in value.items()}
        if key == "properties"
        else _inline(value, definitions)
        for key, value in node.items()
        if key not in _DROPPED and not (key == "required" and not value)
    }
    if "enum" in flat and all(isinstance(each, str) for each in flat["enum"]):
        flat = {"type": "string", **flat}
    return flat


def describe(schema: dict[str, Any]) -> str:
    """What a schema allows, in words: `a number from 0 to 1`."""
    if "enum" in schema:
        return f"one of {', '.join(schema['enum'])}"
    kind = schema.get("type")
    if kind == "array":
        return f"a list, each item {describe(schema.get('items', {}))}"
    if kind == "object":
        fields = ", ".join(schema.get("properties", {}))
        return f"an object with the fields {fields}" if fields else "an object"
    if kind in ("integer", "number"):
        noun = "an integer" if kind == "integer" else "a number"
        low, high = schema.get("minimum"), schema.get("maximum")
        if low is not None and high is not None:
            return f"{noun} from {low} to {high}"
        return f"{noun} of at least {low}" if low is not None else noun
    return {"string": "a string", "boolean": "true or false"}.get(str(kind), "a value")


def at_path(schema: dict[str, Any], path: list[str]) -> dict[str, Any]:
    """The part of a schema that a path of field names leads to (items of lists are passed through)."""
    node = schema
    for name in path:
        node = _items(node).get("properties", {}).get(name, {})
    return node


def _items(node: dict[str, Any]) -> dict[str, Any]:
    while node.get("type") == "array":
        node = node.get("items", {})
    return node


def fields_at(schema: dict[str, Any], path: list[str]) -> list[str]:
    """The names of the fields that the object at a path may have."""
    return list(_items(at_path(schema, path)).get("properties", {}))
