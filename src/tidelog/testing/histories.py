"""Recording of a test's clients as a history (docs/reference/history.md), and its check.

An operation begins at the call of a client and ends at its response. When the recorder is closed,
unfinished operations are written with an unknown outcome. A time is the wall clock at the
recorder's start (nanoseconds since 1970) plus the monotonic time since then, so changes of the wall
clock have no effect.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType
from typing import Any

from tidelog.history import HistoryChecker, Operation, Report, describe, encode, read_history
from tidelog.history.operations import FAIL, INFO, OK

#: Number of anomalies that `assert_sound` lists.
_SHOWN = 10


class Begun:
    """An operation that has begun; its outcome can be set once."""

    __slots__ = ("_recorder", "operation")

    def __init__(self, recorder: HistoryRecorder, operation: Operation) -> None:
        self._recorder = recorder
        self.operation = operation

    def ok(self, **fields: Any) -> None:
        """End the operation as successful.

        `fields` are the fields of the operation that the response determines, such as the records
        with their offsets.
        """
        self._recorder._ends(self, OK, "", fields)

    def fail(self, why: str) -> None:
        """End the operation as failed, which means that it never has an effect."""
        self._recorder._ends(self, FAIL, why, {})

    def info(self, why: str) -> None:
        """End the operation as unknown, because it may have had an effect or may still have one."""
        self._recorder._ends(self, INFO, why, {})


class HistoryRecorder:
    """A thread-safe writer of one history file.

    The context manager closes the recorder.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._file = open(path, "w", encoding="utf-8")  # noqa: SIM115 (closed by close)
        self._lock = threading.Lock()
        self._open: dict[int, Begun] = {}
        self._since = time.time_ns() - time.monotonic_ns()

    def begin(self, process: str, kind: str, **fields: Any) -> Begun:
        """Begin an operation now.

        `process` names one producer or one consumer; `kind` and `fields` are the fields of
        `tidelog.history.Operation`.
        """
        begun = Begun(self, Operation(process, kind, self._now(), None, INFO, **fields))
        with self._lock:
            self._open[id(begun)] = begun
        return begun

    def send(
        self, process: str, topic: str, partition: int, value: str | int, *, idempotent: bool
    ) -> Begun:
        """Begin a producer's send of a record with acks=all; send each value once in a history."""
        records = {f"{topic}-{partition}": [[None, value]]}
        return self.begin(process, "send", records=records, idempotent=idempotent)

    def sent(self, begun: Begun, offset: int | None) -> None:
        """End a send of one record as acknowledged; `offset` is None if the broker sent none."""
        ((name, ((_, value),)),) = begun.operation.records.items()
        begun.ok(records={name: [[offset, value]]})

    def assigned(self, process: str, topic: str, positions: Mapping[int, int | None]) -> None:
        """Record that a consumer was assigned partitions of a topic, with their positions."""
        partitions = {f"{topic}-{number}": offset for number, offset in positions.items()}
        self.begin(process, "assign", partitions=partitions).ok()

    @contextmanager
    def poll(self, process: str, topic: str) -> Iterator[dict[int, list[tuple[int, Any]]]]:
        """Record one poll: the caller fills the yielded lists with (offset, value), by partition.

        After an exception, the poll is recorded with the records so far and an unknown outcome.
        """
        begun = self.begin(process, "poll")
        polled: dict[int, list[tuple[int, Any]]] = {}

        def records() -> dict[str, list[tuple[int, Any]]]:
            return {f"{topic}-{number}": listed for number, listed in polled.items()}

        try:
            yield polled
        except BaseException as error:
            begun.operation.records = records()
            begun.info(repr(error))
            raise
        begun.ok(records=records())

    def _now(self) -> int:
        return self._since + time.monotonic_ns()

    def _ends(self, begun: Begun, outcome: str, note: str, fields: Mapping[str, Any]) -> None:
        operation = begun.operation
        for name, value in fields.items():
            setattr(operation, name, value)
        operation.outcome, operation.note, operation.end = outcome, note, self._now()
        with self._lock:
            if self._open.pop(id(begun), None) is None:
                raise ValueError(f"this operation has ended before: {describe(operation)}")
            self._file.write(encode(operation) + "\n")

    def close(self) -> None:
        """Write unfinished operations as unknown, and close the file; may be repeated."""
        with self._lock:
            for begun in self._open.values():
                self._file.write(encode(begun.operation) + "\n")
            self._open.clear()
            self._file.close()

    def __enter__(self) -> HistoryRecorder:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # Judging

    def check(self, *, has_final_read: bool = True) -> Report:
        """Close the recorder, and judge the recorded history."""
        self.close()
        checker = HistoryChecker(has_final_read=has_final_read)
        with open(self.path, "rb") as lines:
            for number, operation in read_history(lines):
                checker.add(operation, number)
        return checker.finish()

    def assert_sound(self, *, has_final_read: bool = True) -> Report:
        """Check the history; raise AssertionError with the first anomalies that are not allowed."""
        report = self.check(has_final_read=has_final_read)
        if not report.is_sound:
            anomalies = "\n".join(
                f"{each} (lines {', '.join(map(str, each.lines))})"
                for each in report.forbidden_anomalies[:_SHOWN]
            )
            raise AssertionError(
                f"{report.forbidden} in {self.path}:\n{anomalies}\n"
                f"tidelog history check {self.path} prints the operations"
            )
        return report
