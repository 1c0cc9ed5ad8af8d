"""`remembrancer admin maintain` says what was done, also where something of it was refused."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from remembrancer.command_line import main
from remembrancer.commands import exit_codes, maintain, runtime_client
from remembrancer.commands.selection import Where
from remembrancer.protocol.consolidation import Maintain, Maintained
from remembrancer.protocol.errors import ConsolidatorUnavailable, InvalidInput, RemembrancerError
from remembrancer.protocol.home import KnownProject, ProjectsDescribed
from remembrancer.protocol.paths import RuntimePaths
from remembrancer.protocol.writes import ProjectRef

LANE = "l_0123456789ab"
SHOP, YARD = "p_0123456789ab", "p_ba9876543210"


@pytest.fixture
def refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, RemembrancerError]:
    """The refusals of a store, by the id of the project or the lane. Of two projects the first shares a lane."""
    monkeypatch.setenv("REMEMBRANCER_HOME", str(tmp_path))
    lanes = RuntimePaths(tmp_path).lanes
    lanes.mkdir()
    (lanes / "projects.json").write_text(json.dumps({SHOP: LANE}))
    known = [
        KnownProject(each, f"/work/{name}", None, None, None, 1, 0, 0) for each, name in ((SHOP, "a"), (YARD, "b"))
    ]
    described = ProjectsDescribed(tuple(known), has_user=True)
    refusals: dict[str, RemembrancerError] = {}

    async def answer(request: Maintain, *, answer_s: float) -> Maintained:
        place = "user" if request.project is None else request.project.id
        if place in refusals:
            raise refusals[place]
        return Maintained("project", 12)

    @asynccontextmanager
    async def connected() -> AsyncIterator[Callable[..., Awaitable[Maintained]]]:
        yield answer

    for module in (maintain, runtime_client):
        monkeypatch.setattr(module, "ask_home", lambda *_: described)
    monkeypatch.setattr(maintain, "connected_store", connected)
    return refusals


@pytest.mark.parametrize(
    ("place", "error", "status", "done"),
    [
        (LANE, ConsolidatorUnavailable("it is at work"), exit_codes.REFUSED, ["/work/a", "/work/b", "the user"]),
        (YARD, ConsolidatorUnavailable("there is none"), exit_codes.REFUSED, ["/work/a", "/work/a, what is shared"]),
        (LANE, InvalidInput("nobody shares that"), exit_codes.USAGE, ["/work/a", "/work/b", "the user"]),
    ],
)
def test_a_refusal_is_said_behind_what_was_done_and_one_of_what_is_shared_keeps_nothing_else_from_being_done(
    refused: dict[str, RemembrancerError],
    capsys: pytest.CaptureFixture[str],
    place: str,
    error: RemembrancerError,
    status: int,
    done: list[str],
) -> None:
    refused[place] = error
    assert main(["admin", "maintain", "--all"]) == status
    out, err = capsys.readouterr()
    assert [line for line in out.splitlines() if "examined" in line] == [f"{each}: 12 examined" for each in done]
    assert err == f"remembrancer admin maintain: {error.message}\n"


def test_places_are_reported_for_programs_beside_a_refusal(
    refused: dict[str, RemembrancerError], capsys: pytest.CaptureFixture[str]
) -> None:
    refused[LANE] = ConsolidatorUnavailable("another machine is at work there")
    assert main(["admin", "maintain", "--all", "--json"]) == exit_codes.REFUSED
    places = json.loads(capsys.readouterr().out)["places"]
    assert [place["shared"] for place in places] == [False, False, False]


def test_the_run_of_a_submodule_is_undone_by_the_id_of_its_project(refused: dict[str, RemembrancerError]) -> None:
    submodule = ProjectRef(SHOP, "/work/shop/.git/modules/cart")  # in which no session works
    visit = maintain.Visit(submodule, False, Maintained("project", 12, run_ids=("run:1",)))
    lines = maintain._lines([visit], dry_run=False, is_whole=True)
    assert f"  to undo: remembrancer undo run:1 --project {SHOP}" in lines
    assert maintain.places_of(Where(SHOP)) == [ProjectRef(SHOP, "/work/a")]
