"""`docs/memory-model.md` says what the rules do: its tables and numbers are held against them."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from remembrancer.actors.consolidator.clusters import LEAST_MEMBERS
from remembrancer.actors.consolidator.themes import LEAST_SESSIONS
from remembrancer.actors.store.job_finder import MAINTENANCE_S, MAINTENANCE_SESSIONS
from remembrancer.actors.store.retrieval.once import SAME_COSINE, STRONGER
from remembrancer.command_line import COMMANDS
from remembrancer.config.settings import PREFIX, Settings
from remembrancer.memory import decay
from remembrancer.memory.decay import DAY_S, DEFAULT_MAINTENANCE, RECENCY_HALF_LIFE_S, ArchiveRule, memory_strength
from remembrancer.memory.features import STANDINGS
from remembrancer.memory.profiles import PROFILES
from remembrancer.memory.promotion import (
    CONFIDENCE_SHARE,
    DEFAULT_PROMOTION,
    FOR_KIND,
    FOR_VECTORS,
    IMPORTANCE_SHARE,
    MOST_FOR_USE,
)
from remembrancer.protocol.kinds import KINDS, MEMORY_TYPES, RELATIONS, SCOPES, STATUSES, kind_of_type, type_of_kind

DOCS = Path(__file__).parents[2] / "docs"


def page() -> str:
    return (DOCS / "memory-model.md").read_text(encoding="utf-8")


def words() -> str:
    """The page as running text."""
    return " ".join(page().split())


def rows(heading: str) -> dict[str, list[str]]:
    """The rows of the tables below a heading, by their first cells without marks of code."""
    section = page().partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    assert section, heading
    table: dict[str, list[str]] = {}
    for line in section.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        if line.startswith("| ") and not set(line) <= set("|- "):
            table[cells[0].strip("`* ")] = [cell.strip() for cell in cells[1:]]
    return table


def test_the_scopes_are_those_that_there_are_with_their_half_lives() -> None:
    table = rows("Three scopes")
    assert [name for name in table if name != "scope"] == list(SCOPES)
    assert table["session"][-1] == "not at all"
    assert table["project"][-1] == f"half-life of {decay.PROJECT_HALF_LIFE_S / DAY_S:g} days"
    assert table["user"][-1] == f"half-life of {decay.USER_HALF_LIFE_S / DAY_S:g} days"


def test_each_type_has_its_kinds_and_the_least_of_them_in_bold() -> None:
    table = rows("Kinds and types")
    for memory_type in MEMORY_TYPES:
        kinds = re.findall(r"`(\w+)`", table[memory_type][0])
        assert sorted(kinds) == sorted(kind for kind in KINDS if type_of_kind(kind) == memory_type)
        assert re.findall(r"\*\*`(\w+)`\*\*", table[memory_type][0]) == [kind_of_type(memory_type)]
    assert [name for name in table if name in STATUSES] == list(STANDINGS)
    assert set(STATUSES) == set(STANDINGS)
    for relation in RELATIONS:
        assert f"`{relation}`" in page()


def test_the_formula_of_the_strength_has_the_numbers_in_force() -> None:
    assert f"{decay.PROJECT_HALF_LIFE_S / DAY_S:g} days × (1 + {decay.PROJECT_ACCESS_GAIN:g} × accesses)" in page()
    assert f"{decay.USER_HALF_LIFE_S / DAY_S:g} days × (1 + {decay.USER_ACCESS_GAIN:g} × accesses)" in page()
    assert f"more than {decay.STALE_AFTER_S / DAY_S:g} days ago, and fewer than {decay.STALE_BELOW_ACCESSES}" in words()
    assert f"half-life of {RECENCY_HALF_LIFE_S / DAY_S:g} days." in words()


def test_the_worked_example_is_right() -> None:
    ten_days = 10 * DAY_S
    assert f"0.56 × 0.5^(10 / 9.1) = {memory_strength(0.8, 0.7, 2, 0.0, 'project', ten_days):g}." in words()
    assert f"Had nobody read it, it would be {memory_strength(0.8, 0.7, 0, 0.0, 'project', ten_days):g};" in words()
    assert f"with the user it would be {memory_strength(0.8, 0.7, 2, 0.0, 'user', ten_days):g}." in words()
    assert memory_strength(0.5, 0.5, 0, 0.0, "project", 16.3 * DAY_S) == pytest.approx(0.05, abs=0.001)
    assert "0.25 × 0.5^(16.3 / 7) = 0.05" in words()


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


def test_the_thresholds_of_promotion_are_those_in_force() -> None:
    rules = DEFAULT_PROMOTION
    text = words()
    at_the_end = f"at the session's end, from {rules.session_end_score:g} on (the {rules.session_end_limit} strongest)"
    assert at_the_end in text
    assert f"at once, while the session runs, from {rules.at_once_score:g} on" in text
    assert f"from {rules.user_score:g} on, if it is a" in text
    named = re.search(r"if it is a (.*?), has an importance", text)
    assert named is not None
    assert set(re.findall(r"`(\w+)`", named[1])) == rules.user_kinds
    assert f"an importance of at least {rules.user_min_importance:g}" in text
    assert f"was used in at least {rules.user_min_sessions} sessions" in text
    assert f"(cosine above {rules.merge_cosine:g})" in text
    gains = (
        f"grows by {rules.project_confidence_gain:g} in a project and by {rules.user_confidence_gain:g} with the user"
    )
    assert gains in text
    assert f"the limit of {rules.user_limit} counts" in text
    settings = Settings()
    assert f"for {settings.session_grace_s:g} seconds" in text
    assert f"more than {settings.consolidation_threshold} new active memories" in text


def test_the_numbers_of_maintenance_are_those_in_force() -> None:
    rules, table = DEFAULT_MAINTENANCE, rows("Maintenance")
    project, user = table["archived"][:2]
    assert project == (
        f"strength {_archived(rules.project)[0]}, older than {_archived(rules.project)[1]} days, "
        f"read less than {rules.project.accessed_below} times"
    )
    strength, days = _archived(rules.user)
    assert user == f"{strength}, {days} days, {rules.user.accessed_below} times"
    assert table["deleted (softly: it can be restored)"][0] == (
        f"archived for {rules.delete_after_s / DAY_S:g} days and not used since"
    )
    settings = Settings()
    assert f"go {rules.session_details_kept_s / DAY_S:g} days after" in table["notes of sessions"][0]
    assert table["undo data"][0] == f"runs go after {settings.runs_kept_s / DAY_S:g} days"
    assert table["entities that no memory names"][0] == f"removed after {rules.orphan_after_s / DAY_S:g} days"
    assert (MAINTENANCE_SESSIONS, MAINTENANCE_S) == (10, 7 * DAY_S)
    assert "after every tenth session and at least once a week" in words()


def _archived(rule: ArchiveRule) -> tuple[str, str]:
    return f"below {rule.strength_below:g}", f"{rule.older_than_s / DAY_S:g}"


def test_the_profiles_are_those_in_force() -> None:
    table = rows("Recall over three scopes")
    said = {name: tuple(map(float, cells[:3])) for name, cells in table.items() if name != "profile"}
    assert said == {name: (each.session, each.project, each.user) for name, each in PROFILES.items()}
    assert f"a cosine above {SAME_COSINE:.2f}" in words()
    assert STRONGER == 2
    assert "more than twice as strong" in words()


def test_the_sizes_of_clusters_and_themes_are_those_in_force() -> None:
    assert LEAST_MEMBERS == 3
    assert "at least three, of one scope" in words()
    assert LEAST_SESSIONS == 3
    assert "comes up in three sessions" in words()


def test_what_the_page_names_there_is() -> None:
    settings = {PREFIX + name.upper() for name in Settings.__struct_fields__}
    assert set(re.findall(rf"`({PREFIX}[A-Z_]+)[`=]", page())) <= settings
    assert set(re.findall(r"`remembrancer (\w+)", page())) <= set(COMMANDS)
    for target in re.findall(r"\]\(([\w.-]+)\)", page()):
        assert (DOCS / target).exists(), target


def test_the_picture_is_whole_and_told_in_words() -> None:
    picture = ElementTree.parse(DOCS / "memory-model.svg").getroot()
    name = "{http://www.w3.org/2000/svg}"
    described = {each.tag.removeprefix(name): "".join(each.itertext()) for each in picture}
    assert described["title"]
    assert described["desc"]
    rules = DEFAULT_PROMOTION
    shown = " ".join("".join(each.itertext()) for each in picture.iter(f"{name}text"))
    for number in (
        f"at its end: {rules.session_end_score:g}",
        f"at once: {rules.at_once_score:g}",
        f"score {rules.user_score:g}",
        f"half-life of {decay.USER_HALF_LIFE_S / DAY_S:g} days",
        f"half-life of {decay.PROJECT_HALF_LIFE_S / DAY_S:g} days",
    ):
        assert number in shown
    assert re.search(r"!\[[^\]]{80,}\]\(memory-model\.svg\)", page())
