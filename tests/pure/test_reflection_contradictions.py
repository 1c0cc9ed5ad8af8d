"""A newer memory against an older one: what contradicts, what only adds, and what is about something else."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remembrancer.actors.consolidator.claims import read_claim
from remembrancer.actors.consolidator.contradictions import (
    CONTRADICTION_COSINE,
    Contradiction,
    contradiction,
    differs,
)
from remembrancer.protocol.consolidation import Material
from remembrancer.protocol.kinds import Kind
from tests.pure.reflection_world import memory


def fact(
    content: str,
    when: float = 1.0,
    entities: tuple[str, ...] = ("subject",),
    kind: Kind = "fact",
    name: str | None = None,
) -> Material:
    return memory(
        0, content, id=name or f"memory:{when:g}", kind=kind, type="semantic", created_at=when, entities=entities
    )


def found(older: str, newer: str, cosine: float = 0.9) -> Contradiction | None:
    return contradiction(fact(older, 1.0), fact(newer, 2.0), cosine)


CONTRADICTING = [
    ("The API uses Postgres", "The API uses MySQL", "value"),
    ("The API uses Postgres.", "The API now uses MySQL.", "value"),
    ("We use Postgres for the API", "We use MySQL for the API", "value"),
    ("The team lives in Berlin", "The team lives in Munich", "value"),
    ("Deploys go to Heroku", "Deploys go to Fly", "value"),
    ("The main branch is called master", "The main branch is called trunk", "value"),
    ("The feature flag is enabled", "The feature flag is disabled", "value"),
    ("Sessions are kept in Redis", "Sessions are stored in Postgres", "value"),
    ("The owner of the service is Alice", "The owner of the service is Bob", "value"),
    ("The cache is Redis on port 6379", "The cache is Memcached on port 11211", "value"),
    ("Deploying takes 5 minutes", "Deploying takes 12 minutes", "number"),
    ("The project needs Python 3.11", "The project needs Python 3.12", "number"),
    ("The timeout is 30s", "The timeout is 60 s", "number"),
    ("The API listens on port 8080", "The API listens on port 9090", "number"),
    ("Passwords have at least eight characters", "Passwords have at least 12 characters", "number"),
    ("The limit is 1,000 requests", "The limit is 5,000 requests", "number"),
    ("The API uses Postgres", "The API does not use Postgres", "negation"),
    ("The API uses Postgres", "The API no longer uses Postgres", "negation"),
    ("The API uses Postgres", "The API doesn't use Postgres anymore", "negation"),
    ("The API runs on Postgres", "The API used to run on Postgres", "negation"),
    ("The API uses Postgres", "The API stopped using Postgres", "negation"),
    ("The API uses Postgres", "The API switched from Postgres to MySQL", "negation"),
    ("The API uses Postgres", "The API uses MySQL instead of Postgres", "negation"),
    ("The API uses Postgres, not MySQL", "The API uses MySQL, not Postgres", "negation"),
    ("The cache uses Redis", "Replaced Redis with Memcached in the cache", "negation"),
    ("The user likes tabs", "The user dislikes tabs", "negation"),
    ("Always commit generated files", "Never commit generated files", "negation"),
    ("The parser is thread-safe", "The parser isn’t thread-safe", "negation"),
    ("The endpoint needs a token", "The endpoint needs no token", "negation"),
    ("The endpoint can be called without a token", "The endpoint needs a token to be called", "negation"),
    ("Der Dienst nutzt Postgres", "Der Dienst nutzt kein Postgres mehr", "negation"),
    (
        "The service is written in Go. It runs on two machines in Frankfurt.",
        "The service is written in Rust.",
        "value",
    ),
    ("The user prefers tabs", "The user prefers spaces", "value"),
    ("we use npm for the frontend", "we use pnpm for the frontend", "value"),
    ("The user prefers the light theme", "The user prefers the dark theme", "value"),
    ("The repository is public", "The repository is private", "value"),
    ("The service runs in eu-west-1", "The service runs in us-east-2", "value"),
    ("The deadline is 3 May", "The deadline is 17 May", "number"),
    ("The default port is 3000", "The default port is 8000", "number"),
    ("Logs are kept for 30 days", "Logs are kept for 90 days", "number"),
    ("The CI runs on GitHub Actions", "The CI runs on Jenkins", "value"),
    ("The frontend is written in React", "The frontend is written in Svelte", "value"),
    ("Maria lives in Lisbon", "Maria lives in Porto", "value"),
    ("The order of the list is ascending", "The order of the list is descending", "value"),
]
HARMLESS = [
    ("The API uses Postgres", "the  API uses Postgres."),
    ("The API uses Postgres", "The API uses Postgres with pooling"),
    ("The API uses Postgres with pooling", "The API uses Postgres on port 5432"),
    ("The API uses Postgres", "The API uses Postgres, not for sessions though"),
    ("The API uses Postgres", "The API uses Postgres and Redis"),
    ("The API uses Postgres", "The API uses Postgres, never MySQL"),
    ("The API uses Postgres", "The API does not use MySQL"),
    ("The API listens on 8080", "The API listens on 8080 and 9090"),
    ("The API uses Postgres", "The worker uses Postgres"),
    ("Alice prefers tabs", "Bob prefers spaces"),
    ("On Linux use gcc", "On macOS use clang"),
    ("The API uses Postgres in production", "The API uses SQLite in tests"),
    ("The limit for uploads is 10 MB", "The limit for downloads is 50 MB"),
    ("We use Redis for caching", "We use Redis for sessions"),
    ("Issue #12 is fixed", "Issue #13 is fixed"),
    ("Ticket ABC-7 is about the login", "Ticket ABC-8 is about the login"),
    ("Step 1 checks the schema", "Step 2 checks the schema"),
    ("The API stores its data in Postgres", "The API keeps its data in Postgres"),
    ("Redis is used to cache sessions", "Redis caches the sessions"),
    ("The build is fast", "The build is fast when the cache is warm"),
    ("The parser reads JSON", "The parser reads JSON since version 2.1"),
    ("Run the migration before deploying", "Run the migration before deploying, and tell the team"),
    ("The user likes short answers", "The user likes short answers in British spelling"),
    ("Uploads fail when the disk is full", "Uploads fail when the token is old"),
    ("The API validates the token", "The API does not validate input"),
    ("The tests cover the parser", "A review found two typos in the docs"),
    ("接口使用数据库", "接口没有文档"),
    ("", "The API uses Postgres"),
    ("…", "!"),
    ("The API is not only fast", "The API is fast"),
    ("This is a note", "That was another note"),
    ("It works", "It works on ARM"),
]
IN_OTHER_WORDS = [
    ("Run the tests before each commit", "Run the tests before every commit"),
    ("The worker retries on errors", "The worker retries on failures"),
    ("All endpoints need a token", "Every endpoint needs a token"),
    ("The user likes short answers", "The user likes brief answers"),
    ("The user wants short replies", "The user wants short answers"),
    ("The build is slow", "The build is sluggish"),
    ("The service fetches the orders nightly", "The service fetches the orders every night"),
    ("The API returns a list of users", "The API returns an array of users"),
    ("The deploy script builds the image", "The deploy script creates the image"),
    ("The logs show a timeout in the payment client", "The logs show a timeout inside the payment client"),
    ("Fix the flaky login test soon", "Fix the flaky login test quickly"),
    ("The config lives in a folder of the repository", "The config lives in a directory of the repository"),
    ("The cache makes the page much faster", "The cache makes the page a lot quicker"),
    ("Some tests are flaky", "Several tests are flaky"),
    ("The migration adds an index", "The migration creates an index"),
    ("The team reviews big changes together", "The team reviews large changes together"),
    ("The parser handles broken input", "The parser copes with malformed input"),
    ("The docs explain the setup of the database", "The docs describe the setup of the database"),
    ("The session token expires after a while", "The session token expires after some time"),
    ("The gateway checks the signature of each request", "The gateway verifies the signature of each request"),
    ("The login bug was hard to find", "The login bug was difficult to find"),
    ("The queue drops old messages", "The queue discards old messages"),
    ("The mobile app shows a warning when the battery is low", "The mobile app shows an alert when the battery is low"),
    ("We talked about the release with Anna", "We talked about the release with Tom"),
    ("The retro was fun", "The retro was long"),
    ("Yesterday the build failed in the linter", "Yesterday the build failed in the type checker"),
    ("Found a bug in the importer", "Found a bug in the exporter"),
    ("The report lists open invoices", "The report lists overdue invoices"),
    ("The first run took 40 seconds", "The second run took 12 seconds"),
    ("Anna reviewed the pull request for search", "Anna reviewed the pull request for billing"),
    ("Bob fixed the login bug in 1.2", "Bob fixed the login bug in 1.3"),
    ("The API supports JSON", "The API supports XML"),
    ("The test suite covers the Parser class", "The test suite covers the Lexer class"),
    ("The user visited Rome in 2019", "The user visited Paris in 2021"),
    ("The user likes Thai food", "The user likes Italian food"),
    ("Sentry reported a TypeError in checkout", "Sentry reported a KeyError in checkout"),
    ("The user needs a summary of the meeting", "The user needs a transcript of the meeting"),
    ("Ports below 1024 need root", "Ports under 1024 require root"),
]
"""The same in other words, things that hold beside one another, and things that happened one after another."""


@pytest.mark.parametrize(("older", "newer", "difference"), CONTRADICTING)
def test_a_changed_value_in_the_same_frame_contradicts(older: str, newer: str, difference: str) -> None:
    each = found(older, newer)
    assert each is not None
    assert (each.older, each.newer, each.difference) == ("memory:1", "memory:2", difference)
    assert each.reason
    assert 0.0 < each.strength <= 1.0


@pytest.mark.parametrize(("older", "newer"), [(older, newer) for older, newer, _ in CONTRADICTING])
def test_what_contradicts_does_so_whichever_was_said_first(older: str, newer: str) -> None:
    assert found(newer, older) is not None


@pytest.mark.parametrize(("older", "newer"), HARMLESS)
def test_a_detail_another_subject_or_another_case_contradicts_nothing(older: str, newer: str) -> None:
    assert found(older, newer) is None
    assert found(newer, older) is None
    assert found(older, older) is None


@pytest.mark.parametrize(("older", "newer"), IN_OTHER_WORDS)
def test_other_words_that_are_no_other_value_contradict_nothing(older: str, newer: str) -> None:
    assert found(older, newer) is None
    assert found(newer, older) is None


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Issue #12 is fixed", "Issue #13 is fixed"),
        ("Step 1 checks the schema", "Step 2 checks the schema"),
        ("The first run took 40 seconds", "The second run took 12 seconds"),
        ("Sentry reported a TypeError in checkout", "Sentry reported a KeyError in checkout"),
        ("The report lists open invoices", "The report lists overdue invoices"),
        ("Always commit generated files", "Never commit generated files"),
        ("I like tabs", "She likes tabs"),
    ],
)
def test_what_may_be_another_thing_cannot_stand_for_the_first(one: str, other: str) -> None:
    assert differs(one, other)
    assert differs(other, one)
    assert not differs(one, one)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Tests run before each push", "The tests run before every push, always"),
        ("The API uses Postgres", "The API uses Postgres with pooling"),
        ("We use Postgres for the API", "The API uses Postgres"),
    ],
)
def test_a_detail_more_or_another_order_is_the_same_thing(one: str, other: str) -> None:
    assert not differs(one, other)
    assert not differs(other, one)


def test_without_a_common_entity_two_memories_must_be_nearer() -> None:
    older, newer = fact("The API uses Postgres", 1.0, ()), fact("The API uses MySQL", 2.0, ())
    assert contradiction(older, newer, 0.74) is None
    assert contradiction(older, newer, 0.75) is not None
    assert contradiction(older, fact("The API uses MySQL", 2.0), 0.74) is None
    assert found("The API uses Postgres", "The API uses MySQL", 0.6) is not None
    assert found("The API uses Postgres", "The API uses MySQL", 0.59) is None


def test_memories_that_name_different_entities_are_about_different_things() -> None:
    older = fact("The service uses Postgres", 1.0, ("billing",))
    assert contradiction(older, fact("The service uses MySQL", 2.0, ("search",)), 0.99) is None
    assert contradiction(older, fact("The service uses MySQL", 2.0, ("Billing",)), 0.99) is not None


def test_another_thing_that_begins_the_sentence_is_another_subject_unless_both_name_theirs_elsewhere() -> None:
    older = fact("The API uses Postgres", 1.0, ("API", "Postgres"))
    assert contradiction(older, fact("The worker uses Postgres", 2.0, ("worker", "Postgres")), 0.95) is None
    turned = fact("Postgres is the database of the API", 1.0, ("API", "Postgres"))
    assert contradiction(turned, fact("MySQL is the database of the API", 2.0, ("API", "MySQL")), 0.95) is not None


@pytest.mark.parametrize("kind", ["tool_outcome", "scratchpad"])
def test_what_held_for_a_moment_contradicts_nothing(kind: Kind) -> None:
    older, newer = fact("The run took 5 seconds", 1.0, kind=kind), fact("The run took 9 seconds", 2.0, kind=kind)
    assert contradiction(older, newer, 0.95) is None


def test_the_newer_one_is_known_by_its_time_and_not_by_the_order_of_the_arguments() -> None:
    older, newer = fact("The timeout is 30 s", 1.0), fact("The timeout is 60 s", 2.0)
    assert contradiction(newer, older, 0.9) == contradiction(older, newer, 0.9)


def test_a_person_is_told_what_it_was_and_what_it_is() -> None:
    value = found("The API uses Postgres", "The API now uses MySQL.")
    assert value is not None
    assert value.reason == "Postgres before, MySQL now"
    negation = found("The API uses Postgres", "The API no longer uses Postgres")
    assert negation is not None
    assert negation.reason == "one affirms what the other denies: Postgres"


def test_a_denial_is_surer_than_a_number_and_that_surer_than_another_word() -> None:
    pairs = [("The site has 5 users", "The site has 6 users"), ("It uses Redis", "It never uses Redis")]
    number, negation = (found(*each) for each in pairs)
    value = found("The API uses Postgres", "The API uses MySQL")
    assert number is not None
    assert negation is not None
    assert value is not None
    assert negation.strength > number.strength > value.strength


def test_two_denials_affirm() -> None:
    assert read_claim("They did not remove Redis").denied == frozenset()
    assert read_claim("They removed Redis").denied == {"redis"}


@given(st.text(max_size=80), st.text(max_size=80), st.floats(-1.0, 1.0))
def test_any_two_texts_can_be_compared_in_either_order(one: str, two: str, cosine: float) -> None:
    first, second = fact(one, 1.0), fact(two, 2.0)
    each = contradiction(first, second, cosine)
    assert each == contradiction(second, first, cosine)
    assert each is None or (cosine >= CONTRADICTION_COSINE and one != two)


@given(st.sampled_from([newer for _, newer, _ in CONTRADICTING]), st.sampled_from([".", " !", "\n", "…", "  "]))
def test_the_same_text_never_contradicts_itself_however_it_is_written(text: str, end: str) -> None:
    assert found(text, text.upper() + end, 1.0) is None
