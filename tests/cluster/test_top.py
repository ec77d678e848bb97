"""`tidelog top` on real brokers: the screen with its keys, and one frame as text and JSON."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import cast

import pytest
from tests.cluster.conftest import MakeCluster, tidelog
from textual.pilot import Pilot
from textual.widgets import DataTable, Static

from tidelog.cli.live.frame import TopBroker, TopFrame
from tidelog.cli.live.look import ClusterLook
from tidelog.cli.live.screen import TopScreen
from tidelog.client.configs import BROKER, ConfigResource
from tidelog.client.groups import FetchedOffset
from tidelog.core.types import TopicPartition
from tidelog.local import LocalCluster
from tidelog.records.builder import NewRecord, build_batch
from tidelog.runtime.blocking import BlockingClient

TOPIC, GROUP = "flights", "billing"
HOT = TopicPartition(TOPIC, 1)
PATIENCE_S = 60
EMPTY = TopFrame(0, "id", 1, 0, 0, 0, 0, 0, 0, None, None, [], [], [], [], [], [])
KEYS = {"brokers": "b", "partitions": "p", "groups": "g", "moves": "m", "under-replicated": "u"}


def fill(cluster: LocalCluster) -> None:
    with BlockingClient(cluster.bootstrap) as client:
        client.create_topic(TOPIC, 2, 3)
        client.await_topic(TOPIC)
        client.commit(GROUP, {HOT: FetchedOffset(0)})


@contextmanager
def traffic(cluster: LocalCluster) -> Iterator[None]:
    """Produce to the hot partition and read from it, for as long as the body runs."""
    ends = threading.Event()

    def run() -> None:
        with BlockingClient(cluster.bootstrap) as client:
            while not ends.wait(0.01):
                now_ms = time.time_ns() // 1_000_000
                offset = client.produce(
                    HOT, build_batch([NewRecord(None, b"x" * 500, now_ms)] * 10)
                )
                client.fetch(HOT, offset, max_wait_ms=0)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        ends.set()
        thread.join(PATIENCE_S)


class Screen:
    """A screen of textual under test, and what it shows."""

    def __init__(self, screen: TopScreen, pilot: Pilot[None]) -> None:
        self.screen = screen
        self.pilot = pilot

    def text(self, name: str) -> str:
        return str(self.screen.query_one(f"#{name}", Static).content)

    @property
    def table(self) -> list[list[str]]:
        table = self.screen.query_one(DataTable)
        return [
            [str(each) for each in table.get_row_at(number)] for number in range(table.row_count)
        ]

    async def until(self, holds: Callable[[], object], what: str) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not holds():
            assert time.monotonic() < deadline, f"{what} did not come: {self.table}"
            await self.pilot.pause(0.05)


def on_screen(look: ClusterLook, size: tuple[int, int], story: Callable[[Screen], object]) -> None:
    """Run a story, a function of coroutines, on a screen of this size."""

    async def run() -> None:
        screen = TopScreen(look.frame, 0.5)
        async with screen.run_test(size=size) as pilot:
            found = story(Screen(screen, pilot))
            assert asyncio.iscoroutine(found)
            await found
            await pilot.press("q")
        screen.finish(PATIENCE_S)

    try:
        asyncio.run(run())
    finally:
        look.close()


def test_the_screen_shows_a_cluster_while_a_broker_dies(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(3)
    fill(cluster)
    with BlockingClient(cluster.bootstrap) as client:
        metadata = client.metadata()
    # The traffic goes on: the leader of its partition lives.
    kept = (metadata.controller_id, metadata.topics[TOPIC].partitions[1].leader)
    dying = next(each for each in (1, 2, 3) if each not in kept)

    async def story(screen: Screen) -> None:
        await screen.until(lambda: len(screen.table) == 3, "three brokers")
        await screen.until(lambda: all("ready" in row for row in screen.table), "ready brokers")
        await screen.until(lambda: all(row[3] != "-" for row in screen.table), "their CPU")
        await screen.pilot.press(KEYS["partitions"])
        await screen.until(lambda: screen.table[0][0] == str(HOT), "the hot partition")
        await screen.until(
            lambda: not {"unknown", "0 B/s"} & set(screen.table[0][1:3]), "bytes in and out"
        )
        await screen.pilot.press(KEYS["groups"])
        await screen.until(
            lambda: [row[0] for row in screen.table] == [GROUP] and screen.table[0][2] != "-",
            "the group's lag in time",
        )
        await screen.pilot.press("space")
        paused = screen.text("summary")
        assert paused.startswith("PAUSED  ")
        cluster.kill(dying)
        await screen.pilot.press(KEYS["under-replicated"])
        assert "All replicas are in sync." in screen.text("title") and screen.table == []
        await screen.pilot.press("space")
        await screen.until(
            lambda: [f"{dying}: its broker's session ended"] in [row[-1:] for row in screen.table],
            "why the dead broker's replicas are out",
        )
        await screen.pilot.press(KEYS["brokers"])
        await screen.until(lambda: screen.table[dying - 1][1] == "down", "the dead broker")
        cluster.start(dying)
        await screen.until(lambda: screen.table[dying - 1][1] == "ready", "its return")

    with traffic(cluster):
        on_screen(ClusterLook(cluster.bootstrap, {}, 200), (120, 40), story)


def test_keys_sort_and_change_tables_on_the_narrowest_terminal(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(2)
    with BlockingClient(cluster.bootstrap) as client:
        client.create_topic(TOPIC, 1, 2)
        client.await_topic(TOPIC)

    async def story(screen: Screen) -> None:
        await screen.until(lambda: len(screen.table) == 2, "two brokers")
        narrow = len(screen.table[0])
        assert "sessions lost 0" in screen.text("row"), "the chosen row is whole"
        await screen.pilot.press("s", "r")
        await screen.until(lambda: [row[0] for row in screen.table] == ["1", "2"], "ascending")
        await screen.pilot.press("r")
        await screen.until(lambda: [row[0] for row in screen.table] == ["2", "1"], "descending")
        assert "by broker descending" in screen.text("title")
        await screen.pilot.press("tab")
        assert "Hottest partitions" in screen.text("title")
        for _ in range(len(KEYS)):
            await screen.pilot.press("tab")
        assert "Hottest partitions" in screen.text("title"), "the tables are a circle"
        await screen.pilot.press(KEYS["brokers"])
        await screen.pilot.resize_terminal(160, 24)
        await screen.until(lambda: len(screen.table[0]) > narrow, "more columns")

    on_screen(ClusterLook(cluster.bootstrap, {}, 200), (40, 12), story)


def test_a_frame_is_printed_without_a_terminal(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(2)
    with BlockingClient(cluster.bootstrap) as client:
        client.create_topic(TOPIC, 2, 2)
        client.await_topic(TOPIC)
    with traffic(cluster):
        printed = tidelog("top", "--once", "-b", cluster.bootstrap, "--interval", "1")
        found = tidelog("top", "--json", "-b", cluster.bootstrap, "--rows", "1")
    assert printed.returncode == 0, printed.stderr
    assert "2 of 2 brokers" in printed.stdout and "Hottest partitions" in printed.stdout
    assert "All replicas are in sync." in printed.stdout and "note:" not in printed.stdout
    frame = json.loads(found.stdout)
    assert [each["state"] for each in frame["brokers"]] == ["ready", "ready"]
    (hottest,) = frame["partitions"]
    assert (hottest["topic"], hottest["partition"]) == HOT
    assert hottest["bytes_in_per_s"] > 0 and hottest["bytes_out_per_s"] > 0
    assert frame["partitions_total"] > 1 and frame["notes"] == []


def test_a_port_that_is_no_admin_port_is_a_note(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(1)
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            while True:
                try:
                    with listener.accept()[0] as connection:
                        connection.recv(65_536)
                        connection.sendall(b"\x00\xff garbage \x1b[2J\r\n\r\n")
                except OSError:
                    return

        thread = threading.Thread(target=serve)
        thread.start()
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        found = tidelog("top", "--once", "-b", cluster.bootstrap, "--admin", f"1={address}")
        listener.shutdown(socket.SHUT_RDWR)
    thread.join(PATIENCE_S)
    assert found.returncode == 0, found.stderr
    assert f"note: {address} is no admin port: it responds with" in found.stdout
    assert "\x1b" not in found.stdout


def is_late(frame: TopFrame, broker: int) -> bool:
    """Whether a frame came without one broker's metrics, and with those of all others."""
    return (
        any("has not ended yet" in note for note in frame.notes)
        and f"broker {broker} has not reported its metrics yet" in " ".join(frame.notes)
        and all(each.state == "ready" for each in frame.brokers if each.broker != broker)
    )


