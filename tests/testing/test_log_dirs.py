"""The kit's faults on log directories, against real brokers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.cluster.values import read_values, write_values
from typer.testing import CliRunner

from tidelog.cli.app import command_tree
from tidelog.core.types import TopicPartition
from tidelog.local import LocalClusterError
from tidelog.testing import Cluster


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    keys = {"replica.high.watermark.checkpoint.interval.ms": 200}
    with Cluster(str(tmp_path_factory.mktemp("disks")), 3, config=keys, log_dirs=2) as made:
        yield made


def offline(cluster: Cluster, topic: str) -> list[int]:
    found = [each for each in cluster.status().partitions if each.topic == topic]
    return sorted(each.partition for each in found if 1 in each.offline)


def test_replicas_of_a_failed_log_directory_are_offline_until_it_is_healed_and_read_again(
    cluster: Cluster,
) -> None:
    topic = cluster.create_topic("failed", partitions=6, config={"min.insync.replicas": 2})
    tp = TopicPartition(topic, 0)
    write_values(cluster.bootstrap, tp, [b"before"])
    path = cluster.fail_log_dir(1, 0, "EROFS")
    gone = sorted(
        int(each.name.removeprefix("failed-")) for each in Path(path).glob("failed-[0-9]")
    )
    assert gone
    cluster.wait_for(lambda _: offline(cluster, topic) == gone, leaderless=0, running=3)
    write_values(cluster.bootstrap, tp, [b"meanwhile"])
    assert cluster.heal_log_dir(1, 0) == path
    assert offline(cluster, topic) == gone, "a directory is given up for the life of the process"
    cluster.restart(1)
    cluster.wait_for(lambda _: offline(cluster, topic) == [], under_replicated=0)
    assert read_values(cluster.bootstrap, tp) == [b"before", b"meanwhile"]


def test_a_broker_starts_without_a_failed_directory_and_reset_brings_it_back(
    cluster: Cluster,
) -> None:
    topic = cluster.create_topic("reset", partitions=6)
    cluster.stop(1)
    path = cluster.fail_log_dir(1, 1, "EACCES")
    cluster.start(1)
    cluster.wait_for(lambda _: offline(cluster, topic) != [], running=3)
    cluster.reset()
    assert offline(cluster, topic) == []
    assert cluster.wait_for(under_replicated=0, timeout=0.0).reached
    assert cluster.local.log_dir_faults(1) == {} and path.endswith("data-1")


def test_a_slow_directory_serves_what_it_is_asked(cluster: Cluster) -> None:
    topic = cluster.create_topic("slow", replicas={0: [1]})
    tp = TopicPartition(topic, 0)
    for number in (0, 1):
        cluster.slow_log_dir(1, number, 0.02)
    write_values(cluster.bootstrap, tp, [b"late"])
    assert read_values(cluster.bootstrap, tp) == [b"late"]
    cluster.reset()


def test_the_command_line_breaks_and_heals_a_directory(cluster: Cluster) -> None:
    tree, where = command_tree(), ["--dir", cluster.local.directory]
    path = cluster.local.log_dirs(2)[0]
    ran = CliRunner().invoke(tree, ["break", "slow-log-dir", "2", "0", "--delay-ms", "5", *where])
    assert ran.exit_code == 0, ran.output
    assert f"of broker 2 in {path} takes 5 ms longer" in ran.output
    assert list(cluster.local.log_dir_faults(2)) == [path]
    ran = CliRunner().invoke(tree, ["break", "heal-log-dir", "2", path, *where])
    assert ran.exit_code == 0 and f"{path} is in order" in ran.output
    assert cluster.local.log_dir_faults(2) == {}


def test_what_cannot_be_broken_is_named(cluster: Cluster) -> None:
    with pytest.raises(LocalClusterError, match=r"no log directory 2: it has .*data-0, .*data-1"):
        cluster.fail_log_dir(1, 2)
    with pytest.raises(LocalClusterError, match="no log directory /none"):
        cluster.heal_log_dir(1, "/none")
    with pytest.raises(LocalClusterError, match="no broker 7"):
        cluster.fill_log_dir(7)
    with pytest.raises(ValueError, match="one of EIO, EROFS"):
        cluster.fail_log_dir(1, 0, "ENOSPC")
    with pytest.raises(ValueError, match="more than 0"):
        cluster.slow_log_dir(1, 0, 0)
