"""Credentials in text: what looks like one, refused where somebody stores it, blotted out where nobody chose to.

The shapes are gitleaks' (`credential_rules.json`, made by `bench/credential_rules.py`) and some of our own, matched by
RE2 in linear time. A label and its value (`password: …`) are judged by the value, since prose has such words too.
"""

from __future__ import annotations

import base64
import binascii
import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import cache, cached_property
from importlib.resources import files
from typing import Any, Final, NamedTuple

import msgspec
import re2

from remembrancer.memory.text import finder_of
from remembrancer.protocol.errors import InvalidInput
from remembrancer.protocol.writes import Change, ImportMemory, RecordedFields, StoreMemory, UpdateMemory

NOT_LOOKED_AT: Final = frozenset(
    {
        *("memory_id", "session_id", "type", "kind", "scope", "target_scope"),
        *("remove", "remove_tags", "remove_entities", "add_links", "remove_links", "root", "mode", "ignore"),
    }
)
"""What is no text of the caller's, and what is taken away: a secret that was stored once must be removable."""
ARGUMENTS: Final = {"add_tags": "tags.add", "add_entities": "related_entities.add"}
"""Fields of a change that have another name among the arguments."""
MAY_BE_ALLOWED: Final = (StoreMemory, UpdateMemory)
"""Changes whose tool has the argument `allow_secrets`."""
LEAST_DIFFERENT: Final = 6
"""A long value with fewer different characters is a placeholder: a random one of 20 has more."""

_UNSEEN: Final = dict.fromkeys(map(ord, "\u00ad\u200b\u200c\u200d\u200e\u200f\u2060\u2061\u2062\u2063\u2064\ufeff"))
"""Characters of no width: a token with one of them in it is the same token to who copies it."""
_KEY_BLOCK: Final = "private key"
_END_OF_KEY: Final = re.compile(r"-----END [A-Z0-9 ]{1,140}-----")


class Credential(NamedTuple):
    """What seems to be one: its sort, and where in the text its secret part begins and ends."""

    sort: str
    start: int
    end: int


class Rule(msgspec.Struct, dict=True, eq=False):
    """A shape. `keywords`: it is looked for only where the text in lower case has one of them (none: always).

    The secret is the group `secret`, or else the first group that is there, or all. It has at least `entropy` bits a
    character, and matches none of `allowed`.
    """

    name: str
    regex: str
    keywords: tuple[str, ...] = ()
    entropy: float = 0.0
    allowed: tuple[str, ...] = ()

    @cached_property
    def pattern(self) -> Any:
        """Compiled when it is first needed: a text seldom has the keywords of more than a few."""
        return re2.compile(self.regex, _OPTIONS)

    @cached_property
    def exceptions(self) -> Any:
        """What is no find, as one pattern."""
        return re2.compile("|".join(f"(?:{each})" for each in self.allowed), _OPTIONS) if self.allowed else None

    def find(self, text: str) -> Iterator[Credential]:
        """What has its shape in a text without half characters."""
        for match in self.pattern.finditer(text):
            group = _secret_group(match)
            secret = match.group(group)
            if (
                not (self.entropy and _entropy(secret) < self.entropy)
                and not (self.exceptions and self.exceptions.search(secret))
                and not _PLACEHOLDER.fullmatch(secret)
                and not _EXAMPLE.search(secret)
                and not _not_secret().search(secret)
            ):
                yield Credential(self.name, *match.span(group))


class Label(NamedTuple):
    """A word for a secret with a `value` behind it, of which `is_secret` says whether it is one."""

    name: str
    keywords: tuple[str, ...]
    pattern: Any
    is_secret: Callable[[Any], bool]

    def find(self, text: str) -> Iterator[Credential]:
        """The secrets with such a label in a text without half characters."""
        for match in self.pattern.finditer(text):
            if self.is_secret(match):
                yield Credential(self.name, *match.span(match.re.groupindex["value"]))


class _Rules(msgspec.Struct):
    notice: str
    allowed: tuple[str, ...]
    rules: tuple[Rule, ...]


