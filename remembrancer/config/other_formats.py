"""Reads configurations to import: those of other memory servers, and those of release 0.2.0 in JSON or Markdown."""

import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from remembrancer.config.settings import DEFAULT_MODELS, IN_FILE, Settings

NAMES: Final = {
    "embedding_model": "model",
    "sources.memory.enabled": "notes",
    "sources.memory.paths": "notes_paths",
    "sources.memory.extraPaths": "notes_extra_paths",
    "sources.sessions.enabled": "transcripts",
    "sources.sessions.path": "transcripts_path",
    "sources.sessions.syncThreshold.deltaBytes": "transcripts_delta_bytes",
    "sources.sessions.syncThreshold.deltaMessages": "transcripts_delta_messages",
    "chunking.tokens": "chunk_tokens",
    "chunking.overlap": "chunk_overlap",
    "chunking.boundaryAware": "chunk_at_boundaries",
    "search.maxResults": "search_max_results",
    "search.minScore": "search_min_score",
    "sync.watchEnabled": "watch",
    "sync.watchDebounceMs": "watch_quiet_s",
    "sync.intervalMinutes": "sync_interval_s",
    "store.path": "index_file",
    "embedding.model": "model",
    "embedding.batch.maxTokens": "provider_batch_tokens",
    "embedding.batch.concurrency": "provider_requests",
    "secrets.VOYAGE_API_KEY": "voyage_key_from",
    "secrets.OPENAI_API_KEY": "openai_key_from",
}
"""Maps the names of settings in a file to ours. A dot follows the name of a section."""
SECONDS: Final = {"sync.watchDebounceMs": 0.001, "sync.intervalMinutes": 60.0}
PROVIDERS: Final = {
    "embedding.provider": ("engine", "model"),
    "embedding.fallback": ("fallback_engine", "fallback_model"),
}
"""Maps each name that selects a source of vectors to our settings for the engine and its model."""
LOCAL_MODEL: Final = "embedding.local.model"
_FRONT_MATTER: Final = re.compile(r"---[ \t]*\n(.*?)^(?:---|\.\.\.)[ \t]*$(.*)", re.DOTALL | re.MULTILINE)
_YAML_BLOCK: Final = re.compile(r"^```ya?ml[ \t]*\n(.*?)^```[ \t]*$", re.DOTALL | re.MULTILINE | re.IGNORECASE)


def read_other_format(path: Path, text: str) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Our equivalents of a file's settings, and the names that have no effect here. Does not check the values. Raises a
    `ValueError` that does not quote the file."""
    given = dict(_flat(_parsed(path, text)))
    settings: dict[str, Any] = {}
    unused = []
    for name, value in given.items():
        ours = NAMES.get(name, name)
        if name == "db_path" or ours in IN_FILE:
            settings[ours] = value * SECONDS[name] if name in SECONDS and isinstance(value, int | float) else value
        elif name not in (*PROVIDERS, LOCAL_MODEL):
            unused.append(name)
    for name, (engine, model) in PROVIDERS.items():
        if given.get(name) == "local":
            local = given.get(LOCAL_MODEL)
            is_default = local in (None, DEFAULT_MODELS[Settings().engine])
            settings[engine] = "onnx" if is_default else "sentence-transformers"
            settings[model] = local  # `embedding.model` belongs to a remote provider
        elif name in given:
            settings[engine] = given[name]
    if settings.get("deployment_mode") == "remote" and "remote_url" in unused:
        unused.remove("remote_url")
        settings.setdefault("chroma_url", given["remote_url"])
    return {name: value for name, value in settings.items() if value is not None}, tuple(unused)


def _flat(content: Mapping[str, object], section: str = "") -> Iterator[tuple[str, object]]:
    for name, value in content.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{section}{name}.")
        else:
            yield f"{section}{name}", value


def _parsed(path: Path, text: str) -> Mapping[str, object]:
    fault = "is not valid in the format that its suffix names"
    try:
        match path.suffix.lower():
            case ".toml":
                content: object = tomllib.loads(text)
            case ".json":
                content = json.loads(text)
            case ".md" if front := _FRONT_MATTER.match(text):
                block = _YAML_BLOCK.search(front[2])
                content = {**(yaml.safe_load(front[1]) or {}), **(yaml.safe_load(block[1]) if block else {})}
            case _:
                fault = "is neither TOML, nor JSON, nor Markdown with settings between two lines of ---"
                raise ValueError(fault)
    except (ValueError, TypeError, RecursionError, yaml.YAMLError):
        raise ValueError(f"{path} {fault}") from None
    if not isinstance(content, dict) or not all(isinstance(name, str) for name in content):
        raise ValueError(f"{path} must contain name-value pairs")
    return content
