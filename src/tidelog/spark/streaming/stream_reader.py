"""`readStream.format("tidelog")`: the reader that Spark calls, batch by batch.

Spark keeps one stream reader in a Python process of the driver for as long as a query runs. Spark
calls `latestOffset` for the end of the next batch and `partitions` for its tasks, and reads in
workers. The offsets that Spark stores have all state that a restart needs. The state that Spark
does not store (topic ids, the first offsets, the target of AvailableNow) only lets the reader
detect more changes.

An offset that goes back is intended: after a topic was recreated or a log truncated, the stream
continues at the lower offset.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, NoReturn

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from tidelog.core.types import ZERO_TOPIC_ID, TopicId, TopicPartition
from tidelog.spark.options import OptionError, ReadOptions
from tidelog.spark.planning import DataLossError, OffsetRange
from tidelog.spark.shipping import Shipped
from tidelog.spark.splitting import split_ranges
from tidelog.spark.streaming.admission import BatchDelay, count_waiting, limit_offsets
from tidelog.spark.streaming.arrivals import Arrivals
from tidelog.spark.streaming.log_changes import LogView, StreamStep, next_step, recreated_topics
from tidelog.spark.streaming.offset_json import (
    CheckpointError,
    Offsets,
    is_pinned,
    offsets_from_json,
    offsets_to_json,
)
from tidelog.spark.streaming.starts import Starts
from tidelog.spark.streaming.stream_cluster import LOSS_PATIENCE_MS, StreamCluster, monotonic_ms
from tidelog.spark.streaming.task_packing import pack_ranges
from tidelog.spark.worker_errors import sentence_first

if TYPE_CHECKING:
    import pyarrow as pa

#: Maximum time in ms for which `latestOffset` waits for records.
IDLE_MS: Final = 100
_ALLOW_LOSS: Final = "Set failOnDataLoss to false to go on without these records"

_log = logging.getLogger("tidelog.spark")


class PackedPartition(InputPartition):
    """The work of one task: ranges of several partitions, to be read one after the other."""

    def __init__(self, ranges: tuple[OffsetRange, ...]) -> None:
        self.ranges = ranges


class TidelogStreamReader(Shipped, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A reader with admission control, cheap to construct, as every task constructs a reader."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._planner: BatchPlanner | None = None

    # -- on the driver ----------------------------------------------------------------------------

    def initialOffset(self) -> Any:
        """Return where a new query starts."""
        with sentence_first():
            return self._driver().initial()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> Any:
        """Return the end of the next batch, or `start` if there is no next batch now."""
        with sentence_first():
            return self._driver().latest(start, limit)

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return `maxOffsetsPerTrigger` if given, else `minOffsetsPerTrigger` if given."""
        if self._options.max_offsets_per_trigger is not None:
            return ReadMaxRows(self._options.max_offsets_per_trigger)
        if self._options.min_offsets_per_trigger is not None:
            return ReadMinRows(self._options.min_offsets_per_trigger)
        return ReadAllAvailable()

    def reportLatestOffset(self) -> Any:
        """Return the ends of the logs at the last check, for the query's progress."""
        return self._driver().log_ends()

    def prepareForTriggerAvailableNow(self) -> None:
        """Bound the query: it reads up to the log ends that the next check finds."""
        self._driver().stop_at_next_ends()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Return the tasks of a batch."""
        with sentence_first():
            return list(self._driver().tasks(start, end))

    def stop(self) -> None:
        """Close the connections."""
        if self._planner is not None:
            self._planner.close()

    def _driver(self) -> BatchPlanner:
        if self._planner is None:
            self._planner = BatchPlanner(self._options)
        return self._planner

    # -- in tasks ---------------------------------------------------------------------------------

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one task as Arrow batches."""
        from tidelog.spark.streaming.stream_tasks import read_ranges

        if isinstance(partition, PackedPartition):  # Spark's placeholder partition has no ranges
            with sentence_first():
                yield from read_ranges(self._options, partition.ranges)


class RejectedStreamReader(Shipped, DataSourceStreamReader):
    """The reader of a stream with unusable options; every call by Spark raises their error."""

    def __init__(self, error: OptionError) -> None:
        self._error = error

    def initialOffset(self) -> NoReturn:
        """Raise OptionError."""
        with sentence_first():
            raise self._error

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> NoReturn:
        """Raise OptionError; a restarted query begins with this call."""
        self.initialOffset()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> NoReturn:
        """Raise OptionError; a query that repeats a batch begins with this call."""
        self.initialOffset()

    def read(self, partition: InputPartition) -> NoReturn:
        """Raise OptionError; Spark makes this call before it plans a task."""
        self.initialOffset()


