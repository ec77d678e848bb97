"""The directory of a local cluster: what is written there, read back, and refused."""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
from pathlib import Path
from typing import Any

import pytest

from tidelog.core.config import BrokerConfig
from tidelog.core.config_text import parse_properties
from tidelog.local import LocalCluster, LocalClusterError, layout
from tidelog.local.ports import LOOPBACK, free_ports
from tidelog.local.processes import ProcessIdentity


def config_of(place: layout.BrokerPlace) -> BrokerConfig:
    return BrokerConfig.from_properties(parse_properties(Path(place.properties_path).read_text()))


def test_a_new_cluster_is_read_back_as_it_was_laid_out(tmp_path: Path) -> None:
    made = layout.create(str(tmp_path), 3, {}, 1)
    assert list(made) == [1, 2, 3]
    assert layout.load(str(tmp_path)) == made
    assert len({place.port for place in made.values()}) == 3


def test_brokers_get_a_configuration_without_warnings_that_matter(tmp_path: Path) -> None:
    directory = str(tmp_path)
    place = layout.create(directory, 2, {"min.insync.replicas": "2", "num.partitions": "4"}, 2)[2]
    config = config_of(place)
    assert config.warnings == ()
    assert config.broker_id == 2
    assert config.inter_broker_endpoint.port == place.port
    assert config.inter_broker_endpoint.host == LOOPBACK
    assert config.embedded_store_directory() == f"{directory}/metadata"
    assert config.log_dirs == (f"{directory}/broker-2/data-0", f"{directory}/broker-2/data-1")
    assert config.default_replication_factor == 2
    assert config.num_partitions == 4


def test_a_directory_name_with_odd_characters_survives_the_properties(tmp_path: Path) -> None:
    directory = tmp_path / "a b=c\\u0041:é"
    directory.mkdir()
    place = layout.create(str(directory), 1, {}, 1)[1]
    assert config_of(place).log_dirs == (f"{directory}/broker-1/data",)


def test_a_directory_that_holds_something_else_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("x")
    with pytest.raises(LocalClusterError, match=r"is not empty.*thesis\.tex"):
        LocalCluster(str(tmp_path), brokers=1).up()
    assert [entry.name for entry in tmp_path.iterdir()] == ["thesis.tex"]


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", "[" * 100_000, '{"version": 1, "brokers": {"a": {}}}']
)
def test_a_damaged_state_file_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "cluster.json").write_text(text)
    with pytest.raises(LocalClusterError, match=r"cluster\.json is not the state of a cluster"):
        layout.load(str(tmp_path))


def test_a_state_file_of_another_version_is_refused(tmp_path: Path) -> None:
    (tmp_path / "cluster.json").write_text(json.dumps({"version": 2, "brokers": {}}))
    with pytest.raises(LocalClusterError, match="is of version 2, not 1"):
        layout.load(str(tmp_path))


def test_no_cluster_is_none(tmp_path: Path) -> None:
    assert layout.load(str(tmp_path)) is None
    assert layout.load(str(tmp_path / "nowhere")) is None


def test_another_number_of_brokers_than_there_is_is_refused(tmp_path: Path) -> None:
    layout.create(str(tmp_path), 2, {}, 1)
    layout.has_come_up(str(tmp_path))
    with pytest.raises(LocalClusterError, match="holds a cluster of 2 brokers, not 3"):
        LocalCluster(str(tmp_path), brokers=3)
    assert LocalCluster(str(tmp_path)).broker_ids == (1, 2)


def test_no_brokers_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LocalClusterError, match="at least one broker"):
        layout.create(str(tmp_path), 0, {}, 1)


def test_a_bad_value_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    directory = tmp_path / "c"
    cluster = LocalCluster(str(directory), brokers=1, config={"num.partitions": "none"})
    with pytest.raises(LocalClusterError, match=r"num\.partitions='none' is not valid"):
        cluster.up()
    assert not directory.exists()


def test_a_value_that_became_bad_is_refused_before_a_broker_starts(tmp_path: Path) -> None:
    place = layout.create(str(tmp_path), 1, {"num.partitions": "none"}, 1)[1]
    cluster = LocalCluster.existing(str(tmp_path))
    with pytest.raises(LocalClusterError, match=re.escape(f"{place.properties_path}: num.part")):
        cluster.up()
    assert cluster.process(1) is None


def test_keys_of_an_existing_cluster_must_be_as_its_files_have_them(tmp_path: Path) -> None:
    directory, config = str(tmp_path), {"num.partitions": "4", "broker.rack": "C:\\r"}
    places = layout.create(directory, 2, config, 1)
    layout.has_come_up(directory)
    for same in (config, {"num.partitions": " 4 "}, {}):
        assert LocalCluster(directory, config=same).broker_ids == (1, 2)
    first, second = places[1].properties_path, places[2].properties_path
    only_new = "num.partitions=6 counts for a new cluster only; correct it there"
    with pytest.raises(LocalClusterError) as refused:
        LocalCluster(directory, config={"num.partitions": "6"})
    assert str(refused.value).startswith(f"{first} has num.partitions=4: {only_new}")
    with pytest.raises(LocalClusterError, match=r"does not have log\.retention\.ms: "):
        LocalCluster(directory, config={"log.retention.ms": "604800000"})

    path = Path(second)
    path.write_text(path.read_text().replace("num.partitions=4", "num.partitions=5"))
    with pytest.raises(LocalClusterError, match=re.escape(f"{second} has num.partitions=5: ")):
        LocalCluster(directory, config=config)


