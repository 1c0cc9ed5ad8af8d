import hashlib
from pathlib import Path

import pytest

from release.__main__ import ROOT, build_bundle, main, make_server
from release.bundle_main import command


def test_one_wheel_makes_one_bundle_whose_hash_is_registered(tmp_path: Path) -> None:
    wheel = tmp_path / "remembrancer-1-py3-none-any.whl"
    wheel.write_bytes(b"a wheel")
    bundle = build_bundle(wheel, wheel.with_suffix(".mcpb"))
    server = make_server(bundle)
    hashes = [package.get("fileSha256") for package in server["packages"]]
    assert hashes == [None, hashlib.sha256(bundle.read_bytes()).hexdigest()]
    assert bundle.read_bytes() == build_bundle(wheel, wheel.with_suffix(".mcpb")).read_bytes()
    assert f"mcp-name: {server['name']}" in (ROOT / "README.md").read_text(), "by which the registry knows the package"


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
