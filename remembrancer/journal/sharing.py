"""The sharing state of a home, in its directory `sharing`: `administration.json` with a server administrator's keys,
and `lanes/<lane>.json` for each membership. An invitation is a membership on one line."""

import base64
import binascii
import math
import secrets
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import aclosing, contextmanager, suppress
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from remembrancer.journal.contract import check_name
from remembrancer.journal.jetstream import JetStreamJournal, Server, rights
from remembrancer.journal.nats_accounts import USER, Authority, KeyPair
from remembrancer.journal.sealing import KEY_BYTES, Keyring, Sealed
from remembrancer.journal.server_config import Address, Certificates, server_files
from remembrancer.memory.text import neutralised
from remembrancer.protocol.errors import ConfigurationError, FileUnusable, InvalidInput, RemembrancerError
from remembrancer.protocol.file_locks import FileLock
from remembrancer.protocol.paths import read_file, write_whole

PREFIX: Final = "remembrancer-join:"
MAX_LINE: Final = 64 * 1024
MAX_TITLE: Final = 200
BY_DATABASE: Final = (
    "this release does not share through PostgreSQL. Run 'remembrancer share leave' to keep a copy of these memories "
    "here, then share them again through a NATS server (docs/sharing.md)"
)

T = TypeVar("T")


