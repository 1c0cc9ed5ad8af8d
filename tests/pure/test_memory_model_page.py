"""`docs/memory-model.md` says what the rules do: its tables and numbers are held against them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from remembrancer.actors.consolidator import maintenance
from remembrancer.actors.store.retrieval.once import SAME_COSINE
from remembrancer.config.settings import Settings
from remembrancer.memory import decay, promotion
from remembrancer.memory.decay import DAY_S, RECENCY_HALF_LIFE_S, memory_strength
from remembrancer.memory.features import STANDINGS
from remembrancer.memory.profiles import PROFILES
from remembrancer.memory.promotion import CONFIDENCE_SHARE, FOR_KIND, IMPORTANCE_SHARE, MOST_FOR_USE
from remembrancer.protocol.kinds import KINDS, MEMORY_TYPES, SCOPES, STATUSES, type_of_kind

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


PROJECT_RULE, USER_RULE = (
    (f"{rule.strength_below:g}", f"{rule.older_than_s / DAY_S:g} days", f"{rule.accessed_below} times")
    for rule in (decay.PROJECT_ARCHIVING, decay.USER_ARCHIVING)
)


@pytest.mark.parametrize(
    "sentence",
    [
        f"{PROJECT_DAYS} days × (1 + {decay.PROJECT_ACCESS_GAIN:g} × accesses)",
        f"{USER_DAYS} days × (1 + {decay.USER_ACCESS_GAIN:g} × accesses)",
        f"more than {decay.STALE_AFTER_S / DAY_S:g} days ago, and fewer than {decay.STALE_BELOW_ACCESSES}",
        f"half-life of {RECENCY_HALF_LIFE_S / DAY_S:g} days.",
        f"0.56 × 0.5^(10 / 9.1) = {memory_strength(0.8, 0.7, 2, 0.0, 'project', TEN_DAYS_S):g}.",
        f"at the session's end, from {promotion.SESSION_END_SCORE:g} on (the {promotion.SESSION_END_LIMIT} strongest)",
        f"at once, while the session runs, from {promotion.AT_ONCE_SCORE:g} on",
        f"from {promotion.USER_SCORE:g} on, if it is a",
        f"an importance of at least {promotion.USER_MIN_IMPORTANCE:g}",
        f"was used in at least {promotion.USER_MIN_SESSIONS} sessions",
        f"(cosine above {promotion.MERGE_COSINE:g})",
        f"grows by {promotion.PROJECT_CONFIDENCE_GAIN:g} in a project and by {promotion.USER_CONFIDENCE_GAIN:g}",
        f"the limit of {promotion.USER_LIMIT} counts",
        f"| × {IMPORTANCE_SHARE:g} |",
        f"| × {CONFIDENCE_SHARE:g} |",
        f"log10(sessions + 1) / 2, at most {MOST_FOR_USE:g} |",
        f"for {SETTINGS.session_grace_s:g} seconds",
        f"a cosine above {SAME_COSINE:.2f}",
        f"strength below {PROJECT_RULE[0]}, older than {PROJECT_RULE[1]}, read less than {PROJECT_RULE[2]}",
        f"below {USER_RULE[0]}, {USER_RULE[1]}, {USER_RULE[2]}",
        f"archived for {decay.DELETE_AFTER_S / DAY_S:g} days and not used since",
        f"go {maintenance.SESSION_DETAILS_KEPT_S / DAY_S:g} days after",
        f"runs go after {SETTINGS.runs_kept_s / DAY_S:g} days",
        f"removed after {maintenance.ORPHAN_AFTER_S / DAY_S:g} days",
    ],
)
def test_the_numbers_of_the_page_are_those_in_force(sentence: str) -> None:
    assert sentence in " ".join(PAGE.split())


def test_the_tables_of_scopes_kinds_and_profiles_are_those_in_force() -> None:
    table = rows("Three scopes")
    assert [name for name in table if name != "scope"] == list(SCOPES)
    table = rows("Kinds and types")
    for memory_type in MEMORY_TYPES:
        kinds = re.findall(r"`(\w+)`", table[memory_type][0])
        assert sorted(kinds) == sorted(kind for kind in KINDS if type_of_kind(kind) == memory_type)
    assert [name for name in table if name in STATUSES] == list(STANDINGS)
    table = rows("Recall over three scopes")
    weights = {name: tuple(map(float, cells[:3])) for name, cells in table.items() if name != "profile"}
    assert weights == {name: tuple(each.values()) for name, each in PROFILES.items()}


def test_the_kinds_that_are_promoted_and_what_they_add_are_those_in_force() -> None:
    (cell, *_) = rows("Promotion: how a memory comes to a broader scope")["kind"]
    added = {
        kind: float(number)
        for number, kinds in re.findall(r"([\d.]+) for ([^;]*)", cell)
        for kind in re.findall(r"`(\w+)`", kinds)
    }
    assert added == FOR_KIND
    (named,) = re.findall(r"if it is a (.*?), has an importance", " ".join(PAGE.split()))
    assert set(re.findall(r"`(\w+)`", named)) == promotion.USER_KINDS
