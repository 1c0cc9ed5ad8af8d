"""The generated block with a project's memories in a Markdown file of the working tree, and people's edits of it. Pure.

The first mark has the time of writing and the digest of the text, which shows whether a person has edited it since. The
edit of an item counts if its memory has not changed since then.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import pairwise
from typing import Final, NamedTuple

_BEGIN: Final = "<!-- remembrancer: kept from memory, written {at} {digest} -->"
_END: Final = "<!-- /remembrancer -->"
_BLOCK: Final = re.compile(
    r"<!-- remembrancer: [^\n]*?written (?P<at>\S+) (?P<digest>[0-9a-f]{12}) -->\n(?P<text>.*?)"
    r"<!-- /remembrancer -->\n?",
    re.DOTALL,
)
_ITEM: Final = re.compile(r"- (?P<id>[0-9A-Z]{4,26}) (?P<text>.+)")
MOST_BYTES: Final = 25_000
MOST_LINES: Final = 200
"""Assistants read no more lines of such a file."""
_RESERVED: Final = 5
"""The lines of the marks, and the blank lines around them."""
_OWN_ITEM: Final = re.compile(r"[-*] .*\S.*")


class Kept(NamedTuple):
    """The block in a file. `is_edited`: its text differs from the one written at `at` (seconds)."""

    text: str
    at: float
    is_edited: bool


def size_of(text: str, around: str = "") -> int:
    """The size of a file with this block and the text around it, in bytes. Each line counts at least as much as makes
    `MOST_LINES` fill `MOST_BYTES`."""
    lines = len(text.splitlines()) + len(around.splitlines()) + _RESERVED
    return max(len(text.encode()) + len(around.encode()), lines * MOST_BYTES // MOST_LINES)


def kept_in(content: str) -> Kept | None:
    """The block in a file; None if there is none."""
    found = _BLOCK.search(content)
    if found is None:
        return None
    try:
        at = datetime.fromisoformat(found["at"]).timestamp()
    except ValueError:
        at = 0.0
    return Kept(found["text"], at, found["digest"] != _digest(found["text"]))


def with_block(content: str, text: str, at: float) -> str:
    """A file's content with this block in place of the existing one, or at its end; unchanged if the block is the same.
    List items without an id, which a person has added to the block, are moved after it."""
    text = f"{text.strip()}\n".replace("<!--", "<\\!--")  # no memory can end the block
    kept = kept_in(content)
    if kept is not None and kept.text == text:
        return content
    written = datetime.fromtimestamp(int(at), UTC).isoformat().replace("+00:00", "Z")
    block = f"{_BEGIN.format(at=written, digest=_digest(text))}\n{text}{_END}\n"
    if kept is not None:
        own = [line for line in kept.text.splitlines() if _OWN_ITEM.fullmatch(line) and not _ITEM.fullmatch(line)]
        return _BLOCK.sub(lambda _: "\n".join([block, *own, ""]) if own else block, content, count=1)
    return f"{content.rstrip()}\n\n{block}" if content.strip() else block


def without_block(content: str) -> str:
    """A file's content with the block blanked out, since its memories are found by themselves."""
    return _BLOCK.sub(lambda found: "\n" * found[0].count("\n"), content)


def outside(content: str) -> str:
    """A file's content without the block and the blank lines around it."""
    return _BLOCK.sub("", content).strip()


def items_in(text: str) -> Iterator[tuple[str, str]]:
    """The one-line items in a block: the short id of a memory, and the text of the line."""
    lines = [*text.splitlines(), ""]
    for line, following in pairwise(lines):
        found = _ITEM.fullmatch(line)
        if found is not None and not following.startswith("  "):
            yield found["id"], found["text"]


def changed_words(edited: str, rendered: str, content: str) -> str | None:
    """The new content of a memory whose item was edited by a person, given its text `rendered` before; None if the edit
    cannot be mapped."""
    if content not in rendered or edited == rendered:
        return None
    before, _, after = rendered.partition(content)
    if not (edited.startswith(before) and edited.endswith(after)):
        return None
    return edited[len(before) : len(edited) - len(after)].strip() or None


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:12]
