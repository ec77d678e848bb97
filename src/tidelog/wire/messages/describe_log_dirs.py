"""DescribeLogDirs (key 35), versions 1 to 4: sizes of replicas by log directory (KIP-113).

Version 2 is flexible, version 3 has an error of the whole response (KIP-784), version 4 has the
space of each volume (KIP-827). Brokers of tidelog add tagged fields of their own, which other
clients skip.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidelog.core.dataclass import dataclass
from tidelog.wire.schema import Api, array, boolean, int16, int32, int64, string

READ_ONLY_TAG = 20_040
CORDONED_TAG = 20_041
SLOW_TAG = 20_042
DRAINING_TAG = 20_045
LAST_KNOWN_TAG = 20_046


@dataclass(slots=True)
class DescribableLogDirTopic:
    """The partitions of one topic whose replicas are described."""

    topic: str = string("0+")
    partitions: Sequence[int] = array("int32", "0+")


@dataclass(slots=True)
class DescribeLogDirsRequest:
    """The partitions to describe; null `topics` mean all partitions."""

    topics: list[DescribableLogDirTopic] | None = array(DescribableLogDirTopic, "0+", nullable="0+")


@dataclass(slots=True)
class DescribeLogDirsPartition:
    """A replica in a log directory.

    `partition_size` is in bytes; `offset_lag` is the lag behind the high watermark. A future
    replica (`is_future_key`) is moving to this directory, and its `offset_lag` is the lag behind
    the current replica.
    """

    partition_index: int = int32("0+")
    partition_size: int = int64("0+")
    offset_lag: int = int64("0+")
    is_future_key: bool = boolean("0+")


@dataclass(slots=True)
class DescribeLogDirsTopic:
    """The replicas of one topic in a log directory."""

    name: str = string("0+")
    partitions: list[DescribeLogDirsPartition] = array(DescribeLogDirsPartition, "0+")


@dataclass(slots=True)
class DescribeLogDirsResult:
    """One log directory; the sizes of its volume are -1 if unknown."""

    error_code: int = int16("0+")
    log_dir: str = string("0+")
    topics: list[DescribeLogDirsTopic] = array(DescribeLogDirsTopic, "0+")
    total_bytes: int = int64("4+", -1, ignorable=True)
    usable_bytes: int = int64("4+", -1, ignorable=True)
    #: Whether the directory is read-only because its disk is full (D14).
    is_read_only: bool = boolean("2+", ignorable=True, tag=READ_ONLY_TAG)
    #: Whether the directory takes no new replicas (KIP-1066); Kafka has this field in version 5.
    is_cordoned: bool = boolean("2+", ignorable=True, tag=CORDONED_TAG)
    #: Whether the directory is slow (D13).
    is_slow: bool = boolean("2+", ignorable=True, tag=SLOW_TAG)
    #: Whether all replicas of the directory move to other directories (D12).
    is_draining: bool = boolean("2+", ignorable=True, tag=DRAINING_TAG)
    #: The replicas of a failed directory, as they were when the directory failed.
    last_known: list[DescribeLogDirsTopic] = array(
        DescribeLogDirsTopic, "2+", ignorable=True, tag=LAST_KNOWN_TAG
    )


@dataclass(slots=True)
class DescribeLogDirsResponse:
    """The log directories of the responding broker."""

    throttle_time_ms: int = int32("0+")
    error_code: int = int16("3+", ignorable=True)
    results: list[DescribeLogDirsResult] = array(DescribeLogDirsResult, "0+")


API = Api(
    key=35,
    name="DescribeLogDirs",
    request=DescribeLogDirsRequest,
    response=DescribeLogDirsResponse,
    min_version=1,
    max_version=4,
    first_flexible_version=2,
)
