"""Rule E8: a metadata store that was put back from an older copy proves nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace

import pytest
from tests.rules.session_harness import SessionHarness
from tests.support.controller.values import (
    TP,
    broker,
    brokers,
    epoch,
    loaded,
    one_partition,
    settings,
    state,
    state_writes,
    step,
)

from tidelog.broker.broker import Broker
from tidelog.broker.controller.cold_start import assigned_in_cold_start
from tidelog.broker.membership.store_history import OlderStoreError
from tidelog.broker.replicas.hosting.hosted_partitions import HostedLog
from tidelog.controller.commands import Sender
from tidelog.controller.controller import Controller
from tidelog.controller.elections.recoveries import LogEndsReported, RecoveryBegun, RecoveryWaitOver
from tidelog.controller.records import LogEnd, Topic
from tidelog.controller.registrations import BrokersRead
from tidelog.controller.store_went_back import StoreFoundOlder
from tidelog.controller.topics.changes import TopicFound
from tidelog.core.types import (
    LEAST_EPOCHS_SKIPPED,
    NO_LEADER,
    NO_STAMP,
    PartitionState,
    StoreWentBack,
    TopicPartition,
)
from tidelog.log import owners
from tidelog.log.directory_files import format_meta_properties, parse_meta_properties
from tidelog.metadata import layout
from tidelog.metadata.store import ANY_VERSION, Create, SetData, Stat
from tidelog.wire.messages.update_metadata import UpdateMetadataRequest

ALL = brokers(1, 2, 3)
#: State nodes of the tests were written by transaction 1,000.
MARK = StoreWentBack(broker_id=2, seen=1_900, found=900, timestamp_ms=0, zxid=2_000)
FLIGHTS = TopicPartition("flights", 0)


@pytest.fixture
def harness() -> Iterator[SessionHarness]:
    yield SessionHarness()


def marked(
    published: PartitionState, *live: int, minimum: int = 1
) -> tuple[Controller, PartitionState]:
    """A controller that found the mark with these brokers, and the state that it wrote."""
    of = replace(settings(), min_insync_replicas=minimum)
    controller = loaded(one_partition(published), of=of)
    writes, _ = step(controller, BrokersRead(brokers(*(live or (1, 2, 3))), MARK))
    written = state_writes(writes)
    assert TP in written, "the partition is taken over as unproven"
    return controller, written[TP]


def ends(controller: Controller, **logs: LogEnd) -> PartitionState:
    """The state after brokers have reported the ends of their logs."""
    for name, end in logs.items():
        number = int(name.removeprefix("broker"))
        step(controller, LogEndsReported(number, epoch(number), {TP: end}))
    return controller.image.states[TP]


# what the controller makes of a mark


@pytest.mark.rule("E8")
def test_no_member_is_proven_in_a_store_that_went_back() -> None:
    _, after = marked(state())
    assert (after.leader, after.last_leader, after.is_unproven) == (NO_LEADER, 1, True)
    assert after.isr_epochs == (0, 0, 0)


@pytest.mark.rule("E8")
def test_every_assigned_replica_is_a_member_of_a_state_from_before_the_mark() -> None:
    controller, after = marked(state((1,)))
    assert (after.isr, after.elr, after.elr_epochs) == ((1,), (2, 3), (0, 0))
    last = ends(controller, broker1=LogEnd(5, 10), broker2=LogEnd(6, 15), broker3=LogEnd(5, 12))
    assert (last.leader, last.isr, last.is_unproven) == (2, (2,), False)


@pytest.mark.rule("E8")
def test_a_new_leader_begins_above_all_epochs_that_the_store_may_have_lost() -> None:
    controller, waiting = marked(state(leader_epoch=5))
    assert waiting.leader_epoch > 5 + MARK.skipped
    end = LogEnd(9, 10)
    after = ends(controller, broker1=end, broker2=end, broker3=end)
    assert after.leader_epoch == waiting.leader_epoch + 1
    controller, waiting = marked(state(leader_epoch=5))
    end = LogEnd(waiting.leader_epoch + 7, 10)
    after = ends(controller, broker1=end, broker2=end, broker3=end)
    assert after.leader_epoch == waiting.leader_epoch + 8 + MARK.skipped


@pytest.mark.rule("E8")
def test_the_only_replica_leads_above_the_lost_epochs_too() -> None:
    _, after = marked(replace(state((1,)), elr=()), 1)
    assert after.leader_epoch > 5 + MARK.skipped


@pytest.mark.rule("E8")
def test_the_same_copy_put_back_again_skips_another_number_of_epochs(
    harness: SessionHarness,
) -> None:
    async def story() -> None:
        seen = await stopped(harness)
        skipped = []
        for _ in range(2):
            put_back(harness)
            broker = harness.broker()
            broker.store_history.seen = seen
            await broker.session.open()
            await broker.session.register()
            mark = mark_in(harness)
            assert mark is not None
            skipped.append(mark.skipped)
            await broker.session.close()
            harness.cluster.server.delete_from_outside(layout.STORE_WENT_BACK)
        first, second = skipped
        assert first != second
        assert all(LEAST_EPOCHS_SKIPPED <= each < 2 * LEAST_EPOCHS_SKIPPED for each in skipped)

    harness.tell(story())


@pytest.mark.rule("E8")
@pytest.mark.parametrize(
    ("live", "minimum", "leads"),
    [((1, 2), 1, False), ((1, 2), 2, True), ((1,), 2, False), ((1, 2, 3), 1, True)],
)
def test_all_replicas_but_k_minus_one_must_be_there(
    live: tuple[int, ...], minimum: int, leads: bool
) -> None:
    controller, _ = marked(state(), *live, minimum=minimum)
    step(controller, RecoveryWaitOver([RecoveryBegun(TP, 0)]))
    after = ends(controller, **{f"broker{each}": LogEnd(5, 10) for each in live})
    assert (after.leader != NO_LEADER) is leads


@pytest.mark.rule("E8")
def test_a_state_written_after_the_mark_counts_as_usual() -> None:
    controller = loaded(one_partition(state(mzxid=MARK.zxid)))
    writes, effects = step(controller, BrokersRead(ALL, MARK))
    assert (state_writes(writes), effects.notices.of(StoreFoundOlder)) == ({}, [])


@pytest.mark.rule("E8")
def test_a_partition_that_waits_stays_unproven_for_the_next_controller() -> None:
    _, waiting = marked(state(), 1, 2)
    data = layout.encode_partition_state(waiting)
    path = layout.partition_state_path(TP)
    stat = SetDataStat.at(MARK.zxid + 1, waiting.partition_epoch)
    read = layout.decode_partition_state(path, data, stat)
    assert read == waiting
    controller = loaded(one_partition(read))
    step(controller, BrokersRead(ALL, MARK))
    assert controller.image.states[TP].leader == NO_LEADER
    after = ends(controller, broker1=LogEnd(5, 1), broker2=LogEnd(5, 3), broker3=LogEnd(5, 2))
    assert after.leader == 2


@pytest.mark.rule("E8")
def test_a_store_that_went_back_is_reported_once() -> None:
    controller = loaded(one_partition(state()))
    _, effects = step(controller, BrokersRead(ALL, MARK))
    assert effects.notices.of(StoreFoundOlder) == [StoreFoundOlder(MARK, 1)]
    _, effects = step(controller, BrokersRead(ALL, MARK))
    assert effects.notices.of(StoreFoundOlder) == []


class SetDataStat:
    """Stats of a state node."""

    @staticmethod
    def at(mzxid: int, version: int) -> Stat:
        return Stat(czxid=1, mzxid=mzxid, version=version, ephemeral_owner=0)


# a cold start


def found(published: PartitionState) -> list[TopicFound]:
    topic = Topic("t", bytes(16), {0: (1, 2, 3)})
    return [TopicFound(topic, {0: published})]


@pytest.mark.rule("E8")
def test_where_all_brokers_restarted_the_first_election_waits_for_all_replicas() -> None:
    again = brokers(broker(1, life=2), broker(3, life=2))
    assert assigned_in_cold_start(found(state()), again) == {1, 2, 3}
    assert assigned_in_cold_start([], again) == frozenset()
    without_state = TopicFound(Topic("t", bytes(16), {0: (1, 2, 3)}), {})
    assert assigned_in_cold_start([without_state], again) == frozenset()


@pytest.mark.rule("E8")
def test_where_one_member_goes_on_nothing_waits() -> None:
    assert assigned_in_cold_start(found(state()), brokers(2)) == frozenset()


# what a broker finds out


def put_back(harness: SessionHarness, broker_id: int = 1) -> None:
    """Another store in place of this one: the broker's stamp is gone."""
    harness.cluster.server.tree.transact(
        [
            SetData(
                layout.broker_stamp_path(broker_id),
                json.dumps({"imported": 0}).encode(),
                ANY_VERSION,
            )
        ],
        0,
    )


