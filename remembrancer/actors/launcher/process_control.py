"""The launcher's shell: carries out the decisions of `Supervision`, with real processes, sockets and time."""

import asyncio
import contextlib
import functools
import logging
import os
import signal
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Final

import anyio
import anyio.abc
import msgspec
import psutil

from remembrancer.actors.launcher.children import Child, Command
from remembrancer.actors.launcher.lifecycle import Changed, Instruction, Lifecycle, Signal, Start, Tell
from remembrancer.actors.launcher.supervision import Supervision, check_embedders
from remembrancer.actors.shell import LaunchSpec
from remembrancer.config.settings import Settings, secret_variables
from remembrancer.protocol.control import (
    AskScale,
    AskStatus,
    ConsolidatorHealth,
    EmbedderHealth,
    GatewayHealth,
    IndexerHealth,
    Ping,
    ProcessHealth,
    ProcessStatus,
    Ready,
    RuntimeStatus,
    StoreHealth,
    ToLauncher,
    to_launcher,
)
from remembrancer.protocol.errors import (
    Failure,
    PeerUnavailable,
    RemembrancerError,
)
from remembrancer.protocol.ids import new_ulid
from remembrancer.protocol.paths import RuntimePaths
from remembrancer.protocol.sockets import Peer, Router, Speaker
from remembrancer.protocol.wire import Envelope

SOCKETS_LOOK_S: Final = 1.0
"""The time between two checks of the sockets; if they are missing twice in a row, the runtime ends."""
FRESH_ANSWERS_S: Final = 0.5
"""The time that a command waits for fresh reports of the processes, before the last known ones are used."""
logger = logging.getLogger(__name__)

Event = Callable[[float], list[Instruction]]
"""An event: called with the time, it updates the decisions and returns instructions."""


