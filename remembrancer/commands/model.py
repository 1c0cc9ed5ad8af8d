"""`remembrancer model`: which model makes the vectors, and how far a change of it is; begin one, or call it off."""

from __future__ import annotations

import argparse
import json
import os
from importlib.util import find_spec
from pathlib import Path
from typing import get_args

import msgspec

from remembrancer.commands import exit_codes
from remembrancer.commands.runtime_client import ask_store
from remembrancer.commands.terminal import Terminal
from remembrancer.config.settings import (
    DEFAULT_MODELS,
    MULTILINGUAL_EXTRA,
    MULTILINGUAL_PACKAGE,
    NAMED_MODELS,
    Settings,
)
from remembrancer.protocol.errors import InvalidInput
from remembrancer.protocol.work import AskModels, ChooseModel, ModelChoice, ModelProgress, ModelsTold

ENGINES = tuple(get_args(next(field.type for field in msgspec.structs.fields(Settings) if field.name == "engine")))


def main(argv: list[str]) -> int:
    """List the models, or decide between them."""
    parser = argparse.ArgumentParser(
        prog="remembrancer model",
        description="Which model makes the vectors. Another one is brought in while the old one goes on answering: "
        "everything is embedded again in the background, and then it takes over. The choice holds until the settings "
        "name another model than now.",
        epilog="'use multilingual' brings in a model that finds what is asked in one language and stored in another. "
        "exit status: 0 listed or decided, 2 there is no such engine",
    )
    actions = parser.add_subparsers(dest="action", metavar="use | cancel")
    use = actions.add_parser("use", help="embed everything by another model, and then answer by it")
    choices = (*ENGINES, *NAMED_MODELS)
    use.add_argument("engine", choices=choices, help=f"an engine, or a model with a short name: {', '.join(choices)}")
    use.add_argument("model", nargs="?", help="its name, or a directory; without it, the engine's own")
    cancel = actions.add_parser("cancel", help="stay with the model that answers now")
    for each in (parser, use, cancel):
        each.add_argument("--json", action="store_true", default=argparse.SUPPRESS, help="for a program: one object")
    options = parser.parse_args(argv)
    request: AskModels | ChooseModel = AskModels()
    if options.action is not None:
        request = ChooseModel(_choice(options.engine, options.model) if options.action == "use" else None)
    told = ask_store(request, ModelsTold)
    if "json" in options:
        print(json.dumps({"models": msgspec.to_builtins(told.models)}))
    else:
        terminal = Terminal()
        for model in told.models:
            terminal.print(describe(model), markup=False, highlight=False)
    return exit_codes.OK


def _choice(engine: str, model: str | None) -> ModelChoice:
    if engine == "multilingual" and find_spec(MULTILINGUAL_PACKAGE) is None:
        raise InvalidInput(f"the multilingual model is not installed: {MULTILINGUAL_EXTRA}", field="engine")
    if engine in NAMED_MODELS:
        if model is not None:
            raise InvalidInput(f"{engine} is a model: leave out {model}", field="model")
        return ModelChoice("sentence-transformers", engine)
    if model is None:
        return ModelChoice(engine, DEFAULT_MODELS[engine])
    path = Path(model).expanduser()
    if path.is_dir():  # the runtime works in another directory
        model = str(path.resolve())
    elif model.startswith((os.sep, "~", ".")):
        raise InvalidInput(f"{model} is not a directory", field="model")
    return ModelChoice(engine, model)


def describe(model: ModelProgress) -> str:
    """A line about one model."""
    role = {"active": "in use", "next": "to follow", "fallback": "fallback"}[model.role]
    parts = [f"{role:<10} {model.choice.model} by {model.choice.engine}"]
    if model.dimensions:
        parts.append(f"{model.dimensions} dimensions")
    if model.total:
        parts.append(f"{model.total - model.pending} of {model.total} texts embedded")
    elif model.pending:
        parts.append(f"{model.pending} texts wait for their vectors")
    if model.answers and model.role != "active":
        parts.append("answers questions meanwhile")
    if not model.workers:
        parts.append(model.error or "no worker yet")
    return ", ".join(parts)
