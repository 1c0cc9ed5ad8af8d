"""Reads the rows of a damaged SQLite file page by page, without SQLite, so that a damaged page costs only its own rows.

The format: https://sqlite.org/fileformat2.html. The write-ahead log is read with the file, up to its last commit.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

Value = int | float | str | bytes | None
Key = tuple[Value, ...]

PAGE_BYTES: Final = 4096
"""The size of a page if the header is unreadable."""
MAGIC: Final = b"SQLite format 3\0"
TABLE: Final = (13, 5)
INDEX: Final = (10, 2)
"""The page types of table trees and index trees: leaf and interior. A table WITHOUT ROWID is an index."""
LOG_MAGIC: Final = (0x377F0682, 0x377F0683)
DAMAGED: Final = (IndexError, struct.error, ValueError, OverflowError)
"""The errors that reading a damaged page raises."""


class Tree(NamedTuple):
    """A b-tree of a database: its root page, the number of columns of its key (0: the rowid), and the possible value
    types of each column, by which orphaned pages are recognised."""

    name: str
    root: int
    key_columns: int
    types: tuple[tuple[type, ...], ...]


class Row(NamedTuple):
    """A stored row: `values` has None for a column that is the rowid."""

    key: Key
    values: tuple[Value, ...]


class Gap(NamedTuple):
    """A gap between two existing keys in which rows are missing; None: from the first, or to the last."""

    after: Key | None
    before: Key | None

    def holds(self, key: Key) -> bool:
        """True if a row with that key would be in the gap."""
        is_after = self.after is None or _order(self.after) < _order(key)
        return is_after and (self.before is None or _order(key) < _order(self.before))


class Pages:
    """The pages of a database file, with newer versions from its log. A missing page is empty."""

    def __init__(self, path: Path) -> None:
        self._content: bytes | mmap.mmap = b""
        if path.is_file() and path.stat().st_size:
            with path.open("rb") as file:
                self._content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        header = self._content[:100]
        self.page_bytes = PAGE_BYTES
        self.reserved = 0
        if header.startswith(MAGIC):
            self.page_bytes = int.from_bytes(header[16:18]) or PAGE_BYTES
            self.page_bytes = 65536 if self.page_bytes == 1 else self.page_bytes
            self.reserved = header[20]
        self._logged: dict[int, bytes] = {}
        log = path.with_name(f"{path.name}-wal")
        if log.is_file():
            self._read_log(log.read_bytes())
        self.count = max(-(-len(self._content) // self.page_bytes), *self._logged, 0)

    def __getitem__(self, number: int) -> bytes:
        if number in self._logged:
            return self._logged[number]
        return self._content[(number - 1) * self.page_bytes : number * self.page_bytes] if number > 0 else b""

    def _read_log(self, log: bytes) -> None:
        if len(log) < 32:
            return
        magic, _, page_bytes, _, *salts, first, second = struct.unpack(">8I", log[:32])
        if magic not in LOG_MAGIC or (self._content[:16] == MAGIC and page_bytes != self.page_bytes):
            return
        order = ">" if magic & 1 else "<"
        if _checksum(log[:24], (0, 0), order) != (first, second):
            return
        self.page_bytes = page_bytes
        sums, waiting = (first, second), dict[int, bytes]()
        for start in range(32, len(log) - page_bytes - 23, 24 + page_bytes):
            head, page = log[start : start + 24], log[start + 24 : start + 24 + page_bytes]
            number, committed, *found_salts, first, second = struct.unpack(">6I", head)
            sums = _checksum(page, _checksum(head[:8], sums, order), order)
            if found_salts != salts or sums != (first, second):
                return
            waiting[number] = page
            if committed:
                self._logged.update(waiting)
                waiting = {}

    def free(self) -> set[int]:
        """The unused pages, as far as their list can be read."""
        found, trunk = set[int](), int.from_bytes(self[1][32:36]) if self[1].startswith(MAGIC) else 0
        while 0 < trunk <= self.count and trunk not in found:
            found.add(trunk)
            page = self[trunk]
            leaves = min(int.from_bytes(page[4:8]), len(page) // 4 - 2)
            found.update(struct.unpack(f">{leaves}I", page[8 : 8 + 4 * leaves]))
            trunk = int.from_bytes(page[:4])
        return found

    def zeroed(self) -> list[int]:
        """The all-zero pages that should have content: SQLite leaves only free pages like that."""
        empty = bytes(self.page_bytes)
        locked = 0x40000000 // self.page_bytes + 1  # SQLite skips this page
        pages = [number for number in range(1, self.count + 1) if self[number] == empty and number != locked]
        return sorted(set(pages) - self.free()) if pages else []


class Salvage:
    """The rows of a database, and the gaps between them.

    `owners` maps pages to their trees in an earlier copy: it decides if an orphaned page would fit two trees.
    """

    def __init__(self, pages: Pages, owners: dict[int, str] | None = None) -> None:
        self._pages = pages
        self._owners = owners or {}
        self._usable = pages.page_bytes - pages.reserved
        self._seen = set[int]()
        self._walked = set[int]()
        self._adopted: dict[str, list[int]] = {}
        self.gaps: dict[str, list[Gap]] = {}
        """Gaps by the name of a tree, after `follow`."""
        self.pages = frozenset[int]()
        """The pages of the trees that were followed."""

    def schema(self) -> list[tuple[Value, ...]]:
        """The readable rows of `sqlite_schema`: type, name, table, root, SQL."""
        return [row.values for row in self._walk(1, TABLE, 0) if row is not None and len(row.values) == 5]

    def follow(self, trees: Sequence[Tree]) -> None:
        """Find the pages and the gaps of each of these trees. Call this before `rows`."""
        for tree in trees:
            for _ in self._rows_of_tree(tree):
                pass
        self.pages = frozenset(self._seen)
        self._seen |= self._pages.free()
        with_gaps = [tree for tree in trees if self.gaps[tree.name]]
        for number in range(2, self._pages.count + 1) if with_gaps else ():
            if number in self._seen or self._pages[number][:1] not in (b"\x0d", b"\x0a", b"\x02"):
                continue
            fitting = [tree.name for tree in with_gaps if self._fits(number, tree)]
            if len(fitting) > 1:
                fitting = [name for name in fitting if name == self._owners.get(number)]
            if len(fitting) == 1:
                self._adopted.setdefault(fitting[0], []).append(number)

    def rows(self, tree: Tree) -> Iterator[Row]:
        """The rows of a tree: first those of orphaned pages, then the others in order."""
        for number in self._adopted.get(tree.name, ()):
            yield from filter(None, self._own_rows(number, tree.key_columns))
        yield from self._rows_of_tree(tree)

    def _rows_of_tree(self, tree: Tree) -> Iterator[Row]:
        gaps: list[Gap] = []
        last: Key | None = None
        is_open = False
        self._walked = set()
        for row in self._walk(tree.root, INDEX if tree.key_columns else TABLE, tree.key_columns):
            if row is None:
                is_open = True
                continue
            if is_open:
                gaps.append(Gap(last, row.key))
            is_open, last = False, row.key
            yield row
        if is_open:
            gaps.append(Gap(last, None))
        self.gaps[tree.name] = gaps

    def _walk(self, number: int, kinds: tuple[int, int], key_columns: int) -> Iterator[Row | None]:
        """The rows below a page, in order; None where some are missing."""
        page, start = self._pages[number], 100 if number == 1 else 0
        kind = page[start] if len(page) == self._pages.page_bytes else 0
        cells = self._cells(page, start) if kind in kinds and number not in self._walked else None
        if cells is None:
            yield None
            return
        self._walked.add(number)
        self._seen.add(number)
        if kind == kinds[0]:
            yield from self._own_rows(number, key_columns)
            return
        for cell in cells:
            yield from self._walk(int.from_bytes(page[cell : cell + 4]), kinds, key_columns)
            if kind == INDEX[1]:
                yield self._row(page, cell + 4, key_columns)
        yield from self._walk(int.from_bytes(page[start + 8 : start + 12]), kinds, key_columns)

    def _own_rows(self, number: int, key_columns: int) -> Iterator[Row | None]:
        """The rows in a page itself."""
        page, start = self._pages[number], 100 if number == 1 else 0
        cells = self._cells(page, start)
        if cells is None:
            yield None
            return
        for cell in cells:
            yield self._row(page, cell + 4 if page[start] == INDEX[1] else cell, key_columns)

    def _cells(self, page: bytes, start: int) -> tuple[int, ...] | None:
        """The offsets of a page's cells; None if they are implausible."""
        count = int.from_bytes(page[start + 3 : start + 5])
        first = start + (8 if page[start] in (TABLE[0], INDEX[0]) else 12)
        behind = first + 2 * count
        if behind > self._usable:
            return None
        cells = struct.unpack(f">{count}H", page[first:behind])
        return cells if all(behind <= cell < self._usable for cell in cells) else None

    def _row(self, page: bytes, cell: int, key_columns: int) -> Row | None:
        """Read a row; None if that fails."""
        try:
            size, cell = _varint(page, cell)
            rowid = 0
            if not key_columns:
                rowid, cell = _varint(page, cell)
                rowid -= (rowid >> 63) << 64
            values = _record(self._payload(page, cell, size, TABLE if not key_columns else INDEX))
        except DAMAGED:
            return None
        return Row(values[:key_columns] if key_columns else (rowid,), values)

    def _payload(self, page: bytes, cell: int, size: int, kinds: tuple[int, int]) -> bytes:
        usable = self._usable
        most = usable - 35 if kinds == TABLE else (usable - 12) * 64 // 255 - 23
        least = (usable - 12) * 32 // 255 - 23
        if size <= most:
            local = size
        else:
            local = least + (size - least) % (usable - 4)
            local = local if local <= most else least
        parts = [page[cell : cell + local]]
        following = int.from_bytes(page[cell + local : cell + local + 4]) if local < size else 0
        size -= local
        empty = bytes(self._pages.page_bytes)
        while size > 0:
            overflow = self._pages[following]
            if overflow == empty or len(overflow) < usable:
                raise ValueError(f"page {following} is empty")
            parts.append(overflow[4 : min(usable, 4 + size)])
            size -= usable - 4
            following = int.from_bytes(overflow[:4])
        return b"".join(parts)

    def _fits(self, number: int, tree: Tree) -> bool:
        """True if an orphaned page may belong to a tree."""
        if (self._pages[number][0] != TABLE[0]) != bool(tree.key_columns):
            return False
        rows = [row for row in self._own_rows(number, tree.key_columns) if row is not None]
        gap = next((gap for gap in self.gaps[tree.name] if rows and gap.holds(rows[0].key)), None)
        shortest = len(tree.types) if self._owners.get(number) != tree.name else 1  # columns may have been added later
        return gap is not None and all(
            gap.holds(row.key)
            and shortest <= len(row.values) <= len(tree.types)
            and all(isinstance(value, types) for value, types in zip(row.values, tree.types, strict=False))
            for row in rows
        )


