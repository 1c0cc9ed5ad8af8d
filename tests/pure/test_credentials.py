"""Texts that look like a credential, and texts that only look like one."""

from __future__ import annotations

import base64
import hashlib
import random
import string
from typing import Any

import pytest
import re2
from hypothesis import given
from hypothesis import strategies as st

from bench.credentials import SHAPED_LINES, read_shapes, with_secrets
from remembrancer.memory.credentials import find_credential, refuse_credentials, texts_of
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
LETTERS = string.ascii_letters + string.digits


def some(length: int, alphabet: str = LETTERS) -> str:
    """A text of so many characters, the same at every run. No credential stands in this file."""
    return "".join(random.Random(length).choices(alphabet, k=length))


def jwt() -> str:
    parts = (b'{"alg":"HS256","typ":"JWT"}', b'{"sub":"1"}', some(32).encode())
    return ".".join(base64.urlsafe_b64encode(part).decode().rstrip("=") for part in parts)


CREDENTIALS = {
    "ssh key": f"-----BEGIN OPENSSH PRIVATE KEY-----\n{some(70)}\n-----END OPENSSH PRIVATE KEY-----",
    "rsa key": f"it is -----BEGIN RSA PRIVATE KEY-----\n{some(64)}",
    "aws": "the key is AKIA" + some(16, string.ascii_uppercase + string.digits),
    "github": "ghp_" + some(36),
    "github fine-grained": "github_pat_" + some(82),
    "gitlab": "glpat-" + some(20),
    "slack": "xoxb-" + some(12, string.digits) + "-" + some(12, string.digits) + "-" + some(24),
    "stripe": "sk_live_" + some(24),
    "openai": "sk-proj-" + some(28),
    "openai, older": "sk-" + some(48),
    "anthropic": "sk-ant-api03-" + some(28),
    "google": "AIza" + some(35),
    "hugging face": "hf_" + some(34),
    "npm": "npm_" + some(36),
    "pypi": "pypi-AgEIcHlwaS5vcmc" + some(80),
    "jwt": "Authorization: Bearer " + jwt(),
    "url": f"postgres://app:{some(14)}@db.internal/app",
    "key with a password": f"-----BEGIN ENCRYPTED PRIVATE KEY-----\n{some(64)}",
    "key of some kind": f"-----BEGIN A B C D E F PRIVATE KEY-----\n{some(64)}",
    "openai, shortest": "sk-" + some(32),
    "stripe, for tests": "sk_test_" + some(24),
    "stripe, restricted": "rk_test_" + some(24),
    "aws secret": "aws_secret_access_key = " + some(40, LETTERS + "/+"),
    "aws secret, quoted": 'AWS_SECRET_ACCESS_KEY="' + some(40, LETTERS + "/+") + '"',
    "aws secret, in json": '"SecretAccessKey": "' + some(40, LETTERS + "/+") + '"',
    "aws secret, in words": "the aws secret access key is " + some(40, LETTERS + "/+"),
    "aws secret, behind its name": "aws secret " + some(40, LETTERS + "/+"),
    "bearer": "Authorization: Bearer " + some(20),
    "bearer, in a command": "curl -H 'authorization: bearer " + some(43) + "' host",
    "basic": "Authorization: Basic " + base64.b64encode(b"app:" + some(9).encode()).decode(),
    "groq": "gsk_" + some(52),
    "vault": "hvs." + some(24),
    "api key": "api_key: " + some(20),
    "api key, together": "apikey=" + some(32),
    "secret, in json": '{"client_secret":"' + some(30) + '"}',
    "token, hexadecimal": "token := " + some(48, "0123456789abcdef"),
    "password of a few characters": "password for the staging database: hunter2-" + "Frosch!",
    "password, in German": "Das Kennwort lautet " + "Sommer%" + some(2, string.digits),
    "password, in Russian": "пароль от базы: " + some(6) + "7!",
    "netrc": "machine host login bob password " + some(9),
    "pgpass": "db.example.org:5432:app:bob:" + some(8) + "7",
    "short password of an environment": "DB_PASSWORD=" + some(8, string.ascii_lowercase),
    "command": "curl -u admin:" + some(10) + "9 https://host/x",
    "no width": "ghp_\u200b" + some(36),
    "pin": "the PIN for the door is " + some(4, string.digits),
    "password": "--password=" + some(22, LETTERS + "!#%&*"),
    "password of an environment": "DB_PASSWORD='" + some(24) + "'",
    "age": "AGE-SECRET-KEY-1" + some(58, string.ascii_uppercase + string.digits),
    "xai": "xai-" + some(80),
    "replicate": "r8_" + some(37),
    "pinecone": f"pcsk_{some(6)}_{some(63)}",
    "netlify": "nfp_" + some(36),
    "supabase": "sbp_" + some(40, "0123456789abcdef"),
    "circleci": f"CCIPAT_{some(22)}_{some(40, '0123456789abcdef')}",
    "figma": "figd_" + some(40),
    "langsmith": f"lsv2_pt_{some(32, '0123456789abcdef')}_{some(10, '0123456789abcdef')}",
    "a vendor that nobody knows yet": "quux_" + some(44),
    "neon": "napi_" + some(64, string.ascii_lowercase + string.digits),
    "google, to refresh": "1//0" + some(60),
    "mailgun": "key-" + some(32, "0123456789abcdef"),
    "fireworks": "fw_" + some(24),
    "plaid": "access-production-0b6f6c9e-6a0e-4a69-8d5c-3c1a1b2c3d4e",
    "launchdarkly": "sdk-0b6f6c9e-6a0e-4a69-8d5c-3c1a1b2c3d4e",
    "hubspot": "pat-eu1-0b6f6c9e-6a0e-4a69-8d5c-3c1a1b2c3d4e",
    "nuget": "oy2" + some(43, string.ascii_lowercase + string.digits),
    "dropbox": "sl.u." + some(140),
    "artifactory": "AKCp8" + some(68),
    "asana": f"1/1{some(15, string.digits)}:{some(32, '0123456789abcdef')}",
    "rapidapi": f"{some(10, '0123456789abcdef')}msh{some(15, '0123456789abcdef')}p1{'2a' * 3}jsn{'3b' * 6}",
    "swarm": f"SWMTKN-1-{some(49, string.ascii_lowercase + string.digits)}-{some(25, string.ascii_lowercase)}",
    "azure, of a bus": f"Endpoint=sb://x.example.net/;SharedAccessKeyName=k;SharedAccessKey={some(43)}=",
    "openvpn": f"-----BEGIN OpenVPN Static key V1-----\n{some(32, '0123456789abcdef')}",
    "jwt, encrypted": "eyJhbGciOiJFZERTQSJ9." + some(60) + "." + some(86),
    "erlang": "erlang.cookie = " + some(20, string.ascii_uppercase),
    "ansible": "ansible_become_pass: frosch-2217",
    "password, in a Russian sentence": "войти с паролем frosch2217",
    "passwords of several": "Passwords: staging frosch-2217, production kestrel-1999",
    "kubeconfig": "client-key-data: " + base64.b64encode(b"-----BEGIN RSA PRIVATE KEY-----" + b"x" * 60).decode(),
    "wireguard": f"[Interface]\nPrivateKey = {some(43)}=",
    "docker": '{"auths": {"ghcr.io": {"auth": "' + base64.b64encode(b"ana:" + some(20).encode()).decode() + '"}}}',
    "npm, older": "_auth = " + base64.b64encode(b"ana:" + some(12).encode()).decode(),
    "rails": "RAILS_MASTER_KEY=" + some(32, "0123456789abcdef"),
    "token, 64 hexadecimal": "CI_DEPLOY_TOKEN=" + some(64, "0123456789abcdef"),
    "value first": "use hunter2 as the password",
    "value first, quoted": "`frosch-22` is our wifi password",
    "value behind at once": "root mit Kennwort frosch2217",
    "value behind a change": "we set the root password to frosch2217 on Monday",
    "name and value": "the credentials are admin / frosch2217",
    "pin first": f"{some(4, string.digits)} is the PIN of the safe",
}


