"""kafkajs, in a Node of its own (kafkajs/worker.js); its packages by npm, as the lock file says."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.clients.matrix.driver import Absent
from tests.clients.matrix.worker import Program, WorkerDriver
from tests.clients.samples import Record

HERE = Path(__file__).resolve().parent.parent / "kafkajs"
CACHE = Path(sys.prefix) / "clients" / "kafkajs"
_FETCH_LIMIT_S = 120


def _packages() -> Path:
    """The directory of the packages, which npm checks against the hashes of the lock file."""
    if shutil.which("node") is None or shutil.which("npm") is None:
        raise Absent("no Node with npm on this machine")
    CACHE.mkdir(parents=True, exist_ok=True)
    with open(CACHE / "busy", "w", encoding="utf-8") as busy:
        fcntl.flock(busy, fcntl.LOCK_EX)
        lock = (HERE / "package-lock.json").read_bytes()
        done = CACHE / "package-lock.json.done"
        if not done.exists() or done.read_bytes() != lock:
            for name in ("package.json", "package-lock.json"):
                shutil.copy(HERE / name, CACHE / name)
            words = ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"]
            try:
                ended = subprocess.run(
                    words, cwd=CACHE, capture_output=True, timeout=_FETCH_LIMIT_S, check=False
                )
            except subprocess.TimeoutExpired:
                raise Absent(f"npm did not fetch it within {_FETCH_LIMIT_S} s") from None
            if ended.returncode != 0:
                assert b"EINTEGRITY" not in ended.stderr, ended.stderr.decode(errors="replace")
                raise Absent("npm could not fetch it: its registry cannot be reached")
            done.write_bytes(lock)
    return CACHE / "node_modules"


class Producer:
    """A producer that stays: what it knows of the cluster gets old."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._number = program.ask("producer_open")

    def send(
        self, topic: str, partition: int | None, key: str | None = None
    ) -> list[tuple[int, int]]:
        """Send a record, to where its key says if `partition` is None; (partition, offset) of what
        was written by kafkajs's account. Raises Refused."""
        words = {"topic": topic, "partition": partition, "key": key}
        told = self._program.ask("producer_send", producer=self._number, **words)
        return [(written, offset) for written, offset in told]

    def close(self) -> None:
        self._program.ask("producer_close", producer=self._number)


class Kafkajs(WorkerDriver):
    """The driver; kafkajs refuses headers without a value."""

    def start_producer(self) -> Producer:
        """One that stays until it is closed."""
        return Producer(self._program)

    def write(
        self, topic: str, partition: int, codec: str, records: Sequence[Record]
    ) -> list[Record]:
        able = [
            each._replace(headers=tuple(pair for pair in each.headers if pair[1] is not None))
            for each in records
        ]
        return super().write(topic, partition, codec, able)


def make(bootstrap: str) -> Kafkajs:
    environment = {**os.environ, "NODE_PATH": str(_packages())}
    words = ["node", str(HERE / "worker.js")]
    program = Program(words, HERE, CACHE / "worker.log", environment)
    return Kafkajs(program, bootstrap)
