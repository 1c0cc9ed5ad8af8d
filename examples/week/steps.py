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
    """Recall as many memories as are listed. All of them must be found; each counts as accessed in this session.

    `doubted`: those of them that a newer memory, named with each, contradicts, as the answer must say.
    """

    query: str
    finds: tuple[str, ...]
    doubted: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class SeekInVain:
    """Look for another session's memories, by their own words and by their ids, without finding them."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class AwaitPromotion:
    """Wait until a memory has been promoted from this running session to the project."""

    name: str


@dataclass(frozen=True, slots=True)
class Supersede:
    """Declare that a memory replaces an older one."""

    newer: str
    older: str


@dataclass(frozen=True, slots=True)
class ReadContext:
    """Begin with the context prepared for the session: it has these memories, and none of the other project."""

    shows: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Hooks:
    """Events that the client's hooks report meanwhile: the developer's prompt, and a command."""

    prompt: str
    command: str
    output: str


Step = Keep | Ask | SeekInVain | AwaitPromotion | Supersede | ReadContext | Hooks


@dataclass(frozen=True, slots=True)
class Session:
    """One session: its number, its day (the first is 1), and its steps."""

    number: int
    day: int
    project: Project
    about: str
    steps: tuple[Step, ...]

    @property
    def id(self) -> str:
        """The session's id in the system."""
        return f"week-{self.number}"
