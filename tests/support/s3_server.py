"""moto's S3 server on a port of loopback, with faults: `-m tests.support.s3_server PORT`.

A test posts faults to FAULTS_PATH, as a JSON list. A fault matches requests by method and a part of
the path. The first `times` of them get `status` in the place of the answer: before the request is
done, or after it (`is_late`), so that the answer is lost and its effect is there.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from threading import Lock
from typing import Any, Final

FAULTS_PATH: Final = "/_faults"
BUCKET: Final = "lake"
ROOT: Final = Path(__file__).resolve().parents[2]
_LIMIT_S: Final = 60
#: moto takes the service from the signature of a request.
_SIGNED: Final = {
    "Authorization": "AWS4-HMAC-SHA256 Credential=a/20260101/us-east-1/s3/aws4_request"
}


@dataclass
class S3Fault:
    """Answers with a status in the place of the server's, `times` times."""

    method: str
    part: str
    status: int = 503
    times: int = 1
    is_late: bool = False


class FaultyApp:
    """A WSGI application with faults in front of it."""

    def __init__(self, inner: Callable[..., Iterable[bytes]]) -> None:
        self._inner = inner
        self._faults: list[S3Fault] = []
        self._lock = Lock()

    def __call__(self, environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        if environ["PATH_INFO"] == FAULTS_PATH:
            body = environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"]))
            with self._lock:
                left = [asdict(fault) for fault in self._faults if fault.times]
                self._faults = [S3Fault(**fault) for fault in json.loads(body)]
            start("200 OK", [("Content-Type", "application/json")])
            return [json.dumps(left).encode()]
        fault = self._next_fault(environ)
        if fault is None:
            return self._inner(environ, start)
        if fault.is_late:
            list(self._inner(environ, lambda *_: None))
        start(f"{fault.status} Injected", [("Content-Length", "0")])
        return [b""]

    def _next_fault(self, environ: dict[str, Any]) -> S3Fault | None:
        with self._lock:
            for fault in self._faults:
                is_meant = fault.method == environ["REQUEST_METHOD"]
                if fault.times and is_meant and fault.part in environ["PATH_INFO"]:
                    fault.times -= 1
                    return fault
        return None


@dataclass(frozen=True)
class S3Server:
    """A running server with one bucket, and the storage options for it."""

    url: str

    @property
    def options(self) -> dict[str, str]:
        return {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_ALLOW_HTTP": "true",
            "AWS_ACCESS_KEY_ID": "a",
            "AWS_SECRET_ACCESS_KEY": "b",
            "AWS_REGION": "us-east-1",
        }

    def inject(self, *faults: S3Fault) -> list[S3Fault]:
        """Replace the faults; return those of before that are not used up."""
        body = json.dumps([asdict(fault) for fault in faults]).encode()
        return [S3Fault(**left) for left in json.loads(self._send("POST", FAULTS_PATH, body))]

    def _send(self, method: str, path: str, body: bytes = b"") -> bytes:
        request = urllib.request.Request(
            self.url + path, method=method, data=body or None, headers=_SIGNED
        )
        with urllib.request.urlopen(request, timeout=_LIMIT_S) as answer:
            return bytes(answer.read())

    def make_bucket(self) -> None:
        """Make the bucket, once the server responds."""
        deadline = time.monotonic() + _LIMIT_S
        while True:
            try:
                self._send("PUT", f"/{BUCKET}")
                return
            except urllib.error.URLError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)


@contextlib.contextmanager
def s3_server(port: int, log_path: Path) -> Iterator[S3Server]:
    """Run a server in a process of its own for a `with` block."""
    with log_path.open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.s3_server", str(port)],
            cwd=ROOT,
            stdout=log,
            stderr=log,
        )
    server = S3Server(f"http://127.0.0.1:{port}")
    try:
        server.make_bucket()
        yield server
    finally:
        process.kill()
        process.wait()


def main(port: int) -> None:
    from moto.server import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import run_simple

    app = FaultyApp(DomainDispatcherApplication(create_backend_app))
    run_simple("127.0.0.1", port, app, threaded=True)


if __name__ == "__main__":
    main(int(sys.argv[1]))