def mark_in(harness: SessionHarness) -> StoreWentBack | None:
    node = harness.cluster.server.tree.get(layout.STORE_WENT_BACK)
    return None if node is None else layout.decode_store_went_back(layout.STORE_WENT_BACK, node)


async def stopped(harness: SessionHarness) -> int:
    """A broker that has registered and stopped; its stamp."""
    broker = await harness.registered()
    await broker.session.stamp()
    await broker.session.close()
    return broker.store_history.seen


@pytest.mark.rule("E8")
def test_a_registration_and_a_stop_stamp_the_store(harness: SessionHarness) -> None:
    async def story() -> None:
        broker = await harness.registered()
        path = layout.broker_stamp_path(1)
        node = harness.cluster.server.tree.get(path)
        assert layout.decode_stamp(path, node) == broker.broker_epoch
        await broker.session.stamp()
        node = harness.cluster.server.tree.get(path)
        assert layout.decode_stamp(path, node) == broker.store_history.seen
        assert broker.store_history.seen > broker.broker_epoch

    harness.tell(story())


@pytest.mark.rule("E8")
def test_a_broker_that_saw_a_later_store_marks_it_and_proves_nothing(
    harness: SessionHarness,
) -> None:
    async def story() -> None:
        seen = await stopped(harness)
        put_back(harness)
        harness.cluster.server.tree.transact([Create(layout.CONTROLLER_EPOCH, b"7")], 0)
        again = harness.broker()
        again.services.identity.registered(seen)
        again.services.identity.session_expired()
        again.store_history.seen = seen
        await again.session.open()
        await again.session.register()
        mark = mark_in(harness)
        assert mark is not None
        assert (mark.broker_id, mark.seen, mark.found) == (1, seen, 0)
        assert mark.zxid == again.broker_epoch
        node = harness.node()
        assert node is not None
        assert "previous_broker_epoch" not in json.loads(node.data)
        fence = harness.cluster.server.tree.get(layout.CONTROLLER_EPOCH)
        assert fence is not None
        assert (fence.data, fence.stat.version) == (b"7", 1)

    harness.tell(story())


