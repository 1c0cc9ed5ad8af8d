"""Writes the block with a project's memories in a Markdown file of the working tree. Digests of the text and of each
item reveal people's edits, which are kept after the block. Pure."""

import base64
import hashlib
import re
from datetime import UTC, datetime
from typing import Final, NamedTuple

_BEGIN: Final = "<!-- remembrancer: kept from memory, items {items}, written {at} {digest} -->"
_END: Final = "<!-- /remembrancer -->"
_BLOCK: Final = re.compile(
    r"<!-- remembrancer: kept from memory, items (?P<items>[\w-]*), written \S+ (?P<digest>[0-9a-f]{12})"
    r" -->\n(?P<text>.*?)<!-- /remembrancer -->\n?",
    re.DOTALL,
)
_ITEM: Final = re.compile(r"- [0-9A-HJKMNP-TV-Z]{4,26} .")
_ITEM_DIGEST: Final = 4
"""The number of characters in an item's digest."""
ASIDE: Final = " (edited above; change the memory with 'remembrancer edit')"
MOST_BYTES: Final = 25_000
MOST_LINES: Final = 200
"""Assistants read at most this many lines of a file with a block."""
_RESERVED: Final = 5
"""Lines for the marks and the blank lines around them."""
_RESERVED_BYTES: Final = len(_BEGIN.format(items="", at="2026-11-27T12:00:00Z", digest="0" * 12) + _END) + _RESERVED


class Kept(NamedTuple):
    """A block, and the items that people have changed or added since it was written."""

    text: str
    edits: tuple[str, ...] = ()


def size_of(text: str, around: str = "") -> int:
    """The size in bytes of a file with this block and the text around it, or `MOST_BYTES / MOST_LINES` per line."""
    lines = len(text.splitlines()) + len(around.splitlines()) + _RESERVED
    in_mark = _ITEM_DIGEST * len(items_in(text))
    own = len(text.encode()) + len(around.encode())
    return max(own + in_mark + _RESERVED_BYTES, lines * MOST_BYTES // MOST_LINES)


def kept_in(content: str) -> Kept | None:
    match = _BLOCK.search(content)
    if match is None:
        return None
    if match["digest"] == _digest(match["text"]):
        return Kept(match["text"])
    items, written = items_in(match["text"]), match["items"]
    digests = {written[place : place + _ITEM_DIGEST] for place in range(0, len(written), _ITEM_DIGEST)}
    return Kept(match["text"], tuple(item for item in items if _item_digest(item) not in digests))


def with_block(content: str, text: str, at: float) -> str:
    """Replace or append a file's block. People's edits to the previous block follow the new one."""
    text = f"{text.strip()}\n".replace("<!--", "<\\!--")  # so that no memory can end the block
    kept = kept_in(content)
    if kept is not None and kept.text == text:
        return content
    items = items_in(text)
    written = datetime.fromtimestamp(int(at), UTC).isoformat().replace("+00:00", "Z")
    begin = _BEGIN.format(items="".join(map(_item_digest, items)), at=written, digest=_digest(text))
    block = f"{begin}\n{text}{_END}\n"
    if kept is None:
        return f"{content.rstrip()}\n\n{block}" if content.strip() else block
    own = [f"{edit}{ASIDE if _ITEM.match(edit) else ''}" for edit in kept.edits if edit not in items]
    return _BLOCK.sub(lambda _: "\n".join([block, *own, ""]) if own else block, content, count=1)


def without_block(content: str) -> str:
    """Blank out the block, since its memories are found separately."""
    return _BLOCK.sub(lambda found: "\n" * found[0].count("\n"), content)


def outside(content: str) -> str:
    return _BLOCK.sub("", content).strip()


def items_in(text: str) -> list[str]:
    items: list[str] = []
    for line in filter(str.strip, text.splitlines()):
        if line.startswith("  ") and items:
            items[-1] += f"\n{line}"
        else:
            items.append(line)
    return items


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:12]


def _item_digest(item: str) -> str:
    digest = hashlib.sha256(item.encode("utf-8", "replace")).digest()
    return base64.urlsafe_b64encode(digest[:3]).decode()
