"""The generated block that a Markdown file of the working tree keeps of a project's memories, and a person's changes in
it. Pure.

The first mark says when the block was written and the digest of its text, so that it shows whether a person has changed
it since: in an item whose memory has not changed since then the person's words hold.
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
"""An assistant reads no more of such a file."""
_RESERVED: Final = 5
"""The lines of the marks, and blank ones beside them."""
_OWN_ITEM: Final = re.compile(r"[-*] .*\S.*")


class Kept(NamedTuple):
    """A block as it stands in a file. `is_edited`: its text is not the one that was written at `at` (seconds)."""

    text: str
    at: float
    is_edited: bool


def size_of(text: str, around: str = "") -> int:
    """The size of a file with this block and what stands around it, in bytes: a line counts for so many that
    `MOST_LINES` fill `MOST_BYTES`."""
    lines = len(text.splitlines()) + len(around.splitlines()) + _RESERVED
    return max(len(text.encode()) + len(around.encode()), lines * MOST_BYTES // MOST_LINES)


def kept_in(content: str) -> Kept | None:
    """The block of a file; None: it has none."""
    found = _BLOCK.search(content)
    if found is None:
        return None
    try:
        at = datetime.fromisoformat(found["at"]).timestamp()
    except ValueError:
        at = 0.0
    return Kept(found["text"], at, found["digest"] != _digest(found["text"]))


def with_block(content: str, text: str, at: float) -> str:
    """A file's content with this block in the place of the one it has, or at its end; as it is where it says so.
    List items without an id, which a person has written into the block, come behind it."""
    text = f"{text.strip()}\n".replace("<!--", "<\\!--")  # no memory ends the block
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
    """A file's content with empty lines in the place of the block, whose memories are found as such."""
    return _BLOCK.sub(lambda found: "\n" * found[0].count("\n"), content)


def outside(content: str) -> str:
    """A file's content without the block and blank lines around it."""
    return _BLOCK.sub("", content).strip()


def items_in(text: str) -> Iterator[tuple[str, str]]:
    """The items of one line in a block: the short id of a memory, and the line's words."""
    lines = [*text.splitlines(), ""]
    for line, following in pairwise(lines):
        found = _ITEM.fullmatch(line)
        if found is not None and not following.startswith("  "):
            yield found["id"], found["text"]


def changed_words(edited: str, rendered: str, content: str) -> str | None:
    """The new content of a memory whose item a person has changed from `rendered`; None: that is not to be seen."""
    if content not in rendered or edited == rendered:
        return None
    before, _, after = rendered.partition(content)
    if not (edited.startswith(before) and edited.endswith(after)):
        return None
    return edited[len(before) : len(edited) - len(after)].strip() or None


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:12]
