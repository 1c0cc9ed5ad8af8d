"""The id of a request whose line no decoder takes, so that who sent it does not wait for an answer in vain.

Standard library only, and imported when it is needed: a bridge starts for every session.
"""

from __future__ import annotations

import json
import re

LONGEST_LINE_BYTES = 1024 * 1024
"""A longer line is not searched: it would hold up what else its process has to do."""
_STRING = rb'"[^"\\]*(?:\\.[^"\\]*)*"'
_TOKEN = re.compile(rb'"(?:[^"\\]++|\\.)*+(?:"|\Z)|[\[{]+|[\]}]+', re.DOTALL)
"""Possessive: of a string that nothing ends, none of what is escaped in it is taken for a beginning of its own."""
_ID = re.compile(rb"\s*:\s*(" + _STRING + rb"|-?\d{1,18})\s*[,}]", re.DOTALL)
_COLON = re.compile(rb"\s*:")


def id_of_unread(line: bytes) -> int | str | None:
    """The id in a line that is one object with a `method`, whatever else in it is wrong (`NaN`, or nested too deeply).

    None: it cannot be told, or is none that MCP allows.
    """
    text = line.strip()
    if len(text) > LONGEST_LINE_BYTES or not text.startswith(b"{"):
        return None
    found: bytes | None = None
    depth, has_method = 0, False
    for token in _TOKEN.finditer(text):
        what = token[0]
        if what[0] in b"[{":
            depth += len(what)
        elif what[0] in b"]}":
            depth -= len(what)
            if depth <= 0:
                is_whole = depth == 0 and token.end() == len(text)
                return _read(found) if is_whole and has_method else None
        elif depth == 1 and what == b'"method"':
            has_method = has_method or _COLON.match(text, token.end()) is not None
        elif depth == 1 and what == b'"id"':
            given = _ID.match(text, token.end())
            found = given[1] if given is not None else None
    return None


def _read(written: bytes | None) -> int | str | None:
    if written is None:
        return None
    try:
        value: int | str = json.loads(written)
        str(value).encode()  # half a character cannot be written back
    except ValueError:
        return None
    return value
