"""Structured logs: one file for each actor in the home, a JSON object a line, rotated.

A memory's content is never logged above debug.
"""

from __future__ import annotations

import logging
import os
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Final

from pythonjsonlogger.json import JsonFormatter

MAX_LOG_BYTES: Final = 4 * 1024 * 1024
KEPT_LOGS: Final = 3


class _PrivateRotatingFileHandler(RotatingFileHandler):
    def _open(self):  # type: ignore[no-untyped-def]
        stream = super()._open()
        os.chmod(self.baseFilename, 0o600)  # noqa: PTH101 - a path string from the standard library's handler
        return stream


def configure_logs(directory: Path, actor: str, level: str) -> None:
    """Send the log of this process to `<directory>/<actor>.log`: time, level, logger, event, and the fields given."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    handler = _PrivateRotatingFileHandler(
        directory / f"{actor}.log", maxBytes=MAX_LOG_BYTES, backupCount=KEPT_LOGS, encoding="utf-8"
    )
    handler.setFormatter(
        JsonFormatter(
            "{asctime}{levelname}{name}{message}",
            style="{",
            rename_fields={"asctime": "time", "levelname": "level", "name": "logger", "message": "event"},
            static_fields={"actor": actor, "pid": os.getpid()},
            datefmt="%Y-%m-%dT%H:%M:%S%z",
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    for chatty in ("chromadb", "httpx", "httpcore", "sentence_transformers", "mcp", "asyncio"):
        logging.getLogger(chatty).setLevel(logging.WARNING)
    logging.captureWarnings(capture=True)
