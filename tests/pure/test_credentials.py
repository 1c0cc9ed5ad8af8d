"""Texts that look like a credential, and texts that only look like one."""

import base64
import hashlib
import random
import re
import string
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import re2
from hypothesis import given
from hypothesis import strategies as st

from remembrancer.memory.credentials import find_credential, refuse_credentials
from remembrancer.memory.text import finder_of
from remembrancer.protocol.errors import InvalidInput
from remembrancer.protocol.runs import UndoRun
from remembrancer.protocol.writes import (
    Change,
    EntityRef,
    ForgetMemory,
    PromoteMemory,
    RestoreMemory,
    SourceRef,
    StoreMemory,
    TagMemory,
    UpdateMemory,
    WriteNote,
)
from tests.cases import cases

MEMORY = "memory:01ARZ3NDEKTSV4RRFFQ69G5FAV"
UPPER, LOWER, DIGITS = string.ascii_uppercase, string.ascii_lowercase, string.digits
WORD = UPPER + LOWER + DIGITS
ALPHABETS = {
    "word": WORD,
    "hex": "0123456789abcdef",
    "digit": DIGITS,
    "upper": UPPER,
    "lower": LOWER,
    "letter": UPPER + LOWER,
    "capital": UPPER + DIGITS,
    "small": LOWER + DIGITS,
    "base32": UPPER + "234567",
    "base64": WORD + "+/",
    "url": WORD + "-_",
    "crypt": WORD + "./",
    "django": LOWER + DIGITS + "!@#$%^&*(-_=+)",
    "salt": WORD + "!@#%^&*()-_ []{}<>~+=,.;:/?|",
    "special": WORD + "!#%&*",
}
PASSWORD_WORDS = (
    *("frosch", "Sommer", "dragon", "hunter", "Blaubeere"),
    *("kestrel", "Maiglocke", "thunder", "cobalt", "Mistral"),
)
SEED_WORDS = (
    *("abandon", "zebra", "ocean", "lamp", "velvet", "cactus"),
    *("orbit", "quiz", "tiger", "noble", "river", "stone"),
)
chance = random.Random(20261122)
"""The secrets are the same at every run, and none stands in a file."""


def some(length: int, alphabet: str = "word") -> str:
    return "".join(chance.choices(ALPHABETS[alphabet], k=length))


def coded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def password(least: int, most: int) -> str:
    """A password as people choose them: a word with digits and symbols."""
    word, mark = chance.choice(PASSWORD_WORDS), chance.choice(("", "-", "_", "!"))
    return word + mark + some(chance.randint(least, most), "digit")


def jwt() -> str:
    parts = ('{"alg":"HS256","typ":"JWT"}', f'{{"sub":"{some(8)}"}}', some(32))
    return ".".join(coded(part).rstrip("=") for part in parts)


SECRETS: dict[str, Callable[[], str]] = {
    "password": lambda: password(1, 4),
    "long password": lambda: password(2, 4) + chance.choice(("", "!", "?x", "$", chance.choice(PASSWORD_WORDS))),
    "jwt": jwt,
    "token": lambda: f"{some(6)}7{some(6)}aB3",
    "uuid": lambda: "-".join(some(length, "hex") for length in (8, 4, 4, 4, 12)),
    "seed": lambda: " ".join(chance.sample(SEED_WORDS, 12)),
    "zero-width space": lambda: "\u200b",
    "word joiner": lambda: "\u2060",
}
"""Placeholders of the shapes; others are `«coded …»`, and the name of an alphabet with a length."""


def with_secrets(shape: str) -> str:
    """A shape with a random secret in the place of each placeholder, the inner ones first."""

    def secret(match: re.Match[str]) -> str:
        kind, _, detail = match[1].partition(" ")
        if match[1] in SECRETS:
            return SECRETS[match[1]]()
        return coded(detail) if kind == "coded" else some(int(detail), kind)

    while (filled := re.sub(r"«([^«»]+)»", secret, shape)) != shape:
        shape = filled
    return shape