@pytest.mark.rule("E8")
@pytest.mark.parametrize("is_known", [False, True])
def test_a_mark_of_an_earlier_life_says_nothing_of_this_one(
    harness: SessionHarness, is_known: bool
) -> None:
    """The copy was made after the store went back once, and has that mark, too."""

    async def story() -> None:
        seen = await stopped(harness)
        put_back(harness)
        data = layout.encode_store_went_back(replace(MARK, broker_id=3))
        harness.cluster.server.tree.transact([Create(layout.STORE_WENT_BACK, data)], 0)
        present = mark_in(harness)
        assert present is not None
        again = harness.broker()
        again.store_history.seen = seen
        if is_known:
            again.store_marked(present.name)
        await again.session.open()
        await again.session.register()
        mark = mark_in(harness)
        assert mark is not None
        assert (mark.broker_id == 1 and mark.zxid == again.broker_epoch) is is_known

    harness.tell(story())


@pytest.mark.rule("E8")
def test_the_controller_names_the_mark_to_all_brokers() -> None:
    controller = loaded(one_partition(state()))
    _, effects = step(controller, BrokersRead(ALL, MARK))
    named = {
        outgoing.message.store_mark
        for commands in effects.commands.values()
        for outgoing in commands.requests(Sender(9, 1, "PLAINTEXT"), 101)
        if isinstance(outgoing.message, UpdateMetadataRequest)
    }
    assert named == {MARK.name}


@pytest.mark.rule("E8")
def test_log_directories_keep_the_marks_that_a_broker_knows() -> None:
    data = format_meta_properties("cluster", 1, 7, ("63-9", "200-1"))
    first = parse_meta_properties(data)
    assert first.marks == ("63-9", "200-1")
    second = first._replace(marks=("70-3", "63-9"))
    assert owners.known_marks({"a": first, "b": second}) == ("63-9", "70-3", "200-1")
    with pytest.raises(ValueError, match="no transaction and time"):
        parse_meta_properties(data.replace(b"63-9", b"6x-9"))


