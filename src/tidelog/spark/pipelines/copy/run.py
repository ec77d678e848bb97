"""A run of a copy, in rounds, from the checks of both clusters to the report.

A round copies each partition up to the log end that the source had when the round began, then
writes the offset table. One Spark task copies one partition. A crash loses no record: the next run
compares the target's last records, which the offset table lacks, with the source. With `follow` a
run copies round after round until it is stopped.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tidelog.client.fetching import EARLIEST, LATEST
from tidelog.core.dataclass import dataclass
from tidelog.core.errors import TidelogError
from tidelog.core.limits import MIB
from tidelog.core.types import READ_COMMITTED, TopicPartition
from tidelog.runtime.blocking import BlockingClient
from tidelog.spark.pipelines.copy.group_offsets import TranslatedOffset, translate_groups
from tidelog.spark.pipelines.copy.ledger import About, CopyLedger, LedgerError
from tidelog.spark.pipelines.copy.offset_map import RECORDS, OffsetTable, Piece
from tidelog.spark.pipelines.copy.outcome import CopyOutcome, report_of
from tidelog.spark.pipelines.copy.targets import TargetTopics, check_names, source_topics
from tidelog.spark.pipelines.copy.transfer import CopyError, Range, copy_range, deleted_text
from tidelog.spark.pipelines.copy.verification import RangeCheck, check_range
from tidelog.spark.pipelines.job_progress import Progress
from tidelog.spark.pipelines.task_rows import Row, TaskFailedError, run_tasks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tidelog.spark.pipelines.report import PipelineReport

#: Maximum bytes of one task, and thus of the records to compare with the target after a crash.
ROUND_BYTES: Final = 64 * MIB
#: Maximum number of records in a task of the verification.
_CHECK_RECORDS: Final = 500_000
_TIMEOUT_MS: Final = 60_000
_POLL_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class CopyPlan:
    """The plan of a copy: sources, targets and options."""

    source: str
    target: str
    #: Target topic by source topic.
    topics: Mapping[str, str]
    directory: str
    replication_factor: int | None = None
    #: Configs of source topics that new target topics do not get.
    without_configs: Collection[str] = ()
    groups: Sequence[str] = ()
    skip_deleted: bool = False
    verify: bool = True
    timeout_ms: int = _TIMEOUT_MS
    round_bytes: int = ROUND_BYTES


def copy(
    spark: SparkSession,
    plan: CopyPlan,
    *,
    follow: bool = False,
    stop: Callable[[], bool] = lambda: False,
    progress: Progress | None = None,
) -> PipelineReport:
    """Copy a plan's topics up to their present ends, verify, translate committed offsets, report.

    With `follow`, go on with new records until `stop()` is true after a round. Raises CopyError,
    LedgerError, KafkaError, TaskFailedError.
    """
    check_names(plan.topics, is_same_cluster=False)
    ledger = CopyLedger(Path(plan.directory))
    with (
        ledger.locked(),
        _client(plan.source, plan, "source") as source,
        _client(plan.target, plan, "target") as target,
    ):
        ledger.load()
        work = _CopyRun(spark, plan, ledger, source, target, progress)
        work.prepare()
        work.go(follow=follow, stop=stop)
        return report_of(work.outcome)


def _client(bootstrap: str, plan: CopyPlan, side: str) -> BlockingClient:
    """Return a client that has reached its cluster; raise CopyError naming source or target."""
    client = BlockingClient(bootstrap, "tidelog-copy", plan.timeout_ms)
    try:
        client.metadata([])
    except TidelogError as error:
        client.close()
        raise CopyError(f"the {side} {bootstrap} cannot be reached: {error}") from error
    return client


@dataclass(slots=True)
class _CopyRun:
    """One run of a copy: its rounds, from the first checks to the report."""

    spark: SparkSession
    plan: CopyPlan
    ledger: CopyLedger
    source: BlockingClient
    target: BlockingClient
    progress: Progress | None
    outcome: CopyOutcome = field(init=False)
    _about: About = field(init=False)
    _topics: TargetTopics = field(init=False)

    def prepare(self) -> None:
        """Check both clusters and the directory; create the target topics."""
        plan = self.plan
        clusters = [str(client.metadata([]).cluster_id) for client in (self.source, self.target)]
        check_names(plan.topics, is_same_cluster=clusters[0] == clusters[1])
        known = self.ledger.about()
        if known is not None and [known.source_cluster, known.target_cluster] != clusters:
            raise LedgerError(
                f"{plan.directory} belongs to a copy from cluster {known.source_cluster} to"
                f" {known.target_cluster}, not from {clusters[0]} to {clusters[1]}; use another"
                " directory for another pair of clusters"
            )
        # An unknown topic must raise an error before anything is written.
        source_topics(self.source, plan.topics, plan.source)
        if known is None:
            known = About(clusters[0], clusters[1], *self.target.init_producer_id())
        self._about = known
        self._topics = TargetTopics(
            self.source,
            self.target,
            replication_factor=plan.replication_factor,
            left_out=plan.without_configs,
        )
        self.outcome = CopyOutcome(plan.topics, self._maps())
        self._pair_topics()

    def _maps(self) -> dict[TopicPartition, OffsetTable]:
        return {tp: each for tp, each in self.ledger.maps.items() if tp.topic in self.plan.topics}

    def _pair_topics(self) -> list[TopicPartition]:
        """Return the source partitions; create missing target topics."""
        found: list[TopicPartition] = []
        for name, topic in source_topics(self.source, self.plan.topics, self.plan.source).items():
            pair = self._topics.prepare(topic, self.plan.topics[name], self._about)
            if self._about.topics.get(name) != pair:
                self._about.topics[name] = pair
                self.ledger.describe(self._about)
            found += [TopicPartition(name, number) for number in topic.partitions]
        self.outcome.created = list(self._topics.created)
        return found

    def go(self, *, follow: bool, stop: Callable[[], bool]) -> None:
        """Copy in rounds until the ends of the source are reached, or until `stop()`."""
        started = time.monotonic()
        before = {tp: each.end for tp, each in self._maps().items()}
        partitions = self._pair_topics()
        ends = self._ends(partitions)
        while True:
            ranges = self._ranges(partitions, ends)
            if ranges:
                self._round(ranges, ends)
            if follow and stop():
                break
            if not follow and not self._ranges(partitions, ends):
                break
            if follow:
                if not ranges:
                    self._translate()
                    time.sleep(_POLL_S)
                partitions = self._pair_topics()
                ends = self._ends(partitions)
        self.outcome.maps = self._maps()
        self.outcome.ends = ends
        self._translate()
        self.outcome.copy_seconds = time.monotonic() - started
        if self.plan.verify:
            self._verify(before)

    def _ends(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        listed = self.source.list_offsets(dict.fromkeys(partitions, LATEST), READ_COMMITTED)
        return {tp: each.offset for tp, each in listed.items()}

    def _ranges(
        self, partitions: Sequence[TopicPartition], ends: Mapping[TopicPartition, int]
    ) -> list[Range]:
        """Return the ranges to copy in the next round."""
        maps = self.ledger.maps
        new = [tp for tp in partitions if tp not in maps]
        firsts = self.source.list_offsets(dict.fromkeys(new, EARLIEST)) if new else {}
        found = []
        for tp in partitions:
            known = maps.get(tp, OffsetTable())
            start = firsts[tp].offset if known.end is None else known.end
            if start > ends[tp]:
                raise CopyError(deleted_text(tp, start, -1, ends[tp]))
            if start == ends[tp]:
                continue
            found.append(
                Range(
                    self.plan.source,
                    self.plan.target,
                    tp,
                    TopicPartition(self.plan.topics[tp.topic], tp.partition),
                    start,
                    ends[tp],
                    known.target_end or 0,
                    self._about.producer_id,
                    self._about.producer_epoch,
                    known.records,
                    self.plan.round_bytes,
                    self.plan.timeout_ms,
                    self.plan.skip_deleted,
                )
            )
        return found

    def _round(self, ranges: Sequence[Range], ends: Mapping[TopicPartition, int]) -> None:
        pieces: dict[TopicPartition, list[Piece]] = {}
        for row in self._tasks(ranges, copy_range):
            tp = TopicPartition(row["topic"], row["partition"])
            pieces[tp] = [Piece(*each) for each in row["pieces"]]
            self.outcome.records += sum(each.records for each in pieces[tp])
            self.outcome.sent_bytes += row["bytes"]
            self.outcome.found += row["found"]
        self.ledger.add(pieces, self._about)
        self.outcome.rounds += 1
        if self.progress is not None:
            maps = self._maps()
            left = sum(end - (maps[tp].end or 0) for tp, end in ends.items() if tp in maps)
            done = sum(each.records for each in maps.values())
            self.progress(done, done + left)

    def _translate(self) -> None:
        rows: list[TranslatedOffset] = translate_groups(
            self.source, self.target, self.plan.groups, self._maps(), self.plan.topics
        )
        self.outcome.groups = rows

    def _verify(self, before: Mapping[TopicPartition, int | None]) -> None:
        """Read back the ranges that this run copied."""
        started = time.monotonic()
        checks = []
        for tp, known in self._maps().items():
            start = before.get(tp)
            pieces = known.between(known.start or 0 if start is None else start, known.end or 0)
            for part in split(pieces, _CHECK_RECORDS):
                there = TopicPartition(self.plan.topics[tp.topic], tp.partition)
                checks.append(
                    RangeCheck(
                        self.plan.source, self.plan.target, tp, there, part, self.plan.timeout_ms
                    )
                )
        self.outcome.checks = self._tasks(checks, check_range, "reading back: ")
        self.outcome.verify_seconds = time.monotonic() - started

    def _tasks(
        self, specs: Sequence[Any], work: Callable[[Any], Iterable[Row]], what: str = ""
    ) -> list[Row]:
        try:
            return run_tasks(self.spark, specs, work)
        except TaskFailedError as error:
            raise CopyError(f"{what}{error}") from error


def split(pieces: Sequence[Piece], records: int) -> list[tuple[Piece, ...]]:
    """Split pieces of the offset table into parts of at most `records` records."""
    parts: list[list[Piece]] = [[]]
    room = records
    for piece in pieces:
        rest = piece
        while rest.kind == RECORDS and rest.records > room:
            if room:
                parts[-1].append(rest._replace(end=rest.start + room))
                rest = Piece(rest.start + room, rest.end, rest.target + room)
            parts.append([])
            room = records
        parts[-1].append(rest)
        room -= rest.records
    return [tuple(part) for part in parts if part]
