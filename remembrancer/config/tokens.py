"""The tokens with which clients may come over HTTP: made, listed and revoked by a person, looked up by the gateway.

Of a token only the SHA-256 is kept, in `tokens.json` of the home; it is a random text of 256 bits that nobody guesses.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from pathlib import Path
from typing import Final

import msgspec

from remembrancer.protocol.errors import HomeUnusable, InvalidInput
from remembrancer.protocol.paths import FileLock, write_whole

LOOPBACK: Final = frozenset({"127.0.0.1", "localhost", "::1"})
"""Where only this machine can come from."""
FILE: Final = "tokens.json"
PREFIX: Final = "rmb_"
RANDOM_BYTES: Final = 32


class Grant(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the holder of a token may: work in these `projects` (directories, the first one where none is named).

    `sha256` is of the token, in hexadecimal; times are seconds since the epoch, and `expires_at` None is never.
    """

    name: str
    sha256: str
    projects: tuple[str, ...]
    created_at: float
    expires_at: float | None = None
    read_only: bool = False
    sees_user: bool = True
    """Whether it sees and changes the user's memories, which belong to all projects."""


_decoder: Final = msgspec.json.Decoder(tuple[Grant, ...])


class Tokens:
    """The tokens of a home, read anew whenever the file has changed."""

    def __init__(self, home: Path) -> None:
        self._path = home / FILE
        self._lock = FileLock(home / f"{FILE}.lock")
        self._seen: tuple[int, int, int] | None = None
        self._grants: tuple[Grant, ...] = ()

    def all(self) -> tuple[Grant, ...]:
        """Every token that was made and not revoked, expired or not.

        Raises:
            HomeUnusable: the file cannot be read: nobody is let in by it.
        """
        try:
            about = self._path.stat()
            seen = (about.st_mtime_ns, about.st_size, about.st_ino)
            if seen != self._seen:
                self._grants, self._seen = _decoder.decode(self._path.read_bytes()), seen
        except FileNotFoundError:
            self._grants, self._seen = (), None
        except (OSError, msgspec.DecodeError) as error:
            raise HomeUnusable(
                f"{self._path} cannot be read ({error}): mend or remove it, and make new tokens"
            ) from error
        return self._grants

    def find(self, token: str, now: float) -> Grant | None:
        """What the holder of a token may; None: it was never given out, was revoked, or has expired."""
        digest = _digest(token)
        found = [grant for grant in self.all() if hmac.compare_digest(grant.sha256, digest)]
        return found[0] if found and self.holds(found[0], now) else None

    def holds(self, grant: Grant, now: float) -> bool:
        """Whether that is still so."""
        return grant in self.all() and (grant.expires_at is None or now < grant.expires_at)

    def create(
        self,
        name: str,
        projects: tuple[str, ...],
        now: float,
        *,
        expires_at: float | None = None,
        read_only: bool = False,
        sees_user: bool = True,
        token: str = "",
        replace: bool = False,
    ) -> str:
        """A new token (or `token` itself), which is said this once. `replace`: in place of one of that name.

        Raises:
            InvalidInput: there is one of that name.
        """
        token = token or PREFIX + secrets.token_urlsafe(RANDOM_BYTES)
        with self._writing():
            others = tuple(grant for grant in self.all() if grant.name != name)
            if len(others) < len(self.all()) and not replace:
                raise InvalidInput(f"there is a token {name!r}: revoke it first, or give the new one another name")
            self._write((*others, Grant(name, _digest(token), projects, now, expires_at, read_only, sees_user)))
        return token

    def revoke(self, name: str) -> None:
        """Have a token open nothing any more. Raises `InvalidInput` when there is none of that name."""
        with self._writing():
            left = tuple(grant for grant in self.all() if grant.name != name)
            if len(left) == len(self.all()):
                known = ", ".join(grant.name for grant in left) or "there is none"
                raise InvalidInput(f"there is no token {name!r}: {known}")
            self._write(left)

    def _writing(self) -> FileLock:
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not self._lock.try_acquire():
            raise InvalidInput("tokens are being changed by somebody else: try again")
        return self._lock

    def _write(self, grants: tuple[Grant, ...]) -> None:
        write_whole(self._path, msgspec.json.format(msgspec.json.encode(grants), indent=2))


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "replace")).hexdigest()
