"""A schema registry on a real socket, with schemas that a test puts into it."""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote


class FakeRegistry:
    """Schemas by id, and the newest id of each subject."""

    def __init__(self) -> None:
        self.schemas: dict[int, dict[str, Any]] = {}
        self.versions: dict[str, list[int]] = {}
        #: Protobuf schemas as descriptors in base64, by id, for `format=serialized`.
        self.serialized: dict[int, str] = {}
        #: The paths of all requests, and their Authorization headers.
        self.asked: list[str] = []
        self.authorizations: list[str | None] = []
        #: Answers every request, if set: a status and a body.
        self.answer: tuple[int, bytes] | None = None
        registry = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                registry.asked.append(self.path)
                registry.authorizations.append(self.headers["Authorization"])
                status, body = registry.answer or registry._answer(self.path)
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_request(self, code: object = "-", size: object = "-") -> None:
                """Log nothing: the test reads `asked`."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def register(
        self,
        subject: str,
        schema: Any,
        schema_type: str | None = None,
        references: Sequence[tuple[str, str, int]] = (),
    ) -> int:
        """Add a version of a subject; return its id. References: name, subject, version."""
        schema_id = len(self.schemas) + 1
        found: dict[str, Any] = {
            "schema": schema if isinstance(schema, str) else json.dumps(schema)
        }
        if schema_type is not None:
            found["schemaType"] = schema_type
        if references:
            found["references"] = [
                {"name": name, "subject": of, "version": version}
                for name, of, version in references
            ]
        self.schemas[schema_id] = found
        self.versions.setdefault(subject, []).append(schema_id)
        return schema_id

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(5)

    def _answer(self, path: str) -> tuple[int, bytes]:
        path, _, query = path.partition("?")
        is_serialized = query == "format=serialized"

        def found(schema_id: int) -> dict[str, Any]:
            schema = dict(self.schemas[schema_id])
            if is_serialized and schema_id in self.serialized:
                schema["schema"] = self.serialized[schema_id]
            return schema

        match [unquote(each) for each in path.strip("/").split("/")]:
            case ["schemas", "ids", number] if int(number) in self.schemas:
                return 200, json.dumps(found(int(number))).encode()
            case ["subjects", subject, "versions", version] if subject in self.versions:
                ids = self.versions[subject]
                schema_id = ids[-1] if version == "latest" else ids[int(version) - 1]
                return 200, json.dumps({"id": schema_id, **found(schema_id)}).encode()
        return 404, json.dumps({"error_code": 40403, "message": "Schema not found"}).encode()