class BatchPlanner:
    """The part of a running stream that works on the driver."""

    def __init__(self, options: ReadOptions, loss_patience_ms: int = LOSS_PATIENCE_MS) -> None:
        self._options = options
        for remark in options.remarks:
            _log.warning("%s", remark)
        self._cluster = StreamCluster(options, loss_patience_ms)
        self._arrivals = Arrivals(self._cluster.connect, options.isolation_level)
        self._delay = BatchDelay(options.min_offsets_per_trigger or 0, options.max_trigger_delay_ms)
        self._initial: Starts | None = None
        self._topic_ids: dict[str, TopicId] | None = None
        self._log_ends: Offsets = {}
        self._has_looked = False
        self._is_bounded = False
        #: The end of a bounded query (AvailableNow), with the losses of records before that end;
        #: None before the first check.
        self._target: StreamStep | None = None
        #: The end of the batch that this process planned last; None before the first batch.
        self._last_end: Offsets | None = None
        self._warned: set[str] = set()

    def close(self) -> None:
        """Close the connections."""
        self._arrivals.close()
        self._cluster.close()

    def log_ends(self) -> Any:
        """Return the ends of the logs at the last check; None before the first check."""
        return offsets_to_json(self._log_ends) if self._log_ends else None

    def stop_at_next_ends(self) -> None:
        """Bound the query: it reads up to the log ends that the next check finds."""
        self._is_bounded = True

    def initial(self) -> Any:
        """Return where a new query starts; repeated calls return the same offsets."""
        if self._initial is None:
            self._initial = self._cluster.starts()
            self._topic_ids = self._cluster.topic_ids()
        return offsets_to_json(self._initial.offsets)

    # -- the end of the next batch ----------------------------------------------------------------

    def latest(self, start: dict[str, Any], limit: ReadLimit) -> Any:
        """Return the end of the next batch, or `start` unchanged if there is no next batch now."""
        reached = offsets_from_json(start)
        pinned = self._pinned(start, reached)
        give_up = monotonic_ms() + IDLE_MS
        while True:
            step = self._look(reached)
            waiting = count_waiting(step.starts, step.ends)
            if pinned or _changes_course(reached, step) or self._is_due(waiting, limit):
                return self._admit(step, limit, pinned)
            left_ms = give_up - monotonic_ms()
            if left_ms <= 0 or self._is_bounded:
                return start
            # If records already wait for minOffsetsPerTrigger, no log is watched, because each new
            # record would end the wait.
            watched = {} if waiting else self._cluster.by_leader(step.ends)
            if not self._arrivals.wait(watched, left_ms):
                return start

    def _pinned(self, start: Mapping[str, Any], reached: Offsets) -> frozenset[TopicPartition]:
        """Return the partitions from which the query's first batch reads nothing; empty for later
        batches.
        """
        initial = self._initial
        if initial is None or is_pinned(start) or reached != initial.offsets:
            return frozenset()
        return initial.pinned if self._last_end is None else frozenset()

    def _is_due(self, waiting: int, limit: ReadLimit) -> bool:
        if self._is_bounded or isinstance(limit, ReadAllAvailable):
            return waiting > 0
        return self._delay.is_due(waiting, monotonic_ms())

    def _admit(self, step: StreamStep, limit: ReadLimit, pinned: frozenset[TopicPartition]) -> Any:
        ends = dict(step.ends)
        for tp in pinned & ends.keys():
            ends[tp] = step.starts[tp]
        if isinstance(limit, ReadMaxRows):
            ends = limit_offsets(limit.max_rows, step.starts, ends)
        self._last_end = ends
        return offsets_to_json(ends, is_pinned=bool(pinned))

    def _look(self, reached: Offsets) -> StreamStep:
        """Return how far the stream can read; raise or log losses of records."""
        target = self._target
        if target is not None:
            return StreamStep({**target.starts, **reached}, target.ends, [])
        begun = monotonic_ms()
        while True:
            view, recreated = self._view(reached)
            step = next_step(reached, view, recreated)
            # For a moment a new leader may report a log end below records that are committed.
            if not _is_behind(reached, view, recreated):
                break
            if monotonic_ms() - begun >= self._cluster.loss_patience_ms:
                break
            self._arrivals.wait({}, IDLE_MS)
        self._report(step.losses)
        self._log_ends = dict(view.latest)
        self._topic_ids = dict(view.topic_ids)
        self._has_looked = True
        if self._is_bounded:
            self._target = step
        return step

    def _view(self, reached: Offsets) -> tuple[LogView, set[str]]:
        cluster = self._cluster
        latest = cluster.latest()
        if latest != reached or cluster.is_outdated:
            # The topics are read after the log ends, so that logs of a recreated topic do not count
            # as logs of the old topic.
            cluster.read_topics()
            if set(cluster.partitions()) != latest.keys():
                latest = cluster.latest()
        ids = cluster.topic_ids()
        recreated = recreated_topics(self._topic_ids or {}, ids)
        unsure = [
            tp
            for tp in latest
            if not self._has_looked or tp not in reached or tp.topic in recreated
        ]
        earliest = cluster.earliest(unsure) if unsure else {}
        return LogView(latest, ids, earliest), recreated

    def _report(self, losses: list[str]) -> None:
        if losses and self._options.fail_on_data_loss:
            raise DataLossError(f"{'; '.join(losses)}. {_ALLOW_LOSS}")
        for sentence in losses:
            if sentence not in self._warned:
                self._warned.add(sentence)
                _log.warning("%s; the stream goes on", sentence)

    # -- its tasks --------------------------------------------------------------------------------

    def tasks(self, start: dict[str, Any], end: dict[str, Any]) -> list[PackedPartition]:
        """Return the tasks of a batch, the same tasks whenever the batch is planned."""
        starts, ends = offsets_from_json(start), offsets_from_json(end)
        if self._last_end != ends:
            ends = self._checked(starts, ends, is_first_pinned=is_pinned(end))
        new = [tp for tp in ends if tp not in starts]
        if new:
            starts = {**self._cluster.earliest(new), **starts}
        ids = self._topic_ids or {}
        ranges = [
            OffsetRange(tp, starts[tp], last, ids.get(tp.topic, ZERO_TOPIC_ID))
            for tp, last in sorted(ends.items())
            if last > starts[tp]
        ]
        fewest, most = self._options.min_partitions, self._options.max_records_per_partition
        if fewest is None and most is None:
            return [PackedPartition(each) for each in pack_ranges(ranges)]
        return [PackedPartition((each,)) for each in split_ranges(ranges, fewest, most)]

    def _checked(self, starts: Offsets, ends: Offsets, *, is_first_pinned: bool) -> Offsets:
        """Return the ends of a batch that an earlier run planned, limited to present log ends."""
        if starts == ends:
            return ends
        initial = self._initial
        if initial is not None and starts == initial.offsets and initial.pinned:
            return self._checked_first(ends, initial.pinned, is_first_pinned=is_first_pinned)
        self._cluster.read_topics()
        latest = self._cluster.latest()
        earliest = self._cluster.earliest(tp for tp in ends if tp in latest)
        self._topic_ids = self._topic_ids or self._cluster.topic_ids()
        losses: list[str] = []
        possible: Offsets = {}
        for tp, last in ends.items():
            if tp not in latest:
                losses.append(f"{tp} is gone, of which a batch should be repeated up to {last}")
                continue
            possible[tp] = min(last, latest[tp])
            start = starts.get(tp, earliest[tp])
            if last > start and (possible[tp] < last or start < earliest[tp]):
                losses.append(
                    f"a batch should read {tp} again from {start} to {last}, but its log holds"
                    f" {earliest[tp]} to {latest[tp]}: records were deleted, or the topic was"
                    " recreated"
                )
        self._report(losses)
        return possible

    def _checked_first(
        self, ends: Offsets, pinned: frozenset[TopicPartition], *, is_first_pinned: bool
    ) -> Offsets:
        """Return the ends of a query's first batch, which an earlier run planned and did not
        complete.

        The batch reads nothing from the `pinned` partitions, so they are left out.
        """
        if not is_first_pinned:
            self._report_unknown_start(ends)
        return {tp: last for tp, last in ends.items() if tp not in pinned}

    def _report_unknown_start(self, ends: Offsets) -> None:
        sentence = (
            f"the first batch of this checkpoint, up to {offsets_to_json(ends)}, was planned by"
            " another connector and did not complete, and where it started is not among Spark's"
            " offsets. Run the query with that connector until the batch is committed"
        )
        if self._options.fail_on_data_loss:
            raise CheckpointError(sentence)
        _log.warning("%s; its records are skipped", sentence)


def _changes_course(reached: Offsets, step: StreamStep) -> bool:
    """Return whether partitions were added or deleted, or the stream goes back in a log."""
    return reached.keys() != step.ends.keys() or any(
        end < step.starts[tp] for tp, end in step.ends.items()
    )


def _is_behind(reached: Offsets, view: LogView, recreated: set[str]) -> bool:
    return any(
        view.latest[tp] < start
        for tp, start in reached.items()
        if tp in view.latest and tp.topic not in recreated
    )