_OPTIONS: Final = re2.Options()
_OPTIONS.log_errors = False


@cache
def _known() -> _Rules:
    return msgspec.json.decode(files(__package__).joinpath("credential_rules.json").read_bytes(), type=_Rules)


@cache
def _not_secret() -> Any:
    """What is no secret, whatever rule finds it: references to variables, placeholders, paths."""
    return re2.compile("|".join(f"(?:{each})" for each in _known().allowed), _OPTIONS)


@cache
def _by_keyword() -> tuple[Callable[[str], list[int]], list[list[Rule | Label]], list[Rule | Label]]:
    """What finds the keywords of a text, what to look for at each of them, and what in every text."""
    found: dict[str, list[Rule | Label]] = {"": []}
    rules = {each.regex: each for each in (*_OWN, *_known().rules)}
    both: list[Rule | Label] = [*rules.values(), *_labelled()]
    for rule in both:
        for keyword in rule.keywords or ("",):
            found.setdefault(keyword, []).append(rule)
    always = found.pop("")
    return finder_of(map(re2.escape, found)), list(found.values()), always


_Q: Final = "[\"'`]?"
_ASSIGNED: Final = rf"{_Q}[ \t]{{0,8}}(?::=?|=>?)[ \t]{{0,8}}{_Q}"
"""What stands between a name and its value."""
_OWN: Final = tuple(
    Rule(name, regex, tuple(keywords.split()))
    for name, keywords, regex in (
        (
            "private key",
            "begin putty-user-key-file",
            r"-----BEGIN (?:[A-Z0-9]{1,20} ){0,6}PRIVATE KEY(?: BLOCK)?-----|PuTTY-User-Key-File-\d",
        ),
        ("age secret key", "age-secret-key-1", r"\bAGE-SECRET-KEY-1[A-Z0-9]{50,}"),
        ("password in a URL", "://", r"\b[a-z][a-z0-9+.-]{1,20}://[^\s:/@]{0,200}:(?P<secret>[^\s/@]{1,500})@"),
        ("JSON Web Token", "eyj", r"\beyJ[\w-]{8,300}\.eyJ[\w-]{2,900}[\w-]{0,900}[\w-]{0,900}\.[\w-]{20,}"),
        ("AWS access key", "abia acca akia asia a3t", r"\b(?:A3T[A-Z0-9]|ABIA|ACCA|AKIA|ASIA)[A-Z0-9]{16}\b"),
        (
            "AWS secret key",
            "accesskey access_key",
            rf"(?i:secret_?access_?key){_ASSIGNED}(?P<secret>[A-Za-z0-9+/]{{40}})(?:[^A-Za-z0-9+/=]|$)",
        ),
        ("Azure storage key", "accountkey=", r"\bAccountKey=(?P<secret>[A-Za-z0-9+/]{80,}={0,2})"),
        ("Azure shared access signature", "sig=", r"\bsig=(?P<secret>[A-Za-z0-9%/+]{40,}(?:%3[Dd]|=)?)"),
        ("GitHub token", "gh github_pat_", r"\bgh[pousr]_[A-Za-z0-9]{36}|\bgithub_pat_[A-Za-z0-9_]{50,}"),
        ("GitLab token", "gl", r"\bgl(?:pat|dt|rt|cbt|ptt|ft|imt|agent|oas|soat)-[\w-]{20,}"),
        ("Slack token", "xox xapp-", r"\bxox[abeposr]-(?:\d+-)+[A-Za-z0-9]{10,}|\bxapp-\d-[A-Z0-9]+-\d+-[a-f0-9]{32,}"),
        ("Slack webhook", "hooks.slack.com", r"\bhooks\.slack\.com/services/T\w{6,}/B\w{6,}/\w{20,}"),
        ("Discord webhook", "/api/webhooks/", r"\bdiscord(?:app)?\.com/api/webhooks/\d{15,}/[\w-]{40,}"),
        ("Discord token", "", r"\b[MNO][\w-]{23,25}\.[\w-]{6}\.[\w-]{27,}"),
        ("Telegram bot token", ":aa", r"\b\d{8,10}:AA[\w-]{33}"),
        ("Twilio key", "", r"\b(?:AC|SK)[0-9a-f]{32}\b"),
        ("SendGrid key", "sg.", r"\bSG\.[\w-]{22}\.[\w-]{43}"),
        ("Mailchimp key", "-us", r"\b[0-9a-f]{32}-us\d{1,2}\b"),
        ("Stripe key", "k_live_ k_test_", r"\b[rs]k_(?:live|test)_[A-Za-z0-9]{24,}"),
        ("webhook secret", "whsec_", r"\bwhsec_[A-Za-z0-9+/=]{20,}"),
        ("Square token", "sq0", r"\bsq0(?:csp|atp)-[\w-]{22,}"),
        ("Shopify token", "shp", r"\bshp(?:at|ca|pa|ss)_[a-fA-F0-9]{32}"),
        ("Anthropic API key", "sk-ant-", r"\bsk-ant-[a-z0-9]+-[\w-]{40,}"),
        ("OpenAI API key", "sk-", r"\bsk-(?:proj|svcacct|admin)-[\w-]{40,}|\bsk-[A-Za-z0-9]{32,}"),
        ("OpenRouter API key", "sk-or-", r"\bsk-or-v1-[0-9a-f]{40,}"),
        ("Groq API key", "gsk_", r"\bgsk_[A-Za-z0-9]{32,}"),
        ("Google API key", "aiza", r"\bAIza[\w-]{35}"),
        ("Google OAuth token", "ya29.", r"\bya29\.[\w-]{30,}"),
        ("Google OAuth client secret", "gocspx-", r"\bGOCSPX-[\w-]{20,}"),
        ("Hugging Face token", "hf_", r"\bhf_[A-Za-z0-9]{34,}"),
        (
            "npm token",
            "npm_ _authtoken",
            r"\bnpm_[A-Za-z0-9]{36}|\b_authToken[ \t]{0,8}=[ \t]{0,8}(?P<secret>[^\s$]{20,})",
        ),
        ("PyPI token", "pypi-", r"\bpypi-AgE[\w-]{50,}"),
        ("Docker Hub token", "dckr_", r"\bdckr_(?:pat|oat)_[\w-]{20,}"),
        ("Atlassian token", "atatt atctt atbb", r"\b(?:ATATT3|ATCTT3|ATBB)[\w=-]{24,}"),
        ("Grafana token", "glsa_ glc_", r"\bglsa_[A-Za-z0-9]{32}_[A-Fa-f0-9]{8}|\bglc_[A-Za-z0-9+/=]{32,}"),
        ("DigitalOcean token", "_v1_", r"\bdo[opr]_v1_[a-f0-9]{64}"),
        ("HashiCorp Vault token", "hv", r"\bhv[bsr]\.[\w-]{20,}"),
        ("Databricks token", "dapi", r"\bdapi[a-f0-9]{32}\b"),
        ("Tailscale key", "tskey-", r"\btskey-[a-z]+-[\w-]{20,}"),
        ("New Relic key", "nrak-", r"\bNRAK-[A-Z0-9]{27}"),
        ("Sentry token", "sntry", r"\bsntry[su]_[\w=+/-]{40,}"),
        (
            "password hash",
            "$2 $argon2 $6$ $5$ $y$ {ssha}",
            (
                r"\$2[abxy]?\$\d{2}\$[./A-Za-z0-9]{53}|\$argon2(?:id|i|d)\$v=\d+\$[^\s$]+\$[^\s$]+\$[A-Za-z0-9+/]{16,}"
                r"|\$[56y]\$[^\s$]{1,40}\$(?:[^\s$]{1,40}\$)?[./A-Za-z0-9]{40,}|\{SSHA\}[A-Za-z0-9+/=]{28,}"
            ),
        ),
        (
            "password of .netrc",
            "machine login",
            r"\b(?:machine\s+\S+|default)\s+login\s+\S+\s+password\s+(?P<secret>\S{3,})",
        ),
        (
            "password of a command",
            "-u --user",
            (
                r"\b(?:curl|wget|http)\b[^\n]{0,300}?\s(?:-u|--user)[ =]?[\"']?[^\s:\"'$<{]{1,100}:"
                r"(?P<secret>[^\s\"'$<{][^\s\"']{2,})"
            ),
        ),
        (
            "password of a command",
            "-p",
            r"\b(?:(?:mysql|mysqldump|mariadb)\b[^\n]{0,200}?\s-p|sshpass -p ?)[\"']?"
            r"(?P<secret>[^\s\"'$<{-][^\s\"']{3,})",
        ),
    )
)
_FOR: Final = (
    r"(?:for|of|to|on|at|in|für|von|zu|zum|zur|im|am|pour|de|du|des|sur|para|del|do|da|per|di|su|для|от|к|voor|van|op"
    r"|för|till|til|do|dla)"
)
_LABEL: Final = (
    r"pass[ _-]?(?:word|wd|phrase|code|wort)|passw|pwd|pw|kennwort|zugangscode|mot[ -]de[ -]passe|mdp|contraseña|clave"
    r"|senha|palavra-passe|parola|hasło|haslo|пароль|wachtwoord|lösenord|adgangskode|passord|salasana|şifre|parool"
    r"|密码|密碼|口令|パスワード|비밀번호|암호|كلمة المرور|סיסמה|jelszó|heslo"
)
_IS: Final = r"(?:[:=：]=?|=>|\bis(?: now)?:?|\bist(?: jetzt)?:?|\blautet:?|\best:?|\bes:?|é:?|è:?|は|是)"