def test_a_broker_that_hangs_costs_a_frame_its_time_limit_and_hides_no_other_broker(
    make_cluster: MakeCluster,
) -> None:
    cluster = make_cluster(3)
    fill(cluster)
    look = ClusterLook(cluster.bootstrap, {}, 200, frame_s=PATIENCE_S)
    try:
        assert look.frame().notes == []
        cluster.pause(2)
        look._frame_s = 1.0
        deadline = time.monotonic() + PATIENCE_S
        frame = look.frame()
        while not is_late(frame, 2):
            assert time.monotonic() < deadline, frame
            frame = look.frame()
        assert [each.group for each in frame.groups] == [GROUP], "the last value stays"
    finally:
        cluster.resume(2)
        look.close()


def test_the_admin_port_of_another_clusters_broker_is_refused(make_cluster: MakeCluster) -> None:
    ours, theirs = make_cluster(1), make_cluster(1, name="other")
    with BlockingClient(theirs.bootstrap) as client:
        (listener,) = client.describe_configs(ConfigResource(BROKER, "1"), ["admin.listener"])
        their_id = client.metadata([]).cluster_id
    found = tidelog("top", "--json", "-b", ours.bootstrap, "--admin", f"1={listener.value}")
    frame = json.loads(found.stdout)
    (broker,) = frame["brokers"]
    assert broker["state"] == "up" and broker["connections"] is None
    sentence = f"{listener.value} is the admin port of broker 1 of cluster {their_id}, but broker 1"
    assert broker["reason"].startswith(sentence)
    assert any(note.startswith(sentence) for note in frame["notes"])


