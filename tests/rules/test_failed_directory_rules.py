"""Log directories that fail one by one: D1, D3 to D10, D16, D18, V12 (also tests/cluster)."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from errno import EIO, ENOSPC, ENOTDIR, EROFS
from types import SimpleNamespace
from typing import Any

import pytest
from tests.rules.session_harness import SessionHarness
from tests.support.broker.directory import FakeDirectory
from tests.support.broker.fakes import (
    T0,
    TOPIC,
    TOPIC_ID,
    FakeBroker,
    a_cluster,
    errors,
    settle,
    state,
)
from tests.support.controller.values import (
    TP,
    broker,
    brokers,
    loaded,
    one_partition,
    roles_answered,
    settings,
    state_writes,
    step,
)
from tests.support.controller.values import state as published

from tidelog.broker.apis import get_replica_log_info
from tidelog.broker.broker import Broker
from tidelog.broker.replicas.command_requests import CommandRequests
from tidelog.broker.replicas.directories.failed_directories import FailedDirectories
from tidelog.broker.replicas.directories.offline_reports import OfflineReports
from tidelog.broker.replicas.metrics import (
    FULL_LOG_DIRECTORIES,
    OFFLINE_LOG_DIRECTORIES,
    OFFLINE_REPLICAS,
    SLOW_LOG_DIRECTORIES,
    USABLE_BYTES,
)
from tidelog.controller.cluster_events import ClusterEvent
from tidelog.controller.registrations import BrokersRead
from tidelog.controller.replica_answers import LogDirEventsRead
from tidelog.core.config import BrokerConfig
from tidelog.core.errors import ConfigError, ConnectionLost, ErrorCode, StorageError
from tidelog.core.metrics import Metric
from tidelog.core.ports import Files, VolumePlace, Work
from tidelog.core.types import NO_LEADER
from tidelog.log import known_log_dirs
from tidelog.log.directory_files import META_PROPERTIES, format_meta_properties
from tidelog.log.known_log_dirs import (
    FoundLogDir,
    KnownLogDir,
    LackingRoom,
    format_known,
    lacking_room,
    parse_known,
)
from tidelog.metadata import layout
from tidelog.metadata.layout_topics import TopicAssignment
from tidelog.metadata.store import NoNode, StoreUnavailable, TransactionFailed
from tidelog.sim.files import SimFiles
from tidelog.wire.messages.get_replica_log_info import (
    GetReplicaLogInfoRequest,
    GetReplicaLogInfoTopic,
)
from tidelog.wire.messages.request_commands import RequestCommandsResponse
from tidelog.wire.registry import ALTER_PARTITION, REQUEST_COMMANDS

FAILED = ErrorCode.KAFKA_STORAGE_ERROR
T1 = TP._replace(partition=1)


def topic_node(topic_id: bytes) -> bytes:
    return layout.encode_topic(TopicAssignment(topic_id, {0: (1, 2, 3)}))


# The controller.


@pytest.mark.rule("D4", "V12")
def test_a_leader_on_a_failed_directory_is_replaced_and_leaves_the_isr() -> None:
    controller = loaded()
    writes, effects = step(controller, roles_answered(1, FAILED))
    after = state_writes(writes)[TP]
    assert (after.leader, after.isr) == (2, (2, 3))
    assert controller.image.offline(TP) == (1,)
    assert effects.commands[3].roles[TP].state.leader == 2


@pytest.mark.rule("V12")
def test_the_next_leader_is_no_replica_on_a_failed_directory() -> None:
    controller = loaded()
    step(controller, roles_answered(2, FAILED))
    writes, _ = step(controller, BrokersRead(brokers(2, 3)))
    assert state_writes(writes)[TP].leader == 3


@pytest.mark.rule("D7")
@pytest.mark.parametrize("isr", [(1, 2, 3), (1, 2)])
def test_all_brokers_are_shown_which_replicas_are_offline(isr: tuple[int, ...]) -> None:
    """Also one that was out of the ISR already."""
    controller = loaded(one_partition(published(isr)))
    _, effects = step(controller, roles_answered(3, FAILED))
    for commands in effects.commands.values():
        [shown] = commands.shown.values()
        assert list(shown.offline_replicas) == [3]
    _, effects = step(controller, roles_answered(3, FAILED))
    assert not effects.commands, "it is known"
    _, effects = step(controller, roles_answered(3, ErrorCode.NONE))
    [shown] = effects.commands[1].shown.values()
    assert list(shown.offline_replicas) == []


@pytest.mark.rule("D4")
def test_a_sole_member_on_a_failed_directory_stays_a_member_without_a_leader() -> None:
    controller = loaded(one_partition(published((1,))), of=settings())
    writes, _ = step(controller, roles_answered(1, FAILED))
    after = state_writes(writes)[TP]
    assert (after.leader, after.isr) == (NO_LEADER, (1,))


@pytest.mark.rule("D4")
def test_no_unclean_election_has_a_replica_on_a_failed_directory_lead() -> None:
    alone = loaded(one_partition(published((1,)), (1,)), of=settings(unclean=True))
    writes, _ = step(alone, roles_answered(1, FAILED))
    assert state_writes(writes)[TP].leader == NO_LEADER
    others = loaded(one_partition(published((1,)), (1, 2)), of=settings(unclean=True))
    step(others, roles_answered(2, FAILED))
    writes, _ = step(others, BrokersRead(brokers(2)))
    assert state_writes(writes)[TP].leader == NO_LEADER


@pytest.mark.rule("D3")
def test_a_partition_of_which_one_replica_is_offline_is_not_created_again() -> None:
    """Its creation was not cut short for certain: the offline replica may hold records."""
    fresh = published(leader_epoch=0, partition_epoch=0)
    controller = loaded(one_partition(fresh))
    step(controller, roles_answered(1))
    step(controller, roles_answered(2))
    _, effects = step(controller, roles_answered(3, FAILED))
    roles = [one.roles[TP].state for one in effects.commands.values() if TP in one.roles]
    assert not any(role.is_new for role in roles)


@pytest.mark.rule("D4")
def test_a_notification_has_its_broker_asked_for_all_replicas() -> None:
    controller = loaded()
    writes, effects = step(controller, LogDirEventsRead([2, 9]))
    assert writes == []
    assert list(effects.commands) == [2] and effects.commands[2].full


@pytest.mark.rule("D8")
def test_a_new_controller_learns_of_offline_replicas_by_the_answers_to_its_first_commands() -> None:
    controller = loaded(one_partition(published((1, 3))))
    assert controller.image.offline(TP) == ()
    _, effects = step(controller, roles_answered(2, FAILED))
    assert controller.image.offline(TP) == (2,)
    [shown] = effects.commands[1].shown.values()
    assert list(shown.offline_replicas) == [2]


@pytest.mark.rule("D5")
def test_another_life_of_the_broker_may_have_the_replica_again() -> None:
    controller = loaded()
    step(controller, roles_answered(2, FAILED))
    step(controller, BrokersRead(brokers(1, broker(2, life=2), 3)))
    assert controller.image.offline(TP) == ()


# The broker.


class TwoDirectories:
    """Broker 1 of a cluster, with two log directories; the notifications that it leaves."""

    def __init__(self) -> None:
        self.broker: FakeBroker = a_cluster()[1]
        services = self.broker.services
        config = {"broker.id": "1", "metadata.store": "embedded:/nowhere", "log.dirs": "/a,/b"}
        services.settings.in_force = BrokerConfig.from_properties(config)
        self.halts: list[str] = []
        self.events: list[ClusterEvent] = []
        self.broker.ports.halt = self.halts.append
        self.first, self.second = FakeDirectory(), FakeDirectory()
        self.first.path, self.second.path = "/a", "/b"
        self.replicas = self.broker.replicas
        self.replicas.log_dirs.good = [self.first, self.second]  # type: ignore[list-item]  # fakes
        self.failed = FailedDirectories(
            services,
            self.replicas,
            self.replicas.moves,
            self.broker.commands.rest,
            OfflineReports(services, CommandRequests(services)),
            SimpleNamespace(record=self.events.extend),  # type: ignore[arg-type]  # a fake
        )
        self.store = self.broker.store.nodes
        self.created: list[Any] = []
        self.errors: list[BaseException] = []
        self.broker.store.transact = self._transact  # type: ignore[attr-defined]  # of a fake

    async def _transact(self, ops: list[Any]) -> None:
        if self.errors:
            raise self.errors.pop(0)
        self.created += [(each.path, each.data, each.sequence) for each in ops]

    async def fail(self, path: str, number: int = EIO) -> None:
        self.failed.failed(path, StorageError(path, "pwritev", f"{path}/t-0", number, 0))
        await self.broker.clock.advance(1)


def run(story: Coroutine[Any, Any, None]) -> None:
    asyncio.run(story)


@pytest.mark.rule("D4", "D10")
def test_replicas_on_a_failed_directory_serve_nothing_and_the_others_go_on() -> None:
    async def story() -> None:
        at = TwoDirectories()
        one = at.broker
        await one.command(state(1, is_new=True), state(1, partition=1, is_new=True))
        await settle()
        assert T0 in at.first.logs and T1 in at.second.logs
        lost = one.partition(T0)
        await at.fail("/a")
        assert not lost.has_role and one.replicas.get(T0) is None
        assert one.replicas.missing_replica_error(T0) is FAILED
        assert one.partition(T1).is_leader
        assert at.created == [(layout.LOG_DIR_EVENT_PREFIX, layout.encode_log_dir_event(1), True)]
        assert one.metrics.value(OFFLINE_REPLICAS) == 1
        assert one.metrics.value(OFFLINE_LOG_DIRECTORIES) == 1
        assert at.halts == []
        [event] = at.events
        assert event.key == b"log_dir_failed/1/%d//a" % one.broker_epoch
        said = [event.fields[name] for name in ("error", "operation", "replicas", "led")]
        assert said == ["EIO", "pwritev", 1, 1]

    run(story())


@pytest.mark.rule("D10", "D13", "D14")
@pytest.mark.parametrize("metric", [SLOW_LOG_DIRECTORIES, FULL_LOG_DIRECTORIES, USABLE_BYTES])
def test_a_directory_that_failed_is_not_counted_as_slow_or_full(metric: Metric) -> None:
    async def story() -> None:
        at = TwoDirectories()
        for path in ("/a", "/b"):
            at.broker.metrics.put(metric, 1, path)
        await at.fail("/a")
        assert [each.labels for each in at.broker.metrics.samples(metric)] == [("/b",)]

    run(story())


@pytest.mark.rule("D18")
def test_the_other_directory_serves_new_partitions_alone() -> None:
    """With real brokers, in three ways of failing: tests/cluster/test_failed_directories.py."""

    async def story() -> None:
        at = TwoDirectories()
        await at.fail("/a")
        states = [state(1, partition=number, isr=(1,), is_new=True) for number in range(3)]
        assert errors(await at.broker.command(*states)) == [0, 0, 0]
        assert len(at.second.logs) == 3 and at.first.logs == {}
        done = at.broker.produce(3)
        await settle()
        assert done.result() is not None and at.second.logs[T0].log_end_offset == 3

    run(story())


@pytest.mark.rule("D3", "D9")
def test_commands_on_an_offline_replica_are_storage_errors_unless_it_is_made_elsewhere() -> None:
    async def story() -> None:
        at = TwoDirectories()
        one = at.broker
        await one.command(state(1, is_new=True))
        await at.fail("/a", EROFS)
        for leader, isr in ((1, (1, 2)), (2, (2, 3))):
            response = await one.command(state(leader, leader_epoch=1, isr=isr))
            assert errors(response) == [FAILED]
        response = await one.command(state(2, partition=1, isr=(2, 3)))
        assert errors(response) == [FAILED], "it may have been there, too"
        assert at.second.logs == {}
        assert await one.stop(T0) == FAILED
        response = await one.command(state(2, leader_epoch=2, isr=(2, 3), is_new=True))
        assert errors(response) == [0]
        assert T0 in at.second.logs
        assert one.replicas.missing_replica_error(T0) is not FAILED

    run(story())


@pytest.mark.rule("D3")
@pytest.mark.parametrize(("leader", "isr"), [(1, (1,)), (2, (1, 2)), (2, (2, 3))])
def test_a_creating_command_that_is_repeated_makes_no_second_replica_beside_an_offline_one(
    leader: int, isr: tuple[int, ...]
) -> None:
    """The response was lost. What the first replica had committed is in the failed directory."""

    async def story() -> None:
        at = TwoDirectories()
        creating = state(leader, isr=isr, is_new=True)
        assert errors(await at.broker.command(creating)) == [0]
        await at.fail("/a")
        assert errors(await at.broker.command(creating)) == [FAILED]
        later = state(1, leader_epoch=1, isr=(1,), is_new=True)
        assert errors(await at.broker.command(later)) == [FAILED], "merged with a later role"
        assert at.second.logs == {}
        another = bytes(15) + b"n"
        assert errors(await at.broker.command(creating, topic_id=another)) == [0]

    run(story())


@pytest.mark.rule("E6", "D4")
def test_a_log_that_may_be_in_a_failed_directory_does_not_count_as_lost() -> None:
    async def story() -> None:
        at = TwoDirectories()
        asked = GetReplicaLogInfoRequest([GetReplicaLogInfoTopic(TOPIC_ID, [0])])

        def answer() -> int:
            request: Any = SimpleNamespace(message=asked)
            context: Any = at.broker
            response = get_replica_log_info.handle(context, request)
            [topic] = response.topic_partition_log_info_list
            [found] = topic.partition_log_info
            return found.error_code

        assert answer() == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        await at.broker.command(state(1, is_new=True))
        assert answer() == ErrorCode.NONE
        await at.fail("/a")
        assert answer() == FAILED

    run(story())


@pytest.mark.rule("D4")
def test_a_command_under_way_gives_no_role_to_a_replica_whose_directory_fails_meanwhile() -> None:
    async def story() -> None:
        at = TwoDirectories()
        one = at.broker
        await one.command(state(1, is_new=True))
        at.first.logs[T0].is_slow = True
        one.produce()
        begun = asyncio.get_running_loop().create_task(one.command(state(1, leader_epoch=1)))
        await settle()
        await at.fail("/a")
        at.first.logs[T0].finish()
        assert errors(await begun) == [FAILED]
        assert one.replicas.get(T0) is None

    run(story())


@pytest.mark.rule("D4")
def test_a_failure_that_the_store_does_not_take_is_reported_again_until_it_is() -> None:
    async def story() -> None:
        at = TwoDirectories()
        missing = TransactionFailed(0, NoNode(layout.LOG_DIR_EVENTS))
        at.errors = [StoreUnavailable("no"), missing]
        await at.fail("/b", ENOTDIR)
        await at.broker.clock.advance(1_000)
        assert [path for path, _, _ in at.created] == [
            layout.LOG_DIR_EVENTS,
            layout.LOG_DIR_EVENT_PREFIX,
        ]
        await at.broker.clock.advance(60_000)
        assert at.halts == [] and len(at.created) == 2

    run(story())


@pytest.mark.rule("D4")
def test_a_broker_that_cannot_report_a_failure_in_time_ends() -> None:
    async def story() -> None:
        at = TwoDirectories()
        at.errors = [StoreUnavailable("no")] * 1_000
        await at.fail("/a")
        await at.broker.clock.advance(29_000)
        assert at.halts == []
        await at.broker.clock.advance(2_000)
        [reason] = at.halts
        assert "log.dir.failure.timeout.ms" in reason

    run(story())


def asked_of(at: TwoDirectories, controller_id: int) -> list[Any]:
    """What the broker asked the controller for directly."""
    return [
        message
        for broker_id, api_key, message in at.broker.services.peers.sent  # type: ignore[attr-defined]  # of a fake
        if (broker_id, api_key) == (controller_id, REQUEST_COMMANDS)
    ]


@pytest.mark.rule("D16")
def test_the_controller_hears_of_a_failure_directly_and_the_notification_is_left_as_well() -> None:
    async def story() -> None:
        at = TwoDirectories()
        peers: Any = at.broker.services.peers
        refusals = [ErrorCode.NOT_CONTROLLER, ErrorCode.NONE]
        peers.intercepted[REQUEST_COMMANDS] = lambda _, answered: answered(
            RequestCommandsResponse(error_code=refusals.pop(0)), None
        )
        at.broker.see(1, 2, 3, controller_id=3)
        await at.fail("/a")
        await at.broker.clock.advance(60_000)
        asked = asked_of(at, 3)
        assert len(asked) == 2, "again after a refusal, until it has heard"
        assert {each.broker_epoch for each in asked} == {at.broker.broker_epoch}
        assert [path for path, _, _ in at.created] == [layout.LOG_DIR_EVENT_PREFIX]
        await at.broker.clock.advance(1)

    run(story())


@pytest.mark.rule("D16")
@pytest.mark.parametrize("served", [True, False])
def test_a_controller_that_does_not_know_the_request_is_left_alone(served: bool) -> None:
    """Kafka's closes the connection over it: the notification in the store reaches it."""

    async def story() -> None:
        at = TwoDirectories()
        peers: Any = at.broker.services.peers
        peers.served = [(ALTER_PARTITION, 0, 3)] + [(REQUEST_COMMANDS, 0, 0)] * served
        peers.intercepted[REQUEST_COMMANDS] = lambda _, answered: answered(
            None, ConnectionLost("closed")
        )
        at.broker.see(1, 2, 3, controller_id=3)
        await at.fail("/a")
        await at.broker.clock.advance(10_000)
        asked = len(asked_of(at, 3))
        await at.broker.clock.advance(10_000)
        assert (len(asked_of(at, 3)) > asked) is served
        assert [path for path, _, _ in at.created] == [layout.LOG_DIR_EVENT_PREFIX]

    run(story())