def find_credential(text: str) -> str | None:
    """The sort of the first credential that a text seems to hold, None when it seems to hold none."""
    found = next(credentials_in(text), None)
    return None if found is None else found.sort


def credentials_in(text: str) -> Iterator[Credential]:
    """What seems to be a credential, by sort; one place may be of several sorts. Of a key block, its first line."""
    plain = text.translate(_UNSEEN) if not text.isascii() else text
    if len(plain) != len(text):
        places = [place for place, character in enumerate(text) if ord(character) not in _UNSEEN]
        for each in credentials_in(plain):
            yield Credential(each.sort, places[each.start], places[each.end - 1] + 1)
        return
    text = text if text.isascii() else text.encode("utf-8", "replace").decode()  # half characters: RE2 takes none
    keywords_in, by_keyword, always = _by_keyword()
    found = (each for place in keywords_in(text.lower()) for each in by_keyword[place])
    for rule in dict.fromkeys((*always, *found)):
        yield from rule.find(text)


def _secret_group(match: Any) -> int:
    named = match.re.groupindex.get("secret")
    if named is not None:
        return int(named) if match.group(named) else 0
    return next((number for number, each in enumerate(match.groups(), 1) if each), 0)


def _entropy(text: str) -> float:
    """Shannon's, in bits a character."""
    total = len(text)
    return -sum(count / total * math.log2(count / total) for count in Counter(text).values()) if total else 0.0


