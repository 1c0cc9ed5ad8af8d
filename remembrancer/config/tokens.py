"""The tokens with which clients may come over HTTP: made, listed and revoked by a person, looked up by the gateway.

Of a token only the SHA-256 is kept, in `tokens.json` of the home; it is a random text of 256 bits that nobody guesses.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import secrets
from collections.abc import Collection
from pathlib import Path
from typing import Final

import msgspec

from remembrancer.config.json_list import JsonList
from remembrancer.config.project import working_tree_of
from remembrancer.protocol.errors import HomeUnusable
from remembrancer.protocol.sharing import SharedToken
from remembrancer.protocol.writes import ProjectRef

LOOPBACK: Final = frozenset({"127.0.0.1", "localhost", "::1"})
"""The addresses from which only this machine can come."""
FILE: Final = "tokens.json"
SHARED_FILE: Final = "lanes/tokens.json"
"""The tokens of lanes as far as this host knows them, by which it goes when their journals cannot be reached."""
ENDED_FILE: Final = "lanes/sessions.json"
"""The sessions that clients with tokens of lanes have ended at any of their hosts."""
ENDED_KEPT: Final = 2000
"""Sessions that are known one by one to have been ended; of older ones none comes back."""
PREFIX: Final = "rmb_"
RANDOM_BYTES: Final = 32
SESSION_KEY_BYTES: Final = 32
LINK_S: Final = 600.0
"""The time that a link which opens the browser once may wait for it."""
BROWSER_S: Final = 30 * 86_400.0
"""The time that a browser which came by a link stays signed in."""


class Grant(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The rights of a token's holder: to work in these `projects` (directories, the first one where none is named).

    `sha256` is of the token, in hexadecimal; times are seconds since the epoch, and `expires_at` None is never.
    """

    name: str
    sha256: str
    projects: tuple[str, ...]
    created_at: float
    expires_at: float | None = None
    read_only: bool = False
    sees_user: bool = True
    """True if it sees and changes the user's memories, which belong to all projects."""
    every_project: bool = False
    """True if it may work in every project of the home; `projects` says where it begins."""
    once: bool = False
    """True for the token of a link, which is good for one thing: to be exchanged for a browser's own."""


