"""The guide to three hosts, typed on hosts that are network namespaces of this machine."""

from __future__ import annotations

import subprocess
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from tests.guide.documents import PATIENCE_S, ROOT, sections
from tests.support.cluster.hosts import Host, hosts, require_namespaces
from tests.support.cluster.zookeepers import require_zookeeper

from tidelog.local.java import find_java
from tidelog.local.zookeeper import find_jars

GUIDE = sections(ROOT / "docs" / "guide" / "operate" / "three-hosts.md")
TYPED = {word: text for each in GUIDE.values() for word, text in each.named.items()}
FILES = {name: text for each in GUIDE.values() for name, text in each.files.items()}
BROKERS = "host1:9092,host2:9092,host3:9092"
PATHS = ("/srv/tidelog", "/etc/tidelog", "/etc/systemd/system")


@pytest.fixture
def places(tmp_path: Path) -> Iterator[list[Host]]:
    require_namespaces()
    require_zookeeper()
    with hosts(4, tmp_path, PATHS) as made:
        yield made


def typed(host: Host, word: str, code: int = 0) -> str:
    """What a block of the guide prints on a host; it must end with this code."""
    done = host.run(TYPED[word], ID=host.name.removeprefix("host"), BROKERS=BROKERS)
    log = host.directory / "unit.log"
    more = log.read_text(errors="replace")[-3000:] if log.exists() else ""
    assert done.returncode == code, f"{host.name}: {TYPED[word]}{done.stdout}{done.stderr}{more}"
    return done.stdout


def start_zookeeper(host: Host) -> subprocess.Popen[bytes]:
    classes = ":".join(find_jars())
    main = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
    java = [find_java(11), "-Xmx128m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
    return host.start(*java, "-cp", classes, main, host.here("/etc/tidelog/zoo.cfg"))


def eventually(host: Host, word: str, code: int, text: str = "") -> str:
    """Type a block again until it ends with a code and has printed a text."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        done = host.run(TYPED[word], BROKERS=BROKERS)
        if done.returncode == code and text in done.stdout:
            return done.stdout
        assert time.monotonic() < deadline, done.stdout + done.stderr


def read_all(host: Host) -> Counter[str]:
    command = f"tidelog consume flights -o beginning -e -f '%s\\n' -b {BROKERS}"
    done = host.run(command)
    assert done.returncode == 0, done.stderr
    return Counter(done.stdout.split())


def begin(three: Sequence[Host]) -> list[subprocess.Popen[bytes]]:
    """Type the guide up to the first topic; return the ZooKeeper servers."""
    servers = []
    for host in three:
        host.save("/etc/tidelog/zoo.cfg", FILES["zoo.cfg"])
        host.save("/etc/tidelog/server.properties", FILES["server.properties"])
        typed(host, "zookeeper")
        servers.append(start_zookeeper(host))
    eventually(three[0], "once", 0)  # the servers have only just been started
    for host in three:
        typed(host, "unit")
        typed(host, "start")
    typed(three[0], "first")
    return servers


def sessions(host: Host) -> list[str]:
    """Lines of a broker's log about sessions that ended or began."""
    log = (host.directory / "unit.log").read_text(errors="replace")
    return [line for line in log.splitlines() if "session" in line and "expired" in line]


@pytest.mark.soak
def test_each_command_of_the_guide_does_what_it_says(places: list[Host]) -> None:
    first, second, third, fourth = places
    begin(places[:3])
    for host in (first, second, third):
        typed(host, "restart")

    third.lose()
    # At first, ZooKeeper may lack a leader; then the session of the lost broker ends.
    eventually(first, "look", 1, "broker 3")
    typed(second, "lost")
    assert read_all(first) == Counter(map(str, range(1, 2001)))

    third.return_to_network()
    start_zookeeper(third)
    typed(third, "returned")
    for host in places[:3]:
        assert "3.3" in typed(host, "lower")
    assert read_all(third) == Counter(map(str, range(1, 2001)))
    for host in places[:3]:
        typed(host, "raise")

    third.lose()
    eventually(first, "look", 1, "broker 3")
    fourth.save("/etc/tidelog/server.properties", FILES["server.properties"])
    typed(fourth, "unit")
    typed(fourth, "start")
    assert "decommission" in TYPED["replaced"]
    typed(first, "replaced")
    assert read_all(second) == Counter(map(str, range(1, 2001)))


@pytest.mark.soak
def test_zookeeper_loses_its_majority_and_a_host_is_added(places: list[Host]) -> None:
    first, second, third, fourth = places
    three = places[:3]
    servers = begin(three)
    typed(first, "lost")
    assert typed(first, "group").split() == ["2000"]

    for server in servers[1:]:
        server.kill()
        server.wait()
    assert typed(first, "quorum").split()[-1] == "1000"
    typed(second, "waits", 1)
    logs = [(host.directory / "unit.log").read_text(errors="replace") for host in three]
    assert any("waiting for the store: no ZooKeeper server for 6000 ms: " in log for log in logs)
    for host in (second, third):
        start_zookeeper(host)
    assert "flights" in typed(first, "majority").split()
    assert [sessions(host) for host in three] == [[], [], []]

    fourth.save("/etc/tidelog/server.properties", FILES["server.properties"])
    typed(fourth, "unit")
    typed(fourth, "start")
    assert "4 of 4 brokers are registered" in typed(first, "added")
    # A producer without idempotence may store a request twice.
    assert read_all(third).keys() == set(map(str, range(1, 3001)))
