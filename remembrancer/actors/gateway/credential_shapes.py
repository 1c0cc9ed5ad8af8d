"""What a credential looks like.

The shapes are those of Yelp's detect-secrets, less the ones that ordinary words have or that need a keyword beside
them, and some that are younger than its last release. What was found is named by its sort and never quoted.
"""

from __future__ import annotations

import re
from typing import Final

from detect_secrets.filters.heuristic import is_templated_secret
from detect_secrets.plugins.aws import AWSKeyDetector
from detect_secrets.plugins.azure_storage_key import AzureStorageKeyDetector
from detect_secrets.plugins.base import RegexBasedDetector
from detect_secrets.plugins.basic_auth import BasicAuthDetector
from detect_secrets.plugins.discord import DiscordBotTokenDetector
from detect_secrets.plugins.github_token import GitHubTokenDetector
from detect_secrets.plugins.gitlab_token import GitLabTokenDetector
from detect_secrets.plugins.jwt import JwtTokenDetector
from detect_secrets.plugins.mailchimp import MailchimpDetector
from detect_secrets.plugins.npm import NpmDetector
from detect_secrets.plugins.openai import OpenAIDetector
from detect_secrets.plugins.private_key import PrivateKeyDetector
from detect_secrets.plugins.pypi_token import PypiTokenDetector
from detect_secrets.plugins.sendgrid import SendGridDetector
from detect_secrets.plugins.slack import SlackDetector
from detect_secrets.plugins.square_oauth import SquareOAuthDetector
from detect_secrets.plugins.stripe import StripeDetector
from detect_secrets.plugins.telegram_token import TelegramBotTokenDetector
from detect_secrets.plugins.twilio import TwilioKeyDetector

_PLACEHOLDER: Final = re.compile(r"[*x.…]+|(your|my)?[-_]?(password|passwd|pass|secret|token)", re.IGNORECASE)
_DETECTORS: Final[tuple[RegexBasedDetector, ...]] = (
    PrivateKeyDetector(),
    AWSKeyDetector(),
    AzureStorageKeyDetector(),
    BasicAuthDetector(),
    DiscordBotTokenDetector(),
    GitHubTokenDetector(),
    GitLabTokenDetector(),
    JwtTokenDetector(),
    MailchimpDetector(),
    NpmDetector(),
    OpenAIDetector(),
    PypiTokenDetector(),
    SendGridDetector(),
    SlackDetector(),
    SquareOAuthDetector(),
    StripeDetector(),
    TelegramBotTokenDetector(),
    TwilioKeyDetector(),
)
_YOUNGER: Final = {
    "GitHub fine-grained token": re.compile(r"\bgithub_pat_[A-Za-z0-9_]{50,}"),
    "Anthropic API key": re.compile(r"\bsk-ant-[a-z0-9]+-[A-Za-z0-9_-]{40,}"),
    "OpenAI API key": re.compile(r"\bsk-(?:proj|svcacct|admin)-[A-Za-z0-9_-]{40,}|\bsk-[A-Za-z0-9]{40,}"),
    "Google API key": re.compile(r"\bAIza[A-Za-z0-9_-]{35}"),
    "Google OAuth token": re.compile(r"\bya29\.[A-Za-z0-9_-]{30,}"),
    "Hugging Face token": re.compile(r"\bhf_[A-Za-z0-9]{34,}"),
    "npm token": re.compile(r"\bnpm_[A-Za-z0-9]{36}"),
    "DigitalOcean token": re.compile(r"\bdo[opr]_v1_[a-f0-9]{64}"),
    "Slack app token": re.compile(r"\bxapp-\d-[A-Z0-9]+-\d+-[a-f0-9]{32,}"),
    "age secret key": re.compile(r"\bAGE-SECRET-KEY-1[A-Z0-9]{50,}"),
}


def find_credential(text: str) -> str | None:
    """The sort of the first credential that a text seems to hold, None when it seems to hold none."""
    for name, pattern in _YOUNGER.items():
        if pattern.search(text):
            return name
    for detector in _DETECTORS:
        for secret in detector.analyze_string(text):
            if not (is_templated_secret(secret) or _PLACEHOLDER.fullmatch(secret)):
                return str(detector.secret_type)
    return None
