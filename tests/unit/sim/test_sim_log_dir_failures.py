"""Failed log directories: the checkers find what a broker must not do, and who waits in vain."""

from __future__ import annotations

import errno
import random
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from tests.support.sim import checked

from tidelog.core.types import TopicPartition, topic_id_to_text
from tidelog.sim.batches import encode_batch
from tidelog.sim.broker_settings import BrokerSettings
from tidelog.sim.checkers.data_losses import DataLosses
from tidelog.sim.checkers.log_dir_checker import GRACE_NS, LogDirChecker
from tidelog.sim.disk import File, Loss, SimDisk
from tidelog.sim.faults import KINDS, Faults
from tidelog.sim.files import SimFiles
from tidelog.sim.log_dir_failure import DEVICE_ERRNOS, LogDirFailure
from tidelog.sim.observed.claims import ReplicaClaim
from tidelog.sim.observed.replica_logs import LogKey, NodeLogs
from tidelog.sim.phases import Stage, absence
from tidelog.sim.profiles import Pace, Profile, all_named, named
from tidelog.sim.sim_cluster import SimCluster
from tidelog.sim.simulator import Simulator

TOPIC_ID = bytes(range(16))
KEY, OTHER = LogKey(TOPIC_ID, 0), LogKey(TOPIC_ID, 1)
NAME = TopicPartition("t", 0)
CLAIM = ReplicaClaim(KEY, NAME, True, 4, 9, (), (1,))


def make_replica(disk: SimDisk, key: LogKey, numbers: list[int]) -> None:
    path = f"{disk.root}/t-{key.partition}"
    disk.make_directories(path)
    text = f"version: 0\ntopic_id: {topic_id_to_text(TOPIC_ID)}\n".encode()
    metadata = disk.create(f"{path}/partition.metadata")
    disk.write(metadata, "", [text], 0)
    log = disk.create(f"{path}/{0:020d}.log")
    if numbers:
        disk.write(log, "", [encode_batch(numbers, [0] * len(numbers), timestamp_ms=1)], 0)


# Losses


def test_a_broker_that_lost_everything_has_no_intact_replica() -> None:
    losses = DataLosses()
    losses.registered(1, 11, is_dead=False)
    assert losses.is_intact(KEY, 1, 11) and not losses.is_intact(KEY, 1, 10)
    losses.died(1, ())
    assert losses.is_intact(KEY, 1, 11) and not losses.has_lost(KEY, 1, 11)
    losses.died(1, None)
    assert not losses.is_intact(KEY, 1, 11) and losses.has_lost(OTHER, 1, 11)
    losses.registered(1, 12, is_dead=False)
    assert losses.is_intact(KEY, 1, 12)
    assert losses.has_lost(KEY, 1, 11) and not losses.has_lost(KEY, 1, 12)


def test_the_loss_of_one_disk_strikes_the_replicas_there_alone() -> None:
    losses = DataLosses()
    losses.registered(1, 11, is_dead=False)
    losses.died(1, [KEY])
    assert not losses.is_intact(KEY, 1, 11) and losses.has_lost(KEY, 1, 11)
    assert losses.is_intact(OTHER, 1, 11) and not losses.has_lost(OTHER, 1, 11)
    assert not losses.has_lost(KEY, 2, 11)


@pytest.mark.parametrize(("struck", "intact"), [(None, ()), ([KEY], (OTHER,)), ((), (KEY, OTHER))])
def test_a_registration_that_arrives_after_the_death_proves_nothing_of_what_it_struck(
    struck: Any, intact: tuple[LogKey, ...]
) -> None:
    losses = DataLosses()
    losses.registered(1, 11, is_dead=False)
    losses.died(1, struck)
    losses.registered(1, 12, is_dead=True)
    assert tuple(key for key in (KEY, OTHER) if losses.is_intact(key, 1, 12)) == intact


def test_a_loss_before_the_first_registration_is_none() -> None:
    losses = DataLosses()
    losses.died(1, None)
    losses.registered(1, 11, is_dead=False)
    assert losses.is_intact(KEY, 1, 11) and not losses.has_lost(KEY, 1, 11)


# Copies


