"""A poller that reads the parts of a reading side by side, and waits for them until a deadline.

The poller of the console takes its time, because it publishes each part. A frame of `tidelog top`
must come on time instead. A broker that hangs delays one frame until the deadline, and no further
frame, however many parts need that broker. A part that has not ended keeps its last value, and the
reading says so.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Final

from tidelog.console.poller import PartResult, Poller, Publish
from tidelog.console.readings import ReadingPart
from tidelog.runtime.blocking import BlockingClient
from tidelog.runtime.deadline_reads import DeadlineReads

#: Time in s for which other parts wait for new metadata. Without a response they use the last
#: metadata.
_METADATA_S: Final = 0.5


class ParallelPoller(Poller):
    """A poller without a thread of its own: the caller begins reads, and waits for them."""

    def __init__(
        self,
        make_client: Callable[[], BlockingClient],
        publish: Publish,
        parts: Sequence[ReadingPart],
    ) -> None:
        """Create a poller whose parts have a client each, because a client serves one thread."""
        super().__init__(make_client(), publish, parts)
        self._clients = {part: make_client() for part in parts}
        self._reads: DeadlineReads[ReadingPart, tuple[PartResult, float]] = DeadlineReads()
        self._begun: Sequence[ReadingPart] = ()

    def close(self) -> None:
        """Close the clients, except the clients of reads that have not ended."""
        self._client.close()
        for part in self._clients.keys() - self._reads.running:
            self._clients[part].close()

    def begin_due(self, deadline_s: float) -> None:
        """Begin to read the parts that are due; wait for new metadata only, and publish it.

        No later than `deadline_s` of time.monotonic, the other parts begin.
        """
        has_metadata = self._reading.metadata is not None
        first_s = time.monotonic() + _METADATA_S if has_metadata else deadline_s
        begun = self._begin([ReadingPart.CLUSTER])
        self._reads.wait(begun, min(first_s, deadline_s))
        self._collect()
        self._publish(self._reading)
        self._begun = [*begun, *self._begin(self._parts)]

    def finish(self, deadline_s: float) -> None:
        """Wait until the parts that `begin_due` began have ended, or until `deadline_s`; publish.

        Parts that earlier calls began, and that have ended by now, are published, too.
        """
        self._reads.wait(self._begun, deadline_s)
        running = self._reads.running
        self._collect()
        problems = dict(self._reading.problems)
        for part in running:
            problems[part] = f"Reading {part} has not ended yet: a broker responds late, or never."
        self._take_samples()
        self._publish(replace(self._reading, problems=problems))

    def _begin(self, parts: Iterable[ReadingPart]) -> list[ReadingPart]:
        """Begin to read the parts that are due; return those that have begun."""
        now_s = time.monotonic()
        return [
            part
            for part in parts
            if now_s >= self._due_s[part] and self._reads.begin(part, self._reading_of(part))
        ]

    def _reading_of(self, part: ReadingPart) -> Callable[[], tuple[PartResult, float]]:
        known, client = self._reading, self._clients[part]

        def read() -> tuple[PartResult, float]:
            started_s = time.monotonic()
            return self._result(part, client, known), started_s

        return read

    def _collect(self) -> None:
        for part, (result, started_s) in self._reads.results().items():
            self._take(part, result, started_s)
