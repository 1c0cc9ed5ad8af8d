"""What may travel on which socket: one union for each direction, its decoder built once."""

from __future__ import annotations

from typing import Final

import msgspec

from remembrancer.protocol.consolidation import (
    ConsolidatorRequest,
    Maintain,
    Maintained,
    NotePresence,
    Reflect,
    Reflected,
    ToConsolidator,
)
from remembrancer.protocol.control import FromLauncher, ToCommand, ToLauncher
from remembrancer.protocol.reads import (
    AwaitEmbedding,
    ContextGathered,
    DescribeSession,
    DescribeStore,
    EmbeddingState,
    GatherContext,
    GetMemory,
    GraphFound,
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
from remembrancer.protocol.work import (
    EmbedPassages,
    EmbedQuery,
    JobFailed,
    PassagesEmbedded,
    PassagesReranked,
    PrepareReranker,
    QueryEmbedded,
    RerankerFailed,
    RerankerReady,
    RerankPassages,
    WhoAreYou,
    WorkerFailed,
    WorkerLeaving,
    WorkerReady,
)
from remembrancer.protocol.writes import Applied, BatchApplied, ImportSessions, SessionsImported, Submit, SubmitBatch

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
    | NoteAccess
    | GetMemory
    | ImportSessions
    | Reflect
    | Maintain
    | NotePresence
)
RerankerMessage = RerankerReady | RerankerFailed | PassagesReranked
WorkerMessage = (
    WorkerReady | WorkerFailed | WorkerLeaving | PassagesEmbedded | JobFailed | QueryEmbedded | RerankerMessage
)
ToStore = GatewayRequest | WorkerMessage | ConsolidatorRequest
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
    | Noted
    | MemoryShown
    | Reflected
    | Maintained
)
FromStoreToConsolidator = ToConsolidator | Applied | Refused
ToWorker = EmbedPassages | EmbedQuery | PrepareReranker | RerankPassages | WhoAreYou | Refused

encoder: Final = msgspec.msgpack.Encoder()
to_store: Final = msgspec.msgpack.Decoder(ToStore)
to_gateway: Final = msgspec.msgpack.Decoder(ToGateway)
to_consolidator: Final = msgspec.msgpack.Decoder(FromStoreToConsolidator)
to_worker: Final = msgspec.msgpack.Decoder(ToWorker)
to_launcher: Final = msgspec.msgpack.Decoder(ToLauncher)
from_launcher: Final = msgspec.msgpack.Decoder(FromLauncher)
to_command: Final = msgspec.msgpack.Decoder(ToCommand)