def owners_of(pages: Pages, trees: Sequence[Tree]) -> dict[int, str]:
    """The tree of each page of a sound database."""
    owners: dict[int, str] = {}
    for tree in trees:
        salvage = Salvage(pages)
        salvage.follow([tree])
        owners.update(dict.fromkeys(salvage.pages, tree.name))
    return owners


def _order(key: Key) -> list[tuple[int, float | bytes]]:
    """A sort key in SQLite's order: numbers, texts by their bytes, blobs."""
    return [
        (1, value)
        if isinstance(value, int | float)
        else (2, value.encode())
        if isinstance(value, str)
        else (3, value)
        if isinstance(value, bytes)
        else (0, 0)
        for value in key
    ]


def _varint(data: bytes, place: int) -> tuple[int, int]:
    """A number of one to nine bytes, and the offset after it."""
    value = 0
    for length in range(8):
        byte = data[place + length]
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            return value, place + length + 1
    return value << 8 | data[place + 8], place + 9


def _record(payload: bytes) -> tuple[Value, ...]:
    """The values of a record. Raises one of `DAMAGED`."""
    end, place = _varint(payload, 0)
    body = end
    values: list[Value] = []
    while place < end:
        kind, place = _varint(payload, place)
        if kind >= 12:
            length = (kind - 12) // 2
        elif kind < 10:
            length = (0, 1, 2, 3, 4, 6, 8, 8, 0, 0)[kind]
        else:
            raise ValueError(f"a value cannot be of the type {kind}")
        content = payload[body : body + length]
        if len(content) < length:
            raise ValueError("a record is cut off")
        body += length
        if kind == 0:
            values.append(None)
        elif kind == 7:
            values.append(float(struct.unpack(">d", content)[0]))
        elif kind in (8, 9):
            values.append(kind - 8)
        elif kind < 7:
            values.append(int.from_bytes(content, signed=True))
        else:
            values.append(content.decode() if kind % 2 else content)
    if place != end or body != len(payload):
        raise ValueError("a record is longer than it says")
    return tuple(values)


def _checksum(data: bytes, sums: tuple[int, int], order: str) -> tuple[int, int]:
    """The checksum of the write-ahead log, continued."""
    first, second = sums
    words = struct.unpack(f"{order}{len(data) // 4}I", data)
    for even, odd in zip(words[::2], words[1::2], strict=True):
        first = (first + even + second) & 0xFFFFFFFF
        second = (second + odd + first) & 0xFFFFFFFF
    return first, second
