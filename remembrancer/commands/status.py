"""`remembrancer status`, and `admin queue`: the processes, the write queue and the embedding, with any problems."""

import os
from pathlib import Path
from typing import Any, Final

import msgspec
from rich.markup import escape

from remembrancer import __version__
from remembrancer.actors.gateway.write_queue import USER_LANE, QueuedRow, read_queue
from remembrancer.commands import exit_codes
from remembrancer.commands.model import describe
from remembrancer.commands.projects import notice_of_move
from remembrancer.commands.report import Line, Report, Rows, command
from remembrancer.commands.runtime_client import look, nothing_runs, paths_here
from remembrancer.commands.terminal import styled, table
from remembrancer.config.home import locate
from remembrancer.config.project import directory_here, directory_of
from remembrancer.config.reading import read_configuration
from remembrancer.memory.limits import moment
from remembrancer.memory.sentences import excerpt
from remembrancer.memory.text import count
from remembrancer.protocol.control import (
    ConsolidatorHealth,
    GatewayHealth,
    IndexerHealth,
    ProcessState,
    ProcessStatus,
    RemoteEmbedders,
    RuntimeStatus,
)
from remembrancer.protocol.problems import MIB, Problem, find_problems
from remembrancer.protocol.reads import EmbeddingSummary
from remembrancer.protocol.writes import Operation, StoreMemory
from remembrancer.toolsets.files.workspace_files import native_files

COLOURS: Final[dict[ProcessState, str]] = {"ready": "green", "starting": "cyan", "failed": "red", "unresponsive": "red"}
TEXT_CHARACTERS: Final = 60
_operation = msgspec.msgpack.Decoder(Operation)


@command()
def status() -> Report:
    """Show the processes of this home's runtime, their work and their problems.

    Exit status 0: all is well, 3: degraded, 4: nothing is running."""
    paths = paths_here()
    state = look(paths)
    if isinstance(state, Problem):
        return Report(report(paths.home, None, (state,)), (), exit_codes.DEGRADED, (f"remembrancer status: {state}",))
    if state is None:
        faults = read_configuration(os.environ, locate(os.environ).file).problems
        problems = tuple(Problem("configuration_error", fault, "fix that setting", "problem") for fault in faults)
        line = f"Nothing is running for the home {paths.home}, and no runtime can start."
        lines = (line if faults else nothing_runs(paths.home), *(f"remembrancer status: {text}" for text in problems))
        return Report(report(paths.home, None, problems), (), exit_codes.NOT_RUNNING, lines)
    problems = find_problems(state)
    facts, notes = report(paths.home, state, problems), []
    has_store = any(process.role == "store" and process.state == "ready" for process in state.processes)
    if has_store and (notice := notice_of_move(directory_here())):
        notes.append(notice)
        facts["warnings"].append(notice)
    return Report(facts, lines_of(state, problems), exit_codes.DEGRADED if problems else exit_codes.OK, notes)


def report(home: Path, status: RuntimeStatus | None, problems: tuple[Problem, ...]) -> dict[str, Any]:
    """The object that `status --json` prints; `status` is None if nothing is running, or nothing answers."""
    store, gateway = (status.store, status.gateway) if status else (None, None)
    embedding = store.embedding if store else None
    return {
        "home": str(home),
        "release": __version__,
        "processes": [
            _fields(process, ProcessStatus)
            | {"name": process.name or process.role, "uptime_s": round(process.uptime_s, 3)}
            for process in (status.processes if status else ())
        ],
        "write_queue": {
            name: getattr(gateway, f"queue_{name}", None) for name in ("depth", "rejected", "stuck", "damage")
        },
        "embedding": _fields(embedding, EmbeddingSummary),
        "remote_embedders": msgspec.to_builtins(store.remote) if store else None,
        "resting": status.is_resting if status else None,
        "late": list(status.late) if status else [],
        "unusable": list(store.unusable) if store else [],
        "counts": msgspec.to_builtins(store.counts) if store and store.counts else {},
        "gateway": _fields(gateway, GatewayHealth),
        "consolidator": _fields(status.consolidator if status else None, ConsolidatorHealth),
        "indexer": _fields(status.indexer if status else None, IndexerHealth),
        "problems": msgspec.to_builtins(problems),
        "warnings": [*map(str, problems)],
    }


def _fields(struct: msgspec.Struct | None, kind: type[msgspec.Struct]) -> dict[str, Any]:
    return {name: msgspec.to_builtins(getattr(struct, name, None)) for name in kind.__struct_fields__}


def lines_of(status: RuntimeStatus, problems: tuple[Problem, ...]) -> list[Line]:
    listed = table("process", "state", ">pid", ">restarts", ">up", ">memory")
    for process in status.processes:
        colour = COLOURS.get(process.state, "yellow")
        listed.add_row(
            escape(process.name or process.role),
            f"[{colour}]{process.state}[/{colour}]",
            str(process.pid or "-"),
            str(process.restarts),
            duration(process.uptime_s) if process.pid else "-",
            f"{process.rss_bytes / MIB:.0f} MiB" if process.pid else "-",
        )
    lines: list[Line] = [f"Remembrancer {__version__}, home {status.home}", listed, *_work(status)]
    for problem in problems:
        lines += [styled(f"[yellow]![/yellow] {escape(problem.what)}"), f"  {problem.advice}"]
    return lines if problems else [*lines, styled("[green]All is well.[/green]")]


