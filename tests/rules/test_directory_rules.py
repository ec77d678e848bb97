"""What a broker reports of its log directories: D11."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from tests.support.broker.fakes import a_cluster, replicate, settle

from tidelog.broker.apis import describe_log_dirs
from tidelog.broker.server.requests import Pending, Request
from tidelog.core.completion import Completion
from tidelog.core.errors import ErrorCode, StorageError
from tidelog.core.ports import VolumeSize
from tidelog.wire.codec import RequestHeader
from tidelog.wire.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest

VOLUME = VolumeSize(total_bytes=2, usable_bytes=1)


def run(coroutine: Coroutine[Any, Any, None]) -> None:
    asyncio.run(coroutine)


class Lane:
    """A directory's lane, at whose end there is a disk."""

    def __init__(self, outcome: VolumeSize | StorageError) -> None:
        self._outcome = outcome

    def submit(self, operation: Any, work: Any, name: str) -> Completion[VolumeSize]:
        completion: Completion[VolumeSize] = Completion()
        if isinstance(self._outcome, StorageError):
            completion.fail(self._outcome)
        else:
            size = self._outcome
            completion.resolve(operation(SimpleNamespace(volume_size=lambda path: size)))
        return completion


class TestDescribeLogDirs:
    async def described(
        self,
        outcome: VolumeSize | StorageError = VOLUME,
        topics: Sequence[DescribableLogDirTopic] | None = None,
        *,
        is_slow: bool = False,
        last: VolumeSize | None = None,
        failed: Mapping[str, StorageError] | None = None,
    ) -> Any:
        cluster = a_cluster()
        await replicate(cluster)
        broker = cluster[1]
        broker.log().fill(*[0] * 42)
        broker.directory.path, broker.directory.lane = "/data", Lane(outcome)  # type: ignore[assignment]  # a fake stands in
        broker.directory.speed.is_slow = is_slow
        broker.directory.space.free.volume = last
        broker.replicas.log_dirs.failed.update(failed or {})
        message = DescribeLogDirsRequest(topics=None if topics is None else list(topics))
        asked: Any = Request(RequestHeader(35, 4, 0, None), message, None, 0)  # type: ignore[arg-type]  # a fake stands in
        pending = describe_log_dirs.handle(broker, asked)  # type: ignore[arg-type]  # a fake stands in
        assert isinstance(pending, Pending)
        got: list[Any] = []
        pending.deliver_to(got.append)
        await settle()
        [result] = got[0].results
        return result

    @pytest.mark.rule("D11")
    def test_replicas_with_their_sizes_and_the_size_of_the_volume(self) -> None:
        async def story() -> None:
            result = await self.described(VolumeSize(total_bytes=99, usable_bytes=77))
            assert (result.log_dir, result.total_bytes, result.usable_bytes) == ("/data", 99, 77)
            [topic] = result.topics
            [one] = topic.partitions
            assert (topic.name, one.partition_index, one.partition_size) == ("t", 0, 42)
            assert (one.offset_lag, one.is_future_key) == (0, False)

        run(story())

    @pytest.mark.rule("D13")
    def test_a_slow_directory_is_described_without_waiting_for_it(self) -> None:
        async def story() -> None:
            looked = await self.described(VolumeSize(99, 77))
            assert (looked.is_slow, looked.total_bytes, looked.usable_bytes) == (False, 99, 77)
            seen = await self.described(VolumeSize(99, 77), is_slow=True)
            assert (seen.is_slow, seen.total_bytes, seen.usable_bytes) == (True, -1, -1)
            last = VolumeSize(98, 76)
            seen = await self.described(VolumeSize(99, 77), is_slow=True, last=last)
            assert (seen.total_bytes, seen.usable_bytes) == last

        run(story())

    @pytest.mark.rule("D11")
    def test_only_what_is_asked_for(self) -> None:
        async def story() -> None:
            assert (await self.described(VOLUME, [DescribableLogDirTopic("t", [1])])).topics == []
            named = await self.described(VOLUME, [DescribableLogDirTopic("t", [0])])
            assert [one.name for one in named.topics] == ["t"]
            assert (await self.described(VOLUME, [])).topics == []

        run(story())

    @pytest.mark.rule("D11")
    def test_a_directory_that_cannot_be_looked_at_says_so(self) -> None:
        async def story() -> None:
            result = await self.described(StorageError("/data", "statvfs", "/data", 5, 0))
            assert result.error_code == ErrorCode.KAFKA_STORAGE_ERROR
            assert (result.total_bytes, result.usable_bytes) == (-1, -1)
            assert result.topics == []
            [topic] = result.last_known  # what it holds is known: only its volume is not
            assert [(topic.name, each.partition_size) for each in topic.partitions] == [("t", 42)]

        run(story())

    @pytest.mark.rule("D11")
    def test_a_directory_that_fails_meanwhile_is_listed_once(self) -> None:
        async def story() -> None:
            error = StorageError("/data", "statvfs", "/data", 5, 0)
            for outcome in (VOLUME, error):
                result = await self.described(outcome, failed={"/data": error})
                assert result.error_code == ErrorCode.KAFKA_STORAGE_ERROR
                assert [topic.name for topic in result.last_known] == ["t"]

        run(story())
