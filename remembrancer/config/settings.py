"""The settings of a runtime: one typed object, read once at the entry point and passed to every process."""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from remembrancer.protocol.errors import ConfigurationError

PREFIX: Final = "REMEMBRANCER_"
NOT_SETTINGS: Final = frozenset({"HOME", "PROJECT", "SESSION_ID", "TOOLSETS", "BRIDGE_BUDGET_S"})
"""Names with our prefix that belong to a session or to the bridge, not to the runtime."""

Seconds = Annotated[float, Meta(gt=0, le=86_400)]


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Every setting with its default. Durations are seconds, sizes are bytes."""

    embedders: Annotated[int, Meta(ge=0, le=64)] = 1
    """Embedding workers at the start."""
    engine: Literal["onnx", "sentence-transformers"] = "onnx"
    """What makes the vectors; `sentence-transformers` is an extra."""
    model: str = "all-MiniLM-L6-v2"
    """The model's name, or the absolute path of a directory with it."""
    embedder_threads: Annotated[int, Meta(ge=0, le=256)] = 0
    """Threads of one worker; 0 shares out the machine's cores."""
    idle_timeout_s: Seconds = 300.0
    """A runtime that a session started goes down this long after the last session left."""
    heartbeat_interval_s: Seconds = 0.5
    """How often each process is asked whether it lives."""
    heartbeat_timeout_s: Seconds = 2.5
    """A process that has not answered for so long hangs, and is replaced."""
    start_timeout_s: Seconds = 60.0
    """A process that is not ready after so long has failed to start."""
    write_budget_s: Seconds = 1.0
    """How long a write waits for the store before it is queued."""
    read_budget_s: Seconds = 2.0
    """How long a read waits for the store before it is answered from the cache."""
    call_budget_s: Seconds = 4.0
    """The longest that any tool call may take."""
    queue_limit: Annotated[int, Meta(ge=1)] = 100_000
    """Operations that the write queue holds before it refuses more."""
    content_limit_bytes: Annotated[int, Meta(ge=1024, le=16_777_216)] = 262_144
    """UTF-8 bytes of one memory's content."""
    database_limit_bytes: Annotated[int, Meta(ge=1_048_576)] | None = None
    """The size at which a database refuses new writes; None: only the disk limits it."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """A memory's content is never logged above `debug`."""


def load_settings(environ: Mapping[str, str]) -> Settings:
    """The settings that an environment asks for: `REMEMBRANCER_<NAME>` over the defaults.

    Raises:
        ConfigurationError: a name is unknown (the message gives the nearest known one), or a value is not allowed.
    """
    known = {field.name for field in msgspec.structs.fields(Settings)}
    given: dict[str, str] = {}
    for variable, value in environ.items():
        name = variable.removeprefix(PREFIX)
        if name == variable or name in NOT_SETTINGS:
            continue
        if name.lower() not in known:
            raise ConfigurationError(unknown_name(variable, sorted(PREFIX + each.upper() for each in known)))
        if not _is_text(value):
            raise ConfigurationError(f"{variable} has a value that is not UTF-8")
        given[name.lower()] = value
    try:
        return msgspec.convert(given, Settings, strict=False)
    except msgspec.ValidationError as error:
        raise ConfigurationError(f"a {PREFIX}* variable has a value that is not allowed: {error}") from error


def _is_text(value: str) -> bool:
    """Whether a value can be sent: an environment may hold any bytes, which Python gives as lone surrogates."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def unknown_name(name: str, known: list[str]) -> str:
    """A message about a name that is none of the known ones, with the nearest of them."""
    near = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(known)}"
    return f"unknown name {name}: {hint}"


def threads_per_worker(settings: Settings, workers: int) -> int:
    """Threads for one of `workers` embedders, at least 1."""
    if settings.embedder_threads:
        return settings.embedder_threads
    return max(1, (os.cpu_count() or 1) // max(1, workers))
