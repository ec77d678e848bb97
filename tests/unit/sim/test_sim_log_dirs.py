"""Brokers with several log directories: each has its own disk, and checkers look at all of them."""

from __future__ import annotations

import errno
import random
from collections.abc import Iterator
from pathlib import PurePosixPath

import pytest
from tests.support.sim import Running

from tidelog.core.errors import StorageError
from tidelog.core.log_dir_keys import SLOW_ACTIONS
from tidelog.core.ports import Files, Work
from tidelog.core.types import topic_id_to_text
from tidelog.sim.batches import encode_batch
from tidelog.sim.broker_settings import BrokerSettings
from tidelog.sim.checkers.synced_checker import durable_end
from tidelog.sim.disk import File, Loss, SimDisk
from tidelog.sim.faults import KINDS, Faults
from tidelog.sim.faults.context import FaultContext
from tidelog.sim.faults.disks import put_back, take_away
from tidelog.sim.observed.replica_logs import LogKey, NodeLogs
from tidelog.sim.profiles import Profile, all_named, named
from tidelog.sim.run import SeedRun
from tidelog.sim.sim_cluster import SimCluster
from tidelog.sim.simulator import Simulator

TOPIC_ID = bytes(range(16))
KEY = LogKey(TOPIC_ID, 0)
DIRECTORIES = ("/data", "/data1", "/data2")
QUIET = Profile("quiet")


def write(disk: SimDisk, path: str, content: bytes) -> None:
    found = disk.find(path) or disk.create(path)
    assert isinstance(found, File)
    disk.write(found, path, [content], len(found.data))


def make_replica(disk: SimDisk, numbers: list[int], epoch: int = 0) -> str:
    """Create a replica of partition 0 with these records; return its directory."""
    path = f"{disk.root}/t-0"
    disk.make_directories(path)
    text = f"version: 0\ntopic_id: {topic_id_to_text(TOPIC_ID)}\n"
    write(disk, f"{path}/partition.metadata", text.encode())
    raw = bytearray(encode_batch(numbers, [0] * len(numbers), timestamp_ms=1))
    raw[12:16] = epoch.to_bytes(4, "big")
    write(disk, f"{path}/{0:020d}.log", bytes(raw))
    return path


def cluster_with(log_dirs: int) -> SimCluster:
    return SimCluster(Simulator(7), 3, BrokerSettings(log_dirs=log_dirs))


@pytest.fixture
def cluster() -> Iterator[SimCluster]:
    made = cluster_with(3)
    yield made
    made.simulator.close()


def context_of(cluster: SimCluster, seed: int = 0) -> FaultContext:
    faults = Faults(cluster, [], random.Random(1), QUIET)
    faults.is_active = True
    return FaultContext(faults, cluster, [], random.Random(seed))


# Settings and disks


def test_each_directory_is_configured_and_has_its_own_disk(cluster: SimCluster) -> None:
    assert BrokerSettings().log_directories == ("/data",)
    assert cluster.settings.of(2).log_dirs == DIRECTORIES
    disks = cluster.brokers[2].logs.disks
    assert [disk.root for disk in disks] == list(DIRECTORIES)
    assert len(set(disks)) == 3
    assert list(cluster.simulator.disks) == [
        (node_id, path) for node_id in cluster.brokers for path in DIRECTORIES
    ]


def test_a_lane_reaches_its_own_directory_alone(simulator: Simulator) -> None:
    """Not another directory either whose name begins with the same letters."""
    node = Running(simulator.add_node(1, "node1"))
    lane = node.ports.open_lane("/data")
    assert lane.submit(lambda files: files.listdir("/data"), Work.FAST, "list").result() == []
    outside = lane.submit(lambda files: files.listdir("/data1"), Work.FAST, "list")
    with pytest.raises(ValueError, match="/data1 is not in the log directory /data"):
        outside.result()


def _write_both(node: Running) -> None:
    for path in DIRECTORIES[:2]:

        def operation(files: Files, path: str = path) -> None:
            handle = files.open(f"{path}/a", create=True)
            files.fsync_directory(path)
            files.pwritev(handle, [b"0123456789"], 0)

        node.ports.open_lane(path).submit(operation, Work.FAST, "write").result()


def sizes(simulator: Simulator) -> list[int]:
    return [len(simulator.disk(1, path).file(f"{path}/a").data) for path in DIRECTORIES[:2]]


