"""HTTP/1.1 requests and responses, only with the features that an admin port needs.

A request has a bounded head, and a body of known length; chunked bodies are refused. This module
does no I/O: `http_server` reads and writes the bytes. Python's own `http` package parses headers
with the `email` package, which would cost each broker 3 MB.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from ipaddress import ip_address
from typing import Final
from urllib.parse import parse_qsl, unquote

from tidelog.core.dataclass import dataclass

TEXT: Final = "text/plain; charset=utf-8"
#: Maximum number of header lines of a request.
MAX_HEADERS: Final = 100

_REQUEST_LINE: Final = re.compile(r"([A-Z]{1,16}) (/[!-~]*) HTTP/1\.([01])")
#: Adjacent parts of this pattern match different characters; otherwise matching one long line could
#: take seconds.
_HEADER: Final = re.compile(r"([!#$%&'*+.^_`|~0-9A-Za-z-]+):([ -~\t\x80-\xff]*)")
_HOST_PORT: Final = re.compile(r":[0-9]*\Z")


class BadRequest(Exception):
    """A request that gets an error response; the server then closes the connection."""

    def __init__(self, status: HTTPStatus, reason: str) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """A request; header names are in lower case, and `path` is decoded."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes = b""
    #: Whether the client allows further requests on the connection.
    keeps_alive: bool = True


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """A response, whose body is the concatenation of `parts`."""

    status: HTTPStatus
    parts: Sequence[bytes]
    content_type: str = TEXT

    @classmethod
    def of_text(cls, text: str, status: HTTPStatus = HTTPStatus.OK) -> HttpResponse:
        """Return a plain text response."""
        return cls(status, (text.encode("utf-8", "replace"),))

    def head(self, keeps_alive: bool, extra: Mapping[str, str] | None = None) -> bytes:
        """Return the bytes before the body."""
        lines = [
            f"HTTP/1.1 {self.status.value} {self.status.phrase}",
            f"Content-Type: {self.content_type}",
            f"Content-Length: {sum(map(len, self.parts))}",
            "Cache-Control: no-store",
            "X-Content-Type-Options: nosniff",
            f"Connection: {'keep-alive' if keeps_alive else 'close'}",
            *(f"{name}: {value}" for name, value in (extra or {}).items()),
        ]
        return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


def read_head(data: bytes) -> HttpRequest:
    """Parse a request's head, including its final empty line; raise BadRequest if it is invalid."""
    first, *lines = data.decode("latin-1").rstrip("\r\n").split("\r\n")
    match = _REQUEST_LINE.fullmatch(first)
    if match is None:
        raise BadRequest(
            HTTPStatus.BAD_REQUEST, "not a request of HTTP/1.1: 'METHOD /path HTTP/1.1' expected"
        )
    if len(lines) > MAX_HEADERS:
        raise BadRequest(
            HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE,
            f"{len(lines)} header lines; at most {MAX_HEADERS} expected",
        )
    headers: dict[str, str] = {}
    for number, line in enumerate(lines, 2):
        header = _HEADER.fullmatch(line)
        if header is None:
            raise BadRequest(
                HTTPStatus.BAD_REQUEST, f"line {number} is no header: 'Name: value' expected"
            )
        name = header[1].lower()
        if name in ("content-length", "host") and name in headers:
            raise BadRequest(HTTPStatus.BAD_REQUEST, f"header {name} is given twice")
        value = header[2].strip(" \t")
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    path, _, query = match[2].partition("?")
    try:
        fields = dict(parse_qsl(query, keep_blank_values=True, max_num_fields=MAX_HEADERS))
    except ValueError as error:
        raise BadRequest(HTTPStatus.BAD_REQUEST, f"the query cannot be read: {error}") from error
    connection = headers.get("connection", "").lower()
    return HttpRequest(
        method=match[1],
        path=unquote(path, errors="replace"),
        query=fields,
        headers=headers,
        keeps_alive=connection == "keep-alive" if match[3] == "0" else connection != "close",
    )


def check_local_host(request: HttpRequest, own: str) -> None:
    """Raise BadRequest if the request names a foreign host.

    A request may name an IP address, `localhost`, no host, or `own`: the host on which the server
    was configured to listen.
    """
    value = request.headers.get("host", "")
    name = _HOST_PORT.sub("", value).removeprefix("[").removesuffix("]")
    if name.lower().rstrip(".") in ("", "localhost", own.lower().rstrip(".")):
        return
    try:
        ip_address(name)
    except ValueError:
        raise BadRequest(
            HTTPStatus.FORBIDDEN,
            f"Host {value[:100]!r}: this port is open on a loopback address only; an IP address,"
            " 'localhost' or the name in its configuration expected",
        ) from None


def body_bytes(request: HttpRequest, limit_bytes: int) -> int:
    """Return the length of a request's body; raise BadRequest if the length is above the limit."""
    if "transfer-encoding" in request.headers:
        raise BadRequest(
            HTTPStatus.LENGTH_REQUIRED, "a body in chunks is not read: Content-Length expected"
        )
    text = request.headers.get("content-length", "0")
    if not (text.isascii() and text.isdigit()) or len(text) > 18:
        raise BadRequest(HTTPStatus.BAD_REQUEST, f"Content-Length {text[:40]!r}: a number expected")
    if int(text) > limit_bytes:
        raise BadRequest(
            HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
            f"a body of {int(text):,} bytes; at most {limit_bytes:,} expected",
        )
    return int(text)
