"""Which models there are: the one that answers questions, the one that is to follow it, and those that stand in.

Pure. The catalogue keeps a `ModelState`, so that a change of the model goes on after any crash; what is done for each
model is a `ModelWork`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import msgspec

from remembrancer.actors.store.vectors.leases import Leases
from remembrancer.protocol.sockets import Peer
from remembrancer.protocol.work import ModelChoice, ModelIdentity


class KnownModel(msgspec.Struct, frozen=True):
    """A choice, and what a worker said that it is."""

    choice: ModelChoice
    identity: ModelIdentity
    trial: bytes = b""
    """Its vector of the text that workers on other hosts are tried with; empty: none has come yet."""


class ModelState(msgspec.Struct, frozen=True):
    """The decisions about models. `configured` is what the settings said then: when they say something else, that
    counts.

    `chosen` makes the vectors from now on, and `active` answers until those are whole (None: there is none yet).
    `total` is how many texts the chosen one has to embed for that.
    """

    configured: ModelChoice
    chosen: ModelChoice
    active: KnownModel | None = None
    known: tuple[KnownModel, ...] = ()
    total: int = 0

    @classmethod
    def read(cls, written: bytes | None, configured: ModelChoice) -> ModelState:
        """The state of a store that starts with these settings and finds what was `written` last."""
        try:
            state = cls(configured, configured) if written is None else _decode_state(written)
        except ValueError:  # of another release: the workers will say which models there are
            state = cls(configured, configured)
        return state.configured_as(configured)

    def written(self) -> bytes:
        """The bytes that the records keep of it."""
        return msgspec.msgpack.encode(self)

    def configured_as(self, configured: ModelChoice) -> ModelState:
        """The settings say this now."""
        if configured == self.configured:
            return self
        return msgspec.structs.replace(self.choosing(configured), configured=configured)

    def choosing(self, choice: ModelChoice | None) -> ModelState:
        """Another one is chosen; None: the active one again."""
        if choice is None:
            choice = self.chosen if self.active is None else self.active.choice
        return self if choice == self.chosen else msgspec.structs.replace(self, chosen=choice, total=0)

    def introduced(self, known: KnownModel) -> ModelState:
        """A worker has said what a choice is."""
        if any((model.choice, model.identity) == (known.choice, known.identity) for model in self.known):
            return self
        return self._with(known)

    def tried(self, choice: ModelChoice, identity: ModelIdentity, trial: bytes) -> ModelState:
        """A model's vector of the trial's text is known."""
        return self._with(KnownModel(choice, identity, trial))

    def _with(self, known: KnownModel) -> ModelState:
        others = tuple(model for model in self.known if model.choice != known.choice)
        return msgspec.structs.replace(self, known=(*others, known))

    def swapped(self) -> ModelState:
        """The chosen one answers from now on."""
        active = next((model for model in self.known if model.choice == self.chosen), self.active)
        return msgspec.structs.replace(self, active=active, total=0)

    def models(self, fallbacks: tuple[ModelChoice, ...]) -> list[tuple[ModelChoice, ModelIdentity | None]]:
        """All that something is done for: the active one, the chosen one, and the fallbacks, each once."""
        identities = {model.choice: model.identity for model in self.known}
        models: list[tuple[ModelChoice, ModelIdentity | None]] = []
        if self.active is not None:
            models.append((self.active.choice, self.active.identity))
        for choice in (self.chosen, *fallbacks):
            if (model := (choice, identities.get(choice))) not in models:
                models.append(model)
        return models


_decode_state: Final = msgspec.msgpack.Decoder(ModelState).decode


@dataclass(slots=True, eq=False)
class ModelWork:
    """The work for one model. `identity` is None until a worker has said what it is."""

    choice: ModelChoice
    identity: ModelIdentity | None
    leases: Leases[Peer]
    has_news: bool = False
    """A worker has come since dead letters got another chance."""

    @property
    def key(self) -> str | None:
        """The name of its vectors."""
        return None if self.identity is None else self.identity.key