def lines(name: str) -> list[str]:
    text = (Path(__file__).parents[1] / "cases" / f"{name}.txt").read_text("utf-8")
    return [line.replace("\\n", "\n") for line in text.splitlines() if line and not line.startswith("# ")]


SHAPES = {shape: with_secrets(shape) for shape in lines("credential_shapes")}
"""Forms that issuers and file formats document, and labels as people write them: behind ` | ` stands the summary."""
CREDENTIALS = {name: with_secrets(text) for name, text in cases("credentials", "seen")}


def test_a_credential_is_seen_wherever_it_stands() -> None:
    for name, text in CREDENTIALS.items():
        assert find_credential(text) is not None, name
        assert find_credential(f"Deploys use this.\n  {text}\nAsk Kim.") is not None, name


def is_refused(text: str) -> bool:
    content, _, summary = text.partition(" | ")
    try:
        refuse_credentials(UpdateMemory("", content=content if summary else f"For later:\n{text}", summary=summary))
    except InvalidInput:
        return True
    return False


def test_a_secret_of_any_shape_is_refused_and_no_line_with_the_same_words() -> None:
    assert len(SHAPES) == 369
    assert [shape for shape in SHAPES if not is_refused(SHAPES[shape])] == []
    innocent = [*lines("innocent_lines"), *lines("innocent_shapes")]
    assert len(innocent) == 513
    assert [line for line in innocent if find_credential(line) is not None] == []


def test_the_name_of_a_note_and_the_id_of_a_run_are_no_passwords() -> None:
    note = WriteNote("/work", "memory/soak-3.md", "zipfile: Set default password for encrypted files.")
    refuse_credentials(note)
    for number in range(100):
        change = UndoRun(f"run:{hashlib.sha256(b'%d' % number).hexdigest()[:32]}", "user")
        refuse_credentials(change)


def test_ordinary_text_is_not_taken_for_one() -> None:
    ordinary = [
        *cases("credentials", "ordinary"),
        "id 0b6f6c9e-6a0e-4a69-8d5c-3c1a1b2c3d4e, sha256 " + "ab" * 32,
        "AKIAIOSFODNN7EXAMPLE is in the documentation, and pip wants --hash=sha256:" + "ab" * 32,
        f"pi_{some(32)} is a payment, sub_{some(32)} a subscription, api-access-production is a host",
        "half a character \ud83d, as a program may log it",
    ]
    assert [text for text in ordinary if find_credential(text) is not None] == []


