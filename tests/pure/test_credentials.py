"""What looks like a credential, and what only looks like text."""

from __future__ import annotations

import base64
import random
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remembrancer.actors.gateway.toolkit.credential_shapes import find_credential
from remembrancer.actors.gateway.toolkit.credentials import LONG, refuse_credentials
from remembrancer.protocol.errors import InvalidInput

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
    "openai": "sk-proj-" + some(60),
    "openai, older": "sk-" + some(48),
    "anthropic": "sk-ant-api03-" + some(90),
    "google": "AIza" + some(35),
    "hugging face": "hf_" + some(34),
    "npm": "npm_" + some(36),
    "pypi": "pypi-AgEIcHlwaS5vcmc" + some(80),
    "jwt": "Authorization: Bearer " + jwt(),
    "url": f"postgres://app:{some(14)}@db.internal/app",
    "age": "AGE-SECRET-KEY-1" + some(58, string.ascii_uppercase + string.digits),
}


@pytest.mark.parametrize("text", CREDENTIALS.values(), ids=CREDENTIALS)
def test_a_credential_is_seen_wherever_it_stands(text: str) -> None:
    assert find_credential(text) is not None
    assert find_credential(f"Deploys use this.\n  {text}\nAsk Kim.") is not None


@pytest.mark.parametrize(
    "text",
    [
        "Use ghp_ tokens only in CI; they live in the vault under ci/github.",
        "The private key is in ~/.ssh/id_ed25519, mode 0600.",
        "commit 3f2a9c1b7d0e4f5a6b7c8d9e0f1a2b3c4d5e6f70 broke it",
        "id 0b6f6c9e-6a0e-4a69-8d5c-3c1a1b2c3d4e, sha256 " + "ab" * 32,
        "The connection string is postgres://app:${DB_PASSWORD}@db/app",
        "redis://user:<password>@localhost:6379, or mysql://root:****@localhost, or http://u:password@h",
        "APCombinations and SKIPPED_TESTS are constants, sk-learn is a library, and hf_hub is a module",
        "memory:01JD3Q9V5W8Z2X4C6B8N0M1K2J",
        "Der Schlüssel liegt unter der Matte; 密钥在保险箱里; ключ в сейфе.",
    ],
)
def test_ordinary_text_is_not_taken_for_one(text: str) -> None:
    assert find_credential(text) is None


@pytest.mark.parametrize(
    "unit", ["a.", "eyJ-", "eyJ", "a:", "http://", "http://a:", "-----BEGIN A ", "xoxb-1-", "1", "AC-"]
)
def test_no_text_makes_the_search_go_back_again_and_again(unit: str) -> None:
    """A shape that did would keep this test busy until its time is over."""
    assert find_credential(unit * (262_144 // len(unit))) is None


@given(st.text(max_size=300))
def test_any_text_can_be_looked_at(text: str) -> None:
    find_credential(text)


@pytest.mark.anyio
@pytest.mark.parametrize("padding", [0, LONG])
async def test_the_refusal_names_the_sort_and_never_quotes_the_secret(padding: int) -> None:
    secret = CREDENTIALS["github"]
    with pytest.raises(InvalidInput) as refused:
        await refuse_credentials("word " * padding + secret, field="content", allowed=False)
    assert refused.value.field == "content"
    assert "GitHub token" in refused.value.message
    assert "allow_secrets" in refused.value.message
    assert secret not in refused.value.message
    await refuse_credentials(secret, field="content", allowed=True)
