"""Rules D2 and D12: in which log directory a new replica goes, by room, and never into a cordon."""

from __future__ import annotations

import asyncio
from errno import EIO
from pathlib import Path

import pytest
from tests.support.broker.directory import FakeDirectory
from tests.support.broker.fakes import CONNECTION, FakeBroker, a_cluster, errors, state
from tests.support.log import LogHarness

from tidelog.broker.apis import mark_log_dirs_bad
from tidelog.broker.server.requests import Request
from tidelog.core.config import BrokerConfig
from tidelog.core.errors import ConfigError, ErrorCode, StorageError
from tidelog.core.types import TopicPartition
from tidelog.log.log_dir_choice import GrowthRate, LogDirRoom, Promises, choose, expected_bytes
from tidelog.wire.codec import RequestHeader
from tidelog.wire.messages.mark_log_dirs_bad import MarkLogDirsBadRequest
from tidelog.wire.registry import MARK_LOG_DIRS_BAD

GIB = 1 << 30


def room(
    usable: int | None,
    *,
    volume: int,
    held: int = 0,
    growth: int = 0,
    promised: int = 0,
    replicas: int = 0,
) -> LogDirRoom:
    return LogDirRoom(usable, volume, held, growth, promised, replicas)


# The choice.


@pytest.mark.rule("D2")
def test_the_volume_with_more_room_is_chosen_although_it_has_more_replicas() -> None:
    small, large = room(10 * GIB, volume=1), room(50 * GIB, volume=2, held=GIB, replicas=99)
    assert choose(3, GIB, [small, large]) == [1, 1, 1]


@pytest.mark.rule("D2")
def test_many_replicas_are_spread_by_the_room_that_each_takes() -> None:
    first, second = room(10 * GIB, volume=1), room(12 * GIB, volume=2)
    assert choose(6, GIB, [first, second]) == [1, 1, 0, 1, 0, 1]


@pytest.mark.rule("D2")
def test_growth_and_promises_count_against_the_room() -> None:
    quiet = room(10 * GIB, volume=1)
    assert choose(1, GIB, [room(20 * GIB, volume=2, growth=11 * GIB), quiet]) == [1]
    assert choose(1, GIB, [room(20 * GIB, volume=2, promised=11 * GIB), quiet]) == [1]
    assert choose(1, GIB, [room(20 * GIB, volume=2, growth=4 * GIB, promised=5 * GIB), quiet]) == [
        0
    ]


@pytest.mark.rule("D2")
def test_directories_of_one_volume_are_chosen_by_what_their_replicas_hold() -> None:
    shared = [
        room(10 * GIB, volume=1, held=5, replicas=1),
        room(10 * GIB - 4096, volume=1, held=3, promised=1, replicas=9),
        room(9 * GIB, volume=2),
    ]
    assert choose(1, 1, shared) == [1]
    grown = [shared[0], room(10 * GIB, volume=1, growth=2 * GIB), shared[2]]
    assert choose(1, 1, grown) == [2], "the growth of one is that of the volume"


@pytest.mark.rule("D2")
def test_where_the_room_of_one_is_not_known_all_are_chosen_by_what_they_hold() -> None:
    assert choose(1, 1, [room(None, volume=1, held=5), room(10 * GIB, volume=2, held=6)]) == [0]


@pytest.mark.rule("D2")
def test_ties_go_to_fewer_replicas_and_then_to_the_earlier_directory() -> None:
    assert choose(1, 1, [room(5, volume=1, replicas=2), room(5, volume=2, replicas=1)]) == [1]
    assert choose(4, 1, [room(5, volume=1), room(5, volume=2)]) == [0, 1, 0, 1]


@pytest.mark.rule("D2")
def test_the_expected_size_is_the_mean_and_no_less_than_a_part_of_the_smallest_volume() -> None:
    assert expected_bytes([2 * GIB, 4 * GIB], [100 * GIB], GIB) == 3 * GIB
    assert expected_bytes([10], [2_000, 5_000_000], GIB) == 10
    assert expected_bytes([], [2_000_000, None], GIB) == 2_000
    assert expected_bytes([], [1 << 60], GIB) == GIB
    assert expected_bytes([], [None], GIB) == GIB
    assert expected_bytes([], [0], GIB) == 1


