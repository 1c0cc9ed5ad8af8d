"""The bundle for desktop clients: what it starts, and what its checks find."""

from __future__ import annotations

import hashlib
import zipfile
from pathlib import Path

import msgspec
import pytest

from release.__main__ import IN_THE_WHEEL, ROOT, WITH_VERSION, build_bundle, check, main, make_server
from release.bundle_main import command
from release.names import PLACEHOLDERS, PUBLISHED, placeholders
from remembrancer import __version__


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    path = tmp_path / f"remembrancer-{__version__}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as packed:
        for name in IN_THE_WHEEL:
            packed.writestr(name, "")
        for name in WITH_VERSION:
            packed.writestr(name, f'{{"version": "{__version__}"}}')
    return path


def build(wheel: Path) -> tuple[Path, Path]:
    bundle = build_bundle(wheel, wheel.with_suffix(".mcpb"))
    server = wheel.with_name("server.json")
    server.write_bytes(msgspec.json.encode(make_server(bundle)))
    return bundle, server


def test_what_is_built_has_no_fault_and_names_the_hash_of_the_bundle(wheel: Path) -> None:
    bundle, server = build(wheel)
    assert check(wheel, bundle, server) == []
    hashes = [package.get("fileSha256") for package in msgspec.json.decode(server.read_bytes())["packages"]]
    assert hashes == [None, hashlib.sha256(bundle.read_bytes()).hexdigest()]
    assert bundle.read_bytes() == build(wheel)[0].read_bytes(), "one wheel makes one bundle"


def test_another_bundle_a_wheel_without_the_plugin_or_with_that_of_another_release_are_faults(wheel: Path) -> None:
    bundle, server = build(wheel)
    with zipfile.ZipFile(bundle, "a") as packed:
        packed.writestr("more", "x")
    with zipfile.ZipFile(wheel, "w"):
        pass
    found = check(wheel, bundle, server)
    assert "server.json is not that of" in found[0]
    assert any("plugin.json" in line for line in found[1:])
    bundle, server = build(wheel)
    with zipfile.ZipFile(wheel, "w") as packed:
        for name in (*IN_THE_WHEEL, *WITH_VERSION):
            packed.writestr(name, '{"version": "0.1.0"}')
    assert check(wheel, bundle, server) == [
        f"{name} in {wheel.name} does not say that it is of {__version__}" for name in WITH_VERSION
    ]


def test_the_bundle_starts_what_is_installed_or_else_its_wheel_by_uv(tmp_path: Path) -> None:
    places = tmp_path / "bin"
    places.mkdir()
    assert command(tmp_path, str(places)) is None
    uv = places / "uv"
    uv.write_text("#!/bin/sh\n")
    uv.chmod(0o755)
    assert command(tmp_path, str(places)) is None, "it has no wheel"
    wheel = tmp_path / "remembrancer-1.whl"
    wheel.touch()
    assert command(tmp_path, str(places)) == [str(uv), "tool", "run", "--from", str(wheel), "remembrancer", "mcp"]
    installed = places / "remembrancer"
    installed.write_text("#!/bin/sh\n")
    installed.chmod(0o755)
    assert command(tmp_path, str(places)) == [str(installed), "mcp"]


def test_nothing_is_published_with_a_placeholder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = placeholders(ROOT)
    files = {line.partition(":")[0] for line in found}
    assert {"README.md", "LICENSE", "release/names.py", ".claude-plugin/marketplace.json"} <= files
    assert main(["check"]) == 1
    assert capsys.readouterr().out.splitlines()[:-1] == found

    for name in PUBLISHED:
        if (ROOT / name).is_file():
            text = (ROOT / name).read_text()
            for each in PLACEHOLDERS:
                text = text.replace(each, "Ada")
            (tmp_path / name).write_text(text)
    assert placeholders(tmp_path) == []
