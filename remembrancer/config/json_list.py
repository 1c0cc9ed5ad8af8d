"""A list of named items in a JSON file in the home. People change it, and processes read it when they need an item."""

from pathlib import Path
from typing import Final, Generic, TypeVar

import msgspec

from remembrancer.protocol.errors import HomeUnusable, InvalidInput
from remembrancer.protocol.file_locks import FileLock
from remembrancer.protocol.paths import read_file, write_whole


class Named(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str


T = TypeVar("T", bound=Named)


class JsonList(Generic[T]):
    """`noun` is the word for an item."""

    def __init__(self, path: Path, kind: type[T], noun: str) -> None:
        self._path, self._noun = path, noun
        self._lock = FileLock(path.with_name(f"{path.name}.lock"))
        self._decoder: Final = msgspec.json.Decoder(tuple[kind, ...])  # type: ignore[valid-type]

    def all(self) -> tuple[T, ...]:
        """Empty if there is no file. Raises `HomeUnusable` if it cannot be read, so that nobody is admitted."""
        try:
            return self._decoder.decode(read_file(self._path))
        except FileNotFoundError:
            return ()
        except (OSError, msgspec.DecodeError) as error:
            advice = f"fix it, or remove it, which revokes every {self._noun}"
            raise HomeUnusable(f"{self._path} cannot be read ({error}): {advice}") from error

    def add(self, new: T, *, replace: bool = False) -> None:
        """Raises `InvalidInput` if the name is taken, unless `replace`."""
        with self.writing():
            others = tuple(item for item in self.all() if item.name != new.name)
            if len(others) < len(self.all()) and not replace:
                remedy = "revoke it first, or use a different name"
                raise InvalidInput(f"another {self._noun} has the name {new.name!r}: {remedy}")
            self.write((*others, new))

    def revoke(self, name: str) -> None:
        with self.writing():
            remaining = tuple(item for item in self.all() if item.name != name)
            if len(remaining) == len(self.all()):
                known = ", ".join(item.name for item in remaining)
                listed = f"valid names are {known}" if known else "none exists"
                raise InvalidInput(f"there is no {self._noun} {name!r}: {listed}")
            self.write(remaining)

    def writing(self) -> FileLock:
        """Take the lock. Raises `InvalidInput` if another process has it."""
        for directory in (self._path.parent.parent, self._path.parent):  # `parents` does not set their mode
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not self._lock.try_acquire():
            raise InvalidInput(f"{self._path} is being changed by another process; try again")
        return self._lock

    def write(self, listed: tuple[T, ...]) -> None:
        write_whole(self._path, msgspec.json.format(msgspec.json.encode(listed), indent=2))