def test_a_copy_in_a_failed_directory_counts_only_where_there_is_no_other() -> None:
    failed, good = SimDisk("/data"), SimDisk("/data1")
    logs = NodeLogs(1, [failed, good])
    make_replica(failed, KEY, [1, 2, 3])
    failed.is_failed = True
    logs.follow()
    assert logs.logs[KEY].disk is failed
    make_replica(good, KEY, [])
    logs.follow()
    assert (logs.logs[KEY].disk, logs.logs[KEY].numbers) == (good, [])
    failed.is_failed = False
    failed.names_changed = True
    logs.follow()
    assert (logs.logs[KEY].disk, logs.logs[KEY].numbers) == (failed, [1, 2, 3])


# The checker


class Scene:
    """One broker with a replica in each of two directories; it leads what `led` says."""

    def __init__(self) -> None:
        self.now_ns = 0
        self.violations: list[str] = []
        self.life: Any = SimpleNamespace(node_id=1, number=1)
        disks = [SimDisk("/data"), SimDisk("/data1")]
        self.logs = NodeLogs(1, disks)
        make_replica(disks[0], KEY, [1])
        make_replica(disks[1], OTHER, [2])
        self.logs.follow()
        self.led: list[LogKey] = []
        run = checked(self.violations, lambda: self.now_ns, brokers={1: self})
        self.checker = LogDirChecker(run)

    def leading(self) -> Iterator[tuple[TopicPartition, LogKey]]:
        return ((TopicPartition("t", key.partition), key) for key in self.led)

    def look(self, *led: LogKey) -> list[str]:
        self.led = list(led)
        self.checker.after_event(1)
        return self.violations


def test_a_replica_in_a_failed_directory_must_not_lead() -> None:
    scene = Scene()
    assert scene.look(KEY, OTHER) == []
    scene.checker.failed(scene.life, "/data")
    assert scene.look(KEY) == [], "it learns of it now"
    scene.now_ns = GRACE_NS
    assert scene.look(OTHER) == []
    assert scene.look(OTHER, KEY) == [
        "t-0: broker 1 leads with its replica in /data, which has failed (D4)"
    ]
    assert scene.checker.found == 1


def test_a_replica_in_a_failed_directory_commits_nothing() -> None:
    scene = Scene()
    scene.checker.committed(1, CLAIM, 0)
    scene.checker.failed(scene.life, "/data")
    scene.now_ns = GRACE_NS - 1
    scene.checker.committed(1, CLAIM, 0)
    scene.now_ns = GRACE_NS
    scene.checker.committed(1, CLAIM._replace(key=OTHER), 0)
    assert scene.violations == []
    scene.checker.committed(1, CLAIM, 0)
    assert scene.violations == [
        "t-0: leader 1 of epoch 4 committed up to 9 with its replica in /data, which has failed"
        " (D4)"
    ]


def test_a_broker_halts_with_its_last_directory_alone() -> None:
    scene = Scene()
    scene.checker.failed(scene.life, "/data")
    scene.checker.failed(scene.life, "/data")
    scene.checker.halted(scene.life)
    assert scene.violations == [
        "broker 1 halts for failed log directories, and /data1 of /data, /data1 has not failed (D1)"
    ]
    scene.checker.unusable(scene.life, "/data1")
    scene.checker.halted(scene.life)
    assert len(scene.violations) == 1
    scene.life = SimpleNamespace(node_id=1, number=2)
    scene.checker.unusable(scene.life, "/data1")
    scene.checker.halted(scene.life)
    assert len(scene.violations) == 2, "the first is good again in another incarnation"


@pytest.mark.parametrize("life", [None, SimpleNamespace(node_id=1, number=2)])
def test_another_incarnation_may_find_the_directory_repaired(life: Any) -> None:
    scene = Scene()
    scene.checker.failed(scene.life, "/data")
    scene.now_ns = GRACE_NS
    scene.life = life
    assert scene.look(KEY) == []
    scene.checker.committed(1, CLAIM, 0)
    assert scene.violations == []
    if life is not None:
        scene.checker.failed(life, "/data1")
        scene.now_ns *= 2
        assert scene.look(KEY) == [] and len(scene.look(OTHER)) == 1


# The failure of a disk


