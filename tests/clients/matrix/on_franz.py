"""franz-go, in a program of its own (franz/main.go)."""

from __future__ import annotations

from tests.clients.matrix.worker import Program, WorkerDriver
from tests.support.clients.franz_program import CACHE, HERE, program


def make(bootstrap: str) -> WorkerDriver:
    return WorkerDriver(Program([str(program())], HERE, CACHE / "franz.log"), bootstrap)
