"""Rule V35: strays are listed, restored where nothing can be lost by it, and deleted on a word."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.support.broker.directory import FakeLog
from tests.support.broker.fakes import (
    T0,
    TOPIC_ID,
    a_cluster,
    settle,
    state,
)
from tests.support.log import TP, LogHarness, batch_of, directory_of, drive

from tidelog.broker.cluster_view import PartitionView, TopicView
from tidelog.broker.replicas.stray_recovery import StrayRecovery
from tidelog.core.completion import Completion
from tidelog.core.errors import ErrorCode, KafkaError
from tidelog.core.types import ZERO_TOPIC_ID, TopicPartition
from tidelog.log.config import LogConfig
from tidelog.log.stray_replicas import Recovered, Stray, StrayFound, StrayState
from tidelog.replication.stray_checks import Assigned, Present, Returning, check
from tidelog.wire.messages.alter_strays import (
    DELETE,
    RESTORE,
    AlterStraysRequest,
    AlterStraysResponse,
    NamedStray,
)

STRAY = Returning(T0, TOPIC_ID, 2, 9, 4)
ASSIGNED = Assigned(TOPIC_ID, -1, 6, 0, (1, 2, 3), (1, 2))
EMPTY_LEADER = Present(0, 0, True, {2: 0, 3: -1})


def run(coroutine: Coroutine[Any, Any, None]) -> None:
    asyncio.run(coroutine)


@pytest.mark.rule("V35")
@pytest.mark.parametrize(
    ("assigned", "present"),
    [
        (ASSIGNED, None),
        (ASSIGNED, Present(0, 0, False)),
        (replace(ASSIGNED, isr=(2,)), None),
        (replace(ASSIGNED, leader=1), None),
        (replace(ASSIGNED, leader=1), EMPTY_LEADER),
        (replace(ASSIGNED, leader_epoch=4), None),
        (replace(ASSIGNED, first_leader_epoch=4), None),
    ],
)
def test_a_stray_may_return_where_nothing_is_lost(
    assigned: Assigned, present: Present | None
) -> None:
    check(1, STRAY, assigned, present)
    check(1, replace(STRAY, log_start_offset=0, log_end_offset=0, latest_epoch=-1), assigned, None)


@pytest.mark.rule("V35")
@pytest.mark.parametrize(
    ("assigned", "present", "error", "message"),
    [
        (None, None, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "bring its metadata back"),
        (
            replace(ASSIGNED, topic_id=b"O" * 16),
            None,
            ErrorCode.INCONSISTENT_TOPIC_ID,
            "not the same topic",
        ),
        (
            replace(ASSIGNED, topic_id=ZERO_TOPIC_ID),
            None,
            ErrorCode.INCONSISTENT_TOPIC_ID,
            "topic id unknown",
        ),
        (
            replace(ASSIGNED, replicas=(2, 3)),
            None,
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            r"not assigned to broker 1, but to \[2, 3\]",
        ),
        (replace(ASSIGNED, leader=2), None, ErrorCode.INVALID_REQUEST, "broker 2 leads t-0"),
        (replace(ASSIGNED, leader=-2), None, ErrorCode.INVALID_REQUEST, "being deleted"),
        (
            replace(ASSIGNED, leader_epoch=3),
            None,
            ErrorCode.FENCED_LEADER_EPOCH,
            "with a leader_epoch of 4 or more",
        ),
        (
            replace(ASSIGNED, first_leader_epoch=5),
            None,
            ErrorCode.FENCED_LEADER_EPOCH,
            "that was removed",
        ),
        (
            ASSIGNED,
            Present(3, 4, False),
            ErrorCode.INVALID_REQUEST,
            "has offsets 3 to 4, the stray 2 to 9",
        ),
        (
            ASSIGNED,
            Present(7, 7, False),
            ErrorCode.INVALID_REQUEST,
            "holds, or held, records is not replaced",
        ),
        (
            replace(ASSIGNED, leader=1),
            replace(EMPTY_LEADER, follower_ends={2: 5}),
            ErrorCode.INVALID_REQUEST,
            "broker 2, which is in the ISR of t-0, has offsets up to 5",
        ),
        (
            replace(ASSIGNED, leader=1),
            replace(EMPTY_LEADER, follower_ends={2: -1}),
            ErrorCode.INVALID_REQUEST,
            "has not reported its log end",
        ),
    ],
)
def test_where_something_could_be_lost_it_stays_aside_and_it_is_said_why(
    assigned: Assigned | None, present: Present | None, error: ErrorCode, message: str
) -> None:
    with pytest.raises(KafkaError, match=message) as raised:
        check(1, STRAY, assigned, present)
    assert raised.value.code is error


class FakeStrays:
    """One stray, on a fake directory: epochs 0 and 1, three records."""

    def __init__(self, directory: Any) -> None:
        self.directory = directory
        self.stray = Stray("t-0.x-stray", "t-0", 5)
        self.removed: list[str] = []
        directory.strays[self.stray.name] = self.stray
        directory.stray_replicas = self

    async def look(self) -> list[StrayFound]:
        found = StrayState(T0, TOPIC_ID, 3, 0, 2)
        return [StrayFound(self.stray, found, TOPIC_ID, 123)]

    async def recover(self, found: StrayFound, config: Any) -> Recovered:
        log = self.log()
        loaded: Any = SimpleNamespace(
            log_start_offset=0, log_end_offset=log.log_end_offset, epochs=log.epochs
        )
        assert found.state is not None
        return Recovered(found.stray, found.state, loaded)

    async def put_back(self, recovered: Recovered, config: Any) -> FakeLog:
        del self.directory.strays[recovered.stray.name]
        assert T0 not in self.directory.logs
        self.directory.logs[T0] = log = self.log()
        return log

    def remove(self, wanted: list[str]) -> Completion[int]:
        self.removed += wanted
        return Completion.of(len(wanted))

    @staticmethod
    def log() -> FakeLog:
        log = FakeLog(T0, TOPIC_ID)
        log.fill(0, 0, 1)
        return log


def a_broker(leader: int, leader_epoch: int = 1) -> tuple[Any, FakeStrays]:
    """Return broker 1 with a stray, after a command that names the partition."""
    broker: Any = a_cluster()[1]
    broker.directory.path = "/logs"
    broker.replicas.log_dirs.good = [broker.directory]
    view = PartitionView(leader, leader_epoch, (1, 2), (1,), (), 0)
    broker.view.topics["t"] = TopicView("t", TOPIC_ID, {0: view})
    requests: Any = SimpleNamespace(ask=lambda why: broker.directory.calls.append(("asked", None)))
    broker.strays = StrayRecovery(broker.services, broker.replicas, broker.commands, requests)
    return broker, FakeStrays(broker.directory)


async def alter(broker: Any, action: int, name: str = "t-0.x-stray") -> AlterStraysResponse:
    request = AlterStraysRequest(action, [NamedStray("/logs", name)])
    response: AlterStraysResponse = await broker.strays.alter(request)
    return response


@pytest.mark.rule("V35")
def test_a_restored_replica_has_no_role_until_the_controller_that_is_asked_gives_it_one() -> None:
    async def story() -> None:
        broker, _ = a_broker(leader=-1)
        (result,) = (await alter(broker, RESTORE)).results
        assert (result.error_code, result.log_start_offset, result.log_end_offset) == (0, 0, 3)
        partition = broker.replicas.get(T0)
        assert not partition.has_role and partition.high_watermark == 2
        assert ("asked", None) in broker.directory.calls
        await broker.command(state(leader_epoch=2), full=True)
        assert partition.is_leader and partition.log.log_end_offset == 3

    run(story())


@pytest.mark.rule("V35")
def test_it_takes_the_place_of_an_empty_replica_only() -> None:
    async def story() -> None:
        broker, _ = a_broker(leader=1)
        await broker.command(state(isr=(1,), is_new=True))
        (result,) = (await alter(broker, RESTORE)).results
        assert result.error_code == 0
        assert broker.directory.deleted == [T0]
        assert broker.replicas.get(T0).log.log_end_offset == 3

        broker, strays = a_broker(leader=1)
        await broker.command(state(isr=(1,), is_new=True))
        broker.produce(1)
        await settle()
        (result,) = (await alter(broker, RESTORE)).results
        assert result.error_code == ErrorCode.INVALID_REQUEST
        assert "has offsets 0 to 1, the stray 0 to 3" in (result.error_message or "")
        assert broker.directory.deleted == [] and broker.replicas.get(T0).is_leader
        assert strays.stray.name in broker.directory.strays

    run(story())


@pytest.mark.rule("V35")
def test_records_that_come_meanwhile_keep_the_replica_and_its_role_is_asked_for() -> None:
    async def story() -> None:
        broker, strays = a_broker(leader=1)
        await broker.command(state(isr=(1,), is_new=True))
        broker.log().is_slow = True
        broker.produce(1)
        asked = asyncio.ensure_future(alter(broker, RESTORE))
        await settle()
        assert not broker.replicas.get(T0).has_role
        broker.log().finish()
        (result,) = (await asked).results
        assert result.error_code == ErrorCode.INVALID_REQUEST
        assert strays.stray.name in broker.directory.strays
        assert broker.directory.logs[T0].log_end_offset == 1
        assert broker.directory.calls.count(("asked", None)) == 1

    run(story())


@pytest.mark.rule("V35")
def test_only_the_latest_stray_with_records_returns() -> None:
    async def story() -> None:
        broker, strays = a_broker(leader=-1)
        (found,) = await strays.look()
        later = found._replace(stray=Stray("t-0.y-stray", "t-0", 6))

        async def look() -> list[StrayFound]:
            return [found, later]

        strays.look = look  # type: ignore[method-assign]  # replaced by the test
        (result,) = (await alter(broker, RESTORE)).results
        assert result.error_code == ErrorCode.INVALID_REQUEST
        assert "t-0.y-stray is a later stray of t-0" in (result.error_message or "")
        later = later._replace(has_records=False)
        (result,) = (await alter(broker, RESTORE)).results
        assert result.error_code == 0

    run(story())


@pytest.mark.rule("V35")
def test_strays_are_listed_and_deleted_on_a_word() -> None:
    async def story() -> None:
        broker, strays = a_broker(leader=-1)
        (told,) = (await broker.strays.list()).directories
        (listed,) = told.strays
        assert (told.log_dir, listed.topic, listed.partition) == ("/logs", "t", 0)
        assert (listed.since_ms, listed.delete_at_ms, listed.size_bytes) == (5, 86_400_005, 123)
        strays.stray = strays.stray._replace(is_held=True)
        (told,) = (await broker.strays.list()).directories
        assert told.strays[0].delete_at_ms == -1
        (result,) = (await alter(broker, DELETE)).results
        assert result.error_code == 0 and strays.removed == [strays.stray.name]
        (result,) = (await alter(broker, DELETE, "t-9.y-stray")).results
        assert result.error_code == ErrorCode.INVALID_REQUEST
        assert (await alter(broker, 7)).error_code == ErrorCode.INVALID_REQUEST

    run(story())


@pytest.mark.rule("V35")
def test_those_left_of_many_that_went_at_once_wait_on() -> None:
    async def story() -> None:
        broker: Any = a_cluster(log_stray_delete_delay_ms="3600000")[1]
        await broker.replicas.open([broker.directory])
        await broker.command(*[state(partition=number, is_new=True) for number in range(100)])
        await broker.command(full=True)
        assert all(stray.is_held for stray in broker.directory.strays.values())
        assert any("`tidelog strays restore`" in line for line in broker.tracer.lines)
        for number in range(60):
            del broker.directory.strays[str(TopicPartition("t", number))]
        await broker.clock.advance(4_000_000)
        assert len(broker.directory.strays) == 40
        await broker.tasks.close()

    run(story())


@pytest.mark.rule("V35")
def test_gaps_that_compaction_left_survive_also_a_crash_behind_the_return(tmp_path: Path) -> None:
    harness = LogHarness(tmp_path)
    log = harness.log(LogConfig(compact_enabled=True, delete_enabled=False))
    for offset in (0, 5, 9):
        log.plan_follower_append(batch_of([b"x"], base_offset=offset))
        log.submit_planned()
    log.flush().result()
    directory_of(log).set_aside(TP).result()
    # It is compacted no more: what was flushed keeps its gaps.
    plain = LogConfig()
    directory = harness.open(plain)
    (found,) = drive(directory.stray_replicas.look())
    recovered = drive(directory.stray_replicas.recover(found, plain))
    assert drive(directory.stray_replicas.put_back(recovered, plain)).log_end_offset == 10
    assert harness.again(plain).log_end_offset == 10
