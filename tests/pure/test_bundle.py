"""The bundle for desktop clients: what it starts, and what its checks find."""

import hashlib
import zipfile
from pathlib import Path

import pytest

from release.__main__ import IN_THE_WHEEL, WITH_VERSION, build_bundle, check, main, make_server
from release.bundle_main import command
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


def test_one_wheel_makes_one_bundle_whose_hash_is_registered(wheel: Path) -> None:
    bundle = build_bundle(wheel, wheel.with_suffix(".mcpb"))
    hashes = [package.get("fileSha256") for package in make_server(bundle)["packages"]]
    assert hashes == [None, hashlib.sha256(bundle.read_bytes()).hexdigest()]
    assert bundle.read_bytes() == build_bundle(wheel, wheel.with_suffix(".mcpb")).read_bytes()


def test_a_wheel_without_the_plugin_or_with_that_of_another_release_has_faults(wheel: Path) -> None:
    assert check(wheel) == []
    with zipfile.ZipFile(wheel, "w"):
        pass
    assert any("plugin.json" in line for line in check(wheel))
    with zipfile.ZipFile(wheel, "w") as packed:
        for name in (*IN_THE_WHEEL, *WITH_VERSION):
            packed.writestr(name, '{"version": "0.1.0"}')
    assert sorted(check(wheel)) == sorted(
        f"{name} in {wheel.name} does not say that it is of {__version__}" for name in WITH_VERSION
    )


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


def test_nothing_is_published_with_a_placeholder(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["check"]) == 1
    assert {"README.md", "LICENSE", ".claude-plugin/marketplace.json"} <= {
        line.partition(":")[0] for line in capfd.readouterr().out.splitlines()
    }
