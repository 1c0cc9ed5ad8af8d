"""The messages between the processes: the envelope in a frame of its own before the body, and one union of messages for
each direction, its decoder built once."""

from __future__ import annotations

import time
from typing import Final

import msgspec

from remembrancer.protocol.browsing import BrowserReply, BrowserRequest
from remembrancer.protocol.code import AwaitCodeWork, CodeReply, CodeRequest, CodeWork
from remembrancer.protocol.consolidation import (
    ConsolidatorRequest,
    Maintain,
    Maintained,
    NotePresence,
    ProjectsRead,
    ReadProjects,
    Reflect,
    Reflected,
    ToConsolidator,
)
from remembrancer.protocol.control import FromLauncher, ToCommand, ToLauncher
from remembrancer.protocol.errors import FrameRejected, VersionMismatch
from remembrancer.protocol.files import FileReply, FileRequest, IndexerRequest, ToIndexer
from remembrancer.protocol.home import HomeReply, HomeRequest
from remembrancer.protocol.projects import MoveProject, ProjectMoved, ProjectRecognised, RecogniseProject
from remembrancer.protocol.reads import (
    AwaitEmbedding,
    ContextGathered,
    DescribeSession,
    DescribeStore,
    EmbeddingState,
    FindIds,
    FollowLinks,
    GatherContext,
    GetMemory,
    GraphFound,
    IdsFound,
    LinksFound,
    Listed,
    ListMemories,
    MemoryShown,
    NoteAccess,
    Noted,
    Recall,
    Recalled,
    Refused,
    SearchGraph,
    SessionDescription,
    StoreDescription,
    Suggest,
    Suggestions,
)
from remembrancer.protocol.sharing import OthersWrote, SharingReply, SharingRequest
from remembrancer.protocol.work import (
    AskModels,
    ChooseModel,
    EmbedPassages,
    EmbedQuery,
    JobFailed,
    ModelsTold,
    PassagesEmbedded,
    QueryEmbedded,
    UseModel,
    WhoAreYou,
    WorkerFailed,
    WorkerLeaving,
    WorkerPing,
    WorkerPong,
    WorkerReady,
)
from remembrancer.protocol.writes import Applied, BatchApplied, ImportSessions, SessionsImported, Submit, SubmitBatch

PROTOCOL_VERSION: Final = 1
UNDECODABLE: Final = (ValueError, RecursionError)
"""The errors of msgspec for bytes that are no message: its own errors and `UnicodeDecodeError` are both ValueErrors,
and arrays nested thousands deep end in a RecursionError."""


class Envelope(msgspec.Struct, frozen=True, array_like=True):
    """Who says something, by when it matters, and what it answers.

    `version` stands first so that any later version can still be refused by name. `deadline` is wall-clock seconds
    since the epoch (processes of one runtime share a clock); None means that the message never expires.
    `incarnation` is the ULID of one start of the sender's process. `trace` names the client's call that this is part
    of, if any: the receiver notes under it where the time goes.
    """

    version: int
    message_id: int
    sender: str
    incarnation: str
    deadline: float | None = None
    in_reply_to: int | None = None
    trace: str = ""

    def expired(self, now: float | None = None) -> bool:
        """True if the deadline has passed: the work must not be begun."""
        return self.deadline is not None and (time.time() if now is None else now) > self.deadline

    def remaining_s(self, now: float | None = None) -> float | None:
        """Seconds left until the deadline, never negative; None without a deadline."""
        if self.deadline is None:
            return None
        return max(0.0, self.deadline - (time.time() if now is None else now))


_decoder = msgspec.msgpack.Decoder(Envelope)
_version_decoder = msgspec.msgpack.Decoder(list[msgspec.Raw])
_int_decoder = msgspec.msgpack.Decoder(int)


def decode_envelope(frame: bytes) -> Envelope:
    """The envelope in a frame.

    Raises:
        VersionMismatch: the first element is another version than ours.
        FrameRejected: the frame is not an envelope at all.
    """
    try:
        envelope = _decoder.decode(frame)
    except UNDECODABLE as error:
        version = _version_of(frame)
        if version is not None and version != PROTOCOL_VERSION:
            raise VersionMismatch(_mismatch(version)) from error
        raise FrameRejected(f"not an envelope: {error}") from error
    if envelope.version != PROTOCOL_VERSION:
        raise VersionMismatch(_mismatch(envelope.version))
    return envelope


def _version_of(frame: bytes) -> int | None:
    try:
        return _int_decoder.decode(_version_decoder.decode(frame)[0])
    except (*UNDECODABLE, IndexError):
        return None


def _mismatch(version: int) -> str:
    return (
        f"the peer speaks version {version} of the protocol, this process version {PROTOCOL_VERSION}: "
        "stop the runtime (remembrancer down) so that all its processes start from one release, and give an embedder "
        "on another host that release"
    )


GatewayRequest = (
    Submit
    | SubmitBatch
    | Recall
    | AwaitEmbedding
    | DescribeStore
    | DescribeSession
    | GatherContext
    | SearchGraph
    | Suggest
    | FindIds
    | NoteAccess
    | GetMemory
    | ListMemories
    | FollowLinks
    | ImportSessions
    | Reflect
    | Maintain
    | NotePresence
    | AskModels
    | ChooseModel
    | MoveProject
    | SharingRequest
    | RecogniseProject
    | ReadProjects
    | BrowserRequest
    | HomeRequest
    | FileRequest
    | CodeRequest
)
WorkerMessage = WorkerReady | WorkerFailed | WorkerLeaving | PassagesEmbedded | JobFailed | QueryEmbedded
ToStore = GatewayRequest | WorkerMessage | ConsolidatorRequest | IndexerRequest | AwaitCodeWork
ToGateway = (
    Applied
    | BatchApplied
    | SessionsImported
    | Recalled
    | EmbeddingState
    | StoreDescription
    | SessionDescription
    | Refused
    | ContextGathered
    | GraphFound
    | Suggestions
    | IdsFound
    | Noted
    | MemoryShown
    | Listed
    | LinksFound
    | Reflected
    | Maintained
    | ModelsTold
    | ProjectMoved
    | SharingReply
    | OthersWrote
    | ProjectRecognised
    | ProjectsRead
    | BrowserReply
    | HomeReply
    | FileReply
    | CodeReply
)
FromStoreToIndexer = ToIndexer | CodeWork | Refused
FromStoreToConsolidator = ToConsolidator | Applied | Refused
RemoteWorkerMessage = WorkerMessage | WorkerPong
"""All that a host may say that is not this one."""
ToWorker = EmbedPassages | EmbedQuery | WhoAreYou | WorkerPing | UseModel | Refused

encoder: Final = msgspec.msgpack.Encoder()
to_store: Final = msgspec.msgpack.Decoder(ToStore)
to_gateway: Final = msgspec.msgpack.Decoder(ToGateway)
to_consolidator: Final = msgspec.msgpack.Decoder(FromStoreToConsolidator)
to_indexer: Final = msgspec.msgpack.Decoder(FromStoreToIndexer)
to_worker: Final = msgspec.msgpack.Decoder(ToWorker)
from_remote_worker: Final = msgspec.msgpack.Decoder(RemoteWorkerMessage)
to_launcher: Final = msgspec.msgpack.Decoder(ToLauncher)
from_launcher: Final = msgspec.msgpack.Decoder(FromLauncher)
to_command: Final = msgspec.msgpack.Decoder(ToCommand)