class Live:
    """A process that lives."""

    alive = True
    died_with_page_cache = False

    def port_call(self, name: str) -> None:
        del name


@pytest.fixture
def cluster() -> Iterator[SimCluster]:
    made = SimCluster(Simulator(7), 3, BrokerSettings(log_dirs=2))
    yield made
    made.simulator.close()


def files_of(disk: SimDisk) -> SimFiles:
    process: Any = Live()
    return SimFiles(process, disk, random.Random(1))


@pytest.mark.parametrize("number", DEVICE_ERRNOS, ids=lambda number: errno.errorcode[number])
def test_from_some_call_on_all_calls_fail_with_the_errno(cluster: SimCluster, number: int) -> None:
    broker = cluster.brokers[1]
    disk = broker.logs.disks[1]
    files = files_of(disk)
    failure = LogDirFailure(cluster, broker, disk, number, 3)
    for _ in range(2):
        files.mkdir("/data1/t-0")
    assert not failure.has_begun
    with pytest.raises(OSError) as raised:
        files.mkdir("/data1/t-0")
    assert raised.value.errno == number and failure.has_begun
    for call in (files.listdir, files.exists, files.rmdir):
        if number == errno.ENOENT and call == files.exists:
            assert not files.exists("/data1/t-0"), "as for any path of a missing mount"
            continue
        if number == errno.EROFS and call != files.rmdir:
            call("/data1/t-0")  # a read-only mount goes on to read
            continue
        with pytest.raises(OSError) as raised:
            call("/data1/t-0")
        assert raised.value.errno == number
    assert disk.failed_calls >= 2
    assert [each.is_failed for each in broker.logs.disks] == [False, True]


def test_a_failure_that_has_not_begun_can_be_cancelled(cluster: SimCluster) -> None:
    broker = cluster.brokers[1]
    disk = broker.logs.disks[0]
    failure = LogDirFailure(cluster, broker, disk, errno.EIO, 2)
    assert failure.repair(is_emptied=True)
    assert disk.fault is None
    files_of(disk).listdir("/data")
    failure.cancel()
    assert not failure.has_begun and not disk.is_failed


@pytest.mark.parametrize("is_emptied", [False, True])
def test_a_repair_gives_the_same_disk_or_an_empty_one(
    cluster: SimCluster, is_emptied: bool
) -> None:
    broker = cluster.brokers[1]
    disk = broker.logs.disks[0]
    make_replica(disk, KEY, [1])
    disk.sync_everything()
    broker.start()
    life = broker.life
    failure = LogDirFailure(cluster, broker, disk, errno.EIO, 1)
    with pytest.raises(OSError, match="Input/output"):
        files_of(disk).listdir("/data")
    assert failure.repair(is_emptied=is_emptied)
    assert life is not None and not life.alive, "its broker restarts"
    assert disk.fault is None and not disk.is_failed
    assert (broker.logs.holder("t-0") is None) is is_emptied
    assert isinstance(disk.find(f"/data/t-0/{0:020d}.log"), File) is not is_emptied


