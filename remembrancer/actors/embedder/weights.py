"""Checks of the files that a model is made of."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

from remembrancer.protocol.errors import ModelUnusable


def sha256_of(paths: Iterable[Path]) -> str:
    """The SHA-256 of the files' bytes one after another, in hexadecimal.

    Raises:
        ModelUnusable: a file cannot be read.
    """
    digest = hashlib.sha256()
    try:
        for path in paths:
            with path.open("rb") as stream:
                while chunk := stream.read(1 << 20):
                    digest.update(chunk)
    except OSError as error:
        raise ModelUnusable(f"a file of the model cannot be read: {error}") from error
    return digest.hexdigest()


def verify_sha256(path: Path, expected: str, remedy: str) -> None:
    """Hold a file to its pinned checksum. `remedy` says what to do if it is another file.

    Raises:
        ModelUnusable: the file is missing, or is not the one that was pinned.
    """
    if not path.is_file():
        raise ModelUnusable(f"{path} is missing: {remedy}")
    found = sha256_of([path])
    if found != expected:
        raise ModelUnusable(f"{path} is not the pinned file (SHA-256 {found}, not {expected}): {remedy}")
