"""Reads settings from an environment and a configuration file, with their origins, and collects all errors."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, get_args, get_origin
from urllib.parse import urlsplit

import msgspec

from remembrancer.config.home import locate, read_settings_file
from remembrancer.config.settings import (
    CONSTANTS,
    IN_FILE,
    NAMED_MODELS,
    NOT_SETTINGS,
    PREFIX,
    SETTABLE,
    Settings,
    unknown_name,
)
from remembrancer.config.tokens import LOOPBACK
from remembrancer.memory.text import types_in_words
from remembrancer.protocol.environment import TOOLSETS_VARIABLE, unknown_toolsets
from remembrancer.protocol.errors import ConfigurationError

WITHOUT_EFFECT: Final = "accepted for compatibility, without effect in this release"
NONE: Final = "none"
MODEL_VARIABLE: Final = "MEMORY_MCP_MODEL"
FOREIGN_VARIABLES: Final = {
    "MEMORY_DEPLOYMENT_MODE": "deployment_mode",
    "MEMORY_LOG_LEVEL": "log_level",
    "MEMORY_MCP_LOG_LEVEL": "log_level",
    MODEL_VARIABLE: "model",
    "MEMORY_MCP_BATCH_SIZE": "embedding_batch_texts",
    "MEMORY_MCP_TIMEOUT": "model_load_timeout_s",
    "MEMORY_MCP_CACHE_SIZE": "embedding_cache_entries",
}
REMOTE_URL: Final = "MEMORY_REMOTE_URL"
"""Another server's variable for the address of a Chroma server, in `remote` mode."""
DB_PATH: Final = "db_path"
LOCAL_CHROMA: Final = "http://127.0.0.1:8000"
"""The address at which `chroma run` listens."""
_FIELDS: Final = {field.name: field for field in msgspec.structs.fields(Settings)}


class SettingOrigin(NamedTuple):
    """A variable, or a name in a file."""

    name: str
    file: Path | None = None

    def __str__(self) -> str:
        return self.name if self.file is None else f"{self.name} in {self.file}"


class Configuration(NamedTuple):
    """`origins` contains the settings that differ from their defaults."""

    settings: Settings
    origins: Mapping[str, SettingOrigin] = {}
    warnings: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    """Variables that look like our settings. They only cause warnings."""


def load_settings(environ: Mapping[str, str]) -> Settings:
    """Variables override the configuration file. Raises `ConfigurationError`."""
    return load_configuration(environ).settings


def load_configuration(environ: Mapping[str, str]) -> Configuration:
    """Like `load_settings`, with the origin of each setting and the warnings."""
    configuration = read_configuration(environ, locate(environ).file)
    if configuration.problems:
        raise ConfigurationError("; ".join(configuration.problems))
    return configuration


def read_configuration(
    environ: Mapping[str, str], file: Path | None = None, content: Mapping[str, object] | None = None
) -> Configuration:
    """`content` is the content of `file`, if it has been read. Never fails: errors are in `problems`."""
    read = _Reader()
    unknown, unused = [], []
    try:
        content = read_settings_file(file) if file is not None and content is None else content
    except ValueError as error:
        read.problems.append(str(error))
    for origin, name, value in _given(environ, content or {}, file):
        is_ours = origin.file is None and origin.name.startswith(PREFIX)
        if origin == SettingOrigin(MODEL_VARIABLE) and value not in NAMED_MODELS:
            read.refuse(origin, f"it must be one of {', '.join(NAMED_MODELS)}")
        elif name in (SETTABLE if is_ours else IN_FILE):
            read.take(name, value, origin)
        elif name in CONSTANTS:
            unused.append(f"{origin}: {WITHOUT_EFFECT}")
        elif is_ours:
            unknown.append(unknown_name(origin.name, sorted(PREFIX + setting.upper() for setting in SETTABLE)))
        elif name != DB_PATH:
            hint = "; to import the settings of another server, run 'remembrancer config --import'"
            read.problems.append(f"{file}: {unknown_name(name, sorted({*IN_FILE, DB_PATH}))}{hint}")
        elif not isinstance(value, str) or not value or "\0" in value:
            read.refuse(origin, "it must be a path")
    read.check_combinations()
    read.check_server(environ.get(REMOTE_URL))
    toolsets = (f"{TOOLSETS_VARIABLE}: {text}" for text in unknown_toolsets(environ.get(TOOLSETS_VARIABLE, "")))
    warnings = (*unknown, *unused, *toolsets)
    return Configuration(read.settings, read.origins, warnings, tuple(read.problems), tuple(unknown))


