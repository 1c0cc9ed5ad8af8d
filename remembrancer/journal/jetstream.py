"""A journal on NATS JetStream: two streams for each lane, one for entries, and one for snapshots and notices.

The server orders the entries, and several are sent as one atomic batch (since server 2.12). The identity of the journal
is part of the subject, so a recreated stream rejects anything meant for its predecessor. Reads are batched direct gets,
which any replica can answer, so a gap in one replica counts as a deletion only if the leader confirms it. Each read
begins with the entry at the reader's mark, which proves that the stream is still the same. A watch is a plain
subscription to the appended entries. No consumer is created, and a member needs only the permissions in `rights`.
"""

import asyncio
import logging
import re
import secrets
import ssl
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import datetime
from typing import Any, Final, cast
from urllib.parse import urlsplit

import msgspec
import nats.errors
from nats.aio.client import Client
from nats.aio.msg import Msg

from remembrancer.journal.contract import (
    SNAPSHOT_FORM,
    Entry,
    EntryPage,
    Journal,
    LaneMark,
    LaneSnapshot,
    NewEntry,
    Trimmed,
    check_name,
)
from remembrancer.journal.nats_accounts import KeyPair
from remembrancer.protocol.errors import (
    EntryDamaged,
    InvalidInput,
    JournalAway,
    JournalChanged,
    JournalRefused,
    StorageFull,
)

OLDEST_SERVER: Final = (2, 12)
"""The first release with atomic batches."""
ANSWER_S: Final = 5.0
"""The time limit for one answer from the server."""
CONNECT_S: Final = 2.0
"""The time limit for connecting to one of several servers."""
CLOSE_S: Final = 1.0
LAG_S: Final = 15.0
"""The leader of a cluster may report too few entries for this long, which is longer than an election takes."""
HINT_S: Final = 30.0
"""A watch yields at this interval, in case hints were lost with a connection."""
PAGE_BYTES: Final = 4 * 1024 * 1024
PIECE_BYTES: Final = 512 * 1024
"""Like entries, the pieces of a snapshot are below the server's limit for a message."""
PIECES: Final = 8
"""The number of pieces requested at once."""
_STREAM_NOT_FOUND: Final = 10059
_NAME_IN_USE: Final = 10058
_FULL: Final = (10023, 10028, 10047, 10077, 10110)
_decode_snapshot: Final = msgspec.json.Decoder(LaneSnapshot).decode
_decode_answer: Final = msgspec.json.Decoder(dict[str, Any]).decode
REMOVED: Final = (
    ". If this machine was removed, it needs a new invitation; 'remembrancer share leave' keeps its copy of the "
    "memories"
)
LOOPBACK: Final = frozenset({"127.0.0.1", "localhost", "::1"})
_ID: Final = "Nats-Msg-Id"
_IDENTITY: Final = "remembrancer_id"
_REFUSED: Final = re.compile(
    r"permissions violation|authorization violation|authentication (expired|revoked)|user authentication", re.IGNORECASE
)


logger = logging.getLogger(__name__)


class Server(msgspec.Struct, frozen=True):
    """The servers of a journal, and the credentials for them."""

    urls: tuple[str, ...]
    """`nats://host:port` or `tls://host:port`, all of one cluster."""
    user_jwt: str = ""
    user_seed: str = ""
    """In NATS's formats; empty if the server requires no credentials."""
    ca_pem: str = ""
    """The certificate authorities. "" means those that this machine trusts."""


def entries_stream(lane: str) -> str:
    return f"RMB_{check_name(lane)}"


def state_stream(lane: str) -> str:
    return f"RMBS_{check_name(lane)}"


def rights(lane: str, member: str, inbox: str) -> tuple[list[str], list[str]]:
    both = (entries_stream(lane), state_stream(lane))
    reads = [f"$JS.API.{verb}.{stream}" for stream in both for verb in ("STREAM.INFO", "STREAM.MSG.GET", "DIRECT.GET")]
    state = f"rmb.{lane}.s"
    says = [f"{state}.{name}" for name in (f"host.{check_name(member)}", "piece.*.*", "snapshot.*")]
    purges = [f"$JS.API.STREAM.PURGE.{stream}" for stream in both]
    return [*reads, *purges, *says, f"rmb.{lane}.e.*"], [f"rmb.{lane}.e.*", f"{inbox}.>"]