def test_a_power_loss_strikes_every_disk_with_a_draw_for_each(simulator: Simulator) -> None:
    node = simulator.add_node(1, "node1")
    seen = set()
    for _ in range(20):
        running = Running(node)
        _write_both(running)
        running.incarnation.die(Loss.TORN, "power loss", judged=False)
        seen.add(tuple(sizes(simulator)))
        for path in DIRECTORIES[:2]:
            simulator.disk(1, path).replace()
    assert any(first != second for first, second in seen)
    assert any(first < 10 for first, _ in seen) and any(second < 10 for _, second in seen)


def test_pages_that_one_disk_dropped_are_lost_there_alone(simulator: Simulator) -> None:
    node = Running(simulator.add_node(1, "node1"))
    _write_both(node)
    simulator.disk(1, "/data").fault = lambda call, _: errno.EIO if call == "fsync" else 0

    def sync(files: Files) -> None:
        files.fsync(files.open("/data/a", write=True))

    failed = node.ports.open_lane("/data").submit(sync, Work.FAST, "sync")
    with pytest.raises(StorageError) as raised:
        failed.result()
    assert raised.value.directory == "/data"
    node.incarnation.die(Loss.NONE, "killed", judged=False)
    assert sizes(simulator) == [0, 10]
    assert [simulator.disk(1, path).losses for path in DIRECTORIES[:2]] == [1, 0]


# The logs of a broker


def test_a_log_is_found_in_whichever_directory_has_it() -> None:
    disks = [SimDisk(path) for path in DIRECTORIES]
    logs = NodeLogs(1, disks)
    assert logs.holder("t-0") is None
    make_replica(disks[1], [1, 2])
    assert [log.key for log in logs.follow()] == [KEY]
    log = logs.logs[KEY]
    assert (log.numbers, log.disk) == ([1, 2], disks[1])
    assert logs.holder("t-0") is disks[1]
    assert logs.follow() == []
    assert durable_end(log, "t-0") == 0
    disks[1].sync_everything()
    assert durable_end(log, "t-0") == 2
    disks[1].replace()
    make_replica(disks[2], [3])
    logs.follow()
    assert (logs.logs[KEY].numbers, logs.logs[KEY].disk) == ([3], disks[2])


def test_changes_on_several_disks_are_followed_together() -> None:
    disks = [SimDisk(path) for path in DIRECTORIES]
    logs = NodeLogs(1, disks)
    grown: list[int] = []
    logs.on_grown = lambda log, first: grown.append(log.key.partition)
    for number, disk in enumerate(disks):
        path = make_replica(disk, [1])
        disk.rename(path, f"{disk.root}/t-{number}")
    logs.follow()
    assert sorted(logs.logs) == [KEY._replace(partition=number) for number in range(3)]
    grown.clear()
    for number, disk in enumerate(disks):
        raw = bytearray(encode_batch([2], [0], timestamp_ms=1))
        raw[0:8] = (1).to_bytes(8, "big")
        write(disk, f"{disk.root}/t-{number}/{0:020d}.log", bytes(raw))
    logs.follow()
    assert grown == [0, 1, 2]


@pytest.mark.parametrize("newer", [0, 1])
def test_of_two_copies_the_one_that_goes_on_further_counts(newer: int) -> None:
    """Leader epochs first: a longer copy of an older leader is the older one (D6)."""
    disks = [SimDisk(path) for path in DIRECTORIES[:2]]
    make_replica(disks[newer], [1, 2], epoch=3)
    make_replica(disks[1 - newer], [1, 2, 4], epoch=2)
    logs = NodeLogs(1, disks)
    logs.follow()
    assert (logs.logs[KEY].numbers, logs.logs[KEY].disk) == ([1, 2], disks[newer])


@pytest.mark.parametrize("grows", [0, 1])
def test_of_two_empty_copies_the_one_that_grows_counts(grows: int) -> None:
    """A creation that a disk refused may leave a directory behind."""
    disks = [SimDisk(path) for path in DIRECTORIES[:2]]
    paths = [make_replica(disk, [1]) for disk in disks]
    for disk, path in zip(disks, paths, strict=True):
        disk.truncate(disk.file(f"{path}/{0:020d}.log"), 0)
    logs = NodeLogs(1, disks)
    logs.follow()
    content = encode_batch([1], [0], timestamp_ms=1)
    write(disks[grows], f"{paths[grows]}/{0:020d}.log", bytes(content))
    assert [log.key for log in logs.follow()] == [KEY]
    assert (logs.logs[KEY].numbers, logs.logs[KEY].disk) == ([1], disks[grows])