@pytest.mark.rule("D1", "D17")
def test_a_broker_ends_with_its_last_directory_and_not_before() -> None:
    async def story() -> None:
        at = TwoDirectories()
        await at.fail("/a")
        assert at.halts == []
        at.failed.failed("/b", StorageError("/b", "fsync", "/b/t-0", EIO, 0))
        assert len(at.halts) == 1, "at once"

    run(story())


@pytest.fixture
def harness() -> Iterator[SessionHarness]:
    made = SessionHarness()
    yield made
    made.cluster.close()


@pytest.mark.rule("D5", "E3")
def test_a_broker_starts_without_a_bad_directory_and_proves_nothing_then(
    harness: SessionHarness,
) -> None:
    async def story() -> None:
        first = harness.broker(log_dirs="/a,/b")
        for directory in await first._open_directories():
            await directory.close(first.services.identity.clean_epochs.followed_by(5))
        second = harness.broker(log_dirs="/a,/b")
        ports = second.services.ports
        open_lane = ports.open_lane

        def open_good(path: str) -> Any:
            if path == "/b":
                raise StorageError(path, "open", path, EIO, 0)
            return open_lane(path)

        object.__setattr__(ports, "open_lane", open_good)
        try:
            opened = await second._open_directories()
        finally:
            object.__setattr__(ports, "open_lane", open_lane)
        assert [each.path for each in opened] == ["/a"]
        assert list(second.replicas.failed) == ["/b"]
        assert second.services.identity.clean_epochs.last == -1
        assert second.services.metrics.value(OFFLINE_LOG_DIRECTORIES) == 1

    harness.tell(story())


