"""`docs/memory-model.md` says what the rules do: its tables and numbers are held against them."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from remembrancer.actors.consolidator import maintenance
from remembrancer.actors.consolidator.clusters import LEAST_MEMBERS
from remembrancer.actors.consolidator.themes import LEAST_SESSIONS
from remembrancer.actors.store.job_finder import MAINTENANCE_S, MAINTENANCE_SESSIONS
from remembrancer.actors.store.retrieval.once import SAME_COSINE, STRONGER
from remembrancer.command_line import COMMANDS
from remembrancer.config.settings import PREFIX, Settings
from remembrancer.memory import decay, promotion
from remembrancer.memory.decay import DAY_S, RECENCY_HALF_LIFE_S, memory_strength
from remembrancer.memory.features import STANDINGS
from remembrancer.memory.profiles import PROFILES
from remembrancer.memory.promotion import (
    CONFIDENCE_SHARE,
    FOR_KIND,
    FOR_VECTORS,
    IMPORTANCE_SHARE,
    MOST_FOR_USE,
)
from remembrancer.protocol.kinds import KINDS, MEMORY_TYPES, RELATIONS, SCOPES, STATUSES, kind_of_type, type_of_kind

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "memory-model.md").read_text(encoding="utf-8")
SETTINGS = Settings()
PROJECT_DAYS, USER_DAYS = (f"{life_s / DAY_S:g}" for life_s in (decay.PROJECT_HALF_LIFE_S, decay.USER_HALF_LIFE_S))
TEN_DAYS_S = 10 * DAY_S


def rows(heading: str) -> dict[str, list[str]]:
    """The rows of the tables below a heading, by their first cells without marks of code."""
    section = PAGE.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    assert section, heading
    table: dict[str, list[str]] = {}
    for line in section.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        if line.startswith("| ") and not set(line) <= set("|- "):
            table[cells[0].strip("`* ")] = [cell.strip() for cell in cells[1:]]
    return table


@pytest.mark.parametrize(
    "sentence",
    [
        f"{PROJECT_DAYS} days × (1 + {decay.PROJECT_ACCESS_GAIN:g} × accesses)",
        f"{USER_DAYS} days × (1 + {decay.USER_ACCESS_GAIN:g} × accesses)",
        f"more than {decay.STALE_AFTER_S / DAY_S:g} days ago, and fewer than {decay.STALE_BELOW_ACCESSES}",
        f"half-life of {RECENCY_HALF_LIFE_S / DAY_S:g} days.",
        f"0.56 × 0.5^(10 / 9.1) = {memory_strength(0.8, 0.7, 2, 0.0, 'project', TEN_DAYS_S):g}.",
        f"Had nobody read it, it would be {memory_strength(0.8, 0.7, 0, 0.0, 'project', TEN_DAYS_S):g};",
        f"with the user it would be {memory_strength(0.8, 0.7, 2, 0.0, 'user', TEN_DAYS_S):g}.",
        f"0.25 × 0.5^(16.3 / 7) = {memory_strength(0.5, 0.5, 0, 0.0, 'project', 16.3 * DAY_S):.2f}",
        f"at the session's end, from {promotion.SESSION_END_SCORE:g} on (the {promotion.SESSION_END_LIMIT} strongest)",
        f"at once, while the session runs, from {promotion.AT_ONCE_SCORE:g} on",
        f"from {promotion.USER_SCORE:g} on, if it is a",
        f"an importance of at least {promotion.USER_MIN_IMPORTANCE:g}",
        f"was used in at least {promotion.USER_MIN_SESSIONS} sessions",
        f"(cosine above {promotion.MERGE_COSINE:g})",
        f"grows by {promotion.PROJECT_CONFIDENCE_GAIN:g} in a project and by {promotion.USER_CONFIDENCE_GAIN:g} with "
        "the user",
        f"the limit of {promotion.USER_LIMIT} counts",
        f"for {SETTINGS.session_grace_s:g} seconds",
        f"more than {SETTINGS.consolidation_threshold} new active memories",
        "after every tenth session and at least once a week",
        f"a cosine above {SAME_COSINE:.2f}",
        "more than twice as strong",
        "at least three, of one scope",
        "comes up in three sessions",
    ],
)
def test_the_numbers_of_the_page_are_those_in_force(sentence: str) -> None:
    assert sentence in " ".join(PAGE.split())


def test_the_numbers_that_the_page_says_in_words_are_those_in_force() -> None:
    assert (MAINTENANCE_SESSIONS, MAINTENANCE_S, STRONGER) == (10, 7 * DAY_S, 2)
    assert (LEAST_MEMBERS, LEAST_SESSIONS) == (3, 3)


def test_the_tables_of_scopes_kinds_and_profiles_are_those_in_force() -> None:
    table = rows("Three scopes")
    assert [name for name in table if name != "scope"] == list(SCOPES)
    half_lives = ("not at all", f"half-life of {PROJECT_DAYS} days", f"half-life of {USER_DAYS} days")
    assert tuple(table[scope][-1] for scope in ("session", "project", "user")) == half_lives
    table = rows("Kinds and types")
    for memory_type in MEMORY_TYPES:
        kinds = re.findall(r"`(\w+)`", table[memory_type][0])
        assert sorted(kinds) == sorted(kind for kind in KINDS if type_of_kind(kind) == memory_type)
        assert re.findall(r"\*\*`(\w+)`\*\*", table[memory_type][0]) == [kind_of_type(memory_type)]
    assert [name for name in table if name in STATUSES] == list(STANDINGS)
    assert set(STATUSES) == set(STANDINGS)
    assert all(f"`{relation}`" in PAGE for relation in RELATIONS)
    table = rows("Recall over three scopes")
    said = {name: tuple(map(float, cells[:3])) for name, cells in table.items() if name != "profile"}
    assert said == {name: tuple(each.values()) for name, each in PROFILES.items()}


def test_the_table_of_the_promotion_score_adds_up_as_the_score_does() -> None:
    table = rows("Promotion: how a memory comes to a broader scope")
    assert table["importance"] == [f"× {IMPORTANCE_SHARE:g}"]
    assert table["confidence"] == [f"× {CONFIDENCE_SHARE:g}"]
    assert table["sessions that used it"] == [f"log10(sessions + 1) / 2, at most {MOST_FOR_USE:g}"]
    assert table["embedded"] == [f"{FOR_VECTORS:g}"]
    said = {
        kind: float(number)
        for number, kinds in re.findall(r"([\d.]+) for ([^;]*)", table["kind"][0])
        for kind in re.findall(r"`(\w+)`", kinds)
    }
    assert said == FOR_KIND
    (named,) = re.findall(r"if it is a (.*?), has an importance", " ".join(PAGE.split()))
    assert set(re.findall(r"`(\w+)`", named)) == promotion.USER_KINDS


def test_the_table_of_maintenance_is_that_in_force() -> None:
    table = rows("Maintenance")
    project, user = (
        (f"{rule.strength_below:g}", f"{rule.older_than_s / DAY_S:g} days", f"{rule.accessed_below} times")
        for rule in (decay.PROJECT_ARCHIVING, decay.USER_ARCHIVING)
    )
    assert table["archived"][:2] == [
        f"strength below {project[0]}, older than {project[1]}, read less than {project[2]}",
        f"below {user[0]}, {user[1]}, {user[2]}",
    ]
    deleted = f"archived for {decay.DELETE_AFTER_S / DAY_S:g} days and not used since"
    assert table["deleted (softly: it can be restored)"][0] == deleted
    assert f"go {maintenance.SESSION_DETAILS_KEPT_S / DAY_S:g} days after" in table["notes of sessions"][0]
    assert table["undo data"][0] == f"runs go after {SETTINGS.runs_kept_s / DAY_S:g} days"
    orphans = f"removed after {maintenance.ORPHAN_AFTER_S / DAY_S:g} days"
    assert table["entities that no memory names"][0] == orphans


def test_what_the_page_names_there_is() -> None:
    settings = {PREFIX + name.upper() for name in Settings.__struct_fields__}
    assert set(re.findall(rf"`({PREFIX}[A-Z_]+)[`=]", PAGE)) <= settings
    assert set(re.findall(r"`remembrancer (\w+)", PAGE)) <= set(COMMANDS)


def test_the_picture_is_told_in_words_and_has_the_numbers_in_force() -> None:
    picture = ElementTree.parse(DOCS / "memory-model.svg").getroot()
    name = "{http://www.w3.org/2000/svg}"
    described = {each.tag.removeprefix(name): "".join(each.itertext()) for each in picture}
    assert described["title"]
    assert described["desc"]
    shown = " ".join("".join(each.itertext()) for each in picture.iter(f"{name}text"))
    for number in (
        f"at its end: {promotion.SESSION_END_SCORE:g}",
        f"at once: {promotion.AT_ONCE_SCORE:g}",
        f"score {promotion.USER_SCORE:g}",
        f"half-life of {USER_DAYS} days",
        f"half-life of {PROJECT_DAYS} days",
    ):
        assert number in shown
    assert re.search(r"!\[[^\]]{80,}\]\(memory-model\.svg\)", PAGE)