@pytest.mark.parametrize("text", CREDENTIALS.values(), ids=CREDENTIALS)
def test_a_credential_is_seen_wherever_it_stands(text: str) -> None:
    assert find_credential(text) is not None
    assert find_credential(f"Deploys use this.\n  {text}\nAsk Kim.") is not None


@pytest.mark.parametrize("template", read_shapes()["named"])
def test_a_secret_is_seen_in_a_sentence_a_command_or_a_setting(template: str) -> None:
    assert find_credential(with_secrets(template)) is not None


def test_lines_with_the_same_words_and_no_secret_are_not_taken_for_one() -> None:
    assert [line for line in SHAPED_LINES.read_text().splitlines() if find_credential(line)] == []


SPLIT = [
    {"content": "frosch-2217", "summary": "password of the staging database"},
    {"content": "root password", "summary": "It is frosch2217."},
    {"content": some(40, "0123456789abcdef") + "x", "tags.add": "API token of the registry"},
]


@pytest.mark.parametrize("fields", SPLIT)
def test_a_label_in_one_field_makes_a_credential_of_the_value_in_another(fields: dict[str, str]) -> None:
    assert not any(find_credential(text) for text in fields.values())
    with pytest.raises(InvalidInput, match="credential") as refused:
        refuse_credentials(TagMemory(MEMORY), list(fields.items()))
    assert refused.value.field in fields
    innocent = [("content", "frosch-2217 is a branch"), ("summary", "password of the staging database")]
    refuse_credentials(TagMemory(MEMORY), innocent)