class Membership(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    lane: str
    title: str
    member: str
    server: Server
    keyring: Keyring
    secret: bytes
    read_only: bool = False
    is_users: bool = False
    """True for the user's own lane, whose members are the user's machines."""


_decode_invitation: Final = msgspec.msgpack.Decoder(Membership).decode
_decode_membership: Final = msgspec.json.Decoder(Membership).decode


class Member(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    user: str
    secret: bytes
    invited_at: float
    read_only: bool = False


class Administration(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    urls: tuple[str, ...]
    authority: Authority
    certificate: str = ""
    certificate_key: str = ""
    members: dict[str, dict[str, Member]] = {}
    keyrings: dict[str, Keyring] = {}
    """All keys of each lane that has a new key, since the new key may not have reached every member."""


JOINED: Final = msgspec.msgpack.encode({"position": 0})
"""Release 0.2.0 reads a position from this notice."""
LEFT: Final = msgspec.msgpack.encode({"position": 0, "left": True})


def has_joined(notice: bytes) -> bool:
    return not msgspec.msgpack.decode(notice).get("left")


_decode_any_administration: Final = msgspec.json.Decoder(dict[str, Any]).decode
_decode_administration: Final = msgspec.json.Decoder(Administration).decode


class Sharing:
    def __init__(self, home: Path) -> None:
        self._home = home
        self._directory = home / "sharing"
        self._administration = self._directory / "administration.json"
        self._lanes = self._directory / "lanes"

    # Memberships

    def memberships(self) -> tuple[Membership, ...]:
        return tuple(self.membership(path.stem) for path in sorted(self._lanes.glob("*.json")))

    def membership(self, lane: str) -> Membership:
        """Raises `InvalidInput` if this home is not a member, and `FileUnusable` if the file cannot be read."""
        path = self._lanes / f"{check_name(lane)}.json"
        if not path.exists():
            raise InvalidInput(f"this home is not a member of the shared lane {lane!r}")
        return _with_shown_title(_read(path, _decode_membership))

    def keep(self, membership: Membership) -> None:
        self._write(self._lanes / f"{membership.lane}.json", membership)

    async def leave(self, lane: str) -> None:
        """Leave a lane. The invitation can be used again if the other members can be notified."""
        membership = self.membership(lane)
        with suppress(RemembrancerError):
            async with aclosing(self.open(membership)) as journal:
                await journal.notify(lane, membership.member, LEFT)
        (self._lanes / f"{lane}.json").unlink()

    async def join(self, invitation: str) -> Membership:
        """No other machine can use the invitation afterwards. A member only adopts newer keys. Raises an error if the
        invitation is invalid or used, if this home is a member under another name, or if this cannot be checked."""
        membership = read_invitation(invitation)
        journal = self.open(membership)
        mine = [each for each in self.memberships() if each.lane == membership.lane]
        if mine and mine[0].member != membership.member:
            raise InvalidInput(
                f"this home is already a member, as {mine[0].member!r}: each invitation is for one machine"
            )
        self.keep(membership)
        if mine:
            return membership
        try:
            word = (await journal.notices(membership.lane)).get(membership.member)
            if word is not None and has_joined(word):
                raise InvalidInput(
                    "another machine has joined with this invitation: each invitation is for one machine "
                    f"(revoke it with 'remembrancer share remove {membership.member}' where it was made)"
                )
            await journal.notify(membership.lane, membership.member, JOINED)
        except RemembrancerError:
            (self._lanes / f"{membership.lane}.json").unlink()
            raise
        finally:
            await journal.aclose()
        return membership

    def open(self, membership: Membership) -> Sealed:
        """Open a lane's journal. Newly delivered keys are saved."""

        def keep_keys(keyring: Keyring) -> None:
            self.keep(msgspec.structs.replace(self.membership(membership.lane), keyring=keyring))

        return Sealed(
            _connection(membership.server),
            membership.keyring,
            member=membership.member,
            secret=membership.secret,
            on_keys=keep_keys,
        )

    # The server and its members

    @property
    def administration(self) -> Administration | None:
        """None if `configure` has not created a server yet."""
        path = self._administration
        # Release 0.2.0 could also use a PostgreSQL database, and a server that admits everybody.
        if not (path.exists() and _read(path, _decode_any_administration).get("authority")):
            return None
        return _read(path, _decode_administration)

    @contextmanager
    def _deciding(self) -> Iterator[None]:
        """Lock out other commands in this home that change memberships. Blocks."""
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        with FileLock(self._directory / "administration.lock") as lock:
            lock.acquire(math.inf)
            yield

    def configure(self, addresses: Sequence[Address]) -> dict[str, dict[str, str]]:
        """Returns each server's files by the name of its directory. The keys are saved, so a call can be repeated."""
        with self._deciding():
            if len(addresses) not in (1, 3):
                raise InvalidInput("a journal has either one server, or three servers, one of which may be unavailable")
            known = self.administration or Administration((), Authority.new())
            is_certified = bool(known.certificate)
            signer = Certificates(known.certificate, known.certificate_key) if is_certified else Certificates.new()
            fields = {"certificate": signer.certificate, "certificate_key": signer.key}
            urls = tuple(address.url for address in addresses)
            self._write(self._administration, msgspec.structs.replace(known, urls=urls, **fields))
            return server_files(known.authority, signer, addresses)

    async def new_lane(self, title: str, member: str, *, is_users: bool = False) -> Membership:
        """This home becomes the first member. Raises `InvalidInput` (no server), `JournalAway` or `JournalRefused`."""
        with self._deciding():
            administration = self.administrated()
            await _tell_servers(administration, administration.authority)  # the first lane's server has no account yet
            lane = f"l_{secrets.token_hex(6)}"
            async with aclosing(_connection(_everything(administration))) as journal:
                await journal.create(lane)
            membership = self._member(administration, lane, title, member, Keyring.new(), is_users=is_users)
            self.keep(membership)
            async with aclosing(self.open(membership)) as own:
                await own.notify(lane, member, JOINED)
            return membership

    async def invite(self, lane: str, member: str) -> str:
        """Return an invitation for one more machine, to be kept secret. Raises `InvalidInput` if the name is taken."""
        with self._deciding():
            administration, own = self.administrated(), self.membership(lane)
            if member in administration.members.get(lane, {}):
                raise InvalidInput(
                    f"{member!r} has already been invited to {own.title!r}: each machine needs a name of its own "
                    f"('remembrancer share remove {member}' revokes an invitation that was lost)"
                )
            keyring = msgspec.structs.replace(_all_keys(administration, own), current=own.keyring.current)
            invited = self._member(administration, lane, own.title, member, keyring, is_users=own.is_users)
            packed = zlib.compress(msgspec.msgpack.encode(invited), 9)
            return PREFIX + base64.urlsafe_b64encode(packed).decode().rstrip("=")

    def _member(
        self, administration: Administration, lane: str, title: str, member: str, keyring: Keyring, *, is_users: bool
    ) -> Membership:
        key = KeyPair.new(USER)
        publishes, hears = rights(lane, member, key.inbox)
        jwt = administration.authority.user(member, publishes, hears, key=key)
        server = Server(administration.urls, jwt, key.seed, administration.certificate)
        secret = secrets.token_bytes(KEY_BYTES)
        known = administration.members.get(lane, {})
        members = {
            **administration.members,
            lane: known | {check_name(member): Member(key.public, secret, time.time())},
        }
        self._write(self._administration, msgspec.structs.replace(administration, members=members))
        return Membership(lane, title, member, server, keyring, secret, is_users=is_users)

    async def remove(self, lane: str, member: str) -> None:
        """Remove a member, and deliver a new key to the others. Can be repeated if interrupted."""
        with self._deciding():
            administration, own = self.administrated(), self.membership(lane)
            members = administration.members.get(lane, {})
            if member not in members:
                known = ", ".join(sorted(members)) or "nobody"
                raise InvalidInput(f"{own.title!r} has no member {member!r}: {known}")
            if member == own.member:
                raise InvalidInput("this machine is that member; leave with 'remembrancer share leave'")
            authority = administration.authority.revoking(members[member].user)
            await _tell_servers(administration, authority)
            newer = Keyring.new(_all_keys(administration, own))
            keyrings = {**administration.keyrings, lane: newer}
            administration = msgspec.structs.replace(administration, authority=authority, keyrings=keyrings)
            self._write(self._administration, administration)
            remaining = {name: each for name, each in members.items() if name != member}
            # With the administrator's permissions, since members may not write notices that deliver keys to others.
            everything = Sealed(_connection(_everything(administration)), own.keyring)
            async with aclosing(everything):
                await everything.hand_keys(lane, newer, {name: each.secret for name, each in remaining.items()})
                await everything.notify(lane, member, LEFT)
            self.keep(msgspec.structs.replace(own, keyring=newer))
            members_now = {**administration.members, lane: remaining}
            self._write(self._administration, msgspec.structs.replace(administration, members=members_now))

    def administrated(self) -> Administration:
        if (administration := self.administration) is None:
            raise InvalidInput(
                "this home has no server to share through; run 'remembrancer share server-config' here, or invite "
                "machines from the home where that was done ('remembrancer share join' accepts an invitation)"
            )
        return administration

    def _write(self, path: Path, what: msgspec.Struct) -> None:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_whole(path, msgspec.json.format(msgspec.json.encode(what), indent=2))


def _all_keys(administration: Administration, own: Membership) -> Keyring:
    """Includes the key of an interrupted removal."""
    known = administration.keyrings.get(own.lane, own.keyring)
    return Keyring({**known.keys, **own.keyring.keys}, known.current)


def read_invitation(text: str) -> Membership:
    line = "".join(text.split())
    if not line.startswith(PREFIX):
        raise InvalidInput(f"an invitation is one line that begins with {PREFIX}, or a file with that line")
    packed = line.removeprefix(PREFIX)
    try:
        raw = zlib.decompressobj().decompress(base64.urlsafe_b64decode(packed + "=" * (-len(packed) % 4)), MAX_LINE)
        membership = _decode_invitation(raw)
    except (binascii.Error, ValueError, zlib.error, msgspec.DecodeError) as error:
        raise InvalidInput("the invitation is damaged, or from a newer release; copy all of it again") from error
    check_name(membership.lane)
    check_name(membership.member)
    return _with_shown_title(membership)


def _with_shown_title(membership: Membership) -> Membership:
    """Reduce the title, which others wrote, to one harmless line."""
    return msgspec.structs.replace(membership, title=" ".join(neutralised(membership.title).split())[:MAX_TITLE])


def _connection(server: Server) -> JetStreamJournal:
    """Raises `ConfigurationError` for a PostgreSQL database."""
    if any(url.startswith(("postgresql://", "postgres://")) for url in server.urls):
        raise ConfigurationError(BY_DATABASE)
    return JetStreamJournal(server)


def _everything(administration: Administration) -> Server:
    key = KeyPair.new(USER)
    jwt = administration.authority.user("administration", [">"], [">"], key=key)
    return Server(administration.urls, jwt, key.seed, administration.certificate)


async def _tell_servers(administration: Administration, authority: Authority) -> None:
    key = KeyPair.new(USER)
    jwt = authority.user("authority", ["$SYS.REQ.CLAIMS.UPDATE"], [f"{key.inbox}.>"], key=key, of_system=True)
    server = Server(administration.urls, jwt, key.seed, administration.certificate)
    async with aclosing(_connection(server)) as journal:
        await journal.send_account(authority.account_jwt())


def _read(path: Path, decode: Callable[[bytes], T]) -> T:
    try:
        return decode(read_file(path))
    except (OSError, msgspec.DecodeError) as error:
        raise FileUnusable(f"{path} cannot be read: {error}") from error
