"""The checks of every request, as pure functions: host, origin, token, and the answers' headers.

The console has the rights of its process on the cluster, so that any page in the same browser must
be kept from using it. A name that an attacker's DNS points at this machine is refused by the host
check. A cross-site request is refused by its Origin and Sec-Fetch-Site headers. A change also needs
a token in a header, which no form can send. The content security policy allows scripts and styles
from this server only, so that a record with HTML in it cannot run.
"""

from __future__ import annotations

import hmac
import ipaddress
from collections.abc import Mapping
from typing import Final
from urllib.parse import urlsplit

from tidelog.core.dataclass import dataclass

TOKEN_HEADER: Final = "x-tidelog-token"
#: Headers of every answer.
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
    """Why a request is refused, with the HTTP status of the answer."""

    status: int
    reason: str


@dataclass(frozen=True, slots=True)
class RequestAccess:
    """The rights of requests: names of this server besides loopback names, and the token of
    changes.
    """

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
        """Return whether a Host header names this server, with any port."""
        name = _name_in(host)
        return name in self.hosts or is_loopback(name)

    def _own_origins(self, host: str) -> tuple[str, ...]:
        """Return the origins of this console's pages; a proxy may serve them with TLS."""
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
