"""Real text for the demonstration and the benchmarks.

`memories` takes what every machine has: the docstrings of Python's standard library, a paragraph a memory. `NOTES` were
written for this: what a developer's assistant would keep.
"""

from __future__ import annotations

import itertools
import re
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Final

NOTES: Final[tuple[tuple[str, str, str], ...]] = (
    ("semantic", "user", "Ana prefers tabs over spaces, and British spelling in comments."),
    ("semantic", "user", "Ana reviews pull requests in the morning and does not want to be pinged after six."),
    ("procedural", "user", "Commit messages: imperative mood, at most 72 characters in the first line, the why below."),
    (
        "semantic",
        "project",
        "The billing service talks to the ledger over gRPC; REST is kept for the public API alone.",
    ),
    ("semantic", "project", "We chose PostgreSQL over MySQL for the auth service because of its row-level security."),
    (
        "semantic",
        "project",
        "Feature flags live in flags.toml and are read once at start-up; a change needs a restart.",
    ),
    (
        "procedural",
        "project",
        "To release: bump the version, run make dist, tag, wait for the canary for one hour, roll out.",
    ),
    ("procedural", "project", "Run the integration tests with docker compose up -d db and then pytest -m integration."),
    (
        "episodic",
        "project",
        "On Tuesday the nightly export failed with ECONNRESET-104 behind the new proxy; a retry fixed it.",
    ),
    ("episodic", "project", "The outage of 3 March came from an expired certificate on the load balancer."),
    ("semantic", "project", "parse_invoice_totals() rounds half to even, which the accountants asked for."),
    ("semantic", "project", "The search index is rebuilt every Sunday at 02:00 UTC and takes about forty minutes."),
    ("semantic", "project", "Мобильное приложение обращается к API через шлюз с ограничением в 50 запросов в секунду."),
    ("episodic", "session", "Looking at the flaky test in test_webhooks.py: it depends on the order of two callbacks."),
)
"""Type, scope, content."""
QUESTIONS: Final[tuple[str, ...]] = (
    "why did we choose PostgreSQL for authentication?",
    "how do I ship a new version",
    "ECONNRESET-104",
    "does Ana prefer tabs or spaces?",
    "what caused the outage in March?",
    "which test is unreliable?",
    "xylophone quokka marmalade",
)
SHORTEST: Final = 40
LONGEST: Final = 600
PROSE: Final = 0.85
"""The share of letters and spaces from which a paragraph counts as text rather than code."""
_TRIPLE_QUOTED: Final = re.compile(r'"""(.*?)"""', re.DOTALL)
_SKIPPED: Final = {"test", "tests", "idlelib", "lib2to3", "site-packages", "__pycache__"}


def paragraphs() -> Iterator[str]:
    """Distinct paragraphs of 40 to 600 characters, in a fixed order for one version of Python."""
    seen: set[str] = set()
    for path in sorted(Path(sysconfig.get_path("stdlib")).rglob("*.py")):
        if _SKIPPED.intersection(path.parts):
            continue
        for docstring in _docstrings(path):
            for block in re.split(r"\n\s*\n", docstring):
                text = " ".join(block.split())
                if SHORTEST <= len(text) <= LONGEST and _is_prose(text) and text not in seen:
                    seen.add(text)
                    yield f"{path.stem}: {text}"


def memories(count: int) -> list[str]:
    """`count` distinct texts. When the library has no more paragraphs they come again, numbered."""
    texts = list(itertools.islice(paragraphs(), count))
    rounds = itertools.count(2)
    while len(texts) < count:
        again = next(rounds)
        texts += [f"{text} (note {again})" for text in texts[: count - len(texts)]]
    return texts


def _docstrings(path: Path) -> Iterator[str]:
    """What stands between triple quotes, in files of UTF-8. A parser would be stricter, and four times as slow."""
    try:
        yield from _TRIPLE_QUOTED.findall(path.read_text(encoding="utf-8"))
    except UnicodeDecodeError:
        return


def _is_prose(text: str) -> bool:
    return sum(character.isalpha() or character.isspace() for character in text) > PROSE * len(text)
