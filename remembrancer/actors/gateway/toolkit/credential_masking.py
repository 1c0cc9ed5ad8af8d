"""Text with what looks like a credential blotted out: nobody chose to store it, so nobody can be asked. Pure."""

from __future__ import annotations

import re
from typing import Any, Final

from remembrancer.actors.gateway.toolkit.credential_shapes import credentials_in

_KEY_BLOCK: Final = "private key"
_END_OF_KEY: Final = re.compile(r"-----END [A-Z0-9 ]{1,140}-----")


def masked(text: str) -> str:
    """The text with every credential in it replaced by its sort. A key block goes to its end, or to the text's."""
    spans = []
    for found in credentials_in(text):
        end = found.end
        if found.sort == _KEY_BLOCK:
            last = _END_OF_KEY.search(text, end)
            end = last.end() if last else len(text)
        spans.append((found.start, end, found.sort))
    pieces, done = [], 0
    for start, end, sort in sorted(spans):
        if start >= done:
            pieces += [text[done:start], f"[{sort} hidden]"]
        done = max(done, end)
    return "".join([*pieces, text[done:]])


def masked_value(value: Any) -> Any:
    """The same for every text in a value. A member's name stands before its text, since it may say what that is."""
    match value:
        case str():
            return masked(value)
        case list():
            return [masked_value(each) for each in value]
        case dict():
            return {name: _masked_member(name, each) for name, each in value.items()}
        case _:
            return value


def _masked_member(name: str, value: Any) -> Any:
    if not isinstance(value, str):
        return masked_value(value)
    head = f"{name}: "
    whole = masked(head + value)
    return whole.removeprefix(head) if whole.startswith(head) else masked(value)
