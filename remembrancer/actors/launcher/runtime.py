"""One runtime of a home, from its lock to its end."""

import contextlib
import ctypes
import logging
import os
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

import anyio

from remembrancer.actors.launcher.children import Command, actor_command
from remembrancer.actors.launcher.home import (
    claim_memory_home,
    clear_memory_home,
    leave_run_directory,
    prepare_home,
    remove_sockets,
    take_home,
    write_record,
)
from remembrancer.actors.launcher.process_control import Supervisor
from remembrancer.actors.shell import configure_logs
from remembrancer.config.reading import Configuration
from remembrancer.config.settings import REMOTE_ENGINES, Settings, secret_variables
from remembrancer.protocol.errors import RemembrancerError
from remembrancer.protocol.paths import RuntimePaths

logger = logging.getLogger(__name__)

UMASK: Final = 0o077
"""Files are private to this user; the children inherit the mask."""
LOCK_WAIT_S: Final = 0.3
"""The time that a person's `up` waits for the lock."""
SESSION_LOCK_WAIT_S: Final = 3.0
"""The time that a session's runtime waits for the lock: the previous one may be stopping at this moment."""


class Runtime(NamedTuple):
    """The runtime of one home.

    `for_sessions` ends the runtime after the settings' `idle_timeout_s` without a session. `secrets` are the variables
    that may include those for embedders (None: they are in `environ`). `command` gives the command line of a role.
    `in_memory`: the content of the home is deleted after an orderly stop; after a crash the next runtime continues with
    it. `no_token`: HTTP is open to every program of this machine. `when_started` is called when no failure to start is
    possible any more.
    """

    paths: RuntimePaths
    load_configuration: Callable[[], Configuration]
    environ: Mapping[str, str]
    secrets: Mapping[str, str] | None = None
    command: Command = actor_command
    for_sessions: bool = False
    in_memory: bool = False
    no_token: bool = False
    when_started: Callable[[], None] | None = None

    def run(self) -> str:
        """Run until told to stop. Returns the reason. Sets the process's umask.

        Raises:
            HomeUnusable: the home cannot be made, written or locked, or is open to others.
            AlreadyRunning: another runtime has the lock.
            ConfigurationError: from `load_configuration`.
        """
        os.umask(UMASK)
        if self.in_memory:
            claim_memory_home(self.paths.home)
        else:
            prepare_home(self.paths)
        wait_s = SESSION_LOCK_WAIT_S if self.for_sessions else LOCK_WAIT_S
        with take_home(self.paths, wait_s):
            if self.in_memory:
                prepare_home(self.paths)
            remove_sockets(self.paths)
            with contextlib.suppress(OSError):  # the disk is full, say: nothing needs to be cleared away yet
                write_record(self.paths, os.getpid())
            try:
                reason = self._supervise()
            finally:
                with contextlib.suppress(OSError):
                    self.paths.runtime_record.unlink(missing_ok=True)
                leave_run_directory(self.paths)
            if self.in_memory:  # kept after a failure: it contains acknowledged writes
                clear_memory_home(self.paths)
            return reason

    def _supervise(self) -> str:
        settings = self._read_settings()
        if self.when_started is not None:
            self.when_started()
        logger.info("starting", extra={"home": str(self.paths.home), "for_sessions": self.for_sessions})
        supervisor = Supervisor(
            self.paths,
            settings,
            command=self.command,
            environ=self.environ,
            secrets=self._take_secrets(settings),
            for_sessions=self.for_sessions,
            no_token=self.no_token,
        )
        try:
            return anyio.run(supervisor.run)
        except Exception:
            logger.exception("the launcher crashed")
            raise

    def _take_secrets(self, settings: Settings) -> dict[str, str]:
        """Take the variables that embedders may need out of every other environment."""
        secrets = self.environ if self.secrets is None else self.secrets
        names = {name for engine in REMOTE_ENGINES for name in secret_variables(settings, engine)}
        taken = {name: secrets[name] for name in names if name in secrets}
        for name, value in taken.items():
            _blot_out(name, value)
        return taken

    def _read_settings(self) -> Settings:
        """Read the settings, and start the log so that their errors are in it: nobody reads the error output of a
        session's runtime."""
        try:
            configuration = self.load_configuration()
        except RemembrancerError as error:
            configure_logs(self.paths.logs, "launcher", "info")
            logger.error("cannot start", extra={"code": error.code, "reason": error.message})
            raise
        configure_logs(self.paths.logs, "launcher", configuration.settings.log_level)
        for warning in configuration.warnings:
            logger.warning("configuration", extra={"reason": warning})
        return configuration.settings


def _blot_out(name: str, value: str) -> None:
    """Overwrite a variable in the environment that the system shows for this process (`/proc/<pid>/environ`)."""
    if name in os.environ:
        getenv = ctypes.CDLL(None).getenv
        getenv.restype = ctypes.c_void_p
        address = getenv(os.fsencode(name))
        if address:
            ctypes.memset(address, ord("*"), len(os.fsencode(value)))
        del os.environ[name]
