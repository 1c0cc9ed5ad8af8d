"""The control plane: launcher, actors and commands. It has sockets of its own, so a stop never queues behind work."""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from remembrancer.protocol.reads import Counts, EmbeddingSummary
from remembrancer.protocol.wire import Request
from remembrancer.protocol.work import ModelChoice

Role = Literal["store", "gateway", "embedder", "consolidator", "indexer"]
ProcessState = Literal["starting", "ready", "degraded", "unresponsive", "restarting", "stopping", "stopped", "failed"]


class Stop(msgspec.Struct, frozen=True, tag=True):
    """Launcher to actor: finish what was begun, refuse the rest, and leave within `grace_s`."""

    reason: str
    grace_s: float


class PeerGone(msgspec.Struct, frozen=True, tag=True):
    """Launcher to actor: that incarnation of a process is dead. Whatever it held is free."""

    role: Role
    incarnation: str


class PeerFailed(msgspec.Struct, frozen=True, tag=True):
    """Launcher to actor: that role cannot be started (or no longer), and why. A person has to act."""

    role: Role
    code: str
    message: str


class RemoteEmbedder(msgspec.Struct, frozen=True):
    """One embedder on another host, by the name that it was invited with. `error` says why it is refused, or has no
    model; `silent_s` how long ago it was heard (None: it is away)."""

    name: str
    state: Literal["ready", "starting", "refused", "away"]
    model: str = ""
    embedded: int = 0
    error: str | None = None
    silent_s: float | None = None


class RemoteEmbedders(msgspec.Struct, frozen=True):
    """The embedders on other hosts, and where the store listens for them; `error`: why it does not."""

    address: str
    workers: tuple[RemoteEmbedder, ...] = ()
    error: str | None = None


class StoreHealth(msgspec.Struct, frozen=True, tag=True):
    """The store's health."""

    counts: Counts
    embedding: EmbeddingSummary
    rejected_frames: int = 0
    unusable: tuple[str, ...] = ()
    """Of each file that somebody wanted and that cannot be opened, why not."""
    models: tuple[ModelChoice, ...] = ()
    """The models that embedders are needed for, the one first that all but one of them are to have."""
    has_files: bool = False
    """True if a project in use has files to be indexed."""
    remote: RemoteEmbedders | None = None
    """None: no embedder on another host may come."""
    asked: int = 0
    """The questions and writes of clients and commands so far: whatever rests is needed when there are more."""


class GatewayHealth(msgspec.Struct, frozen=True, tag=True):
    """The gateway's health. `store` says how it sees the store: `degraded` is away for good, so far as it can tell.

    `store_attempts` counts how often the store has been tried since it was lost; the next try is in
    `store_next_attempt_s` seconds (None: it answers).
    """

    sessions: int
    queue_depth: int
    queue_rejected: int
    store: Literal["connected", "reconnecting", "away", "degraded"]
    store_attempts: int = 0
    store_next_attempt_s: float | None = None
    queue_stuck: dict[str, str] = {}
    """The projects (or `user`) whose oldest queued write is refused at the moment, and why."""
    queue_damage: str | None = None
    """The damage that was found in the queue's file."""
    queue_problem: str | None = None
    """Why the queue's file cannot be used: nothing is queued meanwhile."""
    full: dict[str, str] = {}
    """The projects (or `user`) of which nothing more is stored, and why."""
    http: str | None = None
    """The address of MCP over HTTP."""
    http_error: str | None = None
    """Why it is not, though it is asked for."""
    pages: int = 0
    """The pages of the memory browser that are open: they keep the runtime up, and nothing from its rest."""


class EmbedderHealth(msgspec.Struct, frozen=True, tag=True):
    """A worker's health: its model, or the reason why it has none."""

    model: str
    embedded_passages: int
    error: str | None = None


class ConsolidatorHealth(msgspec.Struct, frozen=True, tag=True):
    """The consolidator's health: what it does now (None: it waits), what it has finished, and what went wrong last."""

    job: str | None = None
    finished: int = 0
    failed: int = 0
    error: str | None = None


class IndexerHealth(msgspec.Struct, frozen=True, tag=True):
    """The indexer's health: the workspaces and trees of code that it keeps, what it has read, and its last error."""

    workspaces: int = 0
    files: int = 0
    """Files of notes."""
    syncs: int = 0
    watching: bool = True
    """True if the system tells of changes; without, files are compared from time to time."""
    error: str | None = None
    code_trees: int = 0
    code_files: int = 0
    native_files: int = 0
    """Of the files of notes those that the user's assistants keep for themselves."""


ProcessHealth = StoreHealth | GatewayHealth | EmbedderHealth | ConsolidatorHealth | IndexerHealth


class Ready(msgspec.Struct, frozen=True, tag=True):
    """Actor to launcher: I do my work from now on. Said once."""

    pid: int


class StartFailed(msgspec.Struct, frozen=True, tag=True):
    """Actor to launcher: I cannot start, and starting me again would not help. Answered by `Stop`."""

    code: str
    message: str


class Ping(Request[ProcessHealth | None], frozen=True):
    """Launcher to actor: are you alive? Answered from the event loop, with None while the actor starts."""


class ChangeQueue(Request[int], frozen=True):
    """Command to launcher, and on to the gateway: queue these writes again, which were refused and set aside; or delete
    them. The answer is the number of writes that were changed."""

    operation_ids: tuple[str, ...]
    deletes: bool = False


class ProcessStatus(msgspec.Struct, frozen=True, omit_defaults=True):
    """One process of the runtime. `rss_bytes` is resident memory; `name` tells workers of one role apart.

    A process that is not there now has pid 0; `error` says why it is not, or why its work is not what it should be.
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
    """Launcher to command: the whole runtime. None where an actor has not reported yet."""

    home: str
    processes: tuple[ProcessStatus, ...]
    gateway: GatewayHealth | None
    store: StoreHealth | None
    warnings: tuple[str, ...] = ()
    consolidator: ConsolidatorHealth | None = None
    indexer: IndexerHealth | None = None
    is_resting: bool = False
    """True if embedders and others have gone until somebody asks for something."""


class AskStatus(Request[RuntimeStatus], frozen=True):
    """Command to launcher: how is everything?"""


class AskScale(Request[int], frozen=True):
    """Command to launcher: run this many embedders. The answer is that number, which is being brought about."""

    embedders: int


class AskDown(Request[int], frozen=True):
    """Command to launcher: stop everything, in order. Answered at once, with the id of the launcher's process; the lock
    of the home is free when it has ended."""

    reason: str


FromLauncher = Ping | Stop | PeerGone | PeerFailed | ChangeQueue
FromActor = Ready | StartFailed
ToLauncher = FromActor | AskStatus | AskScale | AskDown | ChangeQueue
from_launcher: Final = msgspec.msgpack.Decoder(FromLauncher)
to_launcher: Final = msgspec.msgpack.Decoder(ToLauncher)
