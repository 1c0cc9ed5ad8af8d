"""Which facts are about the same thing, so that the later may have replaced the earlier."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remembrancer.memory.names import SAME_SUBJECT_COSINE, is_same_subject

NEAR = 0.9
CITIES = ("Berlin", "Bergen", "Brno", "Basel", "Bath", "Bilbao", "Bremen", "Bari", "Bern", "Bordeaux")


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        ("The API listens on port 8080", "The API listens on port 9090"),
        ("The API listens on port 8080.", "The API now listens on port 9090"),
        ("We need Python 3.11", "We need Python 3.12"),
        ("Der Dienst lauscht auf Port 8080", "Der Dienst lauscht jetzt auf Port 9090"),
    ],
)
def test_another_number_of_the_same_thing_may_replace_it(older: str, newer: str) -> None:
    assert is_same_subject(older, newer, NEAR)
    assert is_same_subject(newer, older, NEAR)


def test_ten_hotels_in_ten_cities_replace_none_of_each_other() -> None:
    hotels = [f"The hotel in {city} has {number} rooms" for number, city in enumerate(CITIES, 30)]
    assert not any(is_same_subject(one, other, NEAR) for one, other in itertools.permutations(hotels, 2))


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        ("The staging database is at 10.0.0.1", "The production database is at 10.0.0.2"),
        ("The limit for uploads is 10 MB", "The limit for downloads is 50 MB"),
        ("Alice prefers tabs", "Bob prefers spaces"),
        ("We use Redis for caching", "We use Redis for sessions"),
    ],
)
def test_two_subjects_are_two_however_near_they_are(older: str, newer: str) -> None:
    assert not is_same_subject(older, newer, 0.98)
    assert not is_same_subject(newer, older, 0.98)


NUMBERED_OR_MORE = (
    ("Issue #12 is fixed", "Issue #13 is fixed"),
    ("We closed #40 yesterday", "We closed #41 yesterday"),
    ("Step 1 checks the schema", "Step 2 checks the schema"),
    ("Sprint 3 ends on Friday", "Sprint 4 ends on Friday"),
    ("Room 5 has a projector", "Room 6 has a projector"),
    ("Shard 7 lives on db-1", "Shard 8 lives on db-1"),
    ("In chapter 2 the tests are explained", "In chapter 3 the tests are explained"),
    ("Schritt 1 prüft das Schema", "Schritt 2 prüft das Schema"),
    ("The API uses Postgres", "The API uses Postgres and Redis"),
    ("The worker reads from Kafka", "The worker reads from Kafka and RabbitMQ"),
)
UPDATES = (
    ("The API listens on port 8080", "The API now listens on port 9090"),
    ("Python 3.11 is required", "Python 3.12 is required"),
    ("Timeout: 30 s for uploads", "Timeout: 60 s for uploads"),
    ("Max upload size: 10 MB", "Max upload size: 25 MB"),
    ("Logs are kept for 30 days", "Logs are kept for 90 days and then deleted"),
    ("It takes 5 minutes to build", "It takes 9 minutes to build"),
    ("Pets are tolerated if leashed", "Pets are no longer tolerated, leashed or not"),
    ("Camping is limited to 2,000 people", "Camping is limited to 1,650 people"),
    ("The worker pool has 8 threads", "The worker pool has 16 threads"),
    ("Der Dienst lauscht auf Port 8080", "Der Dienst lauscht jetzt auf Port 9090"),
)


@pytest.mark.parametrize(("older", "newer"), NUMBERED_OR_MORE)
def test_a_numbered_thing_is_none_of_its_siblings_and_one_more_fact_replaces_none(older: str, newer: str) -> None:
    assert not is_same_subject(older, newer, 0.98)
    assert not is_same_subject(newer, older, 0.98)


@pytest.mark.parametrize(("older", "newer"), UPDATES)
def test_ten_updates_are_seen_as_such(older: str, newer: str) -> None:
    assert is_same_subject(older, newer, NEAR)
    assert is_same_subject(newer, older, NEAR)


def test_what_is_not_near_is_not_the_same_whatever_its_words() -> None:
    assert is_same_subject("port 8080", "port 9090", SAME_SUBJECT_COSINE)
    assert not is_same_subject("port 8080", "port 9090", SAME_SUBJECT_COSINE - 0.01)


@pytest.mark.parametrize("text", ["", "…", "42"])
def test_a_text_without_words_is_about_nothing(text: str) -> None:
    assert not is_same_subject(text, "The API uses Postgres", NEAR)
    assert not is_same_subject("The API uses Postgres", text, NEAR)


@given(st.text(max_size=60), st.text(max_size=60), st.floats(-1.0, 1.0))
def test_any_two_texts_can_be_compared(one: str, other: str, cosine: float) -> None:
    assert is_same_subject(one, other, cosine) <= (cosine >= SAME_SUBJECT_COSINE)
