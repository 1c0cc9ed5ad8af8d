"""The memories that are being erased: in a file until nothing is left of them, so that a crash leaves none half-way."""

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
    """A memory that is being erased, and the texts by which it is known where it is quoted."""

    operation: Operation
    quotes: tuple[str, ...]


_decode = msgspec.json.Decoder(tuple[Erasing, ...]).decode


class Erasings:
    """The list of them, in the order in which they were begun."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._changing = anyio.Lock()
        self._begun: dict[str, Erasing] = {}
        """By the id of the operation."""
        try:
            self._begun = {each.operation.operation_id: each for each in _decode(read_file(path))}
        except FileNotFoundError:
            pass
        except (OSError, msgspec.DecodeError) as error:
            logger.error("what was being erased is not known", extra={"file": str(path), "reason": str(error)})

    def all(self) -> list[Erasing]:
        """Those that were begun and have not ended."""
        return list(self._begun.values())

    def find(self, operation_id: str) -> Erasing | None:
        """The erasing that an operation began, if it has not ended."""
        return self._begun.get(operation_id)

    async def begin(self, erasing: Erasing) -> None:
        """Note one durably. Raises `MemoryUnavailable`: that cannot be done."""
        async with self._changing:
            await self._keep({**self._begun, erasing.operation.operation_id: erasing})

    async def end(self, erasing: Erasing) -> None:
        """Nothing is left of the memory, or it is not to be erased. Raises `MemoryUnavailable`, as `begin` does."""
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