def test_no_text_makes_the_search_go_back_again_and_again() -> None:
    """A shape that did would keep this test busy until its time is over."""
    for unit in cases("credentials", "units"):
        assert find_credential(unit * (65_536 // len(unit))) is None, unit


PIECES = st.sampled_from([*CREDENTIALS.values(), "token:", "the key", some(40), "=", "postgres://a:"])


@given(st.lists(PIECES | st.text(max_size=300), min_size=4, max_size=4))
def test_any_texts_that_are_looked_at_together_are_judged_as_each_alone(texts: list[str]) -> None:
    alone = [text for text in texts if find_credential(text) is not None]
    tag, *of_entity = texts
    together = UpdateMemory(MEMORY, add_tags=(tag,), add_entities=(EntityRef(*of_entity),))
    if not alone:
        refuse_credentials(together)
        return
    with pytest.raises(InvalidInput) as refused:
        refuse_credentials(together)
    fields = ("tags.add", *(f"related_entities.add.{name}" for name in ("name", "type", "relationship")))
    assert refused.value.field == fields[texts.index(alone[0])]
    assert str(find_credential(alone[0])) in refused.value.message


@pytest.mark.parametrize("padding", [0, 20_000])
def test_the_refusal_names_the_sort_and_never_quotes_the_secret(padding: int) -> None:
    secret = CREDENTIALS["github"]
    change = UpdateMemory(MEMORY, content="word " * padding + secret)
    with pytest.raises(InvalidInput) as refused:
        refuse_credentials(change)
    assert refused.value.field == "content"
    assert "GitHub token" in refused.value.message
    assert refused.value.remedy == "allow_secrets: true"
    assert secret not in refused.value.message


def stored(**fields: Any) -> StoreMemory:
    return StoreMemory(**{"memory_id": MEMORY, "content": "x", "type": "semantic", "scope": "project"} | fields)


SECRET = CREDENTIALS["github"]
VALUE = some(24)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        (stored(session_id="s", tags=("fine", SECRET)), "tags"),
        (stored(session_id="s", source=SourceRef(tool=SECRET)), "source.tool"),
        (stored(session_id="s", source=SourceRef(file=f"~/{SECRET}.txt")), "source.file"),
        (stored(session_id="s", related_entities=(EntityRef(SECRET, "a", "b"),)), "related_entities.name"),
        (stored(session_id="s", related_entities=(EntityRef("a", SECRET, "b"),)), "related_entities.type"),
        (stored(session_id="s", related_entities=(EntityRef("a", "b", SECRET),)), "related_entities.relationship"),
        (UpdateMemory(MEMORY, add_tags=(SECRET,)), "tags.add"),
        (UpdateMemory(MEMORY, add_entities=(EntityRef(SECRET, "a", "b"),)), "related_entities.add.name"),
        (UpdateMemory(MEMORY, metadata={SECRET: 1}), "metadata"),
        (UpdateMemory(MEMORY, metadata={"a": [{"b": f"x\n{SECRET}"}]}), "metadata"),
        (UpdateMemory(MEMORY, metadata={"api_key": VALUE}), "metadata"),
        (TagMemory(MEMORY, add=(SECRET,)), "add"),
        (ForgetMemory(MEMORY, reason=f"it held {SECRET}"), "reason"),
        (PromoteMemory(MEMORY, "user", reason=SECRET), "reason"),
        (RestoreMemory(MEMORY, reason=SECRET), "reason"),
    ],
)
def test_every_text_of_a_change_is_looked_at_and_the_field_named(change: Change, field: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        refuse_credentials(change)
    assert refused.value.field == field
    assert refused.value.message.startswith(f"{field} seems to contain")
    assert (refused.value.remedy == "allow_secrets: true") == isinstance(change, StoreMemory | UpdateMemory)


@pytest.mark.parametrize("value", ["frosch-2217", "It is frosch2217."])
def test_a_summary_may_label_the_secret_in_the_content_and_the_other_way_round(value: str) -> None:
    for label in ("password of the staging database", "Root password:"):
        for content, summary in ((value, label), (label, value)):
            with pytest.raises(InvalidInput, match="credential") as refused:
                refuse_credentials(UpdateMemory(MEMORY, content=content, summary=summary))
            assert refused.value.field == ("content" if content == value else "summary")
        refuse_credentials(UpdateMemory(MEMORY, content="frosch-2217 is a branch", summary=label))


def test_what_takes_a_secret_away_is_not_refused() -> None:
    for change in (
        TagMemory(MEMORY, remove=(SECRET,)),
        UpdateMemory(MEMORY, remove_tags=(SECRET,), remove_entities=(SECRET,), metadata={SECRET: None}),
        UpdateMemory(MEMORY, metadata={"token": "see vault", "n": 1.5, "is": True}),
    ):
        refuse_credentials(change)


@given(st.randoms(use_true_random=False), st.integers(0, 12), st.sampled_from(["", " ", "x" * 5000, "é"]))
def test_keywords_are_found_all_at_once_as_each_would_be_alone(random: random.Random, count: int, between: str) -> None:
    words = ["ghp_", "hp_g", "p_", "-p", "s.", "eyj", "pass", "password", "a.b", "пароль", "clé", "(", "[x]"]
    find = finder_of(map(re2.escape, words))
    text = between.join(random.choices([*words, "g", "pa", "plain"], k=count))
    assert find(text) == [place for place, word in enumerate(words) if word in text]