# --- labels with a value ---

_PLACEHOLDER: Final = re.compile(
    r"[*x.…•_-]+|\$\{?[\w.]+\}?|<[^>]*>|\{[^}]*\}|\[[^\]]*\]|%\w+%|@\w+@"
    r"|(?:your|my|the|some|new|old|current|test|dummy|fake)?[-_]?(?:password|passwd|pass|secret|token|pwd|key|value)\d?"
    r"|change[-_]?(?:me|it)|example|redacted|hidden|masked|todo|tbd|n/?a",
    re.IGNORECASE,
)
"""What stands in examples in place of a secret."""
_EXAMPLE: Final = re.compile(r"EXAMPLE|example(?:$|[-_])|(?i:your[-_](?:\w+[-_])*(?:key|token|secret|password))")
_PATH: Final = re.compile(r"[/~\\]|\.{1,2}[/\\]|[A-Za-z]:[/\\]")
"""How a path begins, not a value."""
_WORD_OF: Final = re.compile(r"[A-Za-z]+|\d+")
_READABLE: Final = re.compile(r"(?:\d{0,4}[A-Za-z]{0,15}\d{0,4}(?:[^A-Za-z0-9]|$))+")
"""What a person reads: words, each with a number before and behind it or none, and something between them."""
_TECHNICAL: Final = re.compile(
    r"(?:sha-?\d+|md5|argon2\w{0,2}|oauth-?\d?|base(?:32|64)|utf-?(?:8|16)|v?\d+(?:\.\w+)*|k8s|s3|ipv[46]|pbkdf2|h?mac"
    r"|aes-?\d*|rsa-?\d*|ed25519|x509|[2m]fa|t?otp|[hre]s\d{3}|bcrypt\d*|scrypt|str|string|bytes|int|bool|none|null"
    r"|true|false|optional|required|varchar|text)(?:[^A-Za-z0-9].*)?",
    re.IGNORECASE,
)
"""Names of methods and types, which stand where a value could."""
_CODE: Final = re.compile(r"!\w+$|[A-Za-z_][\w.]*\(|\w+(?:\.[A-Za-z_]\w*)+$|[\w.]+\[|.*(?:->|=>|&&|\|\|)")
_CAMEL_CASE: Final = re.compile(r"[A-Z]?\d{0,2}(?:[A-Z][a-z]{3,}){2,}\d{0,2}")
_UUID: Final = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_DIGEST: Final = re.compile(r"(?:sha\d+[:-])?(?:[0-9a-f]{7,12}|[0-9a-f]{40}|[0-9a-f]{64}|[0-9A-F]{40}|[0-9A-F]{64})")
"""A commit or a checksum."""
_NUMERIC: Final = re.compile(r"[\d.,:/+%TZ-]+")