def test_the_budget_may_refuse_the_failure_and_the_empty_disk(
    cluster: SimCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = cluster.brokers[1]
    disk = broker.logs.disks[0]
    failure = LogDirFailure(cluster, broker, disk, errno.EIO, 1)
    allowed = False
    monkeypatch.setattr(cluster.budget, "may_fail", lambda *_, **__: allowed)
    files_of(disk).listdir("/data")
    assert not failure.has_begun
    allowed = True
    with pytest.raises(OSError, match="Input/output"):
        files_of(disk).listdir("/data")
    allowed = False
    assert not failure.repair(is_emptied=True)
    assert failure.has_begun
    assert failure.repair(is_emptied=False)


def test_a_broker_that_is_spared_keeps_its_failed_disk(
    cluster: SimCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = cluster.brokers[1]
    broker.start()
    failure = LogDirFailure(cluster, broker, broker.logs.disks[0], errno.EIO, 1)
    with pytest.raises(OSError, match="Input/output"):
        files_of(broker.logs.disks[0]).listdir("/data")
    monkeypatch.setattr(cluster.budget, "is_spared", lambda _: True)
    assert not failure.repair(is_emptied=False)
    assert failure.has_begun and broker.life is not None


def test_dropped_pages_take_only_replicas_of_their_disk_even_after_a_clean_shutdown(
    cluster: SimCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    struck: list[Any] = []
    monkeypatch.setattr(cluster.replication, "crashed", lambda *_, **told: struck.append(told))
    broker = cluster.brokers[1]
    first, second = broker.logs.disks
    for loss, expected in ((Loss.NONE, [second]), (Loss.UNSYNCED, [second])):
        broker.start()
        second.has_dropped = True
        broker.stopped_cleanly = True
        assert broker.life is not None
        broker.life.die(loss, "stopped as requested", judged=False)
        told = struck.pop()
        assert (told["lossy"], told["struck"]) == (True, expected)
        assert not second.has_dropped
    broker.start()
    assert broker.life is not None
    broker.life.die(Loss.UNSYNCED, "power loss", judged=False)
    assert struck.pop()["struck"] == [first, second]


# The phase of an offline directory


def test_a_partition_waits_for_a_failed_directory_in_vain(cluster: SimCluster) -> None:
    brokers: Any = cluster.brokers
    published: Any = cluster.published
    for broker in cluster.brokers.values():
        make_replica(broker.logs.disks[0], KEY, [1])
        broker.start()
        broker.logs.follow()
    published.brokers.update({1: 11, 2: 12, 3: 13})
    topic = SimpleNamespace(topic_id=TOPIC_ID, name="t", assignment={0: (1, 2, 3)})
    published.topics["t"] = topic
    state = SimpleNamespace(key=KEY, leader=1, isr=(1, 2, 3), members=(1, 2, 3))
    published.partitions[KEY] = state
    published.effective_minimum = lambda _: 2

    no_clients: Any = None
    stage = Stage(cluster, no_clients, random.Random(1), lambda *_: True)

    def awaited(leader: int, *isr: int) -> str:
        state.leader, state.isr, state.members = leader, isr, isr
        return absence.in_failed_directory(stage)

    assert awaited(1, 1, 2, 3) == ""
    brokers[1].logs.disks[0].is_failed = True
    assert awaited(1, 1, 2, 3) == "t-0: leader 1; members [2, 3] of (1, 2, 3) are good"
    assert awaited(-1, 1, 2, 3) == "t-0: leader -1; members [2, 3] of (1, 2, 3) are good"
    assert awaited(2, 1, 2, 3) == "t-0: [1] of ISR (1, 2, 3) are in a failed directory"
    assert awaited(2, 2, 3) == ""
    assert awaited(-1, 1) == "", "a sole member is waited for"
    brokers[1].crash(Loss.NONE, "dies")
    published.brokers.pop(1)
    assert awaited(2, 1, 2, 3) == "", "its leader removes it as any dead follower"
    published.brokers.pop(3)
    assert awaited(2, 2, 3) == "of brokers [2, 3] only [2] are registered"


def test_health_names_a_failed_directory(cluster: SimCluster) -> None:
    published: Any = cluster.published
    for broker in cluster.brokers.values():
        broker.start()
        published.brokers[broker.node_id] = 1
    assert cluster.health() == ""
    cluster.brokers[2].logs.disks[1].is_failed = True
    assert cluster.health() == "/data1 of broker 2 has failed"


# Kinds


def test_kinds_that_need_several_directories_are_not_drawn_for_one() -> None:
    """So profiles with all kinds and one directory draw what they drew before."""
    alone = [name for name, kind in KINDS.items() if kind.family == "log_dirs"]
    assert alone == [
        "fail_directory",
        "hang_directory",
        "fail_operation",
        "strike_directory_move",
    ]
    for profile in map(named, all_named()):
        if profile.log_dirs == (1,) and not profile.has_all_kinds:
            assert not set(alone) & set(profile.weights), profile.name
    for log_dirs, expected in (((1,), set()), ((2,), set(alone))):
        profile = Profile("all", has_all_kinds=True, pace=Pace(left_out=0.0), log_dirs=log_dirs)
        cluster = SimCluster(Simulator(7), 3, BrokerSettings())
        faults = Faults(cluster, [], random.Random(1), profile)
        assert set(faults._weights) & set(alone) == expected
        cluster.simulator.close()
