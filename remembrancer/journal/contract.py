"""The contract of a journal: one append-only list of entries for each lane, which every member reads in the same order.

A lane is the unit of ordering, and a `LaneMark` is the position up to which a host has applied it. Positions start at
1, increase and are never reused. No host reads past a deleted entry: a host that has not read it continues from a
snapshot. Each call names the mark from which it continues. If the mark belongs to a different journal (the journal was
deleted and recreated, was restored from an older backup, or merely has the same name), the call raises
`JournalChanged`, and the host stops applying and appending to this lane.

**Appends are atomic**: either all entries are stored next to each other, or none are. Concurrent appends by other hosts
come before or after them, so nobody waits. An entry takes effect at its position, and the caller reads up to it. **An
append without an answer** raises `JournalAway`: its entries may have been stored, or may be stored later, so the caller
reads before it appends them again under new ids. Operations applied once per id take effect exactly once.
"""

import re
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Final, Protocol

import msgspec

from remembrancer.protocol.errors import InvalidInput, RemembrancerError

SNAPSHOT_FORM: Final = 2
MAX_ENTRY_BYTES: Final = 512 * 1024
"""The maximum size before sealing, below the megabyte that a NATS server accepts."""
MAX_APPEND_BYTES: Final = 4 * 1024 * 1024
"""The maximum total size of the bodies in one append."""
_LANE: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")


class LaneMark(msgspec.Struct, frozen=True):
    """The position that a host has reached in a lane. It is stored in the same transaction as the applied entries."""

    journal: str
    """The identity of the lane's journal; "" matches any journal."""
    position: int
    entry_id: str
    """"" matches any entry; at position 0, it means no entry."""


START: Final = LaneMark("", 0, "")


class NewEntry(msgspec.Struct, frozen=True):
    """`id` is 1 to 128 printable ASCII characters without spaces; it is not secret."""

    id: str
    body: bytes


class Entry(msgspec.Struct, frozen=True):
    position: int
    id: str
    body: bytes
    at: float
    """The server's time, in epoch seconds. A later entry may have an earlier time."""


class EntryPage(msgspec.Struct, frozen=True):
    """Entries in order, the mark after the last one, and the newest position of the lane."""

    entries: tuple[Entry, ...]
    mark: LaneMark
    head: int

    @property
    def is_last(self) -> bool:
        return self.mark.position >= self.head


class LaneSnapshot(msgspec.Struct, frozen=True):
    """The state of a lane at a mark, for hosts that have not read the entries before the mark."""

    name: str
    mark: LaneMark
    size_bytes: int
    """The size in the journal, after sealing."""
    form: int = 1
    """The format of content and seal. Release 0.2.0 wrote format 1, which is no longer read."""


class Trimmed(RemembrancerError, retry_possible=True):
    """Raised when the entries after a mark were deleted. The host continues from a snapshot."""

    def __init__(self, first: int) -> None:
        super().__init__(f"the journal begins at position {first}: earlier entries are in a snapshot")
        self.first = first


class Journal(Protocol):
    """A connection to the journals of lanes. Any call may raise `JournalAway` and `JournalRefused`."""

    async def create(self, lane: str) -> LaneMark:
        """Create a journal and return the mark of its start. Raises `InvalidInput` if the lane exists."""

    async def head(self, lane: str) -> int:
        """The newest position of a lane; 0 if it is empty. Raises `JournalChanged` if there is no such lane."""

    async def append(self, lane: str, entries: Sequence[NewEntry], *, behind: LaneMark) -> LaneMark:
        """Append 1 to 1,000 entries with new ids durably, somewhere after the mark `behind`, and return the mark after
        them. Raises `JournalAway` if they may or may not have been appended, `StorageFull`, or `JournalChanged`."""

    async def read(self, lane: str, *, after: LaneMark, limit: int = 1000) -> EntryPage:
        """Return at most `limit` entries after a mark, without a gap, and at least one if any exist. Raises `Trimmed`
        if the next entry was deleted, `EntryDamaged` if it was damaged or forged, `KeyMissing` if this host lacks its
        key, or `JournalChanged`."""

    def watch(self, lane: str) -> AsyncIterator[None]:
        """Yield soon after each append, and occasionally without one, as a hint to read."""

    async def purge(self, lane: str, *, up_to: int) -> None:
        """Delete all entries up to a position permanently. A snapshot must contain them."""

    async def put_snapshot(self, lane: str, mark: LaneMark, content: bytes) -> LaneSnapshot:
        """Store a snapshot, which other hosts see once it is complete."""

    async def snapshots(self, lane: str) -> tuple[LaneSnapshot, ...]:
        """List the snapshots, newest first, in the same order for all hosts."""

    async def get_snapshot(self, lane: str, snapshot: LaneSnapshot) -> bytes:
        """Raises `InvalidInput` if the snapshot was dropped, and the same errors as `read`."""

    async def drop_snapshot(self, lane: str, snapshot: LaneSnapshot) -> None:
        """Delete a snapshot."""

    async def notify(self, lane: str, host: str, body: bytes) -> None:
        """Leave a notice for the members of a lane, replacing this host's previous notice."""

    async def notices(self, lane: str) -> Mapping[str, bytes]:
        """The last notice of each host."""

    async def aclose(self) -> None:
        """Close the connection. Can be called twice."""


def check_name(name: str) -> str:
    """Returns a name of a lane or host unchanged. Raises `InvalidInput` if no journal accepts it."""
    if _LANE.fullmatch(name) is None:
        raise InvalidInput(f"a name is 1 to 64 letters, digits, '-' and '_', not {name[:80]!r}")
    return name