def _is_reference(value: str) -> bool:
    """Whether a value says where or what a secret is, and is none: a placeholder, a path, code, an identifier."""
    return bool(
        value.startswith(("<", "{", "[", "(", "${", "$("))
        or _PLACEHOLDER.fullmatch(value)
        or _PATH.match(value)
        or "://" in value
        or _TECHNICAL.fullmatch(value)
        or _CODE.match(value)
        or _UUID.fullmatch(value)
        or _CAMEL_CASE.fullmatch(value)
        or _EXAMPLE.search(value)
    )


def _is_password(match: Any) -> bool:
    """Whether the value behind a word for a password is one: a word of a sentence is not."""
    value = match.group("value")
    bare = value.rstrip(".,:;!?)]}>")
    behind = match.string[match.end() : match.end() + 1]
    if len(set(bare)) < 3 or behind in tuple("([{<") or _is_reference(bare) or _NUMERIC.fullmatch(bare):
        return False
    words = _WORD_OF.findall(bare)
    if len([word for word in words if word.isalpha()]) >= 3 and re.fullmatch(
        r"[A-Za-z0-9]+(?:[-_. ][A-Za-z0-9]+)+", bare
    ):
        return False  # ask-kim-for-the-wifi-2024
    has_letter = any(each.isalpha() for each in bare)
    has_digit = any(each.isdigit() for each in bare)
    has_special = any(not each.isalnum() and each not in "-_.'’/" for each in value.rstrip(".,:;?)]}>"))
    return has_letter and (has_digit or has_special)


def _is_set_password(match: Any) -> bool:
    """The same for a variable that is set: there, letters alone are a value as well."""
    value = match.group("value")
    return _is_password(match) or (value.isalpha() and len(value) >= 6 and not _is_reference(value))


def _is_token(match: Any) -> bool:
    """Whether what is assigned to a secret, a token or a key is a value, and nothing that a person reads."""
    value = match.group("value").rstrip(".:!?,;")
    behind = match.string[match.end() : match.end() + 1]
    if behind in tuple("([{<") or _is_reference(value) or _DIGEST.fullmatch(value) or _NUMERIC.fullmatch(value):
        return False
    if len(set(value)) < LEAST_DIFFERENT or not any(each.isalpha() for each in value):
        return False
    has_digit = any(each.isdigit() for each in value)
    if len(value) >= 20:
        return has_digit and not _READABLE.fullmatch(value)
    is_mixed = any(each.isupper() for each in value) and any(each.islower() for each in value)
    has_special = any(each in "!@#$%^&*?+=" for each in value)
    return has_digit and (is_mixed or has_special) and not _READABLE.fullmatch(value)


