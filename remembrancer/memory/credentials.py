"""Credentials in text: what looks like one, refused where somebody stores it, blotted out where nobody chose to."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from remembrancer.protocol.errors import InvalidInput
from remembrancer.protocol.writes import Change, StoreMemory, UpdateMemory

_PLACEHOLDER: Final = re.compile(
    r"[*x.…]+|\$\{?\w+\}?|<[^>]*>|\{[^}]*\}|%\w+%|(your|my)?[-_]?(password|passwd|pass|secret|token)", re.IGNORECASE
)
"""What stands in examples in place of a password."""
LEAST_DIFFERENT: Final = 6
"""A value with fewer different characters is a placeholder too: a random one of 20 has more."""
_PATH: Final = re.compile(r"[/~\\]|\.{1,2}[/\\]|[A-Za-z]:[/\\]")
"""How a path begins, not a value."""
_WORDS: Final = re.compile(r"(?:\d{0,4}+[A-Za-z]{0,15}+\d{0,4}+(?:[^A-Za-z0-9]|$))++")
"""What a person reads: words, each with a number before and behind it or none, and something between them."""
_ASSIGNED: Final = r"""["'`]?[ \t]{0,8}(?::=?|=>?)[ \t]{0,8}["'`]?"""
"""What stands between a name and its value."""
_SHAPES: Final = {
    name: re.compile(pattern)
    for name, pattern in {
        "private key": r"-----BEGIN (?:[A-Z0-9]{1,20} ){0,6}PRIVATE KEY(?: BLOCK)?-----|PuTTY-User-Key-File-\d",
        "age secret key": r"\bAGE-SECRET-KEY-1[A-Z0-9]{50,}",
        "password in a URL": r"\b[a-z][a-z0-9+.-]{1,20}://[^\s:/@]{0,200}:(?P<secret>[^\s/@]{1,500})@",
        "JSON Web Token": r"\beyJ[\w-]{8,300}\.eyJ[\w-]{2,4000}\.[\w-]{20,}",
        "AWS access key": r"\b(?:A3T[A-Z0-9]|ABIA|ACCA|AKIA|ASIA)[A-Z0-9]{16}\b",
        "AWS secret key": rf"(?i:secret_?access_?key){_ASSIGNED}[A-Za-z0-9+/]{{40}}(?![A-Za-z0-9+/=])",
        "Azure storage key": r"\bAccountKey=[A-Za-z0-9+/]{80,}={0,2}",
        "GitHub token": r"\bgh[pousr]_[A-Za-z0-9]{36}|\bgithub_pat_[A-Za-z0-9_]{50,}",
        "GitLab token": r"\bgl(?:pat|dt|rt|cbt|ptt|ft|imt|agent|oas|soat)-[\w-]{20,}",
        "Slack token": r"\bxox[abeposr]-(?:\d+-)+[A-Za-z0-9]{10,}|\bxapp-\d-[A-Z0-9]+-\d+-[a-f0-9]{32,}",
        "Slack webhook": r"\bhooks\.slack\.com/services/T\w{6,}/B\w{6,}/\w{20,}",
        "Discord token": r"\b[MNO][\w-]{23,25}\.[\w-]{6}\.[\w-]{27,}",
        "Telegram bot token": r"\b\d{8,10}:AA[\w-]{33}",
        "Twilio key": r"\b(?:AC|SK)[0-9a-f]{32}\b",
        "SendGrid key": r"\bSG\.[\w-]{22}\.[\w-]{43}",
        "Mailchimp key": r"\b[0-9a-f]{32}-us\d{1,2}\b",
        "Stripe key": r"\b[rs]k_(?:live|test)_[A-Za-z0-9]{24,}",
        "Square token": r"\bsq0(?:csp|atp)-[\w-]{22,}",
        "Shopify token": r"\bshp(?:at|ca|pa|ss)_[a-fA-F0-9]{32}",
        "Anthropic API key": r"\bsk-ant-[a-z0-9]+-[\w-]{40,}",
        "OpenAI API key": r"\bsk-(?:proj|svcacct|admin)-[\w-]{40,}|\bsk-[A-Za-z0-9]{32,}",
        "Groq API key": r"\bgsk_[A-Za-z0-9]{32,}",
        "Google API key": r"\bAIza[\w-]{35}",
        "Google OAuth token": r"\bya29\.[\w-]{30,}",
        "Hugging Face token": r"\bhf_[A-Za-z0-9]{34,}",
        "npm token": r"\bnpm_[A-Za-z0-9]{36}|\b_authToken[ \t]{0,8}=[ \t]{0,8}(?P<secret>[^\s$]{20,})",
        "PyPI token": r"\bpypi-AgE[\w-]{50,}",
        "DigitalOcean token": r"\bdo[opr]_v1_[a-f0-9]{64}",
        "HashiCorp Vault token": r"\bhv[bsr]\.[\w-]{20,}",
        "Databricks token": r"\bdapi[a-f0-9]{32}\b",
    }.items()
}


_ASSIGNMENT: Final = re.compile(
    rf"""(?i:api[_-]?key|secret(?:[_-]?key)?|token|password|passwd){_ASSIGNED}(?P<value>[\w.~+/=!@#$%^&*?:\\-]{{20,}}+)"""
)
_HEADER: Final = re.compile(
    r"""(?i:authorization)["']?[ \t]{0,8}[:=][ \t]{0,8}["']?(?P<scheme>(?i:bearer|basic|token))[ \t]{1,8}"""
    r"(?P<value>[\w.~+/=-]{8,}+)"
)


class Credential(NamedTuple):
    """What seems to be one: its sort, and where in the text its secret part begins and ends."""

    sort: str
    start: int
    end: int


def find_credential(text: str) -> str | None:
    """The sort of the first credential that a text seems to hold, None when it seems to hold none."""
    found = next(credentials_in(text), None)
    return None if found is None else found.sort


def credentials_in(text: str) -> Iterator[Credential]:
    """What seems to be a credential, by sort; one place may be of several sorts. Of a key block, its first line."""
    for name, shape in _SHAPES.items():
        for found in shape.finditer(text):
            secret = found.groupdict().get("secret")
            if secret is None or not _PLACEHOLDER.fullmatch(secret):
                yield Credential(name, *found.span("secret" if secret is not None else 0))
    for name, shape, is_secret in _JUDGED:
        for found in filter(is_secret, shape.finditer(text)):
            yield Credential(name, *found.span("value"))


def _is_assigned(found: re.Match[str]) -> bool:
    """Whether what is assigned is a value: not code that goes on with a bracket, and nothing that a person reads."""
    return found.string[found.end() : found.end() + 1] not in tuple("([{<") and _looks_random(found["value"])


def _authorizes(found: re.Match[str]) -> bool:
    """Whether a header's value is one. Basic is `name:password` in Base64 (RFC 7617)."""
    value = found["value"]
    if found["scheme"].lower() != "basic":
        return len(value) >= 20 and _looks_random(value)
    try:
        return b":" in base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        return False


def _looks_random(value: str) -> bool:
    value = value.rstrip(".:!?")
    return (
        len(value) >= 20
        and any(character.isdigit() for character in value)
        and any(character.isalpha() for character in value)
        and "://" not in value
        and len(set(value)) >= LEAST_DIFFERENT
        and not _PLACEHOLDER.fullmatch(value)
        and not _PATH.match(value)
        and not _WORDS.fullmatch(value)
    )


_JUDGED: Final[tuple[tuple[str, re.Pattern[str], Callable[[re.Match[str]], bool]], ...]] = (
    ("authorization header", _HEADER, _authorizes),
    ("key, token or password", _ASSIGNMENT, _is_assigned),
)
"""Shapes whose finds are looked at again."""


_KEY_BLOCK: Final = "private key"
_END_OF_KEY: Final = re.compile(r"-----END [A-Z0-9 ]{1,140}-----")


def masked(text: str) -> str:
    """The text with every credential in it replaced by its sort. A key block goes to its end, or to the text's."""
    spans = []
    for found in credentials_in(text):
        end = found.end
        if found.sort == _KEY_BLOCK:
            last = _END_OF_KEY.search(text, end)
            end = last.end() if last else len(text)
        spans.append((found.start, end, found.sort))
    pieces, done = [], 0
    for start, end, sort in sorted(spans):
        if start >= done:
            pieces += [text[done:start], f"[{sort} hidden]"]
        done = max(done, end)
    return "".join([*pieces, text[done:]])


def masked_value(value: Any) -> Any:
    """The same for every text in a value. A member's name stands before its text, since it may say what that is."""
    match value:
        case str():
            return masked(value)
        case list():
            return [masked_value(each) for each in value]
        case dict():
            return {name: _masked_member(name, each) for name, each in value.items()}
        case _:
            return value


def _masked_member(name: str, value: Any) -> Any:
    if not isinstance(value, str):
        return masked_value(value)
    head = f"{name}: "
    whole = masked(head + value)
    return whole.removeprefix(head) if whole.startswith(head) else masked(value)


NOT_LOOKED_AT: Final = frozenset(
    {
        *("memory_id", "session_id", "type", "kind", "scope", "target_scope"),
        *("remove", "remove_tags", "remove_entities", "add_links", "remove_links"),
    }
)
"""What is no text of the caller's, and what is taken away: a secret that was stored once must be removable."""
ARGUMENTS: Final = {"add_tags": "tags.add", "add_entities": "related_entities.add"}
"""Fields of a change that have another name among the arguments."""
MAY_BE_ALLOWED: Final = (StoreMemory, UpdateMemory)
"""Changes whose tool has the argument `allow_secrets`."""


def refuse_credentials(change: Change, texts: Sequence[tuple[str, str]]) -> None:
    """Refuse a change whose texts (`texts_of`) seem to hold a credential. All are looked at together first.

    Raises:
        InvalidInput: one does; the message says where and of what sort, and what to do.
    """
    if find_credential("\n".join(text for _, text in texts)) is None:
        return
    advice = ", or pass allow_secrets: true if it is none or must be kept" if isinstance(change, MAY_BE_ALLOWED) else ""
    for field, text in texts:
        sort = find_credential(text)
        if sort is not None:
            raise InvalidInput(
                f"{field} looks like it holds a credential ({sort}), which everybody who recalls it would see: store "
                f"where the secret is kept instead of the secret{advice}",
                field=field,
            )


def texts_of(change: Change) -> Iterator[tuple[str, str]]:
    """Every text of a change that is kept, with the field that it belongs to."""
    for name in change.__struct_fields__:
        if name not in NOT_LOOKED_AT:
            yield from _texts(getattr(change, name), ARGUMENTS.get(name, name))


def _texts(value: Any, field: str) -> Iterator[tuple[str, str]]:
    """The texts in a value. In metadata a name stands before its text, since it may say what the text is."""
    match value:
        case str():
            yield field, value
        case tuple() | list():
            for each in value:
                yield from _texts(each, field)
        case msgspec.Struct():
            for name in value.__struct_fields__:
                yield from _texts(getattr(value, name), f"{field}.{name}")
        case dict():
            for name, each in value.items():
                if isinstance(each, str):
                    yield field, f"{name}: {each}"
                elif each is not None:  # which takes the name away
                    yield field, name
                    yield from _texts(each, field)