class SharedGrant(Grant, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The rights of the holder of a token that each host of a lane takes, as they are in the project of this host."""

    lane: str
    session_key: bytes


class LaneSessions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The newest sessions that clients with tokens of a lane have ended, by their names, which begin with when they
    began."""

    name: str
    """The lane."""
    ended: tuple[str, ...]

    def has(self, session: str) -> bool:
        """True if a session was ended. Of those that are older than all that are known one by one none goes on."""
        return session in self.ended or (len(self.ended) >= ENDED_KEPT and session < self.ended[0])


class Tokens:
    """The tokens of a home, read anew whenever their file has changed. `takes_shared`: those of its lanes as well."""

    def __init__(self, home: Path, *, takes_shared: bool = False) -> None:
        self._takes_shared = takes_shared
        self._list = JsonList(
            home,
            home / FILE,
            home / f"{FILE}.lock",
            Grant,
            thing="a token",
            things="tokens",
            remedy="make new tokens",
        )
        self._shared = JsonList(
            home,
            home / SHARED_FILE,
            home / f"{SHARED_FILE}.lock",
            SharedGrant,
            thing="a shared token",
            things="shared tokens",
            remedy="start the runtime anew",
        )
        self._ended = JsonList(
            home,
            home / ENDED_FILE,
            home / f"{ENDED_FILE}.lock",
            LaneSessions,
            thing="a lane",
            things="the sessions of lanes",
            remedy="start the runtime anew",
        )

    def all(self) -> tuple[Grant, ...]:
        """Every token that is taken here and was not revoked, expired or not.

        Raises:
            HomeUnusable: a file cannot be read: nobody is let in by it.
        """
        return (*self._list.all(), *(self._shared.all() if self._takes_shared else ()))

    def shared(self) -> tuple[SharedGrant, ...]:
        """The tokens of lanes. Raises `HomeUnusable`."""
        return self._shared.all()

    def session_key(self, sha256: str) -> bytes | None:
        """The key for the ids of sessions with a token that other hosts take too; None: it is of this home alone.

        Raises `HomeUnusable`.
        """
        return next((each.session_key for each in self.shared() if each.sha256 == sha256), None)

    def keep_shared(self, lanes: Collection[str], lane: str = "", grants: tuple[SharedGrant, ...] = ()) -> None:
        """Keep the tokens of the lanes that this home shares, and of one of them the given ones in place of the others.

        For the store, which reads them there.

        Raises:
            OSError: they cannot be written. If one of them opens nothing any more, none does until they can be; and
                where the file cannot be removed either, that one still does.
        """
        known: tuple[SharedGrant, ...] | None = None
        with contextlib.suppress(HomeUnusable):
            known = self._shared.all()
        kept = (*(each for each in known or () if each.lane in lanes and each.lane != lane), *grants)
        if kept != known:
            try:
                with self._shared.writing():
                    self._shared.write(kept)
            except OSError:
                if known is None or not set(known) <= set(kept):
                    self.take_no_shared()
                raise

    def take_no_shared(self) -> None:
        """Have no token of a lane open anything until `keep_shared`. It needs no room. Raises `OSError`."""
        self._shared.remove()

    def keep_ended(self, lanes: Collection[str], sessions: LaneSessions) -> None:
        """Keep the sessions of a lane that were ended, as `keep_shared` does its tokens. Raises `OSError`."""
        known: tuple[LaneSessions, ...] = ()
        with contextlib.suppress(HomeUnusable):
            known = self._ended.all()
        kept = (*(each for each in known if each.name in lanes and each.name != sessions.name), sessions)
        if kept != known:
            with self._ended.writing():
                self._ended.write(kept)

    def has_ended(self, lane: str, session: str) -> bool:
        """True if a client with a token of a lane has ended a session at any of its hosts, or nobody knows."""
        try:
            return any(each.has(session) for each in self._ended.all() if each.name == lane)
        except HomeUnusable:
            return True

    def find(self, token: str, now: float) -> Grant | None:
        """The rights of a token's holder; None: it was never given out, was revoked, or has expired."""
        digest = _digest(token)
        found = [each for each in self.all() if hmac.compare_digest(each.sha256, digest) and not each.once]
        return found[0] if found and self.holds(found[0], now) else None

    def holds(self, grant: Grant, now: float) -> bool:
        """True if that is still so."""
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
        token = token or _new()
        grant = Grant(name, _digest(token), projects, now, expires_at, read_only, sees_user)
        self._list.add(grant, replace=replace)
        return token

    def link(self, directory: str, now: float) -> str:
        """A token that can be exchanged once, for that of a browser which begins in the project of a directory."""
        token = _new()
        name = f"link {token[-6:]}"
        grant = Grant(name, _digest(token), (directory,), now, now + LINK_S, every_project=True, once=True)
        with self._list.writing():
            self._list.write((*self._without_old_links(now), grant))
        return token

    def exchange(self, link: str, now: float) -> str | None:
        """A browser's token in place of that of its link; None if it was exchanged, has expired or is none."""
        token, digest = _new(), _digest(link)
        with self._list.writing():
            known = self._without_old_links(now)
            found = next((each for each in known if each.once and hmac.compare_digest(each.sha256, digest)), None)
            if found is None:
                return None
            own = msgspec.structs.replace(
                found,
                name=f"browser {token[-6:]}",
                sha256=_digest(token),
                created_at=now,
                expires_at=now + BROWSER_S,
                once=False,
            )
            self._list.write((*(each for each in known if each is not found), own))
        return token

    def _without_old_links(self, now: float) -> tuple[Grant, ...]:
        return tuple(each for each in self.all() if not (each.once and each.expires_at and each.expires_at <= now))

    def revoke(self, name: str) -> None:
        """Have a token open nothing any more. Raises `InvalidInput` when there is none of that name."""
        self._list.revoke(name)


def new_shared(name: str, now: float, *, expires_at: float | None, read_only: bool) -> tuple[str, SharedToken]:
    """A new token, which is said this once, and the form of it that hosts are told."""
    token = _new()
    return token, SharedToken(name, _digest(token), secrets.token_bytes(SESSION_KEY_BYTES), now, expires_at, read_only)


def shared_grant(token: SharedToken, lane: str, project: str) -> SharedGrant:
    """The rights that the token of a lane gives at a host, whose project of that lane is in a directory."""
    return SharedGrant(
        token.name,
        token.sha256,
        (project,),
        token.created_at,
        token.expires_at,
        token.read_only,
        sees_user=False,
        lane=lane,
        session_key=token.session_key,
    )


def as_granted(project: ProjectRef, grant: Grant | None, *trees: Path) -> ProjectRef:
    """A project as the holder of a token has it, or (None) who needs none: with no code from outside the token's
    projects and these working trees. Looks at disk."""
    if grant is not None:
        project = msgspec.structs.replace(project, sees_user=grant.sees_user)
        if grant.every_project:
            return project
        trees = (*trees, *(working_tree_of(Path(each)) for each in grant.projects))
    return msgspec.structs.replace(project, code_within=tuple(map(str, trees)))


def _new() -> str:
    return PREFIX + secrets.token_urlsafe(RANDOM_BYTES)


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "replace")).hexdigest()
