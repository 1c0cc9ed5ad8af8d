"""What the doctor makes of the data: the model, the records, the index, the write queue. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from remembrancer.commands.checking.checks import ORDER, Check, Status, few, size
from remembrancer.protocol.control import IndexFigures
from remembrancer.protocol.reads import EmbeddingSummary

LONG_QUEUED_S: Final = 60.0
"""A queue of a running system is empty within seconds of the store's return."""


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """The model that the settings ask for, loaded here (`error` says why it cannot be), and the one used last."""

    name: str
    dimensions: int | None = None
    key: str | None = None
    last_key: str | None = None
    error: str | None = None


def check_model(facts: ModelFacts) -> Check:
    """Whether the weights are there and are the pinned ones, and whether the vectors are this model's."""
    if facts.error is not None:
        return Check("model", "problem", facts.error, "until it is mended, search is by keyword only")
    found = f"{facts.name}, {facts.dimensions} dimensions: the weights are there, whole, and can be loaded"
    if facts.last_key is not None and facts.last_key != facts.key:
        advice = "nothing to do: everything is embedded again in the background"
        return Check("model", "warning", f"{found}; the present vectors are of {facts.last_key}", advice)
    return Check("model", "ok", found)


@dataclass(frozen=True, slots=True)
class FileFacts:
    """One SQLite file. `known` is the newest schema version of this release; `faults` are what SQLite found wrong."""

    path: Path
    size_bytes: int = 0
    version: int = 0
    known: int = 0
    faults: tuple[str, ...] = ()
    broken_references: int = 0
    error: str | None = None
    unfinished: bool = False


def check_records(files: Sequence[FileFacts]) -> Check:
    """Whether every file of records is whole and of a version that is understood."""
    if not files:
        return Check("records", "ok", "nothing is stored yet")
    details: list[str] = []
    advice: list[str] = []
    status: Status = "ok"
    for facts in files:
        said, todo, how = _of_file(facts)
        if how != "ok":
            details.append(f"{facts.path}: {said}")
        if todo and todo not in advice:
            advice.append(todo)
        status = max(status, how, key=ORDER.__getitem__)
    total = size(sum(facts.size_bytes for facts in files))
    whole = len(files) - len(details)
    found = f"{whole} of {len(files)} files are whole, {total}"
    older = sum(0 < facts.version < facts.known for facts in files)
    if older:
        details.append(f"{older} are of an older release: the next start migrates them")
    return Check("records", status, found, "; ".join(advice), few(tuple(details)))


def _of_file(facts: FileFacts) -> tuple[str, str, Status]:
    restore = "put back a backup of it, or move it away to begin anew"
    if facts.error is not None:
        return facts.error, restore, "problem"
    if facts.faults:
        return f"damaged: {facts.faults[0]} (and {len(facts.faults) - 1} more)", restore, "problem"
    if facts.version > facts.known:
        newer = f"of a newer release (version {facts.version}, this one knows {facts.known})"
        return newer, "install the newer release that wrote it", "problem"
    if facts.broken_references:
        return f"{facts.broken_references} rows refer to rows that are gone", restore, "problem"
    if facts.unfinished:
        return "too large to be checked whole in this time", "check it with sqlite3 and PRAGMA quick_check", "warning"
    return "", "", "ok"


def check_index(figures: Sequence[IndexFigures], embedding: EmbeddingSummary | None) -> Check:
    """Whether the vector index holds what the records have. Without a running store there is no `embedding`."""
    running, pending = embedding is not None, 0 if embedding is None else embedding.pending
    if pending:
        advice = "nothing to do: words are searched meanwhile"
        return Check("index", "ok", f"{pending} memories wait for their vectors", advice)
    if not figures:
        return Check(
            "index", "ok", "nothing to compare yet" if running else "compared with the records at the next start"
        )
    unready = [each.name for each in figures if not each.ready]
    differing = [each for each in figures if each.ready and each.indexed != each.recorded]
    details = tuple(f"{each.name}: {each.recorded} passages recorded, {each.indexed} indexed" for each in differing)
    if differing:
        advice = "the next start mends it"
        if running:
            advice = "run 'remembrancer down'; the next session compares the index with the records and mends it"
        status: Status = "problem" if running else "warning"
        return Check(
            "index", status, f"{len(differing)} of {len(figures)} files differ from the records", advice, details
        )
    if embedding is not None and embedding.given_up:
        found = f"memories that cannot be embedded: {embedding.given_up} ({embedding.given_up_error})"
        advice = "they are found by their words; store.log says which they are"
        return Check("index", "warning", found, advice)
    if unready:
        return Check("index", "ok", f"{len(unready)} of {len(figures)} files are being brought up to date")
    total = sum(each.recorded for each in figures)
    return Check("index", "ok", f"holds the {total} passages of {len(figures)} files")


@dataclass(frozen=True, slots=True)
class QueueFacts:
    """The write queue's file. `rejected` counts by code and message; `damaged` are files that were set aside."""

    depth: int = 0
    oldest_age_s: float = 0.0
    rejected: tuple[tuple[str, str, int], ...] = ()
    damaged: tuple[Path, ...] = ()
    error: str | None = None


def check_queue(facts: QueueFacts, *, running: bool) -> Check:
    """Whether acknowledged writes wait for the store, or could not be applied."""
    if facts.error is not None:
        advice = "keep that file: it may hold writes that the store has not; the next start begins a new one beside it"
        return Check("write queue", "problem", facts.error, advice)
    rejected = sum(count for _, _, count in facts.rejected)
    details = tuple(f"{count} rejected as {code}: {message}" for code, message, count in facts.rejected)
    details += tuple(f"a damaged queue was set aside: {path}" for path in facts.damaged)
    parts = [f"{facts.depth} writes wait, the oldest for {facts.oldest_age_s:.0f} s"] if facts.depth else []
    parts += [f"{rejected} were rejected"] if rejected else []
    to_do = ["what was rejected is kept in queue.db; mend what is said of it and store it again"] if rejected else []
    if facts.damaged:
        to_do.append("a damaged queue may hold writes that the store has not; delete it when you do not need it")
    if details:
        return Check("write queue", "warning", "; ".join(parts) or "empty", "; ".join(to_do), few(details))
    if not facts.depth:
        return Check("write queue", "ok", "empty")
    if not running:
        return Check("write queue", "ok", parts[0], "nothing to do: the next start applies them, in order")
    status: Status = "warning" if facts.oldest_age_s > LONG_QUEUED_S else "ok"
    return Check("write queue", status, parts[0], "they are applied by themselves when the store answers")
