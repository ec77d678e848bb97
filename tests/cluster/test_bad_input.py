"""What keeps a broker from starting: one clear line on standard error, and exit code 1."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tidelog.local import LocalCluster, LocalClusterError, layout
from tidelog.local.ports import LOOPBACK, free_ports

START_S = 30.0


def properties(path: Path, **keys: str) -> str:
    """A server.properties below `path` for a broker that could start."""
    (port,) = free_ports(1)
    defaults = {
        "broker_id": "1",
        "listeners": f"PLAINTEXT://{LOOPBACK}:{port}",
        "log_dirs": str(path / "data"),
        "metadata_store": f"embedded:{path / 'metadata'}",
    }
    lines = [
        f"{key.replace('_', '.')}={value}" for key, value in {**defaults, **keys}.items() if value
    ]
    file = path / f"server-{port}.properties"
    file.write_text("\n".join(lines))
    return str(file)


def run(*words: str, python: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    """A broker in the foreground, which is expected to end by itself."""
    return subprocess.run(
        [sys.executable, *python, "-m", "tidelog.runtime.main", *words],
        capture_output=True,
        text=True,
        timeout=START_S,
        check=False,
    )


def refusal(config: str, *words: str) -> str:
    ended = run("--config", config, *words)
    assert ended.returncode == 1, ended.stderr
    assert "Traceback" not in ended.stderr, ended.stderr
    complaints = [line for line in ended.stderr.splitlines() if line.startswith("tidelog: ")]
    assert len(complaints) == 1, ended.stderr
    return complaints[0]


@pytest.fixture
def running(tmp_path: Path) -> Iterator[LocalCluster]:
    with LocalCluster(str(tmp_path / "running"), 1) as cluster:
        yield cluster


def test_a_busy_port_is_named(tmp_path: Path) -> None:
    with socket.socket() as listener:
        listener.bind((LOOPBACK, 0))
        listener.listen()
        port = listener.getsockname()[1]
        message = refusal(properties(tmp_path, listeners=f"PLAINTEXT://{LOOPBACK}:{port}"))
    assert str(port) in message
    assert "in use" in message


def test_a_log_directory_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    assert str(file) in refusal(properties(tmp_path, log_dirs=f"{file}/data"))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_log_directory_without_permission_is_named(tmp_path: Path) -> None:
    directory = tmp_path / "data"
    directory.mkdir(mode=0o500)
    assert str(directory) in refusal(properties(tmp_path))


def test_a_log_directory_on_a_read_only_disk_is_named(tmp_path: Path) -> None:
    """A read-only disk is mounted for the broker's process alone."""
    if not can_fake_mounts(tmp_path):
        pytest.skip("needs root and unshare to mount a disk")
    directory = tmp_path / "data"
    directory.mkdir()
    ended = with_mount(f"mount -t tmpfs -o ro none {directory}", properties(tmp_path))
    assert ended.returncode == 1
    assert str(directory) in ended.stderr
    assert "EROFS" in ended.stderr or "Read-only" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_a_store_directory_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    message = refusal(properties(tmp_path, metadata_store=f"embedded:{file}/store"))
    assert str(file) in message


def stop(cluster: LocalCluster) -> layout.BrokerPlace:
    cluster.stop(1)  # not `down`: a metadata store of the cluster's own is needed to the end
    return cluster.places()[1]


def meta_properties(place: layout.BrokerPlace) -> Path:
    return Path(place.directory) / "data" / "meta.properties"


def test_a_directory_of_another_broker_is_refused(running: LocalCluster) -> None:
    place = stop(running)
    message = refusal(place.properties_path, "--override", "broker.id=2")
    assert str(meta_properties(place).parent) in message
    assert "1" in message
    assert "2" in message


def test_a_directory_of_another_cluster_is_refused(running: LocalCluster, tmp_path: Path) -> None:
    place = stop(running)
    message = refusal(
        place.properties_path, "--override", f"metadata.store=embedded:{tmp_path / 'other'}"
    )
    assert str(meta_properties(place).parent) in message
    assert "cluster" in message


def test_a_damaged_meta_properties_is_named(running: LocalCluster) -> None:
    place = stop(running)
    meta_properties(place).write_text("version=7\n")
    assert str(meta_properties(place)) in refusal(place.properties_path)


def test_a_second_broker_on_the_same_directory_is_refused(
    running: LocalCluster, tmp_path: Path
) -> None:
    place = running.places()[1]
    (port,) = free_ports(1)
    message = refusal(
        place.properties_path,
        *("--override", f"listeners=PLAINTEXT://{LOOPBACK}:{port}"),
        *("--override", "admin.listener="),
    )
    assert f"{place.directory}/data" in message
    assert running.process(1) is not None
    assert running.status().reached


