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
from remembrancer.protocol.writes import Change, ImportMemory, RecordedFields, StoreMemory, TextEdit, UpdateMemory

NOT_LOOKED_AT: Final = frozenset(
    {
        *("memory_id", "session_id", "run_id", "place", "type", "kind", "scope", "target_scope"),
        *("remove", "remove_tags", "remove_entities", "add_links", "remove_links", "root", "mode", "ignore", "places"),
    }
)
"""The arguments that are no text of the caller's, or text to be taken away: a secret that was stored once must be
removable."""
ARGUMENTS: Final = {"add_tags": "tags.add", "add_entities": "related_entities.add"}
"""Fields of a change that have another name among the arguments."""
MAY_BE_ALLOWED: Final[dict[type, str]] = {
    **dict.fromkeys((StoreMemory, UpdateMemory), "pass allow_secrets: true"),
    ImportMemory: "say --allow-secrets",
}
"""Changes whose tool or command stores a credential on request, with the words for how to ask."""
LEAST_DIFFERENT: Final = 6
"""A long value with fewer different characters is a placeholder: a random one of 20 has more."""

_UNSEEN: Final = dict.fromkeys(map(ord, "\u00ad\u200b\u200c\u200d\u200e\u200f\u2060\u2061\u2062\u2063\u2064\ufeff"))
"""Characters of no width: a token with one of them in it is the same token to who copies it."""
_KEY_BLOCK: Final = "private key"
_END_OF_KEY: Final = re.compile(r"-----END [A-Za-z0-9 ]{1,140}-----")


class Credential(NamedTuple):
    """A text that seems to be a credential: its sort, and where in the text its secret part begins and ends."""

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
        """The exceptions of a rule, as one pattern."""
        return re2.compile("|".join(f"(?:{each})" for each in self.allowed), _OPTIONS) if self.allowed else None

    def find(self, text: str) -> Iterator[Credential]:
        """The finds of this rule in a text without half characters."""
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


_decode_rules: Final = msgspec.json.Decoder(_Rules).decode
_OPTIONS: Final = re2.Options()
_OPTIONS.log_errors = False


@cache
def _known() -> _Rules:
    return _decode_rules(files(__package__).joinpath("credential_rules.json").read_bytes())


@cache
def _not_secret() -> Any:
    """A pattern of what is no secret, whatever rule finds it: references to variables, placeholders, paths."""
    return re2.compile("|".join(f"(?:{each})" for each in _known().allowed), _OPTIONS)


@cache
def _by_keyword() -> tuple[
    Callable[[str], list[int]], list[list[Rule | Label | Sentence]], list[Rule | Label | Sentence]
]:
    """A function that finds the keywords of a text, the rules for each of them, and the rules for every text."""
    found: dict[str, list[Rule | Label | Sentence]] = {"": []}
    rules = {each.regex: each for each in (*_OWN, *_known().rules)}
    both: list[Rule | Label | Sentence] = [*rules.values(), *_labelled()]
    for rule in both:
        for keyword in rule.keywords or ("",):
            found.setdefault(keyword, []).append(rule)
    always = found.pop("")
    return finder_of(map(re2.escape, found)), list(found.values()), always


