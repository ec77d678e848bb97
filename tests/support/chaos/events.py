"""What one client of the chaos did, as JSON lines in a file of its own.

Times are nanoseconds of the machine's monotonic clock, which all processes share. The first two
fields of each event are its time and its kind:

    [t, "send", partition, number]            given to the library; number is the producer's count
    [t, "ack", number, offset]                acknowledged
    [t, "unsure", number, error]              the library reported an error: outcome not known
    [t, "assigned", [partition, ...]]         a rebalance gave the member these partitions
    [t, "revoked", [partition, ...]]
    [t, "poll", [[partition, offset, value]]] what a poll returned
    [t, "commit", {partition: offset}]        acknowledged by the coordinator
    [t, "refused", error]                     a commit that failed or may have failed
    [t, "ended"]                              closed in order, after everything was acknowledged
"""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from typing import Any

Event = list[Any]


class EventLog:
    """Appends events of one client; for any number of threads."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("w", encoding="utf-8", buffering=1)
        self._lock = threading.Lock()

    def add(self, kind: str, *fields: Any) -> None:
        """Append an event of this moment."""
        with self._lock:
            event = [time.monotonic_ns(), kind, *fields]
            self._file.write(json.dumps(event, separators=(",", ":")) + "\n")


class EventReader:
    """Reads the events of one file while its client still writes."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._position = 0

    def read(self) -> list[Event]:
        """Return the events since the last call; a line that is not whole yet waits."""
        if not self._path.exists():
            return []
        with self._path.open("rb") as file:
            file.seek(self._position)
            data = file.read()
        whole = data[: data.rfind(b"\n") + 1]
        self._position += len(whole)
        return [json.loads(line) for line in whole.splitlines()]


def value_of(process: str, number: int) -> str:
    """The value of a producer's record; no other record has it."""
    return f"{process} {number}"
