"""The security checks of every request (host, origin, token), and the headers of every response.

The console acts on the cluster with the rights of its process, so other web pages in the same
browser must not use it. The host check refuses a foreign name that an attacker's DNS resolves to
this machine. The checks of the headers Origin and Sec-Fetch-Site refuse cross-site requests. A
change also needs a token in a header, because an HTML form cannot set a header. The content
security policy permits only this server's scripts and styles, so a script in a record's HTML cannot
run.
"""

from __future__ import annotations

import hmac
import ipaddress
from collections.abc import Mapping
from typing import Final
from urllib.parse import urlsplit

from tidelog.core.dataclass import dataclass

TOKEN_HEADER: Final = "x-tidelog-token"
#: Headers of every response.
HEADERS: Final[Mapping[str, str]] = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self';"
    " connect-src 'self'; img-src 'self'; base-uri 'none'; form-action 'none';"
    " frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}
_SAFE_SITES: Final = ("same-origin", "none")


@dataclass(frozen=True, slots=True)
class RequestRefusal:
    """The reason for refusing a request, and the HTTP status of the response."""

    status: int
    reason: str


@dataclass(frozen=True, slots=True)
class RequestAccess:
    """The access rules: further names of this server, and the token that permits changes."""

    #: The token that a change must send; None if changes are not allowed.
    token: str | None = None
    #: Host names in lower case, beside loopback names and addresses, by which browsers may reach
    #: the console.
    hosts: tuple[str, ...] = ()

    def refusal(self, method: str, headers: Mapping[str, str]) -> RequestRefusal | None:
        """Return why a request is refused; None for a request that may pass.

        `headers` have lower-case names.
        """
        host = headers.get("host", "")
        if not self.is_own_host(host):
            return RequestRefusal(
                421,
                f"this console does not answer as {host!r}: use its loopback address, or start it"
                " with --allowed-host",
            )
        if headers.get("sec-fetch-site", "none") not in _SAFE_SITES and (
            headers.get("sec-fetch-mode") != "navigate" or method != "GET"
        ):
            return RequestRefusal(403, "the request comes from another site's page")
        if method in ("GET", "HEAD"):
            return None
        if headers.get("origin") not in self._own_origins(host):
            return RequestRefusal(403, "a change must come from a page of this console (Origin)")
        if headers.get("content-type", "").partition(";")[0].strip() != "application/json":
            return RequestRefusal(415, "a change must be application/json")
        return self._of_token(headers.get(TOKEN_HEADER, ""))

    def _of_token(self, given: str) -> RequestRefusal | None:
        if self.token is None:
            return RequestRefusal(
                403,
                "this console is read-only; start it with --allow-changes to change the cluster",
            )
        if not hmac.compare_digest(given.encode(), self.token.encode()):
            what = "is not the one" if given else "is missing: enter the one"
            return RequestRefusal(401, f"the token {what} that the console printed at its start")
        return None

    def is_own_host(self, host: str) -> bool:
        """Return whether a Host header names this server; the port does not matter."""
        name = _name_in(host)
        return name in self.hosts or is_loopback(name)

    def _own_origins(self, host: str) -> tuple[str, ...]:
        """Return the origins of this console's pages, http and https (a proxy may add TLS)."""
        plain = f"http://{host}"
        return (plain, f"https://{host}") if _name_in(host) in self.hosts else (plain,)


def _name_in(host: str) -> str:
    """Return the name or address in a Host header; empty if the header cannot be read."""
    try:
        return (urlsplit(f"//{host}").hostname or "").rstrip(".")
    except ValueError:
        return ""


def is_loopback(name: str) -> bool:
    """Return whether a host name or address is this machine's loopback."""
    if name == "localhost":
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False