@pytest.mark.parametrize("former", [0, 1])
def test_of_two_equal_copies_the_one_in_the_others_place_counts(former: int) -> None:
    disks = [SimDisk(path) for path in DIRECTORIES[:2]]
    paths = [make_replica(disk, [1, 2]) for disk in disks]
    write(
        disks[1 - former], f"{paths[1 - former]}/moved-from", f"{DIRECTORIES[former]}\n1\n".encode()
    )
    logs = NodeLogs(1, disks)
    logs.follow()
    assert logs.logs[KEY].disk is disks[1 - former]
    copy = logs.copy_on(disks[former], "t-0")
    assert copy is not None and copy.numbers == [1, 2]
    assert logs.copy_on(disks[former], "t-1") is None


# Faults


def test_a_directory_is_taken_from_the_disk_that_has_it_and_put_back_there(
    cluster: SimCluster,
) -> None:
    broker, context = cluster.brokers[1], context_of(cluster)
    disk = broker.logs.disks[2]
    assert not take_away(context, broker, "t-0")
    path = make_replica(disk, [1])
    assert take_away(context, broker, "t-0")
    assert disk.find(path) is None
    put_back(context, broker, "t-0")
    assert disk.find(path) is not None
    disk.lose_power(random.Random(1), Loss.ALL_UNSYNCED)
    assert disk.find(path) is not None


def test_a_replica_that_was_created_again_elsewhere_stays(cluster: SimCluster) -> None:
    broker, context = cluster.brokers[1], context_of(cluster)
    make_replica(broker.logs.disks[2], [1])
    assert take_away(context, broker, "t-0")
    make_replica(broker.logs.disks[0], [2])
    put_back(context, broker, "t-0")
    assert broker.logs.holder("t-0") is broker.logs.disks[0]
    assert broker.logs.disks[2].find("/data2/t-0") is None


@pytest.mark.parametrize(
    "kind",
    ["slow_disk", "full_disk", "short_writes", "read_errors", "write_errors", "sync_errors"],
)
def test_a_fault_of_a_disk_strikes_one_drawn_directory(cluster: SimCluster, kind: str) -> None:
    cluster.start()
    struck = set()
    for seed in range(30):
        lines: list[str] = []
        cluster.simulator.trace.listener = lines.append
        if KINDS[kind].inject(context_of(cluster, seed)):
            (line,) = [line for line in lines if " fault " in line]
            struck |= {path for path in DIRECTORIES if f"({path})" in line}
    assert struck == set(DIRECTORIES)


def test_a_replaced_disk_leaves_the_other_disks_of_its_broker(cluster: SimCluster) -> None:
    cluster.start()
    for broker in cluster.brokers.values():
        for disk in broker.logs.disks:
            write(disk, f"{disk.root}/kept", b"x")
            disk.sync_everything()
    assert KINDS["replaced_disk"].inject(context_of(cluster))
    left = [
        PurePosixPath(path).parent.name
        for broker in cluster.brokers.values()
        for disk in broker.logs.disks
        for path, _ in disk.files()
        if path.endswith("/kept")
    ]
    assert len(left) == 8


def test_a_disk_that_is_emptied_excuses_no_damage_of_another(cluster: SimCluster) -> None:
    broker = cluster.brokers[1]
    first, second, _ = broker.logs.disks
    broker.damaged_disks.update({first: None, second: None})
    broker.was_refused = True
    broker.empty_disk(first)
    assert (broker.was_damaged, broker.was_refused) == (True, True)
    broker.empty_disk(second)
    assert (broker.was_damaged, broker.was_refused) == (False, False)


def test_a_profile_draws_a_key_for_all_brokers_of_a_seed() -> None:
    drawn: dict[str, None] = {}
    for seed in range(30):
        run = SeedRun(seed, "slow_directories")
        settings = run.cluster.settings
        actions = {settings.of(number).log_dir_slow_action for number in run.cluster.brokers}
        assert len(actions) == 1
        drawn[actions.pop()] = None
        run.simulator.close()
    assert sorted(drawn) == sorted(SLOW_ACTIONS)


def test_only_profiles_of_log_directories_have_more_than_one() -> None:
    """Traces of others must not change: no draw, no other name."""
    assert [name for name in all_named() if named(name).log_dirs != (1,)] == [
        "slow_directories",
        "jbod",
        "drained_directories",
        "full_directories",
        "directory_moves",
        "hanging_directories",
        "short_sessions",
    ]
