"""Settings from an environment and a configuration file: their values, origins and errors.

All errors are collected, so that a person sees them at once.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, get_args, get_origin
from urllib.parse import urlsplit

import msgspec

from remembrancer.config.home import locate, read_settings_file
from remembrancer.config.named_home import CONFIG_FILE
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

IMPORT: Final = f"'remembrancer config --import {{}}' makes {CONFIG_FILE} of it"
WITHOUT_EFFECT: Final = "accepted for compatibility, without effect in this release"
NONE: Final = "none"
"""The word for no value, in upper or lower case."""
FOREIGN_VARIABLES: Final = {
    "MEMORY_DEPLOYMENT_MODE": "deployment_mode",
    "MEMORY_LOG_LEVEL": "log_level",
    "MEMORY_MCP_LOG_LEVEL": "log_level",
    "MEMORY_MCP_MODEL": "model",
    "MEMORY_MCP_BATCH_SIZE": "embedding_batch_texts",
    "MEMORY_MCP_TIMEOUT": "model_load_timeout_s",
}
"""Our settings by the variables of other memory servers that set them."""
UNUSED_VARIABLE: Final = "MEMORY_MCP_CACHE_SIZE"
REMOTE_URL: Final = "MEMORY_REMOTE_URL"
"""Another server's variable for the address of a Chroma server, in the mode `remote`."""
DB_PATH: Final = "db_path"
LOCAL_CHROMA: Final = "http://127.0.0.1:8000"
"""The default server of the mode local-server: the address at which `chroma run` listens."""
_FIELDS: Final = {field.name: field for field in msgspec.structs.fields(Settings)}


class SettingOrigin(NamedTuple):
    """The origin of a setting: a variable, or a name in a file."""

    name: str
    file: Path | None = None

    def __str__(self) -> str:
        return self.name if self.file is None else f"{self.name} in {self.file}"


class Configuration(NamedTuple):
    """The settings, and the errors in them. `origins` has the settings that differ from their defaults."""

    settings: Settings
    origins: Mapping[str, SettingOrigin] = {}
    warnings: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    """The errors that keep a runtime from starting. The settings concerned keep their defaults."""
    unknown: tuple[str, ...] = ()
    """Variables that look like our settings but are not. They only cause warnings."""


def load_settings(environ: Mapping[str, str]) -> Settings:
    """The settings of an environment: its variables over the configuration file over the defaults. Raises
    `ConfigurationError` if a name in the file is unknown, a value is not allowed, or the file cannot be read."""
    return load_configuration(environ).settings


def load_configuration(environ: Mapping[str, str]) -> Configuration:
    """As `load_settings`, with the origin of each setting and the warnings."""
    configuration = read_configuration(environ, locate(environ).file)
    if configuration.problems:
        raise ConfigurationError("; ".join(configuration.problems))
    return configuration


def read_configuration(environ: Mapping[str, str], file: Path | None = None) -> Configuration:
    """The settings of an environment over those of a file over the defaults. Never fails: see `problems`."""
    content: Mapping[str, object] = {}
    problems: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    if file is not None:
        try:
            content = read_settings_file(file)
        except ValueError as error:
            problems = (str(error),)
        if file.suffix.lower() != ".toml":
            warnings = (f"{file} is read, and cannot be changed here: {IMPORT.format(file)}",)
    read = check_configuration(environ, content, file)
    return read._replace(problems=problems + read.problems, warnings=read.warnings + warnings)


def check_configuration(environ: Mapping[str, str], content: Mapping[str, object], file: Path | None) -> Configuration:
    """The settings: values of the environment take precedence over those of a file, and these over the defaults."""
    reader = _Reader()
    if file is not None:
        reader.read_file(file, content)
    reader.read_foreign_variables(environ)
    reader.read_variables(environ)
    return reader.result(environ)