@pytest.mark.rule("D1", "D5")
def test_a_broker_without_any_good_directory_does_not_start(harness: SessionHarness) -> None:
    async def story() -> None:
        first = harness.broker(log_dirs="/a")
        first.services.metrics.put(OFFLINE_LOG_DIRECTORIES, 0)
        with pytest.raises(StorageError):
            first.failed_directories.found_at_start("/a", StorageError("/a", "open", "/a", EIO, 0))

    harness.tell(story())


@pytest.mark.rule("D6")
@pytest.mark.parametrize(
    ("first", "second", "kept"),
    [((4, 4, 4), (5,), "/b"), ((4, 5), (5,), "/a"), ((), (1,), "/b"), ((1,), (), "/a")],
)
def test_of_a_replica_in_two_directories_the_greater_copy_stays_and_the_other_is_a_stray(
    first: tuple[int, ...], second: tuple[int, ...], kept: str
) -> None:
    async def story() -> None:
        at = TwoDirectories()
        for directory, epochs in ((at.first, first), (at.second, second)):
            log = directory.logs[T0] = directory.log_type(T0, TOPIC_ID)
            log.fill(*epochs)
        at.store[layout.topic_path(TOPIC)] = topic_node(TOPIC_ID)
        await at.replicas.open([at.first, at.second])  # type: ignore[list-item]  # fakes
        assert at.replicas.get(T0) is not None
        assert at.broker.partition().directory.path == kept
        aside = at.second if kept == "/a" else at.first
        assert aside.set_aside_logs == [T0] and T0 not in aside.logs
        at.replicas.upkeep.close()

    run(story())