def test_a_cluster_without_admin_ports_is_shown_by_kafkas_protocol(
    make_cluster: MakeCluster,
) -> None:
    cluster = make_cluster(1, admin_listener="")
    with BlockingClient(cluster.bootstrap) as client:
        client.create_topic(TOPIC, 2, 1)
        client.await_topic(TOPIC)
    with traffic(cluster):
        found = tidelog("top", "--json", "-b", cluster.bootstrap, "--interval", "6")
    frame = json.loads(found.stdout)
    assert [each["state"] for each in frame["brokers"]] == ["up"]
    hottest = frame["partitions"][0]
    assert (hottest["topic"], hottest["partition"]) == HOT
    assert hottest["bytes_in_per_s"] > 0 and hottest["bytes_out_per_s"] is None
    assert any(each.startswith("No admin port is known") for each in frame["notes"])


def test_a_cluster_that_is_not_there_ends_the_command() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
    found = tidelog("top", "--once", "-b", address, "--timeout", "1")
    assert found.returncode == 3 and "could not be reached" in found.stderr


def test_a_frame_that_cannot_be_drawn_ends_the_screen_with_its_error() -> None:
    """Textual does not see errors of drawing, so the screen would show an old frame for ever."""
    broken = replace(EMPTY, brokers=cast("list[TopBroker]", [None]))

    async def run() -> None:
        screen = TopScreen(lambda: broken, 0.5)
        async with screen.run_test() as pilot:
            deadline = time.monotonic() + PATIENCE_S
            while screen._exit is False:
                assert time.monotonic() < deadline
                await pilot.pause(0.05)
        with pytest.raises(AttributeError):
            screen.finish(PATIENCE_S)

    asyncio.run(run())