class _Reader:
    """Collects settings; later values override earlier ones."""

    def __init__(self) -> None:
        self.problems: list[str] = []
        self._unknown: list[str] = []
        self._unused: list[SettingOrigin] = []
        self._values: dict[str, Any] = {}
        self._origins: dict[str, SettingOrigin] = {}

    def read_file(self, file: Path, content: Mapping[str, object]) -> None:
        for name, value in content.items():
            origin = SettingOrigin(name, file)
            if name in IN_FILE:
                self._take(name, value, origin, strict=True)
            elif name == DB_PATH:
                if not isinstance(value, str) or not value or "\0" in value:
                    self._refuse_value(origin, "it is a path")
            elif name in CONSTANTS:
                self._unused.append(origin)
            else:
                hint = "; 'remembrancer config --import' reads the file of another server"
                self.problems.append(f"{file}: {unknown_name(name, sorted({*IN_FILE, DB_PATH}))}{hint}")

    def read_foreign_variables(self, environ: Mapping[str, str]) -> None:
        if environ.get(UNUSED_VARIABLE):
            self._unused.append(SettingOrigin(UNUSED_VARIABLE))
        for variable, name in FOREIGN_VARIABLES.items():
            value = environ.get(variable)
            if not value:
                continue
            if variable == "MEMORY_MCP_MODEL" and value not in NAMED_MODELS:
                self._refuse_value(SettingOrigin(variable), f"it must be one of {', '.join(NAMED_MODELS)}")
            else:
                self._take(name, value, SettingOrigin(variable), strict=False)

    def read_variables(self, environ: Mapping[str, str]) -> None:
        for variable, value in environ.items():
            name = variable.removeprefix(PREFIX)
            if name == variable or name in NOT_SETTINGS:
                continue
            if name.lower() in SETTABLE and name.isupper():
                self._take(name.lower(), value, SettingOrigin(variable), strict=False)
            elif name.lower() in CONSTANTS and name.isupper():
                self._unused.append(SettingOrigin(variable))
            else:
                self._unknown.append(unknown_name(variable, sorted(PREFIX + setting.upper() for setting in SETTABLE)))

    def result(self, environ: Mapping[str, str]) -> Configuration:
        self._check_combinations()
        self._check_server(environ.get(REMOTE_URL))
        warnings = [f"{origin}: {WITHOUT_EFFECT}" for origin in self._unused]
        warnings += (f"{TOOLSETS_VARIABLE}: {text}" for text in unknown_toolsets(environ.get(TOOLSETS_VARIABLE, "")))
        return Configuration(
            msgspec.structs.replace(Settings(), **self._values),
            self._origins,
            (*self._unknown, *warnings),
            tuple(self.problems),
            tuple(self._unknown),
        )

    def _take(self, name: str, value: object, origin: SettingOrigin, *, strict: bool) -> None:
        if isinstance(value, str):
            value = "warning" if name == "log_level" and value == "warn" else value  # another server's word
            try:
                value.encode()
            except UnicodeEncodeError:  # an environment may hold any bytes, which Python turns into lone surrogates
                self.problems.append(f"{origin} has a value that is not UTF-8")
                return
            if value.lower() == NONE and _FIELDS[name].default is None:
                value = None
            elif not strict and isinstance(_FIELDS[name].default, tuple):
                value = [part.strip() for part in value.split(",") if part.strip() and value.lower() != NONE]
        try:
            self._values[name] = msgspec.convert(value, _FIELDS[name].type, strict=strict)
        except msgspec.ValidationError as error:
            wanted = _FIELDS[name].type
            literals = [kind for kind in (wanted, *get_args(wanted)) if get_origin(kind) is Literal]
            names = f": one of {', '.join(get_args(literals[0]))}" if literals else ""
            metas = [meta for kind in (wanted, *get_args(wanted)) for meta in getattr(kind, "__metadata__", ())]
            examples = " or ".join(example for meta in metas for example in meta.examples or ())
            why, regex, pattern = types_in_words(str(error)).partition(" matching regex ")
            if regex:
                why += f" such as {examples}" if examples else f"{regex}{pattern}"
            self._refuse_value(origin, f"{why}{names}")
        else:
            self._origins[name] = origin

    def _check_server(self, remote_url: str | None) -> None:
        """In the modes local-server and remote, large projects keep their vectors on a Chroma server."""
        mode = self._value("deployment_mode")
        if mode == "remote" and self._value("chroma_url") is None and remote_url:
            self._take("chroma_url", remote_url, SettingOrigin(REMOTE_URL), strict=False)
        if mode == "remote" and self._value("chroma_url") is None:
            self.problems.append(
                f"{self._origins['deployment_mode']}: the mode remote needs the address of a Chroma server: "
                f"set {PREFIX}CHROMA_URL"
            )
            self._forget("deployment_mode")
        elif mode == "local-server" and self._value("chroma_url") is None:
            self._values["chroma_url"] = LOCAL_CHROMA
        url = self._value("chroma_url")
        if self._value("chroma_credential_file") is not None and url is not None and url.startswith("http://"):
            try:
                host = urlsplit(url).hostname
            except ValueError:  # brackets around an invalid address
                host = None
            if host not in LOOPBACK:
                self._refuse(
                    "chroma_credential_file", "a secret is sent to another machine only over https", beside="chroma_url"
                )

    def _check_combinations(self) -> None:
        """Check the combinations that the types of single settings cannot express."""
        tokens, overlap = self._value("chunk_tokens"), self._value("chunk_overlap")
        if overlap > tokens // 2:
            self._refuse("chunk_overlap", f"it must be at most {tokens // 2}, half of a chunk", beside="chunk_tokens")
        is_absolute = (self._value("markdown_index") or "").startswith(("/", "~/"))
        if is_absolute and self._origins["markdown_index"].file is None:  # a project may set variables
            self._refuse("markdown_index", "an absolute path is allowed only in the configuration file")
        model, engine = self._values.get("model"), self._value("engine")
        if model in NAMED_MODELS and engine not in ("onnx", "sentence-transformers"):
            self._refuse("model", f"{model} is for the engine sentence-transformers, and the engine is {engine}")

    def _refuse(self, name: str, why: str, *, beside: str = "") -> None:
        self._refuse_value(self._origins.get(name) or self._origins[beside], why)
        self._forget(name, beside)

    def _refuse_value(self, origin: SettingOrigin, why: str) -> None:
        self.problems.append(f"{origin} has a value that is not allowed: {why}")

    def _forget(self, *names: str) -> None:
        for name in names:
            self._values.pop(name, None)
            self._origins.pop(name, None)

    def _value(self, name: str) -> Any:
        return self._values.get(name, _FIELDS[name].default)