@pytest.mark.rule("D6", "V23")
def test_of_two_topics_of_a_name_the_copy_of_the_present_one_stays() -> None:
    """The greater log is of a topic that was deleted while its directory had failed."""

    async def story() -> None:
        at = TwoDirectories()
        former, present = bytes(15) + b"f", TOPIC_ID
        at.first.logs[T0] = at.first.log_type(T0, former)
        at.first.logs[T0].fill(1, 2, 3)
        at.second.logs[T0] = at.second.log_type(T0, present)
        at.store[layout.topic_path(TOPIC)] = topic_node(present)
        await at.replicas.open([at.first, at.second])  # type: ignore[list-item]  # fakes
        assert at.broker.partition().topic_id == present
        assert at.first.set_aside_logs == [T0]
        at.replicas.upkeep.close()

    run(story())


@pytest.mark.rule("D17", "E3")
def test_a_directory_that_fails_at_the_end_leaves_no_mark_and_the_others_do(
    harness: SessionHarness,
) -> None:
    async def story() -> None:
        broker = harness.broker(log_dirs="/a,/b")
        broker.replicas.log_dirs.good = await broker._open_directories()
        broker.replicas.directories[0].failure = StorageError("/a", "fsync", "/a/t-0", EIO, 0)
        epochs = broker.services.identity.clean_epochs.followed_by(5)
        with pytest.raises(StorageError):
            await broker._close_directories(epochs)
        again = harness.broker(log_dirs="/a,/b")
        found = [each.clean_shutdown for each in await again._open_directories()]
        assert found == [None, epochs]
        assert again.services.identity.clean_epochs.last == -1

    harness.tell(story())


