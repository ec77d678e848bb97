"""Offsets beyond 2^53, which JavaScript's numbers would round, in a real Chromium."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from selenium import webdriver
from tests.console.conftest import Browser
from tests.console.serving import served
from tests.support.console_readings import NOW_MS, group, metadata, partition, reading

from tidelog.client.replica_requests import PartitionReplicas, ReplicaProgress
from tidelog.console.poller import Poller, Publish
from tidelog.console.readings import HIGH_WATERMARK_KEY, replica_key
from tidelog.core.types import TopicPartition
from tidelog.runtime.blocking import BlockingClient

TP = TopicPartition("flights", 0)
#: Odd numbers above 2^53 are no numbers of JavaScript.
END = 2**53 + 1_000_001
SHOWN = f"{END:,}"


def progress(broker: int, behind: int) -> ReplicaProgress:
    return ReplicaProgress(
        broker, broker == 1, True, True, 2**53 + 1, END - behind, behind, 0, NOW_MS, NOW_MS, 0,
        None, None,
    )  # fmt: skip


class FarCluster(Poller):
    """A poller that publishes one reading, and has samples of the last seconds."""

    def __init__(self, publish: Publish) -> None:
        super().__init__(BlockingClient("127.0.0.1:1"), publish)
        self._send = publish

    def start(self) -> None:
        for second in range(10):
            ends = {replica_key(TP, HIGH_WATERMARK_KEY): END - 20 + 2 * second}
            self.samples.replicas.add(NOW_MS - 10_000 + 1_000 * second, ends)
            self.samples.groups.add(NOW_MS - 30_000 + 3_000 * second, {"billing": 2**53 + 1})
        replicas = (progress(1, 0), progress(2, 0), progress(3, 600))
        described = PartitionReplicas(TP, 1, 4, 1, END, END, (), 1, None, replicas, 30_000)
        self._send(
            reading(
                metadata=metadata({TP.topic: [partition(0, 1, (1, 2, 3))]}),
                ends={TP: END},
                starts={TP: 0},
                groups={"billing": group("billing", {TP: 2})},
                described={TP: described},
            )
        )

    def close(self) -> None:
        pass


@pytest.fixture
def far(driver: webdriver.Chrome) -> Iterator[Browser]:
    with served(driver, FarCluster) as browser:
        yield browser


def test_offsets_beyond_2_to_the_53_have_all_their_digits(far: Browser) -> None:
    far.open("/partition?topic=flights&partition=0")
    far.until_text("High watermark")
    assert far.texts(".lane-end") == [SHOWN, SHOWN, f"{END - 600:,}"]
    assert SHOWN in far.text
    widths = far.driver.execute_script(
        "return [...document.querySelectorAll('.lane .log')].map((e) => parseFloat(e.style.width))"
    )
    assert widths[0] == widths[1] == 100 and widths[2] == 50, "600 of 1,200 shown offsets"
    assert f"{END - 2:,}" in far.text and f"{END - 20:,}" in far.text, "the scale of the chart"
    far.open("/topic?name=flights")
    far.until_text(SHOWN)
    far.open("/group?name=billing")
    far.until_text(f"{END - 2:,}")
    assert far.complaints() == []


def test_the_scripts_compute_with_strings_of_digits(far: Browser) -> None:
    far.open("/")
    far.driver.set_script_timeout(60)
    script = """
        const done = arguments[0];
        import("/static/format.js").then(({count, compact, difference, sum}) => done([
            count("9007199254740993"), count(9_007), compact("9223372036854775807"), count(null),
            difference("9007199254740993", "9007199254740990"), difference("9007199254740993", 3),
            difference(0.5, 0.25), sum("9007199254740993", -2), sum(1, 0.5)]));
    """
    assert far.driver.execute_async_script(script) == [
        "9,007,199,254,740,993", "9,007", "9,223,372T", "–",
        3, 9007199254740990, 0.25, "9007199254740991", 1.5,
    ]  # fmt: skip