@pytest.mark.rule("E8")
def test_only_the_newest_marks_are_kept(harness: SessionHarness) -> None:
    broker = harness.broker()
    for number in range(20):
        assert broker.store_history.heard_of(f"{number}-0")
        assert not broker.store_history.heard_of(f"{number}-0")
    assert not broker.store_history.heard_of("")
    assert broker.store_history.marks == tuple(f"{number}-0" for number in range(4, 20))


@pytest.mark.rule("E8")
def test_a_broker_that_finds_its_last_stamp_marks_nothing(harness: SessionHarness) -> None:
    async def story() -> None:
        seen = await stopped(harness)
        again = harness.broker()
        again.store_history.seen = seen
        await again.session.open()
        await again.session.register()
        assert mark_in(harness) is None

    harness.tell(story())


async def publish(harness: SessionHarness, published: PartitionState) -> None:
    """A topic of one partition with this state."""
    topic = layout.TopicAssignment(bytes([1]) * 16, {0: (1, 2)})
    path = layout.topic_path(FLIGHTS.topic)
    ops = [
        Create(path, layout.encode_topic(topic)),
        Create(f"{path}/partitions", b""),
        Create(f"{path}/partitions/0", b""),
        Create(layout.partition_state_path(FLIGHTS), layout.encode_partition_state(published)),
    ]
    harness.cluster.server.tree.transact(ops, 0)


def hosts(broker: Broker, latest_epoch: int) -> None:
    """The broker has a replica of the partition with records up to this leader epoch."""
    log = HostedLog(bytes([1]) * 16, latest_epoch)
    broker.store_history._hosted = lambda: {FLIGHTS: log}


@pytest.mark.rule("E8")
@pytest.mark.parametrize(("latest_epoch", "is_older"), [(5, False), (6, True)])
def test_without_a_stamp_the_leader_epochs_of_logs_decide(
    harness: SessionHarness, latest_epoch: int, is_older: bool
) -> None:
    async def story() -> None:
        broker = harness.broker()
        hosts(broker, latest_epoch)
        await broker.session.open()
        await publish(harness, state((1, 2), leader_epoch=5))
        await broker.session.register()
        assert (mark_in(harness) is not None) is is_older
        assert (broker.services.identity.older_stamp == NO_STAMP) is is_older

    harness.tell(story())


@pytest.mark.rule("E8")
@pytest.mark.parametrize("is_marked", [False, True])
def test_a_broker_does_not_start_where_another_leads_its_partition_in_an_older_store(
    harness: SessionHarness, is_marked: bool
) -> None:
    """Its log would be truncated; once the store is marked, all replicas were compared."""

    async def story() -> None:
        seen = await stopped(harness)
        other = await harness.registered(2)
        put_back(harness)
        led = replace(state((2,), isr_epochs=(other.broker_epoch,)), leader=2)
        await publish(harness, led)
        if is_marked:
            data = layout.encode_store_went_back(MARK)
            harness.cluster.server.tree.transact([Create(layout.STORE_WENT_BACK, data)], 0)
        late = harness.broker()
        hosts(late, 5)
        late.store_history.seen = seen
        await late.session.open()
        if is_marked:
            await late.session.register()
            return
        with pytest.raises(OlderStoreError, match="broker 2 leads partition flights-0"):
            await late.session.register()
        assert mark_in(harness) is None

    harness.tell(story())


@pytest.mark.rule("E8")
def test_log_directories_keep_the_last_stamp(harness: SessionHarness) -> None:
    async def story() -> None:
        first = harness.broker(log_dirs="/a,/b")
        await first.start()
        await first.stop()
        again = harness.broker(log_dirs="/a,/b")
        found = await owners.read_owners(again._open_lanes())
        seen = first.store_history.seen
        assert [each.stamp for each in found.values()] == [seen, seen]
        path = layout.broker_stamp_path(1)
        assert layout.decode_stamp(path, harness.cluster.server.tree.get(path)) == seen

    harness.tell(story())


def test_an_older_directory_does_not_hide_what_another_has_seen() -> None:
    seen = {"/a": owners.NO_OWNER._replace(stamp=3), "/b": owners.NO_OWNER}
    assert owners.last_stamp(seen) == 3
    assert owners.last_stamp({}) == NO_STAMP