async def noted(broker: Broker, path: str, known: dict[str, KnownLogDir], *, new: bool) -> None:
    """Have a log directory say what the broker had before; `new`: nothing else is in it."""
    lane = broker.services.ports.open_lane(path)

    def write(files: Files) -> None:
        files.mkdir(path)
        files.replace_file(f"{path}/{known_log_dirs.NAME}", format_known(known), sync=True)
        if not new:
            owner = format_meta_properties(broker.services.identity.cluster_id, broker.broker_id)
            files.replace_file(f"{path}/{META_PROPERTIES}", owner, sync=True)

    await lane.submit(write, Work.SLOW, "note")


MUCH = 1 << 60


@pytest.mark.rule("D6")
@pytest.mark.parametrize("log_dirs", ["/a", "/a,/c", "/a,/b"])
@pytest.mark.parametrize("size_bytes", [MUCH, 5, 0])
def test_a_directory_is_dropped_or_replaced_if_its_replicas_fit_or_the_operator_insists(
    harness: SessionHarness, log_dirs: str, size_bytes: int
) -> None:
    """/b is no more in log.dirs, or it is empty now."""

    async def story() -> None:
        first = harness.broker(log_dirs=log_dirs)
        known = {"/a": KnownLogDir("/", 7), "/b": KnownLogDir("/", size_bytes)}
        await noted(first, "/a", known, new=False)
        if size_bytes == MUCH:
            with pytest.raises(ConfigError) as refused:
                await first._open_directories()
            for word in ("/b", str(MUCH), "log.dirs.room.check.enable=false"):
                assert word in str(refused.value)
            first = harness.broker(log_dirs=log_dirs, log_dirs_room_check_enable="false")
        opened = await first._open_directories()
        assert ",".join(each.path for each in opened) == log_dirs
        again = await harness.broker(log_dirs=log_dirs)._open_directories()
        assert len(again) == len(opened), "what was accepted is not asked for again"

    harness.tell(story())


