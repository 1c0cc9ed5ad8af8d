"""What a setting may be, in words."""

from __future__ import annotations

from typing import Any

import msgspec

from remembrancer.config.settings import Settings

_TYPES = {field.name: field.type for field in msgspec.structs.fields(Settings)}


def allowed(name: str) -> str:
    """What the setting of that name may be: `a whole number from 0 to 64`."""
    return _in_words(msgspec.json.schema(_TYPES[name]))


def _in_words(schema: dict[str, Any]) -> str:
    if "anyOf" in schema:
        return " or ".join(_in_words(each) for each in schema["anyOf"])
    if "enum" in schema:
        return f"one of {', '.join(schema['enum'])}"
    kind = schema["type"]
    if kind not in ("integer", "number"):
        return {"boolean": "true or false", "null": "none"}.get(kind, "a text")
    noun = "a whole number" if kind == "integer" else "a number"
    low, above, high = (schema.get(bound) for bound in ("minimum", "exclusiveMinimum", "maximum"))
    if above is not None:
        return f"{noun} above {above} and at most {high}"
    return f"{noun} of at least {low}" if high is None else f"{noun} from {low} to {high}"
