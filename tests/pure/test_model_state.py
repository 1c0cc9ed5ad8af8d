"""The decisions about models, and those that a store which is started again goes on with."""

from __future__ import annotations

from remembrancer.actors.store.vectors.models import Model, ModelState
from remembrancer.protocol.work import ModelChoice, ModelIdentity

OLD, NEW, LOCAL = ModelChoice("onnx", "old"), ModelChoice("voyage", "new"), ModelChoice("onnx", "local")


def known(choice: ModelChoice, revision: str = "1") -> Model:
    return Model(choice, ModelIdentity(choice.engine, choice.model, revision, "int8", 4, 256))


def changing() -> ModelState:
    """A store that answers by the old model and was told to change to the new one."""
    return ModelState(OLD, OLD).introduced(known(OLD)).swapped().choosing(NEW)


def test_the_old_model_is_kept_until_the_new_one_has_taken_over_unless_that_is_called_off() -> None:
    state = changing()
    assert state.models((LOCAL,)) == [known(OLD), Model(NEW), Model(LOCAL)]
    state = state.introduced(known(NEW))
    assert state.active == known(OLD)
    state = state.swapped()
    assert state.active == known(NEW)
    assert state.models(()) == [known(NEW)]
    assert changing().choosing(None).models(()) == [known(OLD)]
    assert ModelState(OLD, NEW).choosing(None).chosen == NEW, "nothing answers that one could stay with"
    state = ModelState(OLD, OLD).introduced(known(OLD)).swapped().introduced(known(OLD, "2"))
    assert state.models(()) == [known(OLD), known(OLD, "2")]
    assert state.swapped().models(()) == [known(OLD, "2")]


def test_a_change_goes_on_after_a_restart_and_what_the_settings_say_newly_counts_more() -> None:
    state = changing()
    assert ModelState.read(state.written(), OLD) == state, "the settings are those of before"
    other = ModelState.read(state.written(), LOCAL)
    assert (other.chosen, other.active) == (LOCAL, known(OLD))
    assert ModelState.read(b"\xc1", OLD) == ModelState.read(None, OLD) == ModelState(OLD, OLD)