@pytest.mark.rule("D6", "D5")
def test_an_empty_directory_whose_volume_is_not_mounted_counts_as_failed(
    harness: SessionHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SimFiles, "volume_place", lambda self, path: VolumePlace(1, "/"))

    async def story() -> None:
        broker = harness.broker(log_dirs="/a,/b/kafka")
        known = {"/a": KnownLogDir("/", 0), "/b/kafka": KnownLogDir("/b", 0)}
        await noted(broker, "/a", known, new=False)
        opened = await broker._open_directories()
        assert [each.path for each in opened] == ["/a"]
        [(path, error)] = broker.replicas.failed.items()
        assert path == "/b/kafka" and "mounted at /b is not there" in str(error)

        # With files of a broker it is in use, wherever it lies now.
        await noted(broker, "/b/kafka", known, new=False)
        other = harness.broker(log_dirs="/a,/b/kafka")
        assert len(await other._open_directories()) == 2

    harness.tell(story())


@pytest.mark.rule("D5")
@pytest.mark.parametrize(("number", "kept"), [(EIO, ["/a"]), (ENOSPC, ["/a", "/b"])])
def test_a_directory_that_fails_when_it_is_noted_at_the_start_is_given_up_and_a_full_one_is_not(
    harness: SessionHarness, monkeypatch: pytest.MonkeyPatch, number: int, kept: list[str]
) -> None:
    replace_file = SimFiles.replace_file

    def refused(files: SimFiles, path: str, data: bytes, *, sync: bool) -> None:
        if path == f"/b/{known_log_dirs.NAME}":
            files.last_call, files.last_path = "pwritev", path
            raise OSError(number, "refused", path)
        replace_file(files, path, data, sync=sync)

    monkeypatch.setattr(SimFiles, "replace_file", refused)

    async def story() -> None:
        broker = harness.broker(log_dirs="/a,/b")
        opened = await broker._open_directories()
        assert [each.path for each in opened] == kept
        assert [*kept, *broker.replicas.failed] == ["/a", "/b"]

    harness.tell(story())


