"""Tool arguments: generates JSON Schemas from structs, and decodes into structs with errors that name the field."""

import contextlib
import json
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, Generic, TypeVar

import msgspec

from remembrancer.memory.text import nearest, quote, types_in_words
from remembrancer.protocol.errors import InvalidInput

_DROPPED: Final = frozenset({"title", "additionalProperties"})
"""These cost tokens in every session but tell a model little."""


def input_schema(arguments: type[msgspec.Struct]) -> dict[str, Any]:
    """The JSON Schema of a struct, flat enough for every client."""
    root = msgspec.json.schema(arguments)
    inlined: dict[str, Any] = _inline(root, root.get("$defs", {}))
    return {name: each for name, each in inlined.items() if name not in ("$defs", "description")}  # for developers


def _inline(node: Any, definitions: dict[str, Any]) -> Any:
    if isinstance(node, list):
        return [_inline(each, definitions) for each in node]
    if not isinstance(node, dict):
        return node
    if "$ref" in node:
        target = definitions[node["$ref"].rpartition("/")[2]]
        return _inline({**target, **{key: value for key, value in node.items() if key != "$ref"}}, definitions)
    options = node.get("anyOf", ())
    if {"type": "null"} in options:  # an optional argument
        return _inline(options[0], definitions)
    if options and all("enum" in each for each in options):
        node = {"enum": [value for each in options for value in each["enum"]]}
    flat = {
        key: {name: _inline(each, definitions) for name, each in value.items()}
        if key == "properties"
        else _inline(value, definitions)
        for key, value in node.items()
        if key not in _DROPPED and (value or key not in ("required", "default"))
    }
    if "enum" in flat and all(isinstance(each, str) for each in flat["enum"]):
        flat = {"type": "string", **flat}
    return flat


T = TypeVar("T", bound=msgspec.Struct)
_PLACE: Final = re.compile(r" - at `\$(?P<path>[^`]*)`$")
_MISSING: Final = re.compile(r"missing required field `(?P<name>[^`]*)`")


class ArgumentDecoder(Generic[T]):
    def __init__(self, arguments: type[T], aliases: Mapping[str, str] = MappingProxyType({})) -> None:
        self._type = arguments
        self.aliases = aliases
        self.schema = input_schema(arguments)

    def decode(self, arguments: dict[str, Any]) -> T:
        """A bare string stands for a list of one item, and `null` for a missing optional field. A list or an object may
        be JSON text, since some clients send it as text. Raises `InvalidInput`, which names the field."""
        for alias, name in self.aliases.items():
            if alias in arguments:
                if name in arguments:
                    raise InvalidInput(f"{alias} is another name for {name}; give only one of them", field=alias)
                arguments = {(name if key == alias else key): value for key, value in arguments.items()}
        given = _lenient(arguments, self.schema, ())
        try:
            return msgspec.convert(given, self._type)
        except msgspec.ValidationError as error:
            raise self._explain(str(error)) from error

    def _explain(self, message: str) -> InvalidInput:
        place, missing = _PLACE.search(message), _MISSING.search(message)
        path = place["path"] if place else ""
        field = f"{path}.{missing['name']}" if missing else path
        if missing:
            return InvalidInput(f"{field[1:]} is missing", field=field[1:])
        node = self.schema
        for name in re.sub(r"\[\d+\]", "", path).split(".")[1:]:
            while node.get("type") == "array":
                node = node.get("items", {})
            node = node.get("properties", {}).get(name, {})
        allowed = node.get("enum") or node.get("items", {}).get("enum") or ()
        hint = f": one of {', '.join(allowed)}" if allowed else ""
        fields = node.get("properties") or node.get("items", {}).get("properties") or {}
        form = ", ".join(f'"{name}": {"[…]" if each.get("type") == "array" else "…"}' for name, each in fields.items())
        fault = types_in_words(_PLACE.sub("", message))
        if form:
            fault = fault.replace("expected an object", f"expected {{{form}}}", 1)
        return InvalidInput(f"{field[1:]}: {fault}{hint}", field=field[1:])


def _lenient(value: Any, node: dict[str, Any], path: tuple[str, ...]) -> Any:
    """Raises `InvalidInput` for an unknown field, since the decoder cannot name one that contains a lone surrogate."""
    kind = node.get("type")
    if isinstance(value, str) and kind in ("array", "object") and value.lstrip()[:1] in ("[", "{"):
        with contextlib.suppress(ValueError):  # invalid JSON is refused below, unless text is expected
            decoded = json.loads(value)
            if isinstance(decoded, list if kind == "array" else dict):
                value = decoded
    if isinstance(value, dict) and ("properties" in node or not path):
        known, required = node.get("properties", {}), node.get("required", ())
        for name in value:
            if name not in known:
                field = ".".join((*path, quote(name)[1:-1]))
                raise InvalidInput(f"unknown field {quote(name)}{nearest(name, known)}", field=field)
        return {
            name: _lenient(each, known[name], (*path, name))
            for name, each in value.items()
            if each is not None or name in required
        }
    if kind == "array":
        if isinstance(value, str) and value.lstrip().startswith("["):
            return value
        if isinstance(value, str) and node["items"].get("type") == "string":
            return [value]
        if isinstance(value, list):
            return [_lenient(each, node["items"], path) for each in value]
    if isinstance(value, float) and kind == "integer" and value.is_integer():
        return int(value)  # 10.0 is an integer in JSON Schema
    return value
