"""Settings from an environment and a configuration file: their values, origins and errors.

All errors are collected, so that a person sees them at once.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

import msgspec

from remembrancer.config.home import locate, read_settings_file
from remembrancer.config.named_home import CONFIG_FILES, is_file
from remembrancer.config.settings import (
    CONSTANTS,
    DEFAULT_MODELS,
    LEAST_GRACE_S,
    NAMED_MODELS,
    NOT_SETTINGS,
    PREFIX,
    SETTABLE,
    Settings,
    allowed,
    unknown_name,
)
from remembrancer.config.tokens import LOOPBACK
from remembrancer.protocol.errors import ConfigurationError
from remembrancer.protocol.paths import look_at

NEAR: Final = 0.8
"""The similarity (`difflib`'s ratio) from which an unknown name is taken for a misspelling of a known one."""
WITHOUT_EFFECT: Final = "accepted for compatibility, without effect in this release"
NONE: Final = "none"
"""The value of a setting that can be ignored silently, in upper or lower case."""
_FIELDS: Final = {field.name: field for field in msgspec.structs.fields(Settings)}


# The names of settings in other memory servers, and their meaning here.
FOREIGN_PREFIX: Final = "MEMORY_"
"""Others use this prefix as well, so unknown variables are ignored."""
FOREIGN_VARIABLES: Final = {
    "DEPLOYMENT_MODE": "deployment_mode",
    "LOG_LEVEL": "log_level",
    "MCP_LOG_LEVEL": "log_level",
    "MCP_MODEL": "model",
    "MCP_BATCH_SIZE": "embedding_batch_texts",
    "MCP_TIMEOUT": "model_load_timeout_s",
}
"""From the name without the prefix to our setting."""
READ_ELSEWHERE: Final = frozenset({"CONFIG_PATH", "DB_PATH", "SESSION_ID", "MCP_DATA_DIR"})
"""Read when the home is located, and by the bridge."""
UNUSED_VARIABLES: Final = {"REMOTE_URL": "remote_url", "MCP_CACHE_SIZE": "embedding_cache_entries"}

FOREIGN_KEYS: Final = {
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
"""From names in a file to our settings. A dot separates the name of a section from a name in it."""
SECONDS: Final = {"sync.watchDebounceMs": 0.001, "sync.intervalMinutes": 60.0}
"""The seconds per unit of these settings."""
_INDEX_NAME: Final = re.compile(r"(?!memory\.db)[\w-][\w.-]{0,60}", re.ASCII)
PROVIDERS: Final = {
    "embedding.provider": ("engine", "model"),
    "embedding.fallback": ("fallback_engine", "fallback_model"),
}
"""From settings that choose the source of vectors to our settings of the engine and its model."""
REMOTE: Final = ("voyage", "openai")
LOCAL: Final = "local"
LOCAL_MODEL: Final = "embedding.local.model"
IGNORED_KEYS: Final = frozenset(
    {"store.vectorExtensionPath", "embedding.batch.enabled", "embedding_dimensions", "search.hybrid.enabled"}
    | {"search.hybrid.candidateMultiplier", "store.cache.enabled", "store.cache.maxEntries"}
)
"""Names in a file that stand for nothing here, whatever their values."""
SECTION_KEYS: Final = frozenset({*FOREIGN_KEYS, *PROVIDERS, *IGNORED_KEYS, LOCAL_MODEL})
DB_PATH: Final = "db_path"

UNUSED_KEYS: Final = frozenset(
    {"namespace", "database", "remote_url", "remote_user", "remote_pass", "http_shared_tokens"}
    | {"http_requests_per_minute", "search.hybrid.vectorWeight", "search.hybrid.keywordWeight"}
)
"""Names in a file that are accepted with any value, and have no effect in this release."""

SYNONYMS: Final = {"log_level": {"warn": "warning"}}
"""Other words for values of a setting."""
LOCAL_CHROMA: Final = "http://127.0.0.1:8000"
"""The default server of the mode local-server: the address at which `chroma run` listens."""


class SettingOrigin(NamedTuple):
    """The origin of a setting: a variable, or a name in a file."""

    name: str
    file: Path | None = None

    def __str__(self) -> str:
        return self.name if self.file is None else f"{self.name} in {self.file}"


class Unused(NamedTuple):
    """A setting that is accepted and has no effect. `value` is safe to print."""

    value: str
    origin: SettingOrigin


class Configuration(NamedTuple):
    """The settings, and the errors in them. `origins` has the settings that differ from their defaults."""

    settings: Settings
    origins: Mapping[str, SettingOrigin] = {}
    unused: tuple[Unused, ...] = ()
    warnings: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    """The errors that keep a runtime from starting. The settings concerned have their defaults here."""
    unknown: tuple[str, ...] = ()
    """Variables that look like our settings but are none. They cause warnings only."""


def load_settings(environ: Mapping[str, str]) -> Settings:
    """The settings of an environment: its variables over the configuration file over the defaults.

    Raises:
        ConfigurationError: a name in the file is unknown (the message suggests the nearest known one), a value is not
            allowed, or the file cannot be read.
    """
    return load_configuration(environ).settings


def load_configuration(environ: Mapping[str, str]) -> Configuration:
    """As `load_settings`, with the origin of each setting and the warnings.

    Raises:
        ConfigurationError: as `load_settings`.
    """
    home = locate(environ)
    configuration = read_configuration(environ, home.files)
    if configuration.problems:
        raise ConfigurationError("; ".join(configuration.problems))
    looks = [look_at(path, "file", 0) for path in (home.on_disk / name for name in CONFIG_FILES) if not is_file(path)]
    passed_over = [f"{look.problem}: there are no settings in it" for look in looks if look.problem is not None]
    return configuration._replace(warnings=(*configuration.warnings, *passed_over))


def read_configuration(environ: Mapping[str, str], files: tuple[Path, ...] = ()) -> Configuration:
    """The settings of an environment over those of a file over the defaults. Never fails: see `problems`."""
    reader = _Reader()
    if len(files) > 1:
        names = " and ".join(path.name for path in files)
        reader.problems.append(f"{files[0].parent} has {names}: keep one of {', '.join(CONFIG_FILES)}")
    elif files:
        reader.read_file(files[0])
    reader.read_foreign_variables(environ)
    reader.read_variables(environ)
    return reader.result()


class _Reader:
    """Collects settings; later values override earlier ones."""

    def __init__(self) -> None:
        self.problems: list[str] = []
        self._warnings: list[str] = []
        self._unknown: list[str] = []
        self._unused: list[Unused] = []
        self._values: dict[str, Any] = {}
        self._origins: dict[str, SettingOrigin] = {}
        self._remote_url: tuple[object, SettingOrigin] | None = None

    def read_file(self, file: Path) -> None:
        try:
            content = read_settings_file(file)
        except ValueError as error:
            self.problems.append(f"{file}: {error}")
            return
        content = self._without_sections(file, content)
        self._check_mode(file, content)
        ours = {name: value for name, value in content.items() if name in SETTABLE}
        for name, value in content.items():
            if name not in ours:
                self._take_foreign_key(name, value, SettingOrigin(name, file))
        self._take_local_model(content.get(LOCAL_MODEL), content, file)
        for name, value in ours.items():
            self._take(name, value, SettingOrigin(name, file), strict=True)

    def _take_local_model(self, model: object, content: Mapping[str, object], file: Path) -> None:
        """Choose the engine for `local` by its model."""
        origin = SettingOrigin(LOCAL_MODEL, file)
        default = DEFAULT_MODELS[_FIELDS["engine"].default]
        if not isinstance(model, str | None) or (model is not None and not _is_text(model)):
            self._refuse_value(origin, "it must be the name of a model")
            return
        users = [name for name in PROVIDERS if content.get(name) == LOCAL]
        for name in users:
            engine, its_model = PROVIDERS[name]
            local = "onnx" if model in (None, default) else "sentence-transformers"
            self._take(engine, local, SettingOrigin(name, file), strict=True)
            self._forget(its_model)  # embedding.model belongs to a remote provider
            if model is not None:
                self._take(its_model, model, origin, strict=True)

    def _without_sections(self, file: Path, content: Mapping[str, object], section: str = "") -> dict[str, object]:
        """The names and values of a file; names in the sections of another server become dotted names."""
        flat: dict[str, object] = {}
        for name, value in content.items():
            full = section + name
            below = sorted(each for each in SECTION_KEYS if each.startswith(f"{full}."))
            if not below:
                flat[full] = value
            elif isinstance(value, dict):
                flat |= self._without_sections(file, value, f"{full}.")
            else:
                self.problems.append(
                    f"{SettingOrigin(full, file)} must hold names and their values, such as {below[0]}"
                )
        return flat

    def read_foreign_variables(self, environ: Mapping[str, str]) -> None:
        known = sorted({*FOREIGN_VARIABLES, *UNUSED_VARIABLES, *READ_ELSEWHERE})
        for variable, value in environ.items():
            name = variable.removeprefix(FOREIGN_PREFIX)
            if name == variable or name in READ_ELSEWHERE or not value:
                continue
            if name == "MCP_MODEL" and value not in NAMED_MODELS:
                self._refuse_value(SettingOrigin(variable), f"it must be one of {', '.join(NAMED_MODELS)}")
            elif name in FOREIGN_VARIABLES:
                self._take(FOREIGN_VARIABLES[name], value, SettingOrigin(variable), strict=False)
            elif name in UNUSED_VARIABLES:
                self._do_without(UNUSED_VARIABLES[name], value, SettingOrigin(variable))
            elif near := difflib.get_close_matches(name, known, n=1, cutoff=NEAR):
                self._warnings.append(f"{variable} is not known: did you mean {FOREIGN_PREFIX}{near[0]}?")

    def read_variables(self, environ: Mapping[str, str]) -> None:
        for variable, value in environ.items():
            name = variable.removeprefix(PREFIX)
            if name == variable or name in NOT_SETTINGS:
                continue
            if name.lower() in SETTABLE and name.isupper():
                self._take(name.lower(), value, SettingOrigin(variable), strict=False)
            elif name.lower() in CONSTANTS and name.isupper():
                self._do_without(name.lower(), value, SettingOrigin(variable))
            else:
                self._unknown.append(unknown_name(variable, sorted(PREFIX + each.upper() for each in SETTABLE)))

    def result(self) -> Configuration:
        self._check_grace()
        self._check_files()
        self._check_model()
        self._check_server()
        self._warn_of_unused()
        settings = msgspec.structs.replace(Settings(), **self._values)
        return Configuration(
            settings,
            self._origins,
            tuple(self._unused),
            (*self._unknown, *self._warnings),
            tuple(self.problems),
            tuple(self._unknown),
        )

    def _take(self, name: str, value: object, origin: SettingOrigin, *, strict: bool) -> None:
        if isinstance(value, str):
            value = SYNONYMS.get(name, {}).get(value, value)
            if not _is_text(value):
                self.problems.append(f"{origin} has a value that is not UTF-8")
                return
            if value.lower() == NONE and _FIELDS[name].default is None:
                value = None
            elif not strict and isinstance(_FIELDS[name].default, tuple):
                value = [each.strip() for each in value.split(",") if each.strip() and value.lower() != NONE]
        try:
            self._values[name] = msgspec.convert(value, _FIELDS[name].type, strict=strict)
        except msgspec.ValidationError:
            self._refuse_value(origin, f"it must be {allowed(name)}")
        else:
            self._origins[name] = origin

    def _take_foreign_key(self, name: str, value: object, origin: SettingOrigin) -> None:
        if name in FOREIGN_KEYS:
            if name in SECONDS and isinstance(value, int | float) and not isinstance(value, bool):
                value *= SECONDS[name]
            self._take(FOREIGN_KEYS[name], value, origin, strict=True)
        elif name in PROVIDERS:
            if value in REMOTE:
                self._take(PROVIDERS[name][0], value, origin, strict=True)
            elif value != LOCAL and not (value is None and name != "embedding.provider"):
                allowed_here = ", ".join((*REMOTE, LOCAL))
                self._refuse_value(origin, f"it must be one of {allowed_here}")
        elif name == LOCAL_MODEL or name in IGNORED_KEYS:
            return  # the model was validated with the others
        elif name == DB_PATH:
            if not isinstance(value, str) or not value or "\0" in value:
                self._refuse_value(origin, "it is a path")
        elif name in UNUSED_KEYS | CONSTANTS:
            self._do_without(name, value, origin)
        else:
            known = sorted({*SETTABLE, *SECTION_KEYS, DB_PATH, *UNUSED_KEYS})
            self.problems.append(f"{origin.file}: {unknown_name(name, known)}")

    def _do_without(self, name: str, value: object, origin: SettingOrigin) -> None:
        if name == "remote_url":
            self._remote_url = value, origin
        self._unused.append(Unused(shown(name, value), origin))

    def _warn_of_unused(self) -> None:
        for file in dict.fromkeys(unused.origin.file for unused in self._unused):
            names = ", ".join(unused.origin.name for unused in self._unused if unused.origin.file == file)
            self._warnings.append(f"{SettingOrigin(names, file)}: {WITHOUT_EFFECT}")

    def _check_mode(self, file: Path, content: Mapping[str, object]) -> None:
        secrets = [name for name, value in content.items() if holds_secret(name, value)]
        try:
            warning = exposed(file.stat().st_mode, secrets)
        except OSError:
            return
        if warning is not None:
            self._warnings.append(f"{file}: {warning}")

    def _check_server(self) -> None:
        """In the modes local-server and remote, large projects keep their vectors on a Chroma server."""
        mode, url = self._value("deployment_mode"), self._value("chroma_url")
        if mode == "remote" and url is None and self._remote_url is not None:
            value, origin = self._remote_url
            if isinstance(value, str) and value.startswith(("http://", "https://")):
                self._unused = [each for each in self._unused if each.origin != origin]
                self._take("chroma_url", value, origin, strict=True)
            else:
                self._refuse_value(origin, "it must be the http:// or https:// address of a Chroma server")
                self._forget("deployment_mode")
        elif mode == "remote" and url is None:
            self.problems.append(
                f"{self._origins['deployment_mode']}: the mode remote needs the address of a Chroma server: "
                f"set {PREFIX}CHROMA_URL"
            )
            self._forget("deployment_mode")
        elif mode == "local-server" and url is None:
            self._values["chroma_url"] = LOCAL_CHROMA
        url = self._value("chroma_url")
        if self._value("chroma_credential_file") is not None and url is not None and url.startswith("http://"):
            try:
                host = urlsplit(url).hostname
            except ValueError:  # brackets around no valid address
                host = None
            if host not in LOOPBACK:
                self._refuse(
                    "chroma_credential_file", "a secret is sent to another machine by https alone", beside="chroma_url"
                )

    def _check_grace(self) -> None:
        """Checked apart from the type, because tests pass smaller values to processes."""
        given = self._values.get("session_grace_s", LEAST_GRACE_S)
        if given < LEAST_GRACE_S:
            why = f"{given:g} s are less than {LEAST_GRACE_S:g}, and connected sessions would be ended"
            self._refuse("session_grace_s", why)

    def _check_files(self) -> None:
        """Check the combinations that the types of single settings cannot express."""
        tokens, overlap = self._value("chunk_tokens"), self._value("chunk_overlap")
        if overlap > tokens // 2:
            self._refuse("chunk_overlap", f"it may be half of a chunk of {tokens} at most", beside="chunk_tokens")
        if not _INDEX_NAME.fullmatch(self._value("index_file")):
            self._refuse("index_file", "it must be the name of a file alone, such as memory.sqlite")
        if not (self._value("workspace") or "/").startswith(("/", "~")):
            self._refuse("workspace", "it must be the absolute path of a directory")
        is_absolute = (self._value("markdown_index") or "").startswith(("/", "~/"))
        if is_absolute and self._origins["markdown_index"].file is None:  # a project may set variables
            self._refuse("markdown_index", "an absolute path must stand in the configuration file")

    def _refuse(self, name: str, why: str, *, beside: str = "") -> None:
        origin = self._origins.get(name) or self._origins[beside]
        self._refuse_value(origin, f"{why}")
        self._forget(name, beside)

    def _refuse_value(self, origin: SettingOrigin, why: str) -> None:
        self.problems.append(f"{origin} has a value that is not allowed: {why}")

    def _forget(self, *names: str) -> None:
        for name in names:
            self._values.pop(name, None)
            self._origins.pop(name, None)

    def _value(self, name: str) -> Any:
        return self._values.get(name, _FIELDS[name].default)

    def _check_model(self) -> None:
        model, engine = self._values.get("model"), self._value("engine")
        if model in NAMED_MODELS and engine not in ("onnx", "sentence-transformers"):
            self._refuse("model", f"{model} is for the engine sentence-transformers, and the engine is {engine}")


def _is_text(value: str) -> bool:
    """True if a value can be encoded: an environment may hold any bytes, which Python turns into lone surrogates."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


HIDDEN: Final = "***"
_SECRET_NAME: Final = re.compile("pass(?!age)|secret|token(?!s)|keys?(?![a-z])", re.IGNORECASE)
_VARIABLE: Final = re.compile(r"\$\{\w+\}")
_HARMLESS_ADDRESS: Final = re.compile(r"[a-z][a-z0-9+.-]*://[^@?#]*", re.IGNORECASE)
_SCHEME: Final = re.compile(r"[a-z][a-z0-9+.-]*://", re.IGNORECASE)


def is_secret(name: str) -> bool:
    """True if a setting of that name is a secret."""
    return _SECRET_NAME.search(name) is not None


def holds_secret(name: str, value: object) -> bool:
    """True if a part of that setting's value must not be shown."""
    return value not in (None, "", {}) and HIDDEN in shown(name, value)


def shown(name: str, value: object) -> str:
    """A setting's value in a printable form: without secrets, and without the user, password and query of an
    address."""
    if isinstance(value, str) and _VARIABLE.fullmatch(value):
        return value
    if is_secret(name) or isinstance(value, dict):  # a dict may hold anything
        return HIDDEN
    if isinstance(value, list | tuple):
        return ",".join(shown(name, each) for each in value)
    text = str(value)
    if value is None or ("://" not in text and "url" not in name.lower()) or _HARMLESS_ADDRESS.fullmatch(text):
        return text
    scheme = _SCHEME.match(text)
    return (scheme[0] if scheme else "") + HIDDEN


def exposed(mode: int, secrets: Iterable[str]) -> str | None:
    """The error in the mode (as `stat` gives it) of a file with these secrets; None if there is none."""
    names = ", ".join(sorted(secrets))
    if not names or not mode & 0o077:
        return None
    return f"it holds {names}, and others than its owner may get at it: chmod 600"
