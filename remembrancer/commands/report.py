"""The status as a program reads it. Unknown values are null; the keys are always there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from remembrancer.commands.health import Problem
from remembrancer.protocol.control import ConsolidatorHealth, GatewayHealth, ProcessStatus, RuntimeStatus, StoreHealth
from remembrancer.protocol.reads import EmbeddingSummary


def report(home: Path, status: RuntimeStatus | None, problems: tuple[Problem, ...]) -> dict[str, Any]:
    """The object that `status --json` prints; `status` None means that nothing runs or answers."""
    return {
        "home": str(home),
        "processes": [_process(process) for process in status.processes] if status else [],
        "write_queue": _write_queue(status.gateway if status else None),
        "embedding": _embedding(status.store if status else None),
        "unusable": list(status.store.unusable) if status and status.store else [],
        "counts": msgspec.to_builtins(status.store.counts) if status and status.store else {},
        "gateway": _gateway(status.gateway if status else None),
        "consolidator": _consolidator(status.consolidator if status else None),
        "warnings": [*(status.warnings if status else ()), *map(str, problems)],
    }


def _process(process: ProcessStatus) -> dict[str, Any]:
    return {
        "role": process.role,
        "name": process.name or process.role,
        "pid": process.pid,
        "state": process.state,
        "restarts": process.restarts,
        "uptime_s": round(process.uptime_s, 3),
        "rss_bytes": process.rss_bytes,
        "error": process.error,
    }


def _write_queue(gateway: GatewayHealth | None) -> dict[str, Any]:
    return {
        "depth": gateway.queue_depth if gateway else None,
        "rejected": gateway.queue_rejected if gateway else None,
    }


def _gateway(gateway: GatewayHealth | None) -> dict[str, Any]:
    return {
        "sessions": gateway.sessions if gateway else None,
        "store": gateway.store if gateway else None,
        "store_attempts": gateway.store_attempts if gateway else None,
        "store_next_attempt_s": gateway.store_next_attempt_s if gateway else None,
    }


def _consolidator(health: ConsolidatorHealth | None) -> dict[str, Any]:
    return {
        "duty": health.duty if health else None,
        "finished": health.finished if health else None,
        "failed": health.failed if health else None,
        "error": health.error if health else None,
    }


def _embedding(store: StoreHealth | None) -> dict[str, Any]:
    if store is not None:
        return dict(msgspec.structs.asdict(store.embedding))
    return dict.fromkeys(EmbeddingSummary.__struct_fields__)