@pytest.mark.rule("D6")
def test_what_a_failed_directory_held_needs_no_room_as_it_may_come_back() -> None:
    found = {"/a": FoundLogDir(False, "/", 1, 10, {"/b": KnownLogDir("/", 11)})}
    assert lacking_room(found, ["/b"]) is None
    assert lacking_room(found, []) == LackingRoom(["/b"], 11, 10)


@pytest.mark.rule("D6")
def test_directories_of_one_volume_have_its_room_once() -> None:
    known = {"/c": KnownLogDir("/", 15)}
    found = {path: FoundLogDir(False, "/", 1, 10, known) for path in ("/a", "/b")}
    assert lacking_room(found, []) == LackingRoom(["/c"], 15, 10)
    found["/b"] = found["/b"]._replace(device=2)
    assert lacking_room(found, []) is None


def test_the_note_of_all_directories_is_read_as_it_was_written_or_refused() -> None:
    known = {"/a": KnownLogDir("/", 5), "/b": KnownLogDir("/b", 0)}
    assert parse_known(format_known(known)) == known
    for text in (
        b"", b"{", b"[]", b'{"version": 2, "log_dirs": {}}', b'{"version": 1}',
        b'{"version": 1, "log_dirs": {"/a": {"mount": true, "bytes": 1}}}',
        b'{"version": 1, "log_dirs": {"/a": {"mount": "/", "bytes": "1"}}}', b"\xff",
    ):  # fmt: skip
        with pytest.raises(ValueError):
            parse_known(text)
