"""Bytes as they come, cut into lines."""

from __future__ import annotations


class LineBuffer:
    """Collects bytes and gives back whole lines. A line over `limit` bytes is thrown away, and counted."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._rest = bytearray()
        self._skipping = False
        self.overlong = 0
        """Lines thrown away so far."""

    def feed(self, data: bytes) -> list[bytes]:
        """The lines that `data` completes, without their newlines."""
        if b"\n" not in data:
            self._keep(data)
            return []
        first, *lines, rest = data.split(b"\n")
        self._keep(first)
        if self._skipping:
            self._skipping = False
        else:
            lines.insert(0, bytes(self._rest))
        self._rest = bytearray()
        self._keep(rest)
        return lines

    def finish(self) -> list[bytes]:
        """The last line, which no newline ends, if there is one."""
        rest, self._rest = bytes(self._rest), bytearray()
        return [rest] if rest else []

    def _keep(self, data: bytes) -> None:
        if self._skipping:
            return
        if len(self._rest) + len(data) > self._limit:
            self._rest = bytearray()
            self._skipping = True
            self.overlong += 1
            return
        self._rest += data
