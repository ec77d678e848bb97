"""Mutants of the log: flushing, producers, compaction."""

from __future__ import annotations

from typing import Any, Final

from tests.support.mutants.mutant import mutant

from tidelog.core.errors import ErrorCode, KafkaError
from tidelog.core.limits import PRODUCER_BATCHES_REMEMBERED


@mutant("E3", "tidelog.log.log_directory:close_logs")
def clean_stop_unflushed(_: Any) -> Any:
    """A clean shutdown writes its marker and does not flush its logs."""

    async def close_logs(logs: Any) -> None:
        del logs

    return close_logs


@mutant("V38", "tidelog.log.producer_state:ProducerState.check", profile="slow_followers")
def sequence_window_off_by_one(original: Any) -> Any:
    """The leader recognises four of a producer's last five batches as duplicates."""

    def check(producers: Any, batch: Any, now_ms: int) -> Any:
        known = original(producers, batch, now_ms)
        entry = producers.entry(batch.producer_id)
        if (
            known is not None
            and len(entry.batches) == PRODUCER_BATCHES_REMEMBERED
            and known is entry.batches[0]
        ):
            raise KafkaError(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, "forgotten too early")
        return known

    return check


@mutant("V38", "tidelog.log.producer_state:ProducerState.check", profile="slow_followers")
def last_batch_not_recognised(original: Any) -> Any:
    """A repetition of a producer's newest batch is appended again."""

    def check(producers: Any, batch: Any, now_ms: int) -> Any:
        known = original(producers, batch, now_ms)
        entry = producers.entry(batch.producer_id)
        return None if entry is not None and known is entry.batches[-1] else known

    return check


#: A disk that is full makes its directory read-only (D14), which hides most batches that come
#: behind a rejected one. Without that it is full for one batch and not for the next.
FULL_FOR_ONE_WRITE: Final = "tidelog.log.directory_space:DirectorySpace.refused"


@mutant(
    "V38",
    "tidelog.log.producer_state:ProducerState._check_awaited",
    FULL_FOR_ONE_WRITE,
    profile="full_disks",
)
def later_batch_comes_first(*_: Any) -> Any:
    """A new producer's second batch is appended although its first was just rejected."""
    return lambda producers, batch, now_ms: None, lambda space, error: None


@mutant(
    "V38",
    "tidelog.log.refused_batches:RefusedBatches.check_behind",
    FULL_FOR_ONE_WRITE,
    profile="refused_batches",
)
def refused_batch_not_awaited(*_: Any) -> Any:
    """Batches of a known producer after a rejected one are out of order."""
    return lambda refused, batch, expected, now_ms: None, lambda space, error: None


@mutant(
    "V38", "tidelog.log.refused_batches:RefusedBatches.check_skipped", profile="overtaken_batches"
)
def skipped_batches_not_awaited(_: Any) -> Any:
    """A batch is out of order at a new leader although the former leader refused those before."""
    return lambda refused, batch, expected, now_ms: None


@mutant("V38", "tidelog.broker.apis.produce:_PartitionAppend.appended", profile="late_roles")
def duplicate_not_awaited(original: Any) -> Any:
    """The leader acknowledges a duplicate whose original is not committed yet."""

    def appended(wait: Any, completion: Any) -> None:
        if completion.error is not None or not completion.result().duplicate:
            original(wait, completion)
            return
        wait.answer.base_offset = completion.result().base_offset
        wait.acknowledged()

    return appended


@mutant("V38", "tidelog.log.producer_state:ProducerState.truncate_to", profile="late_roles")
def producers_not_rolled_back(_: Any) -> Any:
    """A truncated log still knows the producers' batches that were truncated."""
    return lambda producers, offset: True


@mutant("V60", "tidelog.log.log_cleaner:cleanable", profile="compaction")
def compaction_ignores_high_watermark(original: Any) -> Any:
    """Compaction uses the log end as its high watermark."""

    def cleanable(
        segments: Any, config: Any, checkpoint: Any, start: Any, end: Any, _: Any, *rest: Any
    ) -> Any:
        return original(segments, config, checkpoint, start, end, end, *rest)

    return cleanable


@mutant("V60", "tidelog.log.compaction:BatchFilter._stays", profile="compaction")
def compaction_drops_last_value(_: Any) -> Any:
    """Compaction drops the last record of a key with those before it."""
    return lambda batch_filter, batch, record: (
        batch.base_offset + record.offset_delta > batch_filter._map.latest_offset
    )
