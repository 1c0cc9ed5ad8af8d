"""Names that a text has, and what only looks like one."""

from __future__ import annotations

import time

import pytest

from remembrancer.memory.found_names import MOST, READ, found_names, is_proper
from tests.cases import cases


def certain(text: str, *, is_entity: bool = False) -> list[str]:
    return [each.name for each in found_names(text, is_entity=is_entity) if each.is_certain]


def possible(text: str) -> list[str]:
    return [each.name for each in found_names(text) if not each.is_certain]


@pytest.mark.parametrize(("text", "names"), cases("found_names", "names"))  # fmt: skip
def test_names_are_certain_by_their_form(text: str, names: list[str]) -> None:
    assert certain(text) == names


@pytest.mark.parametrize("text", cases("found_names", "not_names"))
def test_what_only_looks_like_a_name_is_none(text: str) -> None:
    assert certain(text) == []


def test_a_capital_letter_makes_a_possible_name_within_a_sentence_and_an_entity_begins_its_memory() -> None:
    text = (
        "Deploys are Renske's on Monday. Nobody else does them, says Sander Mol: Kafka runs in Venlo. The venlo depot."
    )
    assert possible(text) == ["Renske", "Sander Mol"], "Venlo is written in small letters too"
    assert possible("- Fix the build\n- Restart Nomad") == ["Nomad"]
    assert possible("Der Dienst schreibt die Rechnung nicht in den Speicher und die Datenbank ist auch nicht da.") == []
    assert certain("billing relay: copies the outbox to the broker", is_entity=True) == ["billing relay"]
    assert certain("billing relay: copies the outbox to the broker") == []
    assert certain("auth_service, AuthService and authService") == ["auth_service"]
    assert len(found_names(" ".join(f"name_{number}" for number in range(100)))) == MOST


@pytest.mark.parametrize("piece", ["x", "a-", "x_", "[("])
def test_data_without_blanks_costs_hardly_more_than_prose(piece: str) -> None:
    """A pattern that is tried holds up every thread of the store: its loop answered nothing for seconds once."""

    def cost_s(text: str) -> float:
        began = time.thread_time()
        found_names(text, is_entity=True)
        return time.thread_time() - began

    prose, data = ((each * READ)[:READ] for each in ("The gate of Harbour Street opens at seven. ", piece))
    assert min(cost_s(data) for _ in range(3)) <= 5 * min(cost_s(prose) for _ in range(3))


@pytest.mark.parametrize("name", ["Valkey", "Stripe", "Anna Lindqvist", "PostgreSQL", "Marek Dvořák", "Orders API"])
def test_the_name_of_a_person_or_a_product_is_proper(name: str) -> None:
    assert is_proper(name, "custom")


@pytest.mark.parametrize("name", ["wJalrXUtnFEMI", "SHOP-12", "legacy_id", "src/app.py", "maxmemory-policy", "pay()"])
def test_an_identifier_is_no_proper_name_unless_somebody_gave_it_a_type(name: str) -> None:
    assert not is_proper(name, "custom")
    assert is_proper(name, "component")