def _authorizes(match: Any) -> bool:
    """Whether a header's value is a credential. Basic is `name:password` in Base64 (RFC 7617)."""
    value = match.group("value")
    if match.group("scheme").lower() != "basic":
        return len(value) >= 20 and _is_token(match)
    try:
        return b":" in base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        return False


def _is_pgpass(match: Any) -> bool:
    host = match.group("host")
    return (host == "*" or any(each.isalpha() for each in host)) and _is_password(match)


@cache
def _labelled() -> tuple[Label, ...]:
    value = r"(?P<value>[^\s\"'`,;|]{3,500})"
    words = tuple(each for each in re.split(r"\|", _LABEL) if each.isalpha())
    return (
        Label(
            "authorization header",
            ("authorization",),
            re2.compile(
                r"(?i:authorization)[\"']?[ \t]{0,8}[:=][ \t]{0,8}[\"']?(?P<scheme>(?i:bearer|basic|token))[ \t]{1,8}"
                r"(?P<value>[\w.~+/=-]{8,})",
                _OPTIONS,
            ),
            _authorizes,
        ),
        Label(
            "password",
            (*words, "pass", "mot", "palavra", "كلمة"),
            re2.compile(
                rf"(?im:(?:^|[^A-Za-z0-9])(?:{_LABEL}){_Q}(?: {_FOR} [^:=：\n]{{1,60}}?)?[ \t]{{0,8}}"
                rf"{_IS}[ \t]{{0,8}}{_Q}){value}",
                _OPTIONS,
            ),
            _is_password,
        ),
        Label(
            "password",
            ("pass", "pwd"),
            re2.compile(rf"\b(?:[A-Z][A-Z0-9]*_)*(?:PASSWORD|PASSWD|PASS|PWD)={_Q}{value}", _OPTIONS),
            _is_set_password,
        ),
        Label(
            "key, token or password",
            ("key", "secret", "token", "credential"),
            re2.compile(
                rf"(?i:api[_ -]?key|secret(?:[_ -]?key)?|token|access[_ -]?key|credentials?)"
                rf"(?: {_FOR} [^:=\n]{{1,60}}?)?{_ASSIGNED}"
                r"(?P<value>[\w.~+/=!@#$%^&*?:\\-]{8,500})",
                _OPTIONS,
            ),
            _is_token,
        ),
        Label(
            "PIN",
            ("pin", "geheimzahl"),
            re2.compile(
                rf"\b(?:PINs?|(?i:pin[ -]?code|geheimzahl))\b(?: {_FOR} [^:=\n]{{1,60}}?)?[ \t]{{0,4}}{_IS}[ \t]{{0,4}}"
                r"(?P<value>\d{4,8})\b",
                _OPTIONS,
            ),
            lambda match: True,
        ),
        Label(
            "password of .pgpass",
            (":",),
            re2.compile(
                r"(?m)^[ \t]*(?P<host>[\w.*-]+):(?:\d{2,5}|\*):[\w*-]+:[\w*-]+:(?P<value>[^\s:]{4,})$", _OPTIONS
            ),
            _is_pgpass,
        ),
    )


# --- what is done about them ---


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
    if isinstance(change, ImportMemory):
        for recorded in (change.memory, *(entry.record for entry in change.memory.history)):
            for name in RecordedFields.__struct_fields__:
                if name not in NOT_LOOKED_AT and (value := getattr(recorded, name)):
                    yield from _texts(value, name)
        return
    for name in change.__struct_fields__:
        if name not in NOT_LOOKED_AT and (value := getattr(change, name)):
            yield from _texts(value, ARGUMENTS.get(name, name))


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
                if each := getattr(value, name):
                    yield from _texts(each, f"{field}.{name}")
        case dict():
            for name, each in value.items():
                if isinstance(each, str):
                    yield field, f"{name}: {each}"
                elif each is not None:  # which takes the name away
                    yield field, name
                    yield from _texts(each, field)
