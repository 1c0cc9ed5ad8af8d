"""Messages between launcher, actors and commands. They have their own sockets, so a stop never queues behind work."""

from typing import Final, Literal

import msgspec

from remembrancer.protocol.reads import Counts, EmbeddingSummary
from remembrancer.protocol.sharing import LaneState
from remembrancer.protocol.wire import Request
from remembrancer.protocol.work import ModelChoice

Role = Literal["store", "gateway", "embedder", "consolidator", "indexer"]
ProcessState = Literal["starting", "ready", "degraded", "unresponsive", "restarting", "stopping", "stopped", "failed"]


class Stop(msgspec.Struct, frozen=True, tag=True):
    """Launcher to actor: finish the current work, refuse the rest, and exit within `grace_s`."""

    reason: str
    grace_s: float


class PeerGone(msgspec.Struct, frozen=True, tag=True):
    """Launcher to actor: this incarnation of a process is dead, and everything it held is free. `failure` says why it
    cannot be restarted until a person acts. Actors that become ready later get an empty `incarnation`."""

    role: Role
    incarnation: str
    failure: str | None = None


class RemoteEmbedder(msgspec.Struct, frozen=True):
    """An embedder on another host, by the name in its invitation. `error` says why it is refused or has no model."""

    name: str
    state: Literal["ready", "starting", "refused", "away"]
    embedded: int = 0
    error: str | None = None


class RemoteEmbedders(msgspec.Struct, frozen=True):
    """The embedders on other hosts, and the address at which the store listens. `error` says why it cannot listen."""

    address: str
    workers: tuple[RemoteEmbedder, ...] = ()
    error: str | None = None


class StoreHealth(msgspec.Struct, frozen=True, tag=True):
    """`counts` is None until the memories have been counted."""

    counts: Counts | None
    embedding: EmbeddingSummary
    unusable: tuple[str, ...] = ()
    """The reason why the database cannot be opened or read; empty if it can be."""
    models: tuple[ModelChoice, ...] = ()
    """The models that need embedders. Each but the first needs one, and the first gets all others."""
    has_files: bool = False
    has_jobs: bool = False
    remote: RemoteEmbedders | None = None
    """None: no embedder on another host is allowed."""
    asked: int = 0
    """Grows with each request by clients and commands, and each answer. Then resting processes are woken."""
    opening: bool = False
    """True while the memories of an older release are being upgraded."""
    cut_off: tuple[LaneState, ...] = ()
    """The shared lanes that are not exchanging anything with the other machines."""
    limit_reached_bytes: int | None = None
    """The value of `database_limit_bytes`, if the database has reached it."""


class GatewayHealth(msgspec.Struct, frozen=True, tag=True):
    """`store` is the gateway's view of the store, as defined in `StoreAvailability`."""

    sessions: int
    queue_depth: int
    queue_rejected: int
    store: Literal["connected", "reconnecting", "away", "degraded"]
    queue_stuck: dict[str, str] = {}
    """The projects (or `user`) whose oldest queued write is currently refused, with the reason."""
    queue_stuck_at: dict[str, str] = {}
    """The paths of the projects in `queue_stuck`."""
    queue_damage: str | None = None
    queue_problem: str | None = None
    """The reason why the queue's file cannot be used. If there is one, nothing is queued."""
    http: str | None = None
    """The address of MCP over HTTP."""
    http_error: str | None = None
    pages: int = 0
    """The number of open pages of the memory browser: they keep the runtime up, but do not wake resting processes."""


class EmbedderHealth(msgspec.Struct, frozen=True, tag=True):
    error: str | None = None


class ConsolidatorHealth(msgspec.Struct, frozen=True, tag=True):
    job: str | None = None
    finished: int = 0
    failed: int = 0
    error: str | None = None


class IndexerHealth(msgspec.Struct, frozen=True, tag=True):
    workspaces: int = 0
    files: int = 0
    """The number of note files."""
    watching: bool = True
    """True if the system reports changes; otherwise files are compared at intervals."""
    error: str | None = None
    code_trees: int = 0
    code_files: int = 0
    native_files: int = 0
    """The number of note files that belong to the assistants themselves."""


ProcessHealth = StoreHealth | GatewayHealth | EmbedderHealth | ConsolidatorHealth | IndexerHealth
"""An actor sends its first report unasked, once it is ready for work."""


class Ping(Request[ProcessHealth | None], frozen=True):
    """Launcher to actor: a health check. Answered from the event loop, with None while the actor starts."""


class ProcessStatus(msgspec.Struct, frozen=True, omit_defaults=True):
    """`rss_bytes` is resident memory; `name` distinguishes the workers of one role. A process that is not running has
    pid 0; `error` says why it is not running or does not work properly."""

    role: str
    pid: int
    state: ProcessState
    restarts: int
    uptime_s: float
    rss_bytes: int
    error: str | None = None
    name: str = ""


class RuntimeStatus(msgspec.Struct, frozen=True, tag=True):
    """Launcher to command: the state of the whole runtime. None for actors that have not reported yet."""

    home: str
    processes: tuple[ProcessStatus, ...]
    gateway: GatewayHealth | None
    store: StoreHealth | None
    consolidator: ConsolidatorHealth | None = None
    indexer: IndexerHealth | None = None
    is_resting: bool = False
    """True if embedders and other processes are stopped until the next request."""
    late: tuple[str, ...] = ()
    """The names of ready processes that did not answer in time, and may be dead."""


class AskStatus(Request[RuntimeStatus], frozen=True):
    """Command or gateway to launcher: report the state of the runtime."""


class AskScale(Request[int], frozen=True):
    """Command to launcher: run this many embedders. The answer is that number; embedders start or stop afterwards."""

    embedders: int


FromLauncher = Ping | Stop | PeerGone
ToLauncher = ProcessHealth | AskStatus | AskScale
from_launcher: Final = msgspec.msgpack.Decoder(FromLauncher)
to_launcher: Final = msgspec.msgpack.Decoder(ToLauncher)