_UUID_OF: Final = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_Q: Final = "[\"'`]?"
_ASSIGNED: Final = rf"{_Q}[ \t]{{0,8}}(?::=?|=>?)[ \t]{{0,8}}{_Q}"
"""The text between a name and its value."""
_OWN: Final = tuple(
    Rule(name, regex, tuple(keywords.split()))
    for name, keywords, regex in (
        (
            "private key",
            "begin putty-user-key-file",
            r"-----BEGIN (?:(?:[A-Z0-9]{1,20} ){0,6}PRIVATE KEY(?: BLOCK)?|OpenVPN Static key V1)-----"
            r"|PuTTY-User-Key-File-\d",
        ),
        ("age secret key", "age-secret-key-1", r"\bAGE-SECRET-KEY-1[A-Z0-9]{50,}"),
        ("password in a URL", "://", r"\b[a-z][a-z0-9+.-]{1,20}://[^\s:/@]{0,200}:(?P<secret>[^\s/@]{1,500})@"),
        ("JSON Web Token", "eyj", r"\beyJ[\w-]{8,300}\.[\w-]{2,900}[\w-]{0,900}[\w-]{0,900}\.[\w-]{20,}"),
        ("AWS access key", "abia acca akia asia a3t", r"\b(?:A3T[A-Z0-9]|ABIA|ACCA|AKIA|ASIA)[A-Z0-9]{16}\b"),
        (
            "AWS secret key",
            "accesskey access_key aws",
            rf"(?i:secret_?access_?key{_ASSIGNED}"
            rf"|\baws[ _-]secret(?:[ _-]access)?(?:[ _-]key)?(?:{_ASSIGNED}|[ \t](?:is[ \t])?))"
            r"(?P<secret>[A-Za-z0-9+/]{40})(?:[^A-Za-z0-9+/=]|$)",
        ),
        (
            "Azure key",
            "accountkey= sharedaccesskey=",
            r"\b(?:AccountKey=(?P<secret>[A-Za-z0-9+/]{80,}={0,2})|SharedAccessKey=[A-Za-z0-9+/]{40,}=)",
        ),
        ("Azure shared access signature", "sig=", r"\bsig=(?P<secret>[A-Za-z0-9%/+]{40,}(?:%3[Dd]|=)?)"),
        ("GitHub token", "gh github_pat_", r"\bgh[pousr]_[A-Za-z0-9]{36}|\bgithub_pat_[A-Za-z0-9_]{50,}"),
        ("GitLab token", "gl", r"\bgl(?:pat|dt|rt|cbt|ptt|ft|ffct|imt|agent|oas|soat|wt)-[\w-]{20,}"),
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
        ("xAI API key", "xai-", r"\bxai-[A-Za-z0-9]{60,}"),
        ("Replicate token", "r8_", r"\br8_[A-Za-z0-9]{30,}"),
        ("Pinecone API key", "pcsk_", r"\bpcsk_\w{40,}"),
        ("Netlify token", "nfp_ nfc_ nfo_ nfu_ nfb_", r"\bnf[pcoub]_[A-Za-z0-9]{30,}"),
        ("Supabase token", "sbp_ sb_secret_", r"\bsbp_(?:oauth_|v0_)?[0-9a-f]{40}|\bsb_secret_[\w-]{20,}"),
        ("CircleCI token", "ccipat_ ccipra_", r"\bCCIP(?:AT|RA)_[A-Za-z0-9]{16,}_[0-9a-f]{40}"),
        ("Figma token", "figd_ figo", r"\bfig(?:d|o[hru])_[\w-]{30,}"),
        ("LangSmith key", "lsv2_", r"\blsv2_(?:pt|sk)_[0-9a-f]{32}_[0-9a-f]{10}"),
        ("Resend API key", "re_", r"\bre_[A-Za-z0-9]{8}_[A-Za-z0-9]{20,}"),
        ("Airtable token", "pat", r"\bpat[A-Za-z0-9]{14}\.[0-9a-f]{64}"),
        ("Doppler token", "dp.", r"\bdp\.(?:st|sa|ct|pt|scim|audit)\.(?:[\w-]{2,35}\.)?[A-Za-z0-9]{40,}"),
        ("Okta token", "ssws", r"(?i:\bSSWS) (?P<secret>00[\w-]{38,})"),
        ("Braintree token", "access_token$", r"\baccess_token\$(?:production|sandbox)\$[0-9a-z]{16}\$[0-9a-f]{32}"),
        ("Adafruit key", "aio_", r"\baio_[A-Za-z0-9]{28}"),
        ("Tencent Cloud key", "akid", r"\bAKID[A-Za-z0-9]{32}"),
        ("Typeform token", "tfp_", r"\btfp_[\w-]{40,}"),
        ("Elastic key", "essu_", r"\bessu_[A-Za-z0-9+/=]{40,}"),
        ("Mapbox token", "sk.eyj", r"\bsk\.eyJ[\w-]{20,}\.[\w-]{20,}"),
        ("crates.io token", "cio", r"\bcio[A-Za-z0-9]{32}"),
        ("ElevenLabs API key", "sk_", r"\bsk_[0-9a-f]{48}"),
        ("Firecrawl API key", "fc-", r"\bfc-[0-9a-f]{32}"),
        ("Voyage API key", "pa-", r"\bpa-[A-Za-z0-9_-]{40,46}"),
        ("NVIDIA API key", "nvapi-", r"\bnvapi-[\w-]{60,}"),
        ("WakaTime key", "waka_", rf"\bwaka_{_UUID_OF}"),
        ("Flutterwave key", "flwseck", r"\bFLWSECK(?:_TEST)?-[0-9a-zA-Z]{12,}"),
        ("Google refresh token", "1//0", r"\b1//0[\w-]{40,}"),
        ("AWS Bedrock key", "absk", r"\bABSK[A-Za-z0-9+/]{100,}={0,2}"),
        ("Mailgun key", "key-", r"(?:^|[^\w-])(?P<secret>key-[0-9a-f]{32})\b"),
        ("Brevo key", "sib-", r"\bx(?:key|smtp)sib-[0-9a-f]{64}-\w{16}"),
        ("Dropbox token", "sl.", r"\bsl\.(?:u\.)?[\w-]{120,}"),
        ("JFrog key", "akc cmvmdgtu", r"\bAKC[a-z]\w{65,70}|\bcmVmdGtu[A-Za-z0-9]{56}"),
        ("Plaid token", "access-", rf"\baccess-(?:sandbox|development|production)-{_UUID_OF}"),
        ("Yandex Cloud key", "aqvn", r"\bAQVN[\w-]{35,38}"),
        ("LaunchDarkly key", "sdk-", rf"\bsdk-{_UUID_OF}"),
        ("Langfuse key", "sk-lf-", rf"\bsk-lf-{_UUID_OF}"),
        ("HubSpot token", "pat-", rf"\bpat-(?:na|eu|ap)\d-{_UUID_OF}"),
        ("NuGet key", "oy2", r"\boy2[a-z0-9]{43}\b"),
        ("Packagist token", "packagist_", r"\bpackagist_[a-z]{3}_[0-9a-f]{60,}"),
        ("Fireworks API key", "fw_", r"\bfw_[A-Za-z0-9]{22,24}\b"),
        ("RunPod API key", "rpa_", r"\brpa_[A-Za-z0-9]{40,}"),
        ("Apify token", "apify_api_", r"\bapify_api_[A-Za-z0-9]{30,}"),
        ("Tavily API key", "tvly-", r"\btvly-(?:dev-|prod-)?[\w-]{30,}"),
        (
            "Vercel token",
            "vercel_blob_rw_ vca_ vcc_ vci_ vcp_ vcr_ vck_",
            r"\bvercel_blob_rw_[A-Za-z0-9]{10,}_[A-Za-z0-9]{20,}|\bvc[aciprk]_[A-Za-z0-9]{24,}",
        ),
        ("Trello token", "atta", r"\bATTA[0-9a-f]{64}"),
        ("ClickUp token", "pk_", r"\bpk_\d{5,}_[A-Z0-9]{32}\b"),
        ("Asana token", "1/1 2/1", r"\b[12]/1\d{9,}(?:/\d{10,})?:[0-9a-f]{32}\b"),
        ("WooCommerce key", "cs_ ck_", r"\bc[sk]_[0-9a-f]{40}\b"),
        ("Paddle key", "pdl_", r"\bpdl_(?:live|sdbx)_apikey_\w{40,}"),
        ("RapidAPI key", "msh", r"\b[0-9a-f]{10}msh[0-9a-f]{15}p1[0-9a-f]{6}jsn[0-9a-f]{12}\b"),
        ("SonarQube token", "sqa_ sqp_ squ_", r"\bsq[apu]_[0-9a-f]{40}\b"),
        ("Axiom token", "xaat- xapt-", rf"\bxa[ap]t-{_UUID_OF}"),
        ("New Relic licence key", "nral", r"\b[0-9a-f]{36}NRAL\b"),
        ("Dynatrace token", "dt0", r"\bdt0[cs]\d{2}\.[A-Z0-9]{24}\.[A-Z0-9]{64}"),
        ("ngrok token", "ngrok", r"(?i:ngrok)[^\n]{0,60}?\b(?P<secret>[1-9][A-Za-z0-9]{26}_[A-Za-z0-9]{18,24})\b"),
        ("token of a Docker swarm", "swm", r"\bSWM(?:TKN|KEY)-1-[0-9A-Za-z+/]{40,}(?:-[0-9a-z]{20,})?"),
        ("Aiven password", "avns_", r"\bAVNS_[\w-]{15,}"),
        ("MongoDB Atlas secret", "mdb_sa_sk_", r"\bmdb_sa_sk_[\w-]{30,}"),
        ("key of a wallet", "xprv yprv zprv", r"\b[xyz]prv[1-9A-HJ-NP-Za-km-z]{100,}"),
        ("Nostr key", "nsec1", r"\bnsec1[02-9ac-hj-np-z]{58}\b"),
        (
            "cookie of Erlang",
            "cookie",
            r"(?i:erlang[ ._]?cookie)[\"']?[ \t]{0,8}[:=]?[ \t]{1,8}[\"']?(?P<secret>[A-Z]{20})\b",
        ),
        (
            "key of WireGuard",
            "privatekey presharedkey",
            r"(?i:(?:private|preshared)key)[ \t]{0,8}=[ \t]{0,8}(?P<secret>[A-Za-z0-9+/]{43}=)",
        ),
        (
            "key of kubeconfig",
            "client-key-data",
            r"client-key-data[\"']?:[ \t]{0,8}[\"']?(?P<secret>[A-Za-z0-9+/]{40,})",
        ),
        ("unseal key", "unseal key", r"(?i:unseal key)(?: \d)?: (?P<secret>[A-Za-z0-9+/]{40,}=?)"),
        ("key of one-time passwords", "otpauth://", r"otpauth://[^\s]{1,200}[?&]secret=(?P<secret>[A-Za-z2-7]{16,})"),
        (
            "recovery phrase",
            "phrase mnemonic",
            r"(?i:(?:seed|recovery|mnemonic)[ -](?:phrase|words)|mnemonic)[\"']?[ \t]{0,4}(?:[:=]|is)[ \t]{0,4}[\"']?"
            r"(?P<secret>(?:[a-z]{3,8}[ ,]{1,2}){11,23}[a-z]{3,8})",
        ),
        (
            "password hash",
            "$2 $argon2 $6$ $5$ $y$ $apr1$ {ssha}",
            (
                r"\$2[abxy]?\$\d{2}\$[./A-Za-z0-9]{53}|\$argon2(?:id|i|d)\$v=\d+\$[^\s$]+\$[^\s$]+\$[A-Za-z0-9+/]{16,}"
                r"|\$apr1\$[./A-Za-z0-9]{1,8}\$[./A-Za-z0-9]{22}|\$[56y]\$[^\s$]{1,40}\$(?:[^\s$]{1,40}\$)?[./A-Za-z0-9]{40,}|\{SSHA\}[A-Za-z0-9+/=]{28,}"
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
    r"pass[ _-]?(?:word|wd|phrase|code|wort)|[a-z]{2,20}_pass|passw|pwd|pw|kennwort|zugangscode"
    r"|mot[ -]de[ -]passe|mdp|contraseña|clave"
    r"|senha|palavra-passe|parola|hasło|hasłem|haslo|пароль|паролем|пароля|wachtwoord"
    r"|lösenord|adgangskode|passord|salasana|salasanalla"
    r"|şifre|parool|parooliga"
    r"|密码|密碼|口令|パスワード|비밀번호|암호|كلمة المرور|סיסמה|jelszó|jelszava|heslo|heslem"
)
_IS: Final = r"(?:[:=：]=?|=>|\bis(?: now)?:?|\bist(?: jetzt)?:?|\blautet:?|\best:?|\bes:?|é:?|è:?|は|是)"


def find_credential(text: str) -> str | None:
    """The sort of the first credential that a text seems to hold, None when it seems to hold none."""
    found = next(credentials_in(text), None)
    return None if found is None else found.sort


def credentials_in(text: str) -> Iterator[Credential]:
    """The credentials that a text seems to have, by sort; one place may be of several sorts. Of a key block, its first
    line."""
    plain = text.translate(_UNSEEN) if not text.isascii() else text
    if len(plain) != len(text):
        places = [place for place, character in enumerate(text) if ord(character) not in _UNSEEN]
        for each in credentials_in(plain):
            yield Credential(each.sort, places[each.start], places[each.end - 1] + 1)
        return
    text = text if text.isascii() else text.encode("utf-8", "replace").decode()  # half characters: RE2 takes none
    keywords_in, by_keyword, always = _by_keyword()
    found = (each for place in keywords_in(text.lower()) for each in by_keyword[place])
    for rule in dict.fromkeys((*found, *always)):
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
"""The text in examples in place of a secret."""
_EXAMPLE: Final = re.compile(r"EXAMPLE|example(?:$|[-_])|(?i:your[-_](?:\w+[-_])*(?:key|token|secret|password))")
_PATH: Final = re.compile(r"[/~\\]|\.{1,2}[/\\]|[A-Za-z]:[/\\]")
"""The beginning of a path, which is not a value."""
_WORD_OF: Final = re.compile(r"[A-Za-z]+|\d+")
_READABLE: Final = re.compile(r"(?:\d{0,4}[A-Za-z]{0,15}\d{0,4}(?:[^A-Za-z0-9]|$))+")
"""Text that a person reads: words, each with a number before and behind it or none, and something between them."""
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
_ENDS: Final = ".,:;!?)]}>。、，：；！？」』）"
"""The marks that close a sentence or a bracket behind a value."""


def _is_reference(value: str) -> bool:
    """True if a value says where or what a secret is, and is none: a placeholder, a path, code, an identifier."""
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
    """True if the value behind a word for a password is one: a word of a sentence is not."""
    value = match.group("value")
    bare = value.rstrip(_ENDS)
    behind = match.string[match.end() : match.end() + 1]
    if len(set(bare)) < 3 or behind in tuple("([{<") or _is_reference(bare) or _NUMERIC.fullmatch(bare):
        return False
    return _looks_chosen(value)


def _looks_chosen(value: str) -> bool:
    """True if somebody chose it for a password: it is no word, and no words with something between them."""
    bare = value.rstrip(_ENDS)
    words = _WORD_OF.findall(bare)
    if len([word for word in words if word.isalpha()]) >= 3 and re.fullmatch(
        r"[A-Za-z0-9]+(?:[-_. ][A-Za-z0-9]+)+", bare
    ):
        return False  # ask-kim-for-the-wifi-2024
    has_letter = any(each.isalpha() for each in bare)
    has_digit = any(each.isdigit() for each in bare)
    has_special = any(not each.isalnum() and each not in "-_.'’/" for each in value.rstrip(_ENDS.replace("!", "")))
    return has_letter and (has_digit or has_special)


def _is_set_password(match: Any) -> bool:
    """The same for a variable that is set: there, letters alone are a value as well."""
    value = match.group("value")
    return _is_password(match) or (value.isalpha() and len(value) >= 6 and not _is_reference(value))


def _is_password_of_a_file(match: Any) -> bool:
    """The same for one of an element, an attribute, an option or a URL, where something else may follow at once."""
    value = match.group("value").partition("&")[0]
    has_digit = any(map(str.isdigit, value))
    return has_digit and len(value) >= 5 and any(map(str.isalpha, value)) and not _is_reference(value)


def _is_token(match: Any) -> bool:
    """True if what is assigned to a secret, a token or a key is a value, and nothing that a person reads."""
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
    """True if a header's value is a credential. Basic is `name:password` in Base64 (RFC 7617)."""
    value = match.group("value")
    if match.group("scheme").lower() != "basic":
        return len(value) >= 20 and _is_token(match)
    try:
        return b":" in base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        return False


_WORDS_OF_IDS: Final = re.compile(
    r"(?i)(?:^|[_-])(?:sha\d*|md5|git|commit|rev|digest|etag|layer|image|build|cache|pk|price|cus|sub|evt|pi|seti|req|msg|trace|span"
    r"|checksum|hash|public|pub|phc)[_-]"
)
"""The words before an identifier that everybody may know."""


def _is_vendor_token(match: Any) -> bool:
    """True if what stands behind a vendor's sign is random, and as long as identifiers are not."""
    value, sign = match.group("value"), match.group("sign")
    if _WORDS_OF_IDS.search(sign) or len(value) < 32 or sum(map(str.isdigit, value)) < 2 or _entropy(value) < 3.0:
        return False
    if any(map(str.isupper, value)) and any(map(str.islower, value)):
        return not _READABLE.fullmatch(value) and not _CAMEL_CASE.fullmatch(value)
    is_hex = all(each in "0123456789abcdefABCDEF" for each in value)
    return len(value) >= 40 and (not is_hex or sign.endswith("_"))


_PUBLIC_NAME: Final = re.compile(r"PUBLIC|PUB_|CACHE|PARTITION|SORT_|PRIMARY|FOREIGN|DEDUP|IDEMPOTEN|KEY_ID|CHECKSUM")
"""A name whose value is no secret, although it is called a key."""


def _is_set_key(match: Any) -> bool:
    """True if what is assigned to a name such as `RAILS_MASTER_KEY` is a key: there, a digest is one as well."""
    value = match.group("value").rstrip("=")
    if _PUBLIC_NAME.search(match.group("name")) or len(set(value)) < LEAST_DIFFERENT:
        return False
    return any(map(str.isdigit, value)) and any(map(str.isalpha, value)) and not _READABLE.fullmatch(value)


def _is_login_in_base64(match: Any) -> bool:
    """True if a value is `name:password` in Base64."""
    value = match.group("value").rstrip("=")
    try:
        text = base64.b64decode(value + "=" * (-len(value) % 4), validate=True).decode("ascii")
    except (binascii.Error, ValueError):
        return False
    return ":" in text and text.isprintable()


def _is_key_in_base64(match: Any) -> bool:
    """True if a PEM file in Base64 is that of a private key."""
    value = match.group("value")[:64]
    return b"PRIVATE" in base64.b64decode(value[: len(value) // 4 * 4])


_OF_PASSWORDS: Final = re.compile(
    r"[ -]?(?:hash|stor(?:e|age)|manag|polic|field|form|reset|protect|librar|function|algorithm|generat|rules?\b|file"
    r"|prompt|page|auth|login|vault|check|length|encod|scheme|format|input|dialog|manager)",
    re.IGNORECASE,
)
"""The words behind one for a password where something else is meant."""
_VERSION: Final = re.compile(r"(?i)v?\d[\w.+-]*|[a-z]+[-_ ]?v?\d+\.[\d.]+\w*")


def _is_said_password(value: str) -> bool:
    """True if a value that a sentence gives for a password is one: no word, no version, no name of a method."""
    letters, digits = sum(map(str.isalpha, value)), sum(map(str.isdigit, value))
    if len(value) < 6 or letters < 3 or not digits or _VERSION.fullmatch(value) or value[0] in "-/.~$<{[":
        return False
    return not _is_reference(value) and not re.search(r"\.\w{1,5}$|[/\\]|'s$", value) and _looks_chosen(value)


_BEFORE: Final = re.compile(
    r"(?P<value>[^\s\"'`,;|]{5,100})[\"'`]? (?:(?:is|was|as|ist|war|als|est|comme|es|como|é|è|come|är|som)"
    r"(?: [^\s,.;:]{1,30}){0,3}|=) [\"'`]?$",
    re.IGNORECASE,
)
_BEHIND: Final = (
    re.compile(r"s?(?: ?[\"'`(]{1,2}| {1,4}|に|を|改成了? ?|改为 ?)(?P<value>[^\s\"'`,;|]{5,100})"),
    re.compile(r"(?:s|er|ies)?: (?:[^\s,:]{1,30} ){1,2}[\"'`]?(?P<value>[^\s\"'`,;|]{5,100})"),
    re.compile(
        r"(?: [^:=\n]{1,50}?)? (?:to|auf|be|now|is|en|à|a|på|naar|zu) [\"'`]?(?P<value>[^\s\"'`,;|]{5,100})",
        re.IGNORECASE,
    ),
)
"""The words of a sentence before and behind one for a password, where it says what that is."""
_WINDOW: Final = 160
_DIGIT: Final = re.compile(r"\d")


class Sentence(NamedTuple):
    """A word for a secret in a sentence, the value being somewhere before or behind it."""

    name: str
    keywords: tuple[str, ...]
    pattern: Any

    def find(self, text: str) -> Iterator[Credential]:
        """The secrets that are said to be one in a text without half characters."""
        for match in self.pattern.finditer(text):
            start, end = match.span()
            around = text[max(0, start - 1) : start] + text[end : end + 1]
            if _OF_PASSWORDS.match(text, end) or any(
                each.isascii() and each.isalpha() and each != "s" for each in around
            ):
                continue
            before, behind = text[max(0, start - _WINDOW) : start], text[end : end + _WINDOW]
            places = [(start - len(before), _BEFORE.search(before) if _DIGIT.search(before) else None)]
            places += [(end, each.match(behind)) for each in _BEHIND if _DIGIT.search(behind)]
            for place, found in places:
                if found is None:
                    continue
                value = found["value"].partition(")")[0] if "(" in found[0] else found["value"]
                value = value.lstrip("*(").rstrip(_ENDS + "*を")
                value = value.partition("を")[0]
                if _is_said_password(value):
                    at = place + found.start("value") + found["value"].index(value)
                    yield Credential(self.name, at, at + len(value))
                    break


def _is_pgpass(match: Any) -> bool:
    host = match.group("host")
    return (host == "*" or any(each.isalpha() for each in host)) and _is_password(match)


@cache
def _labelled() -> tuple[Label | Sentence, ...]:
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
            "token",
            (),
            re2.compile(
                r"(?:^|[^A-Za-z0-9_.$/-])(?P<sign>(?:[A-Za-z][A-Za-z0-9]{0,15}[_-]){1,3})(?P<value>[A-Za-z0-9]{32,200})"
                r"(?:[^A-Za-z0-9/]|$)",
                _OPTIONS,
            ),
            _is_vendor_token,
        ),
        Label(
            "key or token",
            ("key", "token", "secret", "salt"),
            re2.compile(
                r"(?:^|[^A-Za-z0-9_$])(?P<name>[A-Z][A-Z0-9_]*(?:TOKEN|KEY|SECRET|KEY_BASE|SALT)|[\w/]*master\.key)"
                rf"{_ASSIGNED}(?:base64:)?(?P<value>[A-Za-z0-9+/]{{32,200}}={{0,2}})(?:[^A-Za-z0-9+/=]|$)",
                _OPTIONS,
            ),
            _is_set_key,
        ),
        Label(
            "key or token",
            ("token", "key", "secret"),
            re2.compile(
                r"(?:^|[^A-Za-z0-9])(?P<name>(?i:token|api[_ -]?key|secret))[\"']?[ \t]{0,8}[:=][ \t]{0,8}[\"']?"
                r"(?P<value>[0-9a-f]{64})(?:[^0-9A-Za-z]|$)",
                _OPTIONS,
            ),
            _is_set_key,
        ),
        Label(
            "key or token",
            ("_key", "_salt", "_secret"),
            re2.compile(
                r"(?P<name>[A-Z_]+_(?:KEY|SALT|SECRET))['\"]\s*,\s*['\"]"
                r"(?P<value>[^'\"\s]{20,}(?: [^'\"]{0,80})?)['\"]",
                _OPTIONS,
            ),
            lambda match: len(match.group("value")) >= 32 and any(map(str.isdigit, match.group("value"))),
        ),
        Label(
            "login in Base64",
            ("auth",),
            re2.compile(
                r"(?:\"auth\"[ \t]{0,4}:[ \t]{0,4}\"|_auth[ \t]{0,4}=[ \t]{0,4}\"?)(?P<value>[A-Za-z0-9+/]{8,}={0,2})",
                _OPTIONS,
            ),
            _is_login_in_base64,
        ),
        Label(
            "private key in Base64",
            ("ls0tls1crudjti",),
            re2.compile(r"(?P<value>LS0tLS1CRUdJTi[A-Za-z0-9+/]{26,}={0,2})", _OPTIONS),
            _is_key_in_base64,
        ),
        Label(
            "session of a browser",
            ("cookie",),
            re2.compile(
                r"(?i:\bcookie)[\"']?: ?[^\n]{0,500}?\b[\w.-]{0,40}(?i:sess|sid|auth|token|jwt)[\w.-]{0,40}="
                r"(?P<value>[\w%.+/=-]{16,})",
                _OPTIONS,
            ),
            lambda match: not _READABLE.fullmatch(match.group("value")) and any(map(str.isdigit, match.group("value"))),
        ),
        Label(
            "key of a header",
            ("-key", "-token"),
            re2.compile(
                r"(?i:\b(?:[a-z]+-){0,3}(?:key|token))[\"']?: ?[\"']?(?P<value>[A-Za-z0-9_-]{16,200})(?:[^\w-]|$)",
                _OPTIONS,
            ),
            lambda match: _is_token(match) and "-" in match.group().partition(":")[0],
        ),
        Label(
            "password",
            ("</password>",),
            re2.compile(r"(?i:<password>(?P<value>[^<>\s$]{5,200})</password>)", _OPTIONS),
            _is_password_of_a_file,
        ),
        Label(
            "password",
            ("requirepass", "--password", " -p ", "psk", "password="),
            re2.compile(
                r"(?i:\brequirepass[ \t]{1,8}|[ \t]--password[ =]|\blogin\b[^\n]{1,200}?[ \t]-p[ \t]"
                rf"|\bpsk[ \t]{{0,4}}=?[ \t]{{0,4}}\"|\bpassword=\"?)[\"']?{value}",
                _OPTIONS,
            ),
            _is_password_of_a_file,
        ),
        Label(
            "password",
            ("pass", "pwd"),
            re2.compile(
                r"\b(?:[A-Z][A-Z0-9]*_?)*(?:PASSWORD|PASSWD|PASS|PWD)"
                rf"(?:={_Q}|['\"][ \t]{{0,4}},[ \t]{{0,4}}['\"]){value}",
                _OPTIONS,
            ),
            _is_set_password,
        ),
        Sentence(
            "password",
            (*words, "pass", "mot", "palavra", "كلمة"),
            re2.compile(rf"(?i:{_LABEL}|\buser(?:name)? [^\s,]+, ?pass)", _OPTIONS),
        ),
        Label(
            "name and password",
            ("credential", "creds", "login", "zugangsdaten", "user"),
            re2.compile(
                r"(?i:\b(?:credentials?|creds|logins?|zugangsdaten|user(?:name)?))(?i:[:=]| are| is| ist| sind) ?"
                rf"[\w+-]{{2,60}}(?:@[\w.-]{{3,80}})? ?[/:] ?{value}",
                _OPTIONS,
            ),
            lambda match: _is_said_password(match.group("value").rstrip(_ENDS)),
        ),
        Label(
            "PIN",
            ("pin", "geheimzahl"),
            re2.compile(
                r"\b(?P<value>\d{4,8}) (?:is|ist|est|es) (?:the|our|my|die|der|meine|unsere|le|el) "
                r"(?:PINs?|(?i:geheimzahl))\b",
                _OPTIONS,
            ),
            lambda match: not _OF_PASSWORDS.match(match.string, match.end()),
        ),
        Label(
            "PIN",
            ("pin", "geheimzahl"),
            re2.compile(
                r"\b(?i:with|mit|by|avec|con) (?i:the|der|le|el|its) (?:PIN|(?i:geheimzahl)) (?P<value>\d{4,8})\b",
                _OPTIONS,
            ),
            lambda match: True,
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
    """The text with every credential in it replaced by its sort, and as many lines as before. A key block goes to its
    end, or to the text's."""
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
            pieces += [text[done:start], f"[{sort} hidden]", "\n" * text.count("\n", start, end)]
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
    split = _split_credential(texts)
    if split is None and find_credential("\n".join(text for _, text in texts)) is None:
        return
    allowed = MAY_BE_ALLOWED.get(type(change))
    advice = f", or {allowed} if it is none or must be kept" if allowed else ""
    found = ((field, find_credential(text)) for field, text in texts)
    for field, sort in (*found, *([split] if split is not None else [])):
        if sort is not None:
            raise InvalidInput(
                f"{field} looks like it holds a credential ({sort}), which everybody who recalls it would see: store "
                f"where the secret is kept instead of the secret{advice}",
                field=field,
            )


LONGEST_LABEL: Final = 120
MOST_FIELDS: Final = 40
_IT_IS: Final = re.compile(
    r"(?i:(?:it|that|this|es|das) (?:is|ist)(?: now| jetzt)?:? )?[\"'`]?(\S{4,200}?)[\"'`]?[.!]?"
)


def _split_credential(texts: Sequence[tuple[str, str]]) -> tuple[str, str] | None:
    """The field with the value, and its sort, where one field says what another, which is a value alone, is. A file's
    name is no value."""
    short = [(field, text.strip()) for field, text in texts if len(text) <= LONGEST_LABEL][:MOST_FIELDS]
    for field, text in short:
        value = _IT_IS.fullmatch(text) if field != "path" else None
        if value is None:
            continue
        for other, label in short:
            sort = find_credential(f"{label.rstrip('.:')}: {value[1]}") if other != field else None
            if sort is not None:
                return field, sort
    return None


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
        case TextEdit():
            yield from _texts(value.new, field)
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
