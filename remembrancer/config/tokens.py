"""The tokens for clients over HTTP: random strings of 256 bits. `tokens.json` in the home has only their SHA-256."""

import hashlib
import hmac
import secrets
from pathlib import Path
from typing import Final

import msgspec

from remembrancer.config.json_list import JsonList, Named
from remembrancer.config.project import working_tree_of
from remembrancer.protocol.writes import ProjectRef

LOOPBACK: Final = frozenset({"127.0.0.1", "localhost", "::1"})
FILE: Final = "tokens.json"
PREFIX: Final = "rmb_"
RANDOM_BYTES: Final = 32
LINK_S: Final = 600.0
"""A link that opens the browser is valid for this long, and works only once."""
LINK: Final = "link "
BROWSER_S: Final = 30 * 86_400.0
"""A browser that opened a link stays signed in for this long."""


class Grant(Named, frozen=True):
    """The rights of a token's holder. The first of the `projects` (directories) is the default. `sha256` is the token's
    hash, in hexadecimal. Times are seconds since the epoch; `expires_at` None means never."""

    sha256: str
    projects: tuple[str, ...]
    created_at: float
    expires_at: float | None = None
    read_only: bool = False
    sees_user: bool = True
    every_project: bool = False
    """If True, `projects` contains only the default."""
    once: bool = False
    """True for the token of a link, which can only be exchanged, once, for a browser's token."""


class Tokens(JsonList[Grant]):
    """The tokens in a home, including expired ones."""

    def __init__(self, home: Path) -> None:
        super().__init__(home / FILE, Grant, "token")

    def find(self, token: str, now: float) -> Grant | None:
        """None if the token is unknown, revoked or expired."""
        digest = _digest(token)
        matching = [token for token in self.all() if hmac.compare_digest(token.sha256, digest) and not token.once]
        return matching[0] if matching and self.holds(matching[0], now) else None

    def holds(self, grant: Grant, now: float) -> bool:
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
        """Return the token, which is not stored. Raises `InvalidInput` if the name is taken, unless `replace`."""
        token = token or _new()
        grant = Grant(name, _digest(token), projects, now, expires_at, read_only, sees_user)
        self.add(grant, replace=replace)
        return token

    def link(self, directory: str, now: float) -> str:
        """A token that can be exchanged once for a browser's, with a directory's project as the default."""
        token = _new()
        name = f"{LINK}{token[-6:]}"
        grant = Grant(name, _digest(token), (directory,), now, now + LINK_S, every_project=True, once=True)
        with self.writing():
            self.write((*self._without_old_links(now), grant))
        return token

    def exchange(self, link: str, now: float) -> str | None:
        """Exchange a link's token for a browser's. None if it was already exchanged, has expired or is unknown."""
        token, digest = _new(), _digest(link)
        with self.writing():
            known = self._without_old_links(now)
            grant = next((grant for grant in known if grant.once and hmac.compare_digest(grant.sha256, digest)), None)
            if grant is None:
                return None
            name, digest = f"browser {token[-6:]}", _digest(token)
            own = msgspec.structs.replace(
                grant, name=name, sha256=digest, created_at=now, expires_at=now + BROWSER_S, once=False
            )
            self.write((*(entry for entry in known if entry is not grant), own))
        return token

    def _without_old_links(self, now: float) -> tuple[Grant, ...]:
        return tuple(token for token in self.all() if not (token.once and token.expires_at and token.expires_at <= now))


def as_granted(project: ProjectRef, grant: Grant | None, *trees: Path) -> ProjectRef:
    """Limit a project's access to code to the token's projects and these working trees. Reads the disk."""
    if grant is not None:
        project = msgspec.structs.replace(project, sees_user=grant.sees_user)
        if grant.every_project:
            return project
        trees = (*trees, *(working_tree_of(Path(project)) for project in grant.projects))
    return msgspec.structs.replace(project, code_within=tuple(map(str, trees)))


def _new() -> str:
    return PREFIX + secrets.token_urlsafe(RANDOM_BYTES)


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "replace")).hexdigest()