def test_a_second_broker_with_the_same_id_is_refused(running: LocalCluster, tmp_path: Path) -> None:
    place = running.places()[1]
    (port,) = free_ports(1)
    message = refusal(
        place.properties_path,
        *("--override", f"listeners=PLAINTEXT://{LOOPBACK}:{port}"),
        *("--override", f"log.dirs={tmp_path / 'elsewhere'}"),
        *("--override", "admin.listener="),
    )
    assert "broker id 1 is registered by another live broker" in message
    assert running.status().reached


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("num.partitions=none", "num.partitions='none' is not valid: an integer of at least 1"),
        ("replica.fetch.wait.max.ms=30000", "must be less than replica.lag.time.max.ms=30000"),
        ("listeners=SSL://127.0.0.1:9093", "asks for SSL, which is not supported yet"),
        ("metadata.store=", "metadata.store is not set"),
        ("no-equals-sign", "not of the form key=value"),
    ],
)
def test_a_bad_configuration_is_named(tmp_path: Path, override: str, message: str) -> None:
    assert message in refusal(properties(tmp_path), "--override", override)


def test_a_configuration_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    path = str(tmp_path / "nowhere.properties")
    assert refusal(path) == (
        f"tidelog: --config {path}: No such file or directory; a readable server.properties or"
        " .toml file expected"
    )


def test_a_configuration_file_that_is_no_text_is_named(tmp_path: Path) -> None:
    path = tmp_path / "broken.toml"
    path.write_bytes(b"broker.id=1\n\xff\xfe")
    told = refusal(str(path))
    assert told.startswith(f"tidelog: --config {path}: byte 12 is not UTF-8, which TOML files are")
    assert "Traceback" not in told


def test_a_bad_value_is_named_with_its_file(tmp_path: Path) -> None:
    path = tmp_path / "empty.properties"
    path.write_text("num.partitions=3\n")
    assert refusal(str(path)).startswith(f"tidelog: {path}: broker.id is not set: ")


@pytest.mark.parametrize("words", [[], ["--config"], ["--verbose"], ["--override", "a=b"]])
def test_wrong_usage_is_two(words: list[str]) -> None:
    ended = run(*words)
    assert ended.returncode == 2
    assert ended.stderr.startswith("usage: ")


def test_python_without_assertions_is_refused(tmp_path: Path) -> None:
    ended = run("--config", properties(tmp_path), python=("-O",))
    assert ended.returncode == 1
    assert "-O" in ended.stderr


def can_fake_mounts(tmp_path: Path) -> bool:
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        return False
    script = 'mount --bind "$0" /proc/$$/mountinfo && exec cat /proc/self/mountinfo'
    (tmp_path / "probe").write_text("faked\n")
    ended = subprocess.run(
        ["unshare", "-m", "sh", "-c", script, str(tmp_path / "probe")],
        capture_output=True,
        text=True,
        check=False,
    )
    return ended.stdout == "faked\n"


def with_mount(mount: str, config: str) -> subprocess.CompletedProcess[str]:
    """A broker in a mount namespace of its own, in which `mount` ran first."""
    broker = [sys.executable, "-m", "tidelog.runtime.main", "--config", config]
    return subprocess.run(
        ["unshare", "-m", "sh", "-c", f'{mount} && exec "$@"', "sh", *broker],
        capture_output=True,
        text=True,
        timeout=START_S,
        check=False,
    )


def test_a_store_on_a_network_file_system_is_refused(tmp_path: Path) -> None:
    """The kernel's list of mounts is replaced for the broker's process alone."""
    if not can_fake_mounts(tmp_path):
        pytest.skip("needs root and unshare to fake a mount")
    mounts = tmp_path / "mountinfo"
    mounts.write_text("30 1 0:27 / / rw,relatime - nfs4 server:/export rw\n")
    ended = with_mount(f"mount --bind {mounts} /proc/$$/mountinfo", properties(tmp_path))
    assert ended.returncode == 1
    assert "nfs4 is a network file system" in ended.stderr
    assert str(tmp_path / "metadata") in ended.stderr


def test_a_cluster_whose_broker_cannot_start_says_why_and_leaves_nothing(tmp_path: Path) -> None:
    places = layout.create(str(tmp_path / "c"), 3, {}, 1)
    cluster = LocalCluster.existing(str(tmp_path / "c"))
    with socket.socket() as listener:
        listener.bind((LOOPBACK, places[2].port))
        listener.listen()
        with pytest.raises(LocalClusterError) as caught:
            cluster.up()
    told = f"broker 2 cannot listen on {places[2].address}: Address already in use; no broker was"
    assert told in str(caught.value)
    assert [cluster.process(number) for number in cluster.broker_ids] == [None, None, None]


def test_a_port_that_is_taken_is_named(tmp_path: Path) -> None:
    with socket.create_server((LOOPBACK, 0)) as taken:
        where = f"PLAINTEXT://{LOOPBACK}:{taken.getsockname()[1]}"
        message = refusal(properties(tmp_path), "--override", f"listeners={where}")
    assert f"listeners={where}" in message
    assert "address already in use" in message