def test_a_cluster_that_another_program_has_just_laid_out_is_checked_too(tmp_path: Path) -> None:
    directory = str(tmp_path)
    late = LocalCluster(directory, config={"num.partitions": "6"})
    layout.create(directory, 1, {}, 1)
    layout.has_come_up(directory)
    with pytest.raises(LocalClusterError, match=r"does not have num\.partitions"):
        late.up()


class TestListeners:
    """Ports that a person chooses, in an option, a key or a file."""

    def test_brokers_count_on_from_the_first_port(self, tmp_path: Path) -> None:
        made = layout.create(str(tmp_path), 3, {}, 1, first_port=9092)
        assert [place.address for place in made.values()] == [
            "127.0.0.1:9092",
            "127.0.0.1:9093",
            "127.0.0.1:9094",
        ]

    @pytest.mark.parametrize("first", [0, 65_534, 70_000])
    def test_ports_that_do_not_exist_are_refused(self, tmp_path: Path, first: int) -> None:
        with pytest.raises(LocalClusterError, match=f"port {first}: 3 brokers need ports"):
            LocalCluster(str(tmp_path / "c"), first_port=first)

    def test_a_taken_port_is_refused_before_anything_is_written(self, tmp_path: Path) -> None:
        directory = tmp_path / "c"
        first, second = free_neighbours()
        listeners = {"listeners": f"PLAINTEXT://{LOOPBACK}:{first}"}
        choices: tuple[dict[str, Any], ...] = ({"first_port": first}, {"config": listeners})
        for given in choices:
            with socket.create_server((LOOPBACK, second)):
                told = f"broker 2 cannot listen on {LOOPBACK}:{second}: Address already in use"
                with pytest.raises(LocalClusterError, match=re.escape(told)):
                    LocalCluster(str(directory), 2, **given).up()
            assert not directory.exists()

    def test_given_listeners_are_those_of_the_first_broker(self, tmp_path: Path) -> None:
        directory = str(tmp_path)
        config = {
            "listeners": "IN://127.0.0.1:7000, OUT://0.0.0.0:7100",
            "advertised.listeners": "OUT://localhost:7200,IN://127.0.0.1:7000",
            "listener.security.protocol.map": "IN:PLAINTEXT,OUT:PLAINTEXT",
            "inter.broker.listener.name": "IN",
        }
        made = layout.create(directory, 2, config, 1)
        assert [place.address for place in made.values()] == ["localhost:7200", "localhost:7201"]
        assert [each.port for each in config_of(made[2]).listeners] == [7001, 7101]
        layout.has_come_up(directory)
        assert LocalCluster(directory, config=config).bootstrap == "localhost:7200,localhost:7201"

    def test_brokers_that_would_share_a_port_are_refused(self, tmp_path: Path) -> None:
        first, second = free_neighbours()
        listeners = f"A://{LOOPBACK}:{first},B://{LOOPBACK}:{second}"
        names = {"listener.security.protocol.map": "A:PLAINTEXT,B:PLAINTEXT"}
        config = {"listeners": listeners, "inter.broker.listener.name": "A", **names}
        with pytest.raises(LocalClusterError, match=f"1 and 2 would both listen on port {second}"):
            LocalCluster(str(tmp_path / "c"), 2, config=config).up()

    def test_a_port_and_listeners_are_refused(self, tmp_path: Path) -> None:
        config = {"listeners": "PLAINTEXT://:7000"}
        with pytest.raises(LocalClusterError, match="give one of them"):
            LocalCluster(str(tmp_path / "c"), config=config, first_port=7000)

    def test_a_port_that_no_client_could_find_again_is_refused(self, tmp_path: Path) -> None:
        config = {"listeners": "PLAINTEXT://127.0.0.1:0"}
        with pytest.raises(LocalClusterError, match="a local cluster needs a fixed port"):
            LocalCluster(str(tmp_path / "c"), 2, config=config).up()

    def test_a_file_that_was_edited_counts(self, tmp_path: Path) -> None:
        directory = str(tmp_path)
        place = layout.create(directory, 1, {}, 1)[1]
        layout.has_come_up(directory)
        path = Path(place.properties_path)
        path.write_text(path.read_text().replace(place.address, "localhost:7301"))
        cluster = LocalCluster.existing(directory)
        assert cluster.bootstrap == "localhost:7301"
        assert [(each.host, each.port) for each in cluster.status().brokers] == [
            ("localhost", 7301)
        ]

    def test_another_port_than_an_existing_cluster_has_is_refused(self, tmp_path: Path) -> None:
        layout.create(str(tmp_path), 1, {}, 1, first_port=7000)
        layout.has_come_up(str(tmp_path))
        assert LocalCluster(str(tmp_path), first_port=7000).broker_ids == (1,)
        with pytest.raises(LocalClusterError, match="broker 1 listens on port 7000, not 7001"):
            LocalCluster(str(tmp_path), first_port=7001)


