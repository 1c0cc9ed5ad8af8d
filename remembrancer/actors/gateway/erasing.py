"""The memories that are being erased: listed in a file until every trace is gone, so that a crash cannot leave one half
erased."""

from __future__ import annotations

import logging
from pathlib import Path

import anyio
import anyio.to_thread
import msgspec

from remembrancer.protocol.errors import MemoryUnavailable
from remembrancer.protocol.paths import read_file, write_whole
from remembrancer.protocol.writes import Operation

logger = logging.getLogger(__name__)


class Erasing(msgspec.Struct, frozen=True):
    """A memory that is being erased, and the texts by which quotes of it are recognised."""

    operation: Operation
    quotes: tuple[str, ...]


_decode = msgspec.json.Decoder(tuple[Erasing, ...]).decode


class Erasings:
    """The list of erasures in progress, in the order in which they began."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._changing = anyio.Lock()
        self._begun: dict[str, Erasing] = {}
        """Erasures by the id of their operation."""
        try:
            self._begun = {each.operation.operation_id: each for each in _decode(read_file(path))}
        except FileNotFoundError:
            pass
        except (OSError, msgspec.DecodeError) as error:
            logger.error("what was being erased is not known", extra={"file": str(path), "reason": str(error)})

    def all(self) -> list[Erasing]:
        """All erasures that have begun and not ended."""
        return list(self._begun.values())

    def find(self, operation_id: str) -> Erasing | None:
        """The erasure that an operation began, if it has not ended."""
        return self._begun.get(operation_id)

    async def begin(self, erasing: Erasing) -> None:
        """Add an erasure durably. Raises `MemoryUnavailable` if that fails."""
        async with self._changing:
            await self._keep({**self._begun, erasing.operation.operation_id: erasing})

    async def end(self, erasing: Erasing) -> None:
        """Remove an erasure that is complete or refused. Raises `MemoryUnavailable`, like `begin`."""
        async with self._changing:
            await self._keep({name: each for name, each in self._begun.items() if each.operation != erasing.operation})

    async def _keep(self, begun: dict[str, Erasing]) -> None:
        try:
            if begun:
                await anyio.to_thread.run_sync(write_whole, self._path, msgspec.json.encode(tuple(begun.values())))
            else:
                self._path.unlink(missing_ok=True)
        except OSError as error:
            raise MemoryUnavailable(f"{self._path} cannot be written: {error.strerror or error}") from error
        self._begun = begun
