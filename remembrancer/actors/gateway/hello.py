"""Reads and checks the hello of a bridge: the client, and the settings for this session alone."""

import json
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

import msgspec

from remembrancer.config.reading import read_configuration
from remembrancer.config.settings import PREFIX, Settings
from remembrancer.memory.limits import MAX_SESSION_ID
from remembrancer.memory.text import clean_name
from remembrancer.protocol.errors import InvalidInput, VersionMismatch
from remembrancer.protocol.gateway_link import LINK_VERSION
from remembrancer.protocol.wire import Notice
from remembrancer.protocol.writes import ProjectRef

PROJECT_VARIABLE: Final = PREFIX + "PROJECT"
CONFIG_VARIABLE: Final = PREFIX + "CONFIG"


class Hello(msgspec.Struct, frozen=True):
    """The first message of a bridge. `bridge` is its own ULID in hexadecimal, `project` the path of its `--project`."""

    link: int
    version: str
    bridge: str
    session: str
    directory: str
    project: str | None = None
    environment: dict[str, str] = {}
    pid: int = 0
    passing: bool = False
    """True if it only sends requests for a session, without the session beginning or ending with it."""
    named_project: ProjectRef | None = None
    """The project of the home that a person named. Its directory may be gone, or lie in another project's."""


def read_hello(line: bytes) -> Hello:
    """Read the hello in a connection's first line.

    Raises:
        VersionMismatch: the bridge is of another release.
        InvalidInput: it is not a hello, or its session id cannot be used.
    """
    try:
        # The standard library's decoder, because paths that are not UTF-8 contain lone surrogates.
        fields = json.loads(line)
        link = fields["link"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise InvalidInput("the first line of a connection must be a hello") from error
    if link != LINK_VERSION:
        raise VersionMismatch(
            f"this bridge speaks version {link} of the link, the memory service version {LINK_VERSION}: "
            "run `remembrancer down`, so that the next session starts it from one release"
        )
    try:
        hello = msgspec.convert(fields, Hello)
        session = clean_name(hello.session, field="REMEMBRANCER_SESSION_ID", longest=MAX_SESSION_ID)
    except msgspec.ValidationError as error:
        raise InvalidInput(f"the hello of the bridge is malformed: {error}") from error
    return msgspec.structs.replace(hello, session=session)


def directory_of(hello: Hello, roots: list[str]) -> Path:
    """The directory whose project a session works on: the client's first root on this disk, the bridge's flag, its
    variable, or its working directory."""
    for uri in roots:
        path = path_of_uri(uri)
        if path is not None:
            return path
    named = hello.project or hello.environment.get(PROJECT_VARIABLE)
    return Path(hello.directory, Path(named).expanduser()) if named else Path(hello.directory)


def path_of_uri(uri: str) -> Path | None:
    """The absolute path of a `file://` URI of this host (RFC 8089); None for any other URI."""
    try:
        parts = urlsplit(uri)
    except ValueError:  # brackets without an IP address
        return None
    path = unquote(parts.path, errors="surrogateescape")
    if parts.scheme != "file" or parts.netloc not in ("", "localhost") or not path.startswith("/") or "\0" in path:
        return None
    return Path(path)


def setting_warnings(environment: dict[str, str], settings: Settings) -> list[Notice]:
    """A warning for each setting of the session's environment or configuration file that differs from the runtime's.
    The bridge has named the file, if there is one."""
    file = environment.get(CONFIG_VARIABLE)
    asked = read_configuration(environment, Path(file) if file else None)
    found = [Notice("setting_ignored", problem) for problem in (*asked.problems, *asked.unknown)]
    for name, origin in asked.origins.items():
        actual = getattr(settings, name)
        if getattr(asked.settings, name) != actual:
            text = (
                f"{origin} differs in this session, but the memory service was started with "
                f"{'none' if actual is None else actual}: run `remembrancer down` to have the next session restart it"
            )
            found.append(Notice("setting_ignored", text))
    return found