def _work(status: RuntimeStatus) -> list[str]:
    lines = ["Embedders, consolidator and indexer are stopped until they are needed."] if status.is_resting else []
    lines += [f"{name} did not answer in time: its figures may be out of date" for name in status.late]
    if status.store is not None:
        counts, embedding = status.store.counts, status.store.embedding
        if counts is not None:
            entities = count(counts.entities, "entity")
            lines.append(f"memories    {counts.total}, and {counts.forgotten} forgotten; {entities}")
        lines.append(
            f"embedding   {embedding.model} by {embedding.engine}, {embedding.dimensions} dimensions, "
            f"{embedding.workers} working, {embedding.pending} pending"
        )
        if len(embedding.models) > 1:
            lines += [f"            {describe(model)}" for model in embedding.models]
        if (remote := status.store.remote) is not None:
            lines.append(f"            for other hosts at {remote.address}: {describe_remote(remote)}")
    if status.gateway is not None:
        rejected = f", {status.gateway.queue_rejected} rejected" if status.gateway.queue_rejected else ""
        if status.gateway.http is not None:
            lines.append(f"http        {status.gateway.http}")
        lines.append(f"sessions    {status.gateway.sessions}; writes queued: {status.gateway.queue_depth}{rejected}")
    if status.consolidator is not None:
        health = status.consolidator
        now = f"at work: {health.job}" if health.job else "idle"
        failed = f", {health.failed} failed (the last: {health.error})" if health.failed and health.error else ""
        lines.append(f"consolidator {now}; {count(health.finished, 'job')} done{failed}")
    if status.indexer is not None:
        indexer = status.indexer
        trouble = indexer.error or ("" if indexer.watching else "the system does not report changes")
        notes = f"{count(indexer.files, 'file')} of notes in {count(indexer.workspaces, 'working tree')}"
        code = f"{count(indexer.code_files, 'file')} of code in {count(indexer.code_trees, 'tree')}"
        lines.append(f"indexer     {notes}, {code}{f'; {trouble}' if trouble else ''}")
        if indexer.native_files:
            files = ", ".join(f"{client} {number}" for client, number in native_files().items())
            lines.append(f"assistants  searches also read the assistants' own files: {files}")
            lines.append("            ('remembrancer config --set native_memories=false' stops that)")
    return lines


def describe_remote(remote: RemoteEmbedders) -> str:
    workers = []
    for worker in remote.workers:
        done = f", {count(worker.embedded, 'text')} embedded" if worker.embedded else ""
        why = f" ({worker.error})" if worker.error and worker.state != "refused" else ""
        workers.append(f"{worker.name} {worker.state}{done}{why}")
    return "; ".join(workers) or "none are invited"


def duration(seconds: float) -> str:
    """A readable duration, such as 42 s, 5 min, 3 h 20 min or 2 d 4 h."""
    minutes, hours, days = int(seconds // 60), int(seconds // 3600), int(seconds // 86_400)
    if days:
        return f"{days} d {hours % 24} h"
    if hours:
        return f"{hours} h {minutes % 60} min"
    return f"{minutes} min" if minutes else f"{seconds:.0f} s"


@command()
def queue() -> Report:
    """Show the write queue. Writes acknowledged while the store was unavailable wait in the queue and are applied
    automatically; writes that the store rejects are kept for 90 days, and --json shows them in full."""
    titles = {"queued": "Queued: applied when the store accepts them", "set_aside": "Set aside: refused"}
    facts: dict[str, list[dict[str, Any]]] = {}
    tables: list[Line] = []
    for (name, title), writes in zip(titles.items(), read_queue(paths_here().write_queue), strict=True):
        facts[name], rows = [], []
        for write in writes:
            place, about, operation = _described(write)
            facts[name].append(write._asdict() | {"about": about, "operation": operation})
            at = f"{moment(write.queued_at):%Y-%m-%d %H:%M}"
            rows.append((write.operation_id, place, at, about, write.message or ""))
        tables += [Rows(("id", "for", "queued at (UTC)", "what", "why"), rows, title)] if rows else []
    return Report(facts, tables or "The queue is empty, and nothing is set aside.")


def _described(write: QueuedRow) -> tuple[str, str, Any]:
    try:
        operation = _operation.decode(write.operation)
    except msgspec.DecodeError:  # from a newer release
        return write.lane, "(from another release)", {"raw": write.operation.hex()}
    change = operation.change
    about = change.content if isinstance(change, StoreMemory) else write.memory_id
    place = write.lane if write.lane == USER_LANE else directory_of(operation.project.path)
    return place, excerpt(f"{type(change).__name__} {about}", TEXT_CHARACTERS), msgspec.to_builtins(operation)