class TestAFailedFirstStart:
    """It leaves nothing that refuses the next one, and loses nothing that a person did."""

    def test_another_cluster_can_be_laid_out_in_its_place(self, tmp_path: Path) -> None:
        directory = str(tmp_path)
        layout.create(directory, 3, {"num.partitions": "2"}, 1, "zookeeper://127.0.0.1:1")
        (tmp_path / "broker-3" / "data").mkdir()
        LocalCluster(directory, brokers=1, config={"num.partitions": "4"})
        made = layout.create(directory, 1, {"num.partitions": "4"}, 1)
        assert layout.load(directory) == made
        assert sorted(each.name for each in tmp_path.iterdir()) == [
            ".never-up",
            "broker-1",
            "cluster.json",
        ]

    def test_the_same_cluster_keeps_its_files(self, tmp_path: Path) -> None:
        directory = str(tmp_path)
        place = layout.create(directory, 3, {}, 1)[1]
        path = Path(place.properties_path)
        path.write_text(path.read_text() + "num.partitions=none\n")
        with pytest.raises(LocalClusterError, match="num.partitions='none' is not valid"):
            LocalCluster(directory).up()
        assert "num.partitions=none" in path.read_text()

    def test_half_a_layout_is_begun_again(self, tmp_path: Path) -> None:
        directory = str(tmp_path)
        layout.create(directory, 3, {}, 1)
        (tmp_path / "cluster.json").unlink()
        assert list(layout.create(directory, 2, {}, 1)) == [1, 2]
        assert not (tmp_path / "broker-3").exists()

    def test_a_cluster_with_records_is_never_discarded(self, tmp_path: Path) -> None:
        directory = str(tmp_path)
        layout.create(directory, 2, {}, 1)
        (tmp_path / "broker-2" / "data" / "__tidelog-probe-12345678-0").mkdir(parents=True)
        assert layout.is_abandoned(directory)
        (tmp_path / "broker-2" / "data" / "flights-0").mkdir()
        assert not layout.is_abandoned(directory)
        with pytest.raises(LocalClusterError, match="holds a cluster of 2 brokers, not 3"):
            LocalCluster(directory, brokers=3)

    def test_a_cluster_whose_broker_lives_is_never_discarded(self, tmp_path: Path) -> None:
        place = layout.create(str(tmp_path), 1, {}, 1)[1]
        place.write_process(ProcessIdentity.of(os.getpid()))
        assert not layout.is_abandoned(str(tmp_path))


def free_neighbours() -> tuple[int, int]:
    """Two free ports, one behind the other."""
    while True:
        (first,) = free_ports(1)
        with socket.socket() as listener, contextlib.suppress(OSError):
            listener.bind((LOOPBACK, first + 1))
            return first, first + 1


def test_a_cluster_that_never_ran(tmp_path: Path) -> None:
    layout.create(str(tmp_path), 1, {}, 1)
    cluster = LocalCluster.existing(str(tmp_path))
    now = cluster.status()
    assert not now.reached
    assert [each.state for each in now.brokers] == ["stopped"]
    for call in (cluster.kill, cluster.stop, cluster.pause, cluster.resume):
        with pytest.raises(LocalClusterError, match="broker 1 does not run"):
            call(1)
    with pytest.raises(LocalClusterError, match="there is no broker 9: this cluster has 1"):
        cluster.kill(9)
    cluster.down()


def test_pid_files_are_written_read_and_removed(tmp_path: Path) -> None:
    place = layout.create(str(tmp_path), 1, {}, 1)[1]
    assert place.read_process() is None
    place.write_process(ProcessIdentity(7, 8))
    assert place.read_process() == ProcessIdentity(7, 8)
    place.write_process(None)
    place.write_process(None)
    assert place.read_process() is None
    Path(place.pid_path).write_text("nonsense")
    with pytest.raises(LocalClusterError, match="not a pid file"):
        place.read_process()


def test_the_end_of_a_log(tmp_path: Path) -> None:
    place = layout.create(str(tmp_path), 1, {}, 1)[1]
    assert place.last_lines() == ""
    Path(place.log_path).write_text("".join(f"line {n}\n" for n in range(20_000)))
    assert place.last_lines(2) == "line 19998\nline 19999"


def test_free_ports_are_free_and_all_different() -> None:
    ports = free_ports(5)
    assert len(set(ports)) == 5
    for port in ports:
        with socket.socket() as listener:
            listener.bind((LOOPBACK, port))
