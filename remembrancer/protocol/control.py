"""The control plane: messages between launcher, actors and commands. It has its own sockets, so a stop never queues
behind work."""

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
    cannot be restarted until a person acts. A process that becomes ready later is also sent earlier failures, with an
    empty `incarnation`."""

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
    """The embedders on other hosts, and the address at which the store listens for them, or the `error` that prevents
    this."""

    address: str
    workers: tuple[RemoteEmbedder, ...] = ()
    error: str | None = None


class StoreHealth(msgspec.Struct, frozen=True, tag=True):
    """The store's health. `counts` is None until the memories have been counted."""

    counts: Counts | None
    embedding: EmbeddingSummary
    unusable: tuple[str, ...] = ()
    """The reason why the database cannot be opened or read; empty if it can be."""
    models: tuple[ModelChoice, ...] = ()
    """The models that embedders are needed for. All but one of the embedders should load the first model."""
    has_files: bool = False
    """True if a project in use has files to be indexed."""
    has_jobs: bool = False
    """True if there is work for the consolidator."""
    remote: RemoteEmbedders | None = None
    """None: no embedder on another host is allowed."""
    asked: int = 0
    """The number of requests and writes by clients and commands so far. A growing number wakes resting processes."""
    opening: bool = False
    """True while the memories of an older release are being upgraded."""
    cut_off: tuple[LaneState, ...] = ()
    """The shared lanes that are not exchanging anything with the other machines."""
    limit_reached_bytes: int | None = None
    """The value of `database_limit_bytes`, if the database has reached it."""


class GatewayHealth(msgspec.Struct, frozen=True, tag=True):
    """The gateway's health. `store` is the gateway's view of the store: `degraded` means that it is gone for good, as
    far as the gateway can tell."""

    sessions: int
    queue_depth: int
    queue_rejected: int
    store: Literal["connected", "reconnecting", "away", "degraded"]
    queue_stuck: dict[str, str] = {}
    """The projects (or `user`) whose oldest queued write is refused at the moment, with the reason."""
    queue_stuck_at: dict[str, str] = {}
    """The paths of these projects."""
    queue_damage: str | None = None
    """The damage found in the queue's file."""
    queue_problem: str | None = None
    """The reason why the queue's file cannot be used; until it can be, nothing is queued."""
    http: str | None = None
    """The address of MCP over HTTP."""
    http_error: str | None = None
    """The reason why MCP over HTTP is not served although it is configured."""
    pages: int = 0
    """The number of open pages of the memory browser: they keep the runtime up, but do not wake resting processes."""


class EmbedderHealth(msgspec.Struct, frozen=True, tag=True):
    """A worker's health: `error` is the reason why it has no model, or None."""

    error: str | None = None


class ConsolidatorHealth(msgspec.Struct, frozen=True, tag=True):
    """The consolidator's health: its current job (None: it is idle), the number of finished jobs, and the last
    error."""

    job: str | None = None
    finished: int = 0
    failed: int = 0
    error: str | None = None


class IndexerHealth(msgspec.Struct, frozen=True, tag=True):
    """The indexer's health: its workspaces and trees of code, the number of files read, and its last error."""

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
"""An actor sends its first report without being asked, when it is ready for work."""


class Ping(Request[ProcessHealth | None], frozen=True):
    """Launcher to actor: a health check. Answered from the event loop, with None while the actor starts."""


class ProcessStatus(msgspec.Struct, frozen=True, omit_defaults=True):
    """One process of the runtime. `rss_bytes` is resident memory; `name` distinguishes the workers of one role.

    A process that is not running has pid 0; `error` says why it is not running or does not work properly.
    """

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
    """The names of ready processes that did not answer in time, and may be dead: their reports are older."""


class AskStatus(Request[RuntimeStatus], frozen=True):
    """Command or gateway to launcher: report the state of the runtime."""


class AskScale(Request[int], frozen=True):
    """Command to launcher: run this many embedders. The answer is that number; embedders start or stop afterwards."""

    embedders: int


FromLauncher = Ping | Stop | PeerGone
ToLauncher = ProcessHealth | AskStatus | AskScale
from_launcher: Final = msgspec.msgpack.Decoder(FromLauncher)
to_launcher: Final = msgspec.msgpack.Decoder(ToLauncher)
