"""The gateway's pure parts: roots."""

from __future__ import annotations

from pathlib import Path

import pytest

from remembrancer.actors.gateway.hello import path_of_uri


@pytest.mark.parametrize(
    ("uri", "path"),
    [
        ("file:///home/u/my%20code", Path("/home/u/my code")),
        ("file://localhost/srv", Path("/srv")),
        ("file://other/srv", None),
        ("https://example.org/x", None),
        ("file:relative", None),
        ("file:///a%00b", None),
        ("", None),
        ("file://[::1", None),
    ],
)
def test_a_root_is_a_file_uri_of_this_host(uri: str, path: Path | None) -> None:
    assert path_of_uri(uri) == path
