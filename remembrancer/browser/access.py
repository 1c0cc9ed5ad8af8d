"""Access control: the cookie that represents a token, and the checks on requests that make changes."""

import hashlib
import hmac
import secrets
import socket
import time
from pathlib import Path
from typing import Final
from urllib.parse import parse_qsl

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from remembrancer.config.tokens import BROWSER_S, Grant, Tokens

PREFIX: Final = "/browser"
MAX_FORM_BYTES: Final = 1024 * 1024
MAX_FIELDS: Final = 2000
DRAWING_STYLES: Final = (
    "'sha256-47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=' 'sha256-jtRRMYY2VbEXuBKbHvqM1/fPT8vazFrEooXdvwUK4y8=' "
    "'sha256-9xjtvxMT1ApHlgn9ohbh2FNfvK5Tqtzy94BjfXBeMSY='"
)
"""The digests of the styles that the vendored graph library adds to the page."""
HEADERS: Final = {
    "Content-Security-Policy": (
        f"default-src 'none'; script-src 'self'; style-src 'self' {DRAWING_STYLES}; "
        "img-src 'self' data:; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
"""The headers of every response except assets. The content of a memory cannot load, run, frame or send anything."""

Form = list[tuple[str, str]]
"""The fields of a form, in order; a name may occur several times."""


class VisitorAccess:
    """Identifies visitors by their cookies. With `no_token`, visitors without a cookie are also admitted."""

    def __init__(self, home: Path, *, no_token: bool) -> None:
        self._tokens = Tokens(home)
        self._no_token = no_token
        self._key = secrets.token_bytes(32)
        # Browsers share cookies between all ports of a host, which may serve the browsers of several homes, and a home
        # may get another port if its own is taken. Containers on one machine may have homes with the same path.
        whose = f"{socket.gethostname()}:{home.absolute()}"
        self._cookie = f"remembrancer_{hashlib.sha256(whose.encode()).hexdigest()[:12]}"

    def grant(self, request: Request) -> Grant | None:
        """The visitor's rights, or None for all rights without a token. Raises `HTTPException` for unknown visitors."""
        token = request.cookies.get(self._cookie, "")
        grant = self._tokens.find(token, time.time()) if token else None
        if grant is None and not self._no_token:
            raise HTTPException(401, "You are not signed in. Run 'remembrancer ui' to open a page that signs you in.")
        return grant

    def holds(self, grant: Grant | None) -> bool:
        return self._no_token if grant is None else self._tokens.holds(grant, time.time())

    def csrf(self, request: Request) -> str:
        token = request.cookies.get(self._cookie, "")
        return hmac.new(self._key if not token else token.encode(), b"form", hashlib.sha256).hexdigest()

    def check_change(self, request: Request, form: Form) -> None:
        """Raises `HTTPException` unless a request comes from one of our pages, with the visitor's CSRF token."""
        self.check_origin(request)
        token = dict(form).get("csrf", "")
        if not hmac.compare_digest(token.encode(), self.csrf(request).encode()):
            raise HTTPException(403, "This form is out of date. Go back, reload the page, and send it again.")

    def check_origin(self, request: Request) -> None:
        """Raises `HTTPException` for requests from pages of another origin, such as another port of this machine."""
        origin, site = request.headers.get("origin"), request.headers.get("sec-fetch-site")
        is_ours = origin is None or origin == f"{request.url.scheme}://{request.headers.get('host', '')}"
        if not is_ours or site not in (None, "same-origin", "none"):
            raise HTTPException(403, "Only pages of the memory browser can change anything.")

    def enter(self, request: Request, response: Response, *, link: str = "", token: str = "") -> bool:
        """Set the cookie. Returns False unless the visitor has a valid token or an unused link."""
        now = time.time()
        if link:
            token = self._tokens.exchange(link, now) or ""
        grant = self._tokens.find(token.strip(), now) if token else None
        if grant is None:
            return False
        left_s = BROWSER_S if grant.expires_at is None else min(BROWSER_S, grant.expires_at - now)
        response.set_cookie(
            self._cookie,
            token.strip(),
            max_age=int(left_s),
            path=PREFIX,
            secure=request.url.scheme == "https",
            httponly=True,
            samesite="strict",
        )
        return True

    def leave(self, response: Response, grant: Grant | None) -> None:
        """Sign out: delete the cookie, and revoke the token of a browser that signed in by a link."""
        if grant is not None and grant.every_project:
            self._tokens.revoke(grant.name)
        response.delete_cookie(self._cookie, path=PREFIX, httponly=True, samesite="strict")


async def read_form(request: Request) -> Form:
    """Raises `HTTPException` for a form that is too large or cannot be parsed."""
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_FORM_BYTES:
            raise HTTPException(413, "The form's content is too large.")
    try:
        return parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=MAX_FIELDS, errors="strict")
    except ValueError as error:
        raise HTTPException(400, "This form cannot be read. Go back, reload the page, and send it again.") from error