def test_the_name_of_a_note_is_not_taken_for_the_password_that_its_text_speaks_of() -> None:
    note = WriteNote("/work", "memory/soak-3.md", "zipfile: Set default password for encrypted files.")
    refuse_credentials(note, list(texts_of(note)))


@pytest.mark.parametrize(
    "text",
    [
        *cases("credentials", "ordinary"),
        "id 0b6f6c9e-6a0e-4a69-8d5c-3c1a1b2c3d4e, sha256 " + "ab" * 32,
        "AKIAIOSFODNN7EXAMPLE is in the documentation, and pip wants --hash=sha256:" + "ab" * 32,
        f"pi_{some(32)} is a payment, sub_{some(32)} a subscription, api-access-production is a host",
    ],
)
def test_ordinary_text_is_not_taken_for_one(text: str) -> None:
    assert find_credential(text) is None


@pytest.mark.parametrize(
    "unit",
    [
        *("a.", "eyJ-", "eyJ", "a:", "http://", "http://a:", "-----BEGIN A ", "xoxb-1-", "1", "AC-"),
        *("token=", "token: ", "password", "secret_key", "api_key:        ", 'api_key="', "secret_access_key="),
        *(
            "Authorization: Bearer ",
            "authorization: basic a",
            "sk_test_a",
            "gsk_",
            "hvs.",
            " ",
            "\t",
            "a1-",
            "token=1a_",
        ),
        *("token:aaaaaaaaaaaaaaa1234_", "token=a.b.c.d.e.f.g.h.1(", "secret=12ab"),
    ],
)
def test_no_text_makes_the_search_go_back_again_and_again(unit: str) -> None:
    """A shape that did would keep this test busy until its time is over."""
    assert find_credential(unit * (262_144 // len(unit))) is None


@given(st.text(max_size=300))
def test_any_text_can_be_looked_at(text: str) -> None:
    find_credential(text)


@given(
    st.lists(st.sampled_from([*CREDENTIALS.values(), "token:", "the key", some(40), "=", "postgres://a:"]), max_size=5)
)
def test_texts_that_are_looked_at_together_are_judged_as_each_alone(texts: list[str]) -> None:
    alone = [text for text in texts if find_credential(text) is not None]
    together = [(str(place), text) for place, text in enumerate(texts)]
    if not alone:
        refuse_credentials(TagMemory(MEMORY), together)
        return
    with pytest.raises(InvalidInput) as refused:
        refuse_credentials(TagMemory(MEMORY), together)
    assert refused.value.field == str(texts.index(alone[0]))
    assert str(find_credential(alone[0])) in refused.value.message


@pytest.mark.parametrize("padding", [0, 20_000])
def test_the_refusal_names_the_sort_and_never_quotes_the_secret(padding: int) -> None:
    secret = CREDENTIALS["github"]
    change = UpdateMemory(MEMORY, content="word " * padding + secret)
    with pytest.raises(InvalidInput) as refused:
        refuse_credentials(change, list(texts_of(change)))
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
        refuse_credentials(change, list(texts_of(change)))
    assert refused.value.field == field
    assert refused.value.message.startswith(f"{field} seems to contain")
    assert (refused.value.remedy == "allow_secrets: true") == isinstance(change, StoreMemory | UpdateMemory)


@pytest.mark.parametrize(
    "change",
    [
        TagMemory(MEMORY, remove=(SECRET,)),
        UpdateMemory(MEMORY, remove_tags=(SECRET,), remove_entities=(SECRET,), metadata={SECRET: None}),
        UpdateMemory(MEMORY, metadata={"token": "see vault", "n": 1.5, "is": True}),
    ],
)
def test_what_takes_a_secret_away_is_not_refused(change: Change) -> None:
    refuse_credentials(change, list(texts_of(change)))


def test_the_id_of_a_run_is_no_password_of_the_users() -> None:
    for number in range(100):
        change = UndoRun(f"run:{hashlib.sha256(b'%d' % number).hexdigest()[:32]}", "user")
        refuse_credentials(change, list(texts_of(change)))


@given(st.randoms(use_true_random=False), st.integers(0, 12), st.sampled_from(["", " ", "x" * 5000, "é"]))
def test_keywords_are_found_all_at_once_as_each_would_be_alone(random: random.Random, count: int, between: str) -> None:
    words = ["ghp_", "hp_g", "p_", "-p", "s.", "eyj", "pass", "password", "a.b", "пароль", "clé", "(", "[x]"]
    find = finder_of(map(re2.escape, words))
    text = between.join(random.choices([*words, "g", "pa", "plain"], k=count))
    assert find(text) == [place for place, word in enumerate(words) if word in text]
