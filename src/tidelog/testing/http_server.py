"""An HTTP server of a test cluster, with which tests in any language can inject faults.

The server runs in threads of the process that owns the cluster, because only this process can start
and kill brokers. Brokers have no port for fault requests. The server listens on the loopback
interface and refuses requests of browsers, so that no web page can reach it.
"""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final
from urllib.parse import parse_qsl, unquote, urlsplit

from tidelog.local.ports import LOOPBACK
from tidelog.testing.cluster import Cluster
from tidelog.testing.control import Control

#: Interval in s at which the server checks whether to stop; the end of a test may wait this long.
_POLL_S: Final = 0.05
#: Maximum size in bytes of a request's JSON.
_MOST_BYTES: Final = 1 << 20
#: Names of this machine in a Host header. A request with another name may come from a web page.
_OWN_HOSTS: Final = (LOOPBACK, "localhost", "")


class FaultServer:
    """The HTTP server of one cluster; it serves until `close`, or the end of a `with` block."""

    def __init__(self, cluster: Cluster, port: int = 0) -> None:
        """Listen on a port of the loopback interface, by default on a free port; raise OSError."""
        self._server = _Server((LOOPBACK, port), _Requests)
        self._server.control = Control(cluster)
        self._thread = threading.Thread(
            target=self._server.serve_forever,
            args=(_POLL_S,),
            name="tidelog-testing-http",
            daemon=True,
        )
        self._thread.start()

    def __enter__(self) -> FaultServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def url(self) -> str:
        """`http://127.0.0.1:port`."""
        return f"http://{LOOPBACK}:{self._server.server_address[1]}"

    def close(self) -> None:
        """Stop listening; repeated calls do nothing."""
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    control: Control


class _Requests(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    #: Maximum time in seconds between the bytes of a request.
    timeout = 60
    server: _Server

    def _serve(self) -> None:
        body = self._body()
        if body is None:
            return
        if refusal := self._refusal():
            self._respond(403, {"error": refusal, "status": 403})
            return
        url = urlsplit(self.path)
        query = dict(parse_qsl(url.query, keep_blank_values=True))
        self._respond(*self.server.control.answer(self.command, unquote(url.path), query, body))

    do_GET = do_POST = do_PATCH = do_DELETE = _serve  # noqa: N815 - names of http.server

    def _body(self) -> bytes | None:
        """Return the request's body; None after an error response."""
        length = self.headers.get("Content-Length", "0")
        if not length.isdecimal() or int(length) > _MOST_BYTES:
            self.close_connection = True
            error = f"Content-Length {length}: at most {_MOST_BYTES} bytes expected"
            self._respond(413, {"error": error, "status": 413})
            return None
        return self.rfile.read(int(length))

    def _refusal(self) -> str | None:
        host = urlsplit(f"//{self.headers.get('Host', '')}").hostname or ""
        if host not in _OWN_HOSTS:
            return f"Host {host}: {LOOPBACK} expected"
        if self.headers.get("Origin") or self.headers.get("Sec-Fetch-Site"):
            return "browsers may not use this API"
        return None

    def _respond(self, status: int, value: Any) -> None:
        body = b"" if value is None else json.dumps(value).encode() + b"\n"
        self.send_response(status)
        if body:
            self.send_header("Content-Type", "application/json")
        if status != 204:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - http.server's name
        """Log nothing, because each error is in the response."""
