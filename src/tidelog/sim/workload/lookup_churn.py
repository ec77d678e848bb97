"""Lookups of offsets (ListOffsets), by timestamp and at the log end, and records that expire.

Each response is compared with the committed records (V36). The "latest" offset must not be above
the end of the committed records. It must not be below the end of the records that leaders of
earlier epochs committed, or below an earlier response of the same leader. A record found by
timestamp must be committed, have the timestamp in the response, and be the first record with the
requested or a later timestamp. If the published leader finds no record, and still leads afterwards,
there must have been no matching record at the time of the request.

Retention and DeleteRecords may remove committed records of the topic, but no other records;
`replication_checker` checks this.
"""

from __future__ import annotations

import random
from typing import ClassVar, Final

from tidelog.client.fetching import LATEST, ListedOffset, LogReader
from tidelog.client.upkeep import PartitionAdmin
from tidelog.core.errors import TidelogError
from tidelog.core.types import READ_UNCOMMITTED, TopicPartition
from tidelog.sim.checkers.replication_checker import Truth
from tidelog.sim.observed.replica_logs import LogKey
from tidelog.sim.workload.churning import ChurnKind, churn_of_profiles
from tidelog.sim.workload.work import Workload

#: Special timestamp with which ListOffsets returns the record that has the largest timestamp
#: (KIP-734).
_MAX_TIMESTAMP: Final = -3
#: Special offset with which DeleteRecords deletes up to the high watermark.
_EVERYTHING: Final = -1
#: Offset in a response if no record has the requested or a later timestamp.
_NONE: Final = -1
#: Lookups by timestamp use the present time minus one of these times in ms.
_AGES_MS: Final = (0, 50, 300, 1_500, 8_000)


@churn_of_profiles
class OffsetsLookedUp(ChurnKind):
    """Lookups of the latest offset, of offsets by timestamp, and of the record with the largest
    timestamp.
    """

    pause_ms = 5, 120

    def __init__(self, work: Workload, draw: random.Random) -> None:
        super().__init__(work, draw)
        self._reader = LogReader(self.client.router)
        #: By (partition, leader epoch), the highest "latest" offset in the leader's responses.
        self._latest: dict[tuple[LogKey, int], int] = {}

    async def act(self) -> None:
        await self._look_up(self.draw.choice(self.work.steady), self._wanted())

    def _wanted(self) -> int:
        """Return the timestamp to look up."""
        what = self.draw.random()
        if what < 0.5:
            return LATEST
        if what < 0.65:
            return _MAX_TIMESTAMP
        return self.client.ports.clock.wall_ms() - self.draw.choice(_AGES_MS)

    async def _look_up(self, partition: TopicPartition, wanted: int) -> None:
        key = self.key(partition)
        truth = self.work.cluster.replication.truth(key)
        led_by, committed = self._leadership(key), len(truth.committed)
        operation = self._reader.list_offsets({partition: wanted}, READ_UNCOMMITTED)
        try:
            listed = (await self.client.run(operation))[partition]
        except TidelogError as error:
            self.failed(f"looking up {wanted} of {partition}", error)
            return
        self.succeeded(f"{wanted} of {partition}: {listed}")
        if wanted == LATEST:
            self._check_latest(key, truth, listed)
            return
        if listed.offset != _NONE:
            self._check_found(truth, listed, wanted)
        # Note the leader epoch of the request: only the current leader must have all records that
        # were committed before the request.
        asked_epoch = self.client.router.leader_epoch(partition)
        if led_by == self._leadership(key) and led_by[1] == asked_epoch:
            self._check_not_passed_over(truth, listed, wanted, committed)

    def _leadership(self, key: LogKey) -> tuple[int, int]:
        """Return the published leader and its leader epoch."""
        state = self.work.cluster.published.partitions[key]
        return state.leader, state.leader_epoch

    def _check_latest(self, key: LogKey, truth: Truth, listed: ListedOffset) -> None:
        offset, epoch = listed.offset, listed.leader_epoch
        if offset > len(truth.committed):
            self._wrong(f"{truth.name} ends at {offset}; {len(truth.committed)} are committed")
        before = truth.committed_before(epoch)
        if epoch >= 0 and offset < before:
            self._wrong(
                f"{truth.name} ends at {offset} in leader epoch {epoch}; leaders of earlier ones"
                f" committed {before} records"
            )
        known = self._latest.setdefault((key, epoch), offset)
        if epoch >= 0 and offset < known:
            self._wrong(f"{truth.name} ends at {offset} in leader epoch {epoch}, and had {known}")
        self._latest[(key, epoch)] = max(offset, known)

    def _check_found(self, truth: Truth, listed: ListedOffset, wanted: int) -> None:
        offset = listed.offset
        if offset >= len(truth.committed):
            self._wrong(
                f"{truth.name} has a record of {wanted} at {offset}; {len(truth.committed)} are"
                " committed"
            )
            return
        times = self._times(truth)
        if times[offset] != listed.timestamp or (wanted >= 0 and listed.timestamp < wanted):
            self._wrong(
                f"{truth.name} has a record of {wanted} at {offset}, of time {listed.timestamp};"
                f" {times[offset]} is its time"
            )
        elif wanted >= 0 and any(time >= wanted for time in times[:offset]):
            self._wrong(
                f"{truth.name} has its first record of {wanted} at {offset}; there are earlier ones"
            )

    def _check_not_passed_over(
        self, truth: Truth, listed: ListedOffset, wanted: int, committed: int
    ) -> None:
        """Check that a lookup missed none of the records that were committed at the time of the
        request.

        A lookup of the largest timestamp may return no record, because the record may not be
        committed yet.
        """
        newest = max(self._times(truth)[:committed], default=-1)
        if listed.offset == _NONE and 0 <= wanted <= newest:
            self._wrong(f"{truth.name} has no record of {wanted}; {newest} is the time of one")
        elif listed.offset != _NONE and wanted == _MAX_TIMESTAMP and listed.timestamp < newest:
            self._wrong(
                f"{truth.name} has its newest record at {listed.offset}, of {listed.timestamp};"
                f" {newest} is the time of one"
            )

    def _times(self, truth: Truth) -> list[int]:
        """Return the timestamp of each committed record."""
        by_number = self.client.history.by_number
        return [by_number[number].timestamp_ms for number in truth.committed]

    def _wrong(self, what: str) -> None:
        self.client.history.broken_promise(f"client {self.client.node_id} got a response: {what}")


@churn_of_profiles
class RecordsExpire(ChurnKind):
    """A topic that retention keeps small, and from which DeleteRecords sometimes removes all
    records.
    """

    topic: ClassVar[str] = "fleeting"
    configs: ClassVar[dict[str, str]] = {
        "segment.bytes": "700",
        "retention.bytes": "1400",
        "file.delete.delay.ms": "100",
    }

    pause_ms = 200, 2_500

    async def begin(self) -> None:
        work, partition = self.work, TopicPartition(self.topic, 0)
        await self.create(self.topic, configs=self.configs)
        # Allow the loss of all records, because the client does not know when retention removes
        # which records.
        self.client.records_may_go(partition, self.topic_id(self.topic), 1 << 62)
        work.produce(work.client(), partition)
        work.produce(work.client(), partition)
        work.consume(work.client(), partition)

    async def act(self) -> None:
        partition = TopicPartition(self.topic, 0)
        deleter = PartitionAdmin(self.client.router)
        with self.tried("deletion of everything"):
            low = await self.client.run(deleter.delete_records({partition: _EVERYTHING}))
            self.succeeded(f"deletion of everything: {low[partition]}")
