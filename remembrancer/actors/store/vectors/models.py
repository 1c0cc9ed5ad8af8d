"""The models in use: the one that answers queries, the one that will replace it, and fallbacks.

Pure. The catalogue stores a `ModelState`, so a change of model survives a crash.
"""

from __future__ import annotations

from typing import Final

import msgspec

from remembrancer.protocol.work import ModelChoice, ModelIdentity


class Model(msgspec.Struct, frozen=True):
    """A choice, and the model that it refers to once a worker has identified it."""

    choice: ModelChoice
    identity: ModelIdentity | None = None

    @property
    def key(self) -> str | None:
        return None if self.identity is None else self.identity.key


class ModelState(msgspec.Struct, frozen=True):
    """The decisions about models. `configured` is the choice in the settings at that time, and shows whether they have
    changed. `chosen` makes the vectors from now on, and `active` answers until these are complete (None: there is no
    active model yet). `known` are the models that workers have identified."""

    configured: ModelChoice
    chosen: ModelChoice
    active: Model | None = None
    known: tuple[Model, ...] = ()

    @classmethod
    def read(cls, written: bytes | None, configured: ModelChoice) -> ModelState:
        """Return the state that was last `written`, updated to these settings."""
        try:
            state = cls(configured, configured) if written is None else _decode_state(written)
        except ValueError:  # from another release: workers will identify the models
            state = cls(configured, configured)
        if configured == state.configured:
            return state
        return msgspec.structs.replace(state.choosing(configured), configured=configured)

    def written(self) -> bytes:
        return msgspec.msgpack.encode(self)

    def choosing(self, choice: ModelChoice | None) -> ModelState:
        """Return the state with another choice (None: the active model again)."""
        if choice is None:
            choice = self.chosen if self.active is None else self.active.choice
        return self if choice == self.chosen else msgspec.structs.replace(self, chosen=choice)

    def introduced(self, model: Model) -> ModelState:
        if model in self.known:
            return self
        others = tuple(each for each in self.known if each.choice != model.choice)
        return msgspec.structs.replace(self, known=(*others, model))

    def swapped(self) -> ModelState:
        active = next((model for model in self.known if model.choice == self.chosen), self.active)
        return msgspec.structs.replace(self, active=active)

    def models(self, fallbacks: tuple[ModelChoice, ...]) -> list[Model]:
        """The active model, the chosen one, and the fallbacks, each once."""
        known = {model.choice: model for model in self.known}
        active = [] if self.active is None else [self.active]
        return list(dict.fromkeys([*active, *(known.get(each, Model(each)) for each in (self.chosen, *fallbacks))]))


_decode_state: Final = msgspec.msgpack.Decoder(ModelState).decode