class Supervisor:
    """One runtime, from its first process to its last. Runs once.

    `secrets` are variables of which each embedder gets those that its engine needs, and no other process any.
    """

    def __init__(
        self,
        paths: RuntimePaths,
        settings: Settings,
        *,
        command: Command,
        environ: Mapping[str, str],
        secrets: Mapping[str, str],
        for_sessions: bool = False,
        no_token: bool = False,
    ) -> None:
        self._paths = paths
        self._settings = settings
        self._command = command
        self._environ = environ
        self._secrets = secrets
        self._no_token = no_token
        self._started_at = time.monotonic()
        self._core = Supervision(settings, new_ulid, for_sessions=for_sessions, now=self._started_at)
        self._children: dict[str, Child] = {}
        self._health: dict[str, ProcessHealth] = {}
        self._events: asyncio.Queue[Event] = asyncio.Queue()
        self._router: Router[ToLauncher] = Router(
            paths.control_endpoint, Speaker("launcher", new_ulid()), to_launcher, self._hear
        )
        self._tasks: anyio.abc.TaskGroup | None = None

    async def run(self) -> str:
        """Run until told to stop, and stop in order. Returns the reason."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) is not signal.SIG_IGN:  # keep ignoring it, as nohup asks
                loop.add_signal_handler(number, self._on_signal, number)
        async with self._router, anyio.create_task_group() as self._tasks:
            self._carry_out(self._core.begin(time.monotonic()))
            self._tasks.start_soon(self._watch_sockets)
            while not self._core.finished:
                event = await self._next_event()
                self._carry_out(event(time.monotonic()))
            self._tasks.cancel_scope.cancel()
        reason = self._core.stopping or ""
        logger.info("stopped", extra={"reason": reason})
        return reason

    async def _watch_sockets(self) -> None:
        """End the runtime when its sockets were deleted: it holds the home, and no new session can reach it."""
        sockets = [Path(self._paths.control_endpoint.removeprefix("ipc://")), self._paths.gateway_socket]
        seen = {path for path in sockets if os.path.lexists(path)}  # noqa: ASYNC240 - the launcher's own is bound
        was_missing = False
        while self._core.stopping is None:
            await anyio.sleep(SOCKETS_LOOK_S)
            there = {path for path in sockets if os.path.lexists(path)}  # noqa: ASYNC240 - no disk is waited for
            is_gateway_ready = any(
                process.role == "gateway" and process.state == "ready" for process in self._core.processes
            )
            is_missing = bool((seen if is_gateway_ready else seen - {self._paths.gateway_socket}) - there)
            if is_missing and was_missing:
                reason = f"its sockets in {self._paths.run} are gone"
                self._events.put_nowait(functools.partial(self._core.stop, reason))
                return
            was_missing, seen = is_missing, seen | there

    async def _next_event(self) -> Event:
        if self._events.empty():
            with anyio.move_on_after(max(0.0, self._core.next_at - time.monotonic())):
                return await self._events.get()
            return self._core.tick
        return self._events.get_nowait()

    def _carry_out(self, instructions: list[Instruction]) -> None:
        for instruction in instructions:
            match instruction:
                case Start():
                    self._start(instruction)
                case Tell(name=name, incarnation=incarnation, message=Ping()):
                    assert self._tasks is not None
                    self._tasks.start_soon(self._ping, name, incarnation)
                case Tell(name=name, incarnation=incarnation, message=message):
                    self._router.send(_peer(name, incarnation), message)
                case Signal(name=name, signal=which):
                    self._children[name].send_signal(which)
                case Changed():
                    self._announce(instruction)

    def _start(self, order: Start) -> None:
        exited = functools.partial(self._core.on_exit, order.name, order.incarnation)
        if order.role in ("embedder", "consolidator", "indexer"):
            self._health.pop(order.name, None)  # for the store and the gateway, the last report is better than none
        settings = self._settings
        if order.model is not None:
            settings = msgspec.structs.replace(settings, engine=order.model.engine, model=order.model.model)
        spec = LaunchSpec(
            role=order.role,
            name=order.name,
            incarnation=order.incarnation,
            home=str(self._paths.home),
            settings=settings,
            threads=order.threads,
            no_token=self._no_token,
        )
        loop = asyncio.get_running_loop()

        def on_exit(child: Child, ending: int | Failure) -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits for this child any more
                loop.call_soon_threadsafe(self._on_exit, child, ending, exited)

        wanted = secret_variables(self._settings, settings.engine) if order.role == "embedder" else ()
        secrets = {name: value for name, value in self._secrets.items() if name in wanted}
        try:
            self._children[order.name] = Child(spec, self._command(order.role), self._environ, secrets, on_exit)
        except OSError as error:
            logger.error("cannot start a process", extra={"child": order.name, "reason": str(error)})
            self._events.put_nowait(functools.partial(exited, f"it cannot be started: {error.strerror}"))

    def _on_exit(
        self, child: Child, ending: int | Failure, exited: Callable[[int | Failure, float], list[Instruction]]
    ) -> None:
        status = ending.message if isinstance(ending, Failure) else ending
        logger.info("process ended", extra={"child": child.name, "child_pid": child.pid, "status": status})
        if self._children.get(child.name) is child:
            del self._children[child.name]
        self._events.put_nowait(functools.partial(exited, ending))

    def _announce(self, change: Changed) -> None:
        logger.log(
            logging.WARNING if change.error else logging.INFO,
            "process %s",
            change.state,
            extra={"child": change.name, "after_s": round(change.after_s, 3), "reason": change.error},
        )

    def _on_signal(self, number: int) -> None:
        if self._core.stopping is not None:
            for child in self._children.values() if number == signal.SIGINT else ():
                child.send_signal("KILL")
            return
        self._events.put_nowait(functools.partial(self._core.stop, signal.Signals(number).name))

    def _hear(self, peer: Peer, envelope: Envelope, message: ToLauncher) -> None:
        match message:
            case Ready():
                self._events.put_nowait(functools.partial(self._core.on_ready, peer.name, peer.incarnation))
            case AskStatus():
                self._answer_soon(peer, envelope, self._status())
            case AskScale(embedders=embedders):
                self._answer_soon(peer, envelope, self._scale(embedders))

    def _answer_soon(self, peer: Peer, envelope: Envelope, answer: Awaitable[Any]) -> None:
        async def work() -> None:
            try:
                self._router.send(peer, await answer, in_reply_to=envelope.message_id)
            except RemembrancerError as error:
                self._router.refuse(peer, error, in_reply_to=envelope.message_id)

        assert self._tasks is not None
        self._tasks.start_soon(work)

    async def _scale(self, embedders: int) -> int:
        if self._core.stopping is not None:
            raise PeerUnavailable("the runtime is going down")
        check_embedders(embedders)
        self._events.put_nowait(functools.partial(self._core.scale, embedders))
        return embedders

    async def _ping(self, name: str, incarnation: str) -> None:
        """Ping a process. Its answer, its health, is its heartbeat."""
        try:
            health = await self._router.ask(_peer(name, incarnation), Ping(), timeout_s=self._settings.stall_timeout_s)
        except RemembrancerError:
            return
        if health is not None and self._core.is_current(name, incarnation):
            self._health[name] = health
        self._events.put_nowait(functools.partial(self._core.on_pong, name, incarnation, health))

    async def _status(self) -> RuntimeStatus:
        with anyio.move_on_after(FRESH_ANSWERS_S):
            async with anyio.create_task_group() as asking:
                for process in self._core.processes:
                    if process.state == "ready":
                        asking.start_soon(self._ping, process.name, process.incarnation)
        now = time.monotonic()
        launcher = ProcessStatus(
            role="launcher",
            name="launcher",
            pid=os.getpid(),
            state="ready",
            restarts=0,
            uptime_s=now - self._started_at,
            rss_bytes=resident_bytes(os.getpid()),
        )
        gateway, store = self._health.get("gateway"), self._health.get("store")
        consolidator, indexer = self._health.get("consolidator"), self._health.get("indexer")
        return RuntimeStatus(
            home=str(self._paths.home),
            processes=(launcher, *(self._process_status(process, now) for process in self._core.processes)),
            gateway=gateway if isinstance(gateway, GatewayHealth) else None,
            store=store if isinstance(store, StoreHealth) else None,
            consolidator=consolidator if isinstance(consolidator, ConsolidatorHealth) else None,
            indexer=indexer if isinstance(indexer, IndexerHealth) else None,
            is_resting=self._core.is_resting,
        )

    def _process_status(self, process: Lifecycle, now: float) -> ProcessStatus:
        state, error, child = process.state, process.error, self._children.get(process.name)
        health = self._health.get(process.name)
        if state == "ready" and isinstance(health, EmbedderHealth) and health.error:
            state, error = "degraded", health.error
        return ProcessStatus(
            role=process.role,
            name=process.name,
            pid=child.pid if child else 0,
            state=state,
            restarts=process.restarts,
            uptime_s=now - process.started_at if child else 0.0,
            rss_bytes=resident_bytes(child.pid) if child else 0,
            error=error,
        )


def resident_bytes(pid: int) -> int:
    """The resident memory of a process; 0 if it has ended."""
    try:
        return int(psutil.Process(pid).memory_info().rss)
    except psutil.Error:
        return 0


def _peer(name: str, incarnation: str) -> Peer:
    """The peer of a process: its `Dealer` uses this routing id."""
    return Peer(f"{name}/{incarnation}".encode(), name, incarnation)