def _given(
    environ: Mapping[str, str], content: Mapping[str, object], file: Path | None
) -> Iterator[tuple[SettingOrigin, str, object]]:
    """Yield the values that are given. A later one overrides an earlier one."""
    for name, value in content.items():
        yield SettingOrigin(name, file), name, value
    for variable, name in FOREIGN_VARIABLES.items():
        if environ.get(variable):
            yield SettingOrigin(variable), name, environ[variable]
    for variable, value in environ.items():
        name = variable.removeprefix(PREFIX)
        if name != variable and name not in NOT_SETTINGS:
            yield SettingOrigin(variable), name.lower() if name.isupper() else variable, value


class _Reader:
    def __init__(self) -> None:
        self.problems: list[str] = []
        self.origins: dict[str, SettingOrigin] = {}
        self._values: dict[str, Any] = {}

    @property
    def settings(self) -> Settings:
        return msgspec.structs.replace(Settings(), **self._values)

    def take(self, name: str, value: object, origin: SettingOrigin) -> None:
        """A value from a variable is converted to the setting's type."""
        field, is_variable = _FIELDS[name], origin.file is None
        if isinstance(value, str):
            value = "warning" if name == "log_level" and value == "warn" else value  # another server's word for it
            try:
                value.encode()
            except UnicodeEncodeError:  # an environment may contain any bytes, which Python turns into lone surrogates
                self.problems.append(f"{origin} has a value that is not UTF-8")
                return
            if value.lower() == NONE and field.default is None:
                value = None
            elif is_variable and isinstance(field.default, tuple):
                value = [part.strip() for part in value.split(",") if part.strip() and value.lower() != NONE]
        try:
            self._values[name] = msgspec.convert(value, field.type, strict=not is_variable)
            self.origins[name] = origin
        except msgspec.ValidationError as error:
            kinds = (field.type, *get_args(field.type))
            choices = [get_args(kind) for kind in kinds if get_origin(kind) is Literal]
            metas = [meta for kind in kinds for meta in getattr(kind, "__metadata__", ())]
            examples = " or ".join(example for meta in metas for example in meta.examples or ())
            why, regex, pattern = types_in_words(str(error)).partition(" matching regex ")
            if regex:
                why += f" such as {examples}" if examples else f"{regex}{pattern}"
            self.refuse(origin, f"{why}: one of {', '.join(choices[0])}" if choices else why)

    def refuse(self, origin: SettingOrigin, why: str) -> None:
        self.problems.append(f"{origin} has a value that is not allowed: {why}")

    def check_combinations(self) -> None:
        chosen = self.settings
        if chosen.chunk_overlap > (most := chosen.chunk_tokens // 2):
            self._drop("chunk_overlap", f"it must be at most {most}, half of a chunk", beside="chunk_tokens")
        is_absolute = (chosen.markdown_index or "").startswith(("/", "~/"))
        if is_absolute and self.origins["markdown_index"].file is None:  # a project may set variables
            self._drop("markdown_index", "an absolute path is only allowed in the configuration file")
        if chosen.model in NAMED_MODELS and chosen.engine not in ("onnx", "sentence-transformers"):
            engine = f"needs the engine sentence-transformers, but the engine is {chosen.engine}"
            self._drop("model", f"{chosen.model} {engine}")

    def check_server(self, remote_url: str | None) -> None:
        """In the local-server and remote modes, large projects keep their vectors on a Chroma server."""
        mode = self.settings.deployment_mode
        if mode == "remote" and self.settings.chroma_url is None and remote_url:
            self.take("chroma_url", remote_url, SettingOrigin(REMOTE_URL))
        if mode == "remote" and self.settings.chroma_url is None:
            needs = "the mode 'remote' needs the address of a Chroma server"
            self.problems.append(f"{self.origins.pop('deployment_mode')}: {needs}; set {PREFIX}CHROMA_URL")
            del self._values["deployment_mode"]
        elif mode == "local-server" and self.settings.chroma_url is None:
            self._values["chroma_url"] = LOCAL_CHROMA
        url = self.settings.chroma_url or ""
        if self.settings.chroma_credential_file is not None and url.startswith("http://"):
            try:
                host = urlsplit(url).hostname
            except ValueError:  # brackets around an invalid address
                host = None
            if host not in LOOPBACK:
                why = "a secret is only sent to another machine over https"
                self._drop("chroma_credential_file", why, beside="chroma_url")

    def _drop(self, name: str, why: str, *, beside: str = "") -> None:
        self.refuse(self.origins.get(name) or self.origins[beside], why)
        for each in (name, beside):
            self._values.pop(each, None)
            self.origins.pop(each, None)
