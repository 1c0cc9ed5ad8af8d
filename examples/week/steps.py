"""The steps of a session of the week."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from remembrancer.protocol.kinds import Kind, Scope

Project = Literal["tidewatch", "slipway"]


@dataclass(frozen=True, slots=True)
class Keep:
    """Store a memory. The story calls it `name`; `about` are the entities that it names, with their types."""

    name: str
    kind: Kind
    importance: float
    confidence: float
    content: str
    scope: Scope = "session"
    about: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Ask:
    """Recall as many memories as are named. They are what has to be found; each counts as accessed in this session.

    `doubted`: of these a newer memory, named beside it, says something else, and the answer says so.
    """

    query: str
    finds: tuple[str, ...]
    doubted: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class SeekInVain:
    """Look for another session's memories, by their own words and by their ids."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class AwaitPromotion:
    """Go on when a memory has left this running session for the project."""

    name: str


@dataclass(frozen=True, slots=True)
class Supersede:
    """Say that a memory holds now in place of an older one."""

    newer: str
    older: str


@dataclass(frozen=True, slots=True)
class ReadContext:
    """Begin with the context that is ready for the session: these are in it, and nothing of the other project."""

    shows: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Hooks:
    """The reports of the client's hooks meanwhile: what the developer says, and a command that is run."""

    prompt: str
    command: str
    output: str


Step = Keep | Ask | SeekInVain | AwaitPromotion | Supersede | ReadContext | Hooks


@dataclass(frozen=True, slots=True)
class Session:
    """One session: its number, its day (the first is 1), and what it does."""

    number: int
    day: int
    project: Project
    about: str
    steps: tuple[Step, ...]

    @property
    def id(self) -> str:
        """The id under which the system knows it."""
        return f"week-{self.number}"