@pytest.mark.rule("D2")
def test_promises_end_when_the_bytes_are_there_or_the_replica_is_gone_or_after_an_hour() -> None:
    promises = Promises()
    for name, size in (("a", 100), ("b", 50), ("c", 70)):
        promises.make("/d", name, size, 0)
    promises.make("/other", "a", 1_000, 0)
    assert promises.left("/d", {"a": 30, "b": 50}, 1) == 70
    assert promises.left("/d", {"a": 30, "b": 0, "c": 0}, 2) == 70, "the others have ended"
    assert promises.left("/d", {"a": 30}, Promises.LIFE_MS) == 0
    assert promises.left("/other", {"a": 0}, 1) == 1_000


@pytest.mark.rule("D2")
def test_growth_is_expected_to_go_on_for_an_hour() -> None:
    growth = GrowthRate()
    assert growth.expected_bytes(500, 0) == 0
    growth.sample(500, 0)
    growth.sample(9_999, GrowthRate.SAMPLE_MS - 1)
    assert growth.expected_bytes(600, GrowthRate.SAMPLE_MS - 1) == 0, "not known for long"
    growth.sample(600, GrowthRate.SAMPLE_MS)
    assert growth.expected_bytes(600, GrowthRate.SAMPLE_MS) == 100 * 60
    assert growth.expected_bytes(400, GrowthRate.SAMPLE_MS) == 0
    assert growth.expected_bytes(600, GrowthRate.SAMPLE_MS, GrowthRate.SAMPLE_MS + 1) == 0
    growth.restart()
    assert growth.expected_bytes(600, GrowthRate.SAMPLE_MS) == 0, "a move is no growth"
    growth.sample(600, GrowthRate.SAMPLE_MS)
    for number in range(2, GrowthRate.SAMPLES + 2):
        growth.sample(600, number * GrowthRate.SAMPLE_MS)
    assert growth.expected_bytes(600, (GrowthRate.SAMPLES + 1) * GrowthRate.SAMPLE_MS) == 0


# The broker.


class TwoDirectories:
    """Broker 1 with two log directories, each on a volume of its own."""

    def __init__(self, **config: str) -> None:
        self.broker: FakeBroker = a_cluster()[1]
        self.first, self.second = self.broker.directory, FakeDirectory()
        self.first.path, self.second.path = "/a", "/b"
        self.second.lane.device = 2
        self.broker.replicas.log_dirs.good.append(self.second)  # type: ignore[arg-type]  # a fake
        self.configure(**config)
        error = StorageError("/b", "use", "/b", EIO, 0)
        self.second.on_marked = lambda: self.broker.replicas.log_dirs.failed.update({"/b": error})

    def configure(self, **config: str) -> None:
        given = {"broker.id": "1", "metadata.store": "embedded:/nowhere", "log.dirs": "/a,/b"}
        given |= {name.replace("_", "."): text for name, text in config.items()}
        self.broker.services.settings.in_force = BrokerConfig.from_properties(given)

    async def create(self, *partitions: int) -> list[int]:
        response = await self.broker.command(
            *(state(partition=number, is_new=True) for number in partitions)
        )
        return errors(response)


@pytest.mark.rule("D2")
def test_a_broker_creates_replicas_where_the_volume_has_room_and_remembers_what_it_placed() -> None:
    async def story() -> None:
        at = TwoDirectories()
        at.first.lane.usable_bytes, at.second.lane.usable_bytes = 10 * GIB, 60 * GIB
        await at.create(*range(10))
        assert not at.first.logs and len(at.second.logs) == 10
        at.first.lane.usable_bytes = at.second.lane.usable_bytes
        await at.create(10)
        assert list(at.first.logs) == [TopicPartition("t", 10)], "ten have bytes to come"

    asyncio.run(story())


