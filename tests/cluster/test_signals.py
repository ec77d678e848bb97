"""Signals to broker processes: each that ends one ends it cleanly, and SIGHUP ends none."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cluster.conftest import MakeCluster, eventually

from tidelog.client.configs import BROKER, ConfigResource
from tidelog.local.ports import LOOPBACK, free_ports
from tidelog.runtime.blocking import BlockingClient

PATIENCE_S = 60.0


class OneBroker:
    """A broker process that owns its directory, its store and its log."""

    def __init__(self, directory: Path, **keys: str) -> None:
        self.address = f"{LOOPBACK}:{free_ports(1)[0]}"
        self.log = directory / "broker.log"
        self.data = directory / "data"
        self.properties = directory / "server.properties"
        self.keys = {
            "broker.id": "1",
            "listeners": f"PLAINTEXT://{self.address}",
            "log.dirs": str(self.data),
            "metadata.store": f"embedded:{directory}/metadata",
            "cluster.events.enable": "false",
            **{key.replace("_", "."): value for key, value in keys.items()},
        }
        self.write()
        self.process: subprocess.Popen[bytes] | None = None

    def write(self) -> None:
        lines = "".join(f"{key}={value}\n" for key, value in self.keys.items())
        self.properties.write_text(lines)

    def spawn(self) -> OneBroker:
        words = [sys.executable, "-m", "tidelog.runtime.main", "--config", str(self.properties)]
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        return self

    def start(self) -> OneBroker:
        self.spawn()
        self.await_line("broker 1 started on ")
        return self

    def await_line(self, text: str) -> None:
        eventually(lambda: text in self.wrote(), f"{text!r} in {self.wrote()}", PATIENCE_S)

    def wrote(self) -> str:
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    def send(self, number: int) -> None:
        assert self.process is not None and self.process.poll() is None, self.wrote()
        os.kill(self.process.pid, number)

    def await_end(self) -> int:
        assert self.process is not None
        return self.process.wait(PATIENCE_S)

    def is_marked_clean(self) -> bool:
        return (self.data / ".kafka_cleanshutdown").exists()

    def value_of(self, key: str) -> str | None:
        with BlockingClient(self.address, timeout_ms=5_000) as client:
            [described] = client.describe_configs(ConfigResource(BROKER, "1"), [key])
            return described.value


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[OneBroker]:
    made = OneBroker(tmp_path)
    yield made
    if made.process is not None:
        made.process.kill()
        made.process.wait()


@pytest.mark.parametrize(
    "number",
    [
        signal.SIGTERM,
        signal.SIGINT,
        signal.SIGUSR1,
        signal.SIGALRM,
        signal.SIGRTMIN + 3,
    ],
)
def test_a_signal_that_ends_a_broker_ends_it_cleanly(broker: OneBroker, number: int) -> None:
    broker.start()
    broker.send(number)
    assert broker.await_end() == 0, broker.wrote()
    assert broker.is_marked_clean()
    log = broker.wrote()
    name = "SIGRTMIN+3" if number > signal.SIGRTMIN else signal.Signals(number).name
    assert f"{name}: broker 1 stops" in log
    assert "broker 1 stopped" in log


def test_a_hangup_reopens_the_log_and_reloads_the_configuration(broker: OneBroker) -> None:
    broker.start()
    rotated = broker.log.with_suffix(".1")
    broker.log.rename(rotated)
    broker.keys |= {"log.cleaner.backoff.ms": "1234", "num.replica.fetchers": "2"}
    broker.write()
    broker.send(signal.SIGHUP)
    broker.await_line("configuration read again: new values of log.cleaner.backoff.ms")
    broker.await_line(f"log reopened: {broker.log}")
    broker.await_line("the next start of this broker takes over num.replica.fetchers;")
    eventually(lambda: broker.value_of("log.cleaner.backoff.ms") == "1234", "the new value")
    assert broker.value_of("num.replica.fetchers") == "1", "what is in force is shown"
    kept = rotated.read_text()
    assert "broker 1 started on " in kept and "log reopened" not in kept
    broker.send(signal.SIGTERM)
    assert broker.await_end() == 0
    assert "broker 1 stopped" in broker.wrote()
    assert rotated.read_text() == kept, "no line goes to the rotated file"


def test_a_configuration_that_cannot_be_used_is_not_reloaded(broker: OneBroker) -> None:
    broker.start()
    broker.keys |= {"log.cleaner.backoff.ms": "soon"}
    broker.write()
    broker.send(signal.SIGHUP)
    broker.await_line("configuration not reloaded, the earlier one stays in force: ")
    assert "log.cleaner.backoff.ms='soon'" in broker.wrote()
    assert broker.value_of("log.cleaner.backoff.ms") == "15000"
    broker.keys |= {"log.cleaner.backoff.ms": "16"}
    broker.write()
    broker.send(signal.SIGHUP)
    eventually(lambda: broker.value_of("log.cleaner.backoff.ms") == "16", "the new value")


def test_a_signal_before_the_log_directories_are_open_gives_the_start_up(tmp_path: Path) -> None:
    keys = {
        "metadata.store": "zookeeper://127.0.0.1:1",
        "zookeeper.connection.timeout.ms": "600000",
    }
    broker = OneBroker(tmp_path, **keys).spawn()
    try:
        broker.await_line("descriptor limit")
        broker.send(signal.SIGTERM)
        assert broker.await_end() == 0, broker.wrote()
    finally:
        assert broker.process is not None
        broker.process.kill()
        broker.process.wait()
    assert "SIGTERM: broker 1 stops" in broker.wrote()
    assert "broker 1 stopped before it opened a log directory" in broker.wrote()


def test_the_second_signal_does_not_wait_for_other_leaders(make_cluster: MakeCluster) -> None:
    """The controller is paused, so the controlled shutdown waits for its answer."""
    cluster = make_cluster(2)
    with BlockingClient(cluster.bootstrap) as client:
        client.create_topic("replicated", 2, 2)
        client.await_topic("replicated", 2)
        controller = client.metadata().controller_id
    place = cluster.places()[3 - controller]
    process = place.read_process()
    assert process is not None

    def wrote(text: str) -> bool:
        return text in Path(place.log_path).read_text()

    cluster.pause(controller)
    process.send(signal.SIGTERM)
    eventually(lambda: wrote("SIGTERM: broker"), "the first signal")
    process.send(signal.SIGTERM)
    assert process.await_end(PATIENCE_S)
    assert wrote("stops without waiting")
    assert wrote(f"broker {place.broker_id} stopped")
    assert not wrote("the controller has changed"), "it did not wait"


def test_stacks_of_a_running_broker_can_be_had(broker: OneBroker) -> None:
    broker.start()
    broker.send(signal.SIGQUIT)
    broker.await_line("most recent call first")
    assert broker.value_of("broker.id") == "1", "the broker goes on"