class JetStreamJournal(Journal):
    """The connection is opened on first use and reopened after a loss."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._key = KeyPair(server.user_seed) if server.user_seed else None
        self._client: Client | None = None
        self._connecting = asyncio.Lock()
        self._refusal = ""
        """The server's reason for refusing this host or a request."""
        self._journals: dict[str, str] = {}
        """Maps each lane to its journal's identity, once the current connection has verified it."""

    async def send_account(self, account_jwt: str) -> None:
        if "error" in await self._ask("$SYS.REQ.CLAIMS.UPDATE", account_jwt.encode()):
            raise JournalRefused("the server does not accept the account: it was not configured from this home")

    async def create(self, lane: str) -> LaneMark:
        identity = secrets.token_hex(16)
        shared: dict[str, object] = {
            "storage": "file",
            "allow_direct": True,
            "num_replicas": 3 if len(self._server.urls) >= 3 else 1,
            "metadata": {_IDENTITY: identity},
        }
        entries = {"subjects": [f"rmb.{lane}.e.{identity}"], "allow_atomic": True, "discard": "new"}
        state = {"subjects": [f"rmb.{lane}.s.>"], "max_msgs_per_subject": 1}
        for stream, config in ((entries_stream(lane), entries), (state_stream(lane), state)):
            answer = await self._call(f"STREAM.CREATE.{stream}", {"name": stream, **shared, **config})
            if answer.get("error", {}).get("err_code") == _NAME_IN_USE:
                raise InvalidInput(f"the lane {lane!r} already exists")
            _check(answer)
        return LaneMark(identity, 0, "")

    async def head(self, lane: str) -> int:
        return int((await self._info(lane))["state"]["last_seq"])

    async def append(self, lane: str, entries: Sequence[NewEntry], *, behind: LaneMark) -> LaneMark:
        identity = await self._verified(lane, behind)
        batch, subject = secrets.token_hex(16), f"rmb.{lane}.e.{identity}"
        async with self._connected() as client:
            for number, entry in enumerate(entries, start=1):
                headers = {_ID: entry.id}
                if len(entries) > 1:
                    headers |= {"Nats-Batch-Id": batch, "Nats-Batch-Sequence": str(number)}
                if number < len(entries):
                    await client.publish(subject, entry.body, headers=headers)
                    continue
                if len(entries) > 1:
                    headers["Nats-Batch-Commit"] = "1"
                answer = await self._ask(subject, entry.body, headers, lane=lane)
        _check(answer)
        if answer["seq"] <= behind.position:
            raise JournalChanged.shorter(behind.position, answer["seq"])
        return LaneMark(identity, answer["seq"], entries[-1].id)

    async def read(self, lane: str, *, after: LaneMark, limit: int = 1000) -> EntryPage:
        request = {"seq": max(1, after.position), "batch": limit + 1, "max_bytes": PAGE_BYTES}
        messages = await self._get(lane, entries_stream(lane), request)
        is_there = bool(messages) and _sequence(messages[0]) <= after.position
        identity = _subject(messages[0]).rpartition(".")[2] if messages else after.journal
        is_ours = after.journal in ("", identity)
        if not is_ours or (is_there and after.entry_id not in ("", _header(messages[0], _ID))):
            raise JournalChanged.other()
        messages = messages[1:] if is_there else messages[:limit]
        following = after.position + 1
        if not messages:
            return await self._end(lane, after)
        if _sequence(messages[0]) != following:
            raise Trimmed(_sequence(messages[0]))
        entries: list[Entry] = []
        for message in messages:
            if _sequence(message) != following + len(entries):
                break  # the next call raises the error
            at = datetime.fromisoformat(_header(message, "Nats-Time-Stamp")).timestamp()
            entries.append(Entry(_sequence(message), _header(message, _ID), message.data, at))
        last = entries[-1]
        pending = int(_header(messages[len(entries) - 1], "Nats-Num-Pending") or 0)
        return EntryPage(tuple(entries), LaneMark(identity, last.position, last.id), last.position + pending)

    async def _end(self, lane: str, after: LaneMark) -> EntryPage:
        """Find the end of a lane. A replica may lag, and a server that was paused may still believe that it leads."""
        patience = asyncio.get_running_loop().time() + (LAG_S if len(self._server.urls) > 1 else 0.0)
        while True:
            info = await self._info(lane, deleted=True)
            state, identity, following = info["state"], _identity(info), after.position + 1
            if after.journal not in ("", identity):
                raise JournalChanged.other()
            if state["last_seq"] >= after.position:
                break
            if asyncio.get_running_loop().time() > patience:
                raise JournalChanged.shorter(after.position, state["last_seq"])
            await asyncio.sleep(0.2)
        is_deleted = following < state["first_seq"] or following in (state.get("deleted") or ())
        if following <= state["last_seq"] and is_deleted:
            raise Trimmed(max(state["first_seq"], following + 1))
        return EntryPage((), msgspec.structs.replace(after, journal=identity), state["last_seq"])

    async def watch(self, lane: str) -> AsyncIterator[None]:
        async with self._connected() as client:
            appended = await client.subscribe(f"rmb.{check_name(lane)}.e.*", pending_msgs_limit=1)
            await client.flush()
            try:
                while True:
                    yield
                    with suppress(nats.errors.TimeoutError):  # then yields without an append
                        await appended.next_msg(HINT_S)
            finally:
                if not client.is_closed:
                    await appended.unsubscribe()

    async def purge(self, lane: str, *, up_to: int) -> None:
        state = (await self._info(lane))["state"]
        if state["messages"] and state["first_seq"] <= up_to:
            _check(await self._call(f"STREAM.PURGE.{entries_stream(lane)}", {"seq": up_to + 1}))

    async def put_snapshot(self, lane: str, mark: LaneMark, content: bytes) -> LaneSnapshot:
        await self._drop_unfinished(lane)
        snapshot = LaneSnapshot(secrets.token_hex(8), mark, len(content), SNAPSHOT_FORM)
        for number, begin in enumerate(range(0, len(content), PIECE_BYTES)):
            await self._tell(lane, f"piece.{snapshot.name}.{number}", content[begin : begin + PIECE_BYTES])
        await self._tell(lane, f"snapshot.{snapshot.name}", msgspec.json.encode(snapshot))
        return snapshot

    async def _drop_unfinished(self, lane: str) -> None:
        """Delete the incomplete snapshots of killed hosts. A host that is still writing one retries."""
        begun = await self._info(lane, subjects=f"rmb.{lane}.s.piece.>")
        names = {subject.split(".")[-2] for subject in begun["state"].get("subjects") or ()}
        for name in names.difference(snapshot.name for snapshot in await self.snapshots(lane)):
            await self._purge(lane, f"piece.{name}.*")

    async def snapshots(self, lane: str) -> tuple[LaneSnapshot, ...]:
        messages = await self._get(lane, state_stream(lane), {"multi_last": [f"rmb.{lane}.s.snapshot.*"]})
        try:
            decoded = [_decode_snapshot(each.data) for each in messages]
        except msgspec.DecodeError as error:
            raise EntryDamaged("the list of the lane's snapshots is damaged") from error
        return tuple(sorted(decoded, key=lambda each: (each.mark.position, each.name), reverse=True))

    async def get_snapshot(self, lane: str, snapshot: LaneSnapshot) -> bytes:
        if snapshot.name not in {each.name for each in await self.snapshots(lane)}:
            raise InvalidInput("the snapshot no longer exists")
        subject = f"rmb.{lane}.s.piece.{check_name(snapshot.name)}"
        request = {"seq": 1, "batch": PIECES, "next_by_subj": f"{subject}.*"}
        content = bytearray()  # the seal shows whether a piece is missing
        while messages := await self._get(lane, state_stream(lane), request):
            content += b"".join(piece.data for piece in messages)
            request["seq"] = _sequence(messages[-1]) + 1
        return bytes(content)

    async def drop_snapshot(self, lane: str, snapshot: LaneSnapshot) -> None:
        await self._purge(lane, f"snapshot.{check_name(snapshot.name)}")
        await self._purge(lane, f"piece.{snapshot.name}.*")

    async def notify(self, lane: str, host: str, body: bytes) -> None:
        await self._tell(lane, f"host.{check_name(host)}", body)

    async def notices(self, lane: str) -> Mapping[str, bytes]:
        messages = await self._get(lane, state_stream(lane), {"multi_last": [f"rmb.{lane}.s.host.*"]})
        return {_subject(each).rpartition(".")[2]: each.data for each in messages}

    async def aclose(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await _close(client)

    # The lane on the server

    async def _verified(self, lane: str, mark: LaneMark) -> str:
        """Find a mark in a lane's journal, once per connection, and return its identity. Raises `JournalChanged`."""
        async with self._connected():
            if lane not in self._journals or mark.journal not in ("", self._journals[lane]):
                with suppress(Trimmed):  # later entries do not matter
                    await self.read(lane, after=mark, limit=1)
                self._journals[lane] = mark.journal or _identity(await self._info(lane))
            return self._journals[lane]

    async def _info(self, lane: str, *, deleted: bool = False, subjects: str = "") -> dict[str, Any]:
        stream = state_stream(lane) if subjects else entries_stream(lane)
        request = {"deleted_details": deleted, **({"subjects_filter": subjects} if subjects else {})}
        return _check(await self._call(f"STREAM.INFO.{stream}", request))

    async def _tell(self, lane: str, name: str, body: bytes) -> None:
        _check(await self._ask(f"rmb.{lane}.s.{name}", body, lane=lane))

    async def _purge(self, lane: str, name: str) -> None:
        _check(await self._call(f"STREAM.PURGE.{state_stream(lane)}", {"filter": f"rmb.{lane}.s.{name}"}))

    # Requests and answers

    @asynccontextmanager
    async def _connected(self) -> AsyncIterator[Client]:
        """Open the connection if necessary, and convert exceptions of the client library to our errors."""
        try:
            yield await self._connection()
        except TimeoutError as error:  # the library's own error is a subclass
            raise self._refused() or JournalAway("the NATS server did not answer in time") from error
        except (nats.errors.Error, OSError) as error:
            reason = str(error) or type(error).__name__
            if _REFUSED.search(reason):
                self._refusal = self._refusal or reason
            raise self._refused() or JournalAway(f"the NATS server is not reachable: {reason}") from error

    def _refused(self) -> JournalRefused | None:
        if not self._refusal:
            return None
        text = f"the server of the journal does not admit this host, or refuses this action: {self._refusal}"
        return JournalRefused(text + REMOVED if "authorization" in self._refusal.lower() else text)

    async def _connection(self) -> Client:
        async with self._connecting:
            if self._client is not None and self._client.is_connected:
                return self._client
            await self.aclose()
            self._refusal = ""
            self._journals.clear()
            client, reason = Client(), ""

            async def on_error(error: Exception) -> None:
                nonlocal reason
                reason = str(error).removeprefix("nats: ") or type(error).__name__
                if _REFUSED.search(reason):
                    self._refusal = reason
                    if client.is_connected:
                        await client.close()  # so that nobody waits for an answer that will never arrive

            async def on_closed() -> None:
                for answer in client._resp_map.values():
                    if not answer.done():
                        answer.set_exception(nats.errors.ConnectionClosedError())

            server = self._server
            try:
                async with asyncio.timeout(ANSWER_S):
                    await client.connect(
                        servers=list(server.urls),
                        allow_reconnect=False,  # the next call reconnects, and verifies the journal
                        max_reconnect_attempts=1,  # per server, before this attempt fails
                        reconnect_time_wait=0,
                        connect_timeout=round(CONNECT_S),
                        ping_interval=10,
                        error_cb=on_error,
                        closed_cb=on_closed,
                        inbox_prefix=self._key.inbox if self._key else "_INBOX",
                        tls=_tls(server),
                        user_jwt_cb=(lambda: server.user_jwt.encode()) if server.user_jwt else None,
                        signature_cb=self._key.answer if self._key else None,
                    )
                    transport = cast("Any", client._transport)._io_writer.transport
                    if transport.get_extra_info("sslcontext") is not None:  # or asyncio complains at exit
                        transport.get_protocol()._over_ssl = True
            except BaseException as error:
                await _close(client)
                if isinstance(error, nats.errors.NoServersError) and reason:
                    raise nats.errors.Error(reason) from error
                raise
            release = client.connected_server_version
            if (release.major, release.minor) < OLDEST_SERVER:
                await _close(client)
                raise JournalRefused("the NATS server is too old: 2.12 or newer is needed")
            self._client = client
            return client

    async def _call(self, name: str, request: Mapping[str, object]) -> dict[str, Any]:
        return await self._ask(f"$JS.API.{name}", msgspec.json.encode(request))

    async def _ask(
        self, subject: str, body: bytes, headers: dict[str, str] | None = None, *, lane: str = ""
    ) -> dict[str, Any]:
        async with self._connected() as client:
            answer = await client._request_new_style(subject, body, ANSWER_S, headers)
        if _header(answer, "Status") != "503":
            try:
                return _decode_answer(answer.data)
            except msgspec.DecodeError as error:
                raise JournalAway("the journal's server does not behave like JetStream") from error
        if not lane:
            raise JournalAway("the server answers, but its JetStream does not (yet): is it enabled?")
        known = self._journals.pop(lane, "")
        if known not in ("", _identity(await self._info(lane))):
            raise JournalChanged.other()
        raise JournalAway("the journal has no leader at the moment")

    async def _get(self, lane: str, stream: str, request: Mapping[str, object]) -> list[Msg]:
        messages: list[Msg] = []
        async with self._connected() as client:
            inbox = client.new_inbox()
            answers = await client.subscribe(inbox)
            try:
                await client.publish(f"$JS.API.DIRECT.GET.{stream}", msgspec.json.encode(request), inbox)
                arrived = answers._pending_queue
                while True:  # `next_msg` creates two tasks for each message, even for one that has arrived
                    answer = arrived.get_nowait() if arrived.qsize() else await answers.next_msg(ANSWER_S)
                    status = _header(answer, "Status")
                    if status == "503":
                        break
                    if status in ("204", "404"):
                        return messages
                    if status:
                        raise JournalAway(f"the journal cannot be read: {_header(answer, 'Description') or status}")
                    messages.append(answer)
            finally:
                if not client.is_closed:
                    await answers.unsubscribe()
        await self._info(lane)  # raises if there is no stream
        raise JournalAway("the journal has no replica to read from at the moment")


async def _close(client: Client) -> None:
    """Another task may also be closing it. Closing a rejected TLS connection hangs."""
    try:
        async with asyncio.timeout(CLOSE_S):
            await client.close()
            if client._transport is not None:
                await client._transport.wait_closed()  # type: ignore[no-untyped-call]
    except (TimeoutError, OSError) as error:
        logger.debug("a connection to a journal was not closed in time", extra={"reason": str(error)})
    finally:
        if client._transport is not None:  # the library leaves it open if another task is closing it
            client._transport.close()  # type: ignore[no-untyped-call]


def _tls(server: Server) -> ssl.SSLContext | None:
    """None for servers on this machine. Raises `InvalidInput`."""
    if all(url.startswith("tls://") for url in server.urls):
        return ssl.create_default_context(cadata=server.ca_pem or None)
    if not all(urlsplit(url).hostname in LOOPBACK for url in server.urls):
        raise InvalidInput("a server on another machine must be reached over tls://, so that nobody can eavesdrop")
    return None


def _identity(info: Mapping[str, Any]) -> str:
    return str(info["config"].get("metadata", {}).get(_IDENTITY, ""))


def _header(message: Msg, name: str) -> str:
    return str((message.headers or {}).get(name, ""))


def _sequence(message: Msg) -> int:
    return int(_header(message, "Nats-Sequence"))


def _subject(message: Msg) -> str:
    return _header(message, "Nats-Subject")


def _check(answer: dict[str, Any]) -> dict[str, Any]:
    """Returns the answer. Raises the error that it describes."""
    if "error" not in answer:
        return answer
    code, message = answer["error"].get("err_code"), answer["error"].get("description", "")
    if code == _STREAM_NOT_FOUND:
        raise JournalChanged.missing()
    if code in _FULL or "no space left" in message:
        raise StorageFull(f"the server of the journal has no room: {message}")
    raise JournalAway(f"the journal cannot do this at the moment: {message}")