@pytest.mark.rule("D2", "D1")
def test_a_volume_that_cannot_be_looked_at_is_judged() -> None:
    async def story() -> None:
        at = TwoDirectories()
        at.first.lane.error = error = StorageError("/a", "statvfs", "/a", EIO, 0)
        await at.create(0, 1)
        assert at.first.judged == [error]
        assert len(at.first.logs) == len(at.second.logs) == 1, "by what they hold"

    asyncio.run(story())


@pytest.mark.rule("D12")
def test_new_replicas_stay_out_of_a_cordon_and_those_that_are_there_go_on() -> None:
    async def story() -> None:
        at = TwoDirectories()
        await at.create(0, 1)
        at.configure(cordoned_log_dirs="/a/")
        await at.create(2, 3, 4)
        assert len(at.first.logs) == 1 and len(at.second.logs) == 4
        assert at.broker.partition(next(iter(at.first.logs))).has_role
        at.configure()
        await at.create(5)
        assert len(at.first.logs) == 2

    asyncio.run(story())


@pytest.mark.rule("D12")
def test_with_all_directories_in_a_cordon_a_replica_is_refused_until_one_is_out_of_it() -> None:
    async def story() -> None:
        at = TwoDirectories(cordoned_log_dirs="*")
        assert await at.create(0) == [ErrorCode.KAFKA_STORAGE_ERROR]
        assert any("all log directories are cordoned" in text for text in at.broker.tracer.lines)
        at.configure(cordoned_log_dirs="/b")
        assert await at.create(0) == [0]
        assert len(at.first.logs) == 1

    asyncio.run(story())


@pytest.mark.rule("D12")
@pytest.mark.parametrize("text", ["/c", "/a,/c", "*,/a"])
def test_only_directories_of_the_broker_can_be_cordoned(text: str) -> None:
    given = {"broker.id": "1", "log.dirs": "/a,/b", "cordoned.log.dirs": text}
    with pytest.raises(ConfigError, match="cordoned.log.dirs"):
        BrokerConfig.from_properties(given)


# Marked bad by an operator.


def mark(at: TwoDirectories, *paths: str) -> list[tuple[int, str]]:
    """Have the broker give directories up; return the error and its reason for each."""
    request = MarkLogDirsBadRequest(list(paths))
    response = mark_log_dirs_bad.handle(
        at.broker,  # type: ignore[arg-type]  # a fake broker
        Request(RequestHeader(MARK_LOG_DIRS_BAD, 0, 0, "c"), request, CONNECTION, 0),
    )
    return [(each.error_code, each.error_message or "") for each in response.results]


@pytest.mark.rule("D12")
def test_a_directory_marked_bad_is_given_up_and_the_last_good_one_is_not() -> None:
    async def story() -> None:
        at = TwoDirectories()
        assert mark(at, "/c") == [
            (ErrorCode.LOG_DIR_NOT_FOUND, "broker 1 has no log directory /c: /a, /b")
        ]
        code, why = mark(at, "/b", "/a")[1]
        assert code == ErrorCode.INVALID_REQUEST
        assert "/a, /b are all good log directories of broker 1" in why
        code, why = mark(at, "/b", "/c")[0]
        assert code == ErrorCode.INVALID_REQUEST
        assert why == "nothing is given up: broker 1 has no log directory /c: /a, /b"
        assert not at.first.is_marked and not at.second.is_marked, "all of them, or none"
        assert mark(at, "/b") == [(ErrorCode.NONE, "")]
        assert at.second.is_marked and not at.first.is_marked
        good, last = mark(at, "/b", "/a")
        assert good == (ErrorCode.NONE, ""), "again"
        assert last[0] == ErrorCode.INVALID_REQUEST
        assert "/a is the last good log directory of broker 1" in last[1]
        assert not at.first.is_marked

    asyncio.run(story())


@pytest.mark.rule("D12")
def test_a_directory_marked_bad_has_failed_for_its_logs(tmp_path: Path) -> None:
    harness = LogHarness(tmp_path)
    directory = harness.open()
    seen: list[StorageError] = []
    directory.on_failure = seen.append
    directory.mark_bad()
    assert directory.failure is not None and directory.failure.is_device_failure
    assert seen == [directory.failure] and "an operator marked it bad" in str(seen[0])
