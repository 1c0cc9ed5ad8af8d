"""The week as data: ten sessions in two projects, and the memories that each of them stores, asks for and must not
find. Original text.

`tidewatch` is the API of a small harbour (Python), `slipway` its web front end (TypeScript). Sessions of one day run at
the same time. The fate of each memory is in `fates`.
"""

from __future__ import annotations

from typing import Final

from examples.week.steps import (
    Ask,
    AwaitPromotion,
    Hooks,
    Keep,
    ReadContext,
    SeekInVain,
    Session,
    Supersede,
)

HOLIDAY_DAYS: Final = 21

WEEK: Final[tuple[Session, ...]] = (
    Session(
        1,
        1,
        "tidewatch",
        "laying out the API",
        (
            Hooks("Set up the booking API: routes, rules, storage.", "pytest -q", "14 passed in 0.61s"),
            Keep(
                "layers",
                "architecture",
                0.8,
                0.8,
                "The booking rules are pure functions; the FastAPI routes only translate between HTTP and them.",
                about=(("FastAPI", "technology"),),
            ),
            Keep(
                "postgres",
                "decision",
                0.9,
                0.9,
                "We store berths and bookings in PostgreSQL, because an exclusion constraint forbids two bookings of "
                "one berth at the same time.",
                about=(("PostgreSQL", "technology"),),
            ),
            Keep(
                "small changes",
                "preference",
                0.8,
                0.7,
                "Small pull requests are preferred: one concern each, with the reason in the description.",
            ),
            Keep(
                "an hour",
                "fact",
                0.7,
                0.8,
                "A login session of the API lasts 60 minutes.",
                about=(("login session", "concept"),),
            ),
            Keep(
                "slow staging",
                "observation",
                0.3,
                0.4,
                "The staging server was slow this morning while the backup was running.",
                scope="project",
            ),
            Keep(
                "swapped modules",
                "scratchpad",
                1.0,
                1.0,
                "Trying whether the circular import goes away when the two tide modules swap places.",
            ),
            Keep("coffee", "observation", 0.5, 0.5, "The linter was switched off for half an hour and is on again."),
        ),
    ),
    Session(
        2,
        1,
        "slipway",
        "the calendar",
        (
            Keep(
                "grid",
                "decision",
                0.85,
                0.9,
                "The calendar is drawn with CSS grid and without a calendar library, because no library could show the "
                "tides beside the bookings.",
                about=(("CSS grid", "technology"),),
            ),
            Keep(
                "translations",
                "convention",
                1.0,
                1.0,
                "Every text that a visitor sees comes from src/locales, never from a component.",
            ),
            AwaitPromotion("translations"),
            Keep(
                "one concern",
                "preference",
                0.8,
                0.7,
                "Small pull requests are preferred: one concern each, with the reason in the description.",
            ),
            Keep(
                "safari",
                "fact",
                0.65,
                0.65,
                "Safari shifts a date without a time zone back by one day when it is parsed.",
                about=(("Safari", "technology"),),
            ),
            Keep("bundle", "fact", 0.65, 0.65, "The compressed bundle has 182 kB since fonts are loaded late."),
            Ask("Which browser shifts dates by a day?", ("safari",)),
        ),
    ),
    Session(
        3,
        2,
        "tidewatch",
        "the first release",
        (
            Keep(
                "postgres again",
                "decision",
                0.8,
                0.8,
                "Berths and bookings are kept in PostgreSQL: its exclusion constraint forbids two bookings of one "
                "berth at the same time.",
                about=(("PostgreSQL", "technology"),),
            ),
            Keep(
                "two heads",
                "error_fix",
                0.8,
                0.9,
                "Migrations failed in CI because two branches had each added a head; alembic merge heads fixed it.",
                about=(("Alembic", "technology"),),
            ),
            Keep(
                "release",
                "procedure",
                0.8,
                0.8,
                "To release the API, run the migrations, deploy one instance, watch its error rate for ten minutes, "
                "then deploy the others.",
            ),
            Ask("How large should a pull request be?", ("one concern",)),
            Ask("Where do the booking rules live?", ("layers",)),
        ),
    ),
    Session(
        4,
        3,
        "slipway",
        "fetching data",
        (
            SeekInVain(("swapped modules", "postgres")),
            Keep(
                "query client",
                "architecture",
                0.8,
                0.8,
                "Pages load their data through one query client; components never call fetch themselves.",
            ),
            Keep("skeletons", "observation", 0.5, 0.5, "Grey skeletons look better than a spinner on the berth page."),
            Ask("How large should a pull request be?", ("one concern",)),
            Ask("Where do the texts for visitors come from?", ("translations",)),
        ),
    ),
    Session(
        5,
        4,
        "tidewatch",
        "slow bookings",
        (
            Keep(
                "pool 1",
                "observation",
                0.9,
                0.8,
                "The booking endpoint took four seconds: the connection pool was exhausted.",
                scope="project",
                about=(("connection pool", "concept"),),
            ),
            Keep(
                "pool 2",
                "observation",
                0.9,
                0.8,
                "The connection pool was exhausted again while the tide import was running.",
                scope="project",
                about=(("connection pool", "concept"), ("tide import", "service")),
            ),
            Keep(
                "pool 3",
                "observation",
                0.9,
                0.8,
                "With a larger connection pool the booking endpoint stays fast during the tide import.",
                scope="project",
                about=(("connection pool", "concept"), ("tide import", "service")),
            ),
            Keep(
                "pool 4",
                "observation",
                0.9,
                0.8,
                "Without the tide import, no more than half of the connection pool is used.",
                scope="project",
                about=(("connection pool", "concept"), ("tide import", "service")),
            ),
            Keep(
                "guess",
                "scratchpad",
                1.0,
                1.0,
                "Guess: the import forgets to give its connections back; put a counter around acquire.",
            ),
            Ask("How large should a pull request be?", ("one concern",)),
            Ask("Why did migrations fail in CI?", ("two heads",)),
        ),
    ),
    Session(
        6,
        4,
        "slipway",
        "sending a booking",
        (
            Keep(
                "idempotency",
                "decision",
                0.8,
                0.9,
                "A booking is sent with an idempotency key, so that a double click makes one booking.",
                about=(("idempotency key", "concept"),),
            ),
            Ask("How large should a pull request be?", ("one concern",)),
            Ask("Where do the texts for visitors come from?", ("translations",)),
            Ask("Which browser shifts dates by a day?", ("safari",)),
        ),
    ),
    Session(
        7,
        5,
        "tidewatch",
        "shorter sessions",
        (
            SeekInVain(("guess", "swapped modules", "coffee")),
            Keep(
                "half an hour",
                "fact",
                0.7,
                0.8,
                "A login session of the API lasts 30 minutes.",
                about=(("login session", "concept"),),
            ),
            Ask("How large should a pull request be?", ("one concern",)),
            Ask("Where do the booking rules live?", ("layers",)),
            Ask("How is the API released?", ("release",)),
        ),
    ),
    Session(
        8,
        6,
        "slipway",
        "polish",
        (
            SeekInVain(("half an hour", "guess")),
            Keep("contrast", "observation", 0.5, 0.5, "The grey of the tide curve is hard to see in sunlight."),
            Ask("How large should a pull request be?", ("one concern",)),
            Ask("Where do the texts for visitors come from?", ("translations",)),
        ),
    ),
    Session(
        9,
        7,
        "tidewatch",
        "what holds now",
        (
            Ask(
                "How long does a login session last?",
                ("an hour", "half an hour"),
                doubted=(("an hour", "half an hour"),),
            ),
            Supersede("half an hour", "an hour"),
            SeekInVain(("guess",)),
        ),
    ),
    Session(
        10,
        7,
        "slipway",
        "a fresh start",
        (
            ReadContext(("one concern", "grid", "translations", "query client", "idempotency", "safari")),
            Keep("tomorrow", "scratchpad", 0.9, 0.9, "Tomorrow: try the booking form with a screen reader."),
        ),
    ),
)


def memories() -> dict[str, tuple[Session, Keep]]:
    """Return every memory of the week by name, with the session that stores it."""
    return {step.name: (session, step) for session in WEEK for step in session.steps if isinstance(step, Keep)}
