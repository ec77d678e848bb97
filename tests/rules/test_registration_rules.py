"""Rules of registrations whose session expires at an odd moment, or whose directory hangs.

V4 (each registration that is lost is made again, and what changed meanwhile is read), D13 (a
directory that hangs), E8 (the stamps).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.rules.session_harness import TIMEOUT_MS, SessionHarness, simulated

from tidelog.broker.broker import Broker
from tidelog.broker.configs.config_store import BROKERS, ConfigStore
from tidelog.core.ports import Lane
from tidelog.log import owners
from tidelog.metadata import layout
from tidelog.sim.disk import SimDisk

#: Far more than a registration takes, and less than a session.
SOON_MS = TIMEOUT_MS / 2


@pytest.fixture
def harness() -> Iterator[SessionHarness]:
    made = SessionHarness()
    yield made
    made.cluster.close()


def disk(harness: SessionHarness, directory: str) -> SimDisk:
    return harness.cluster.world.disk(0, directory)


def before_each(broker: Broker, name: str, act: Callable[[int], None]) -> None:
    """Call `act` with a count before each operation of this name in a directory of the broker."""
    open_lanes, count = broker._open_lanes, 0
    watched: dict[str, Lane] = {}

    def opened() -> dict[str, Lane]:
        lanes = open_lanes()
        for path, lane in lanes.items():
            if path not in watched:
                watched[path] = lane
                lane.submit = submitting(lane.submit)  # type: ignore[method-assign]  # replaced by the test
        return lanes

    def submitting(submit: Any) -> Any:
        def submitted(operation: Any, work: Any, what: str) -> Any:
            nonlocal count
            if what == name:
                count += 1
                act(count)
            return submit(operation, work, what)

        return submitted

    broker._open_lanes = opened  # type: ignore[method-assign]  # replaced by the test


async def is_registered_again(harness: SessionHarness, broker: Broker) -> None:
    """The registration is that of the session which the broker has now, and soon so."""
    await harness.cluster.sleep(SOON_MS)
    node = harness.node()
    assert node is not None, "the broker is not registered"
    assert node.stat.ephemeral_owner == broker.services.store.session_id
    assert broker.broker_epoch == node.stat.czxid


@pytest.mark.rule("V4")
@pytest.mark.parametrize("expiries", [1, 3])
def test_a_session_that_expires_while_directories_take_the_stamp_has_a_successor(
    harness: SessionHarness, expiries: int
) -> None:
    """Of the first registration, and of each one after it (seed 730000008)."""

    def expire(count: int) -> None:
        if count <= expiries:
            harness.expire(broker)

    async def story() -> None:
        before_each(broker, "stamp", expire)
        slow = disk(harness, broker.config.log_dirs[0])
        slow.slow, slow.slow_ns = True, (20_000_000, 30_000_000)  # the broker hears of it first
        await broker.start()
        await is_registered_again(harness, broker)
        await broker.stop()

    broker = harness.broker()
    harness.tell(story())


@pytest.mark.rule("V4", "D13")
def test_a_broker_whose_directory_hangs_registers_again_and_goes_on(
    harness: SessionHarness,
) -> None:
    """Nothing awaits the disk: neither the registration, nor what follows it."""

    async def story() -> None:
        broker = harness.broker(log_dirs="/a,/b")
        await broker.start()
        renewed: list[int] = []
        broker.controller.session_renewed = lambda: renewed.append(broker.broker_epoch)  # type: ignore[method-assign]  # replaced by the test
        disk(harness, "/b").hangs = True
        for count in (1, 2, 3):
            harness.expire(broker)
            await is_registered_again(harness, broker)
            assert len(renewed) == count and renewed[-1] == broker.broker_epoch
        disk(harness, "/b").come_back()
        await broker.stop()

    harness.tell(story())


@pytest.mark.rule("D13", "E8")
def test_a_start_does_not_wait_for_a_directory_that_hangs_before_it_has_the_stamp(
    harness: SessionHarness,
) -> None:
    async def story() -> None:
        before_each(broker, "stamp", hang)
        await broker.start()
        await is_registered_again(harness, broker)
        log = harness.cluster.world.trace.recent
        assert any("has not taken the broker's stamp for 1,000 ms" in line for line in log)
        disk(harness, "/b").come_back()
        await broker.stop()

    def hang(count: int) -> None:
        if count == 1:
            disk(harness, "/b").hangs = True

    broker = harness.broker(log_dirs="/a,/b")
    harness.tell(story())


@pytest.mark.rule("D13", "E8")
def test_a_directory_that_hung_gets_the_last_stamp_in_one_write_more(
    harness: SessionHarness,
) -> None:
    writes: list[int] = []

    async def story() -> None:
        before_each(broker, "stamp", writes.append)
        await broker.start()
        disk(harness, "/b").hangs = True
        for _ in range(5):
            harness.expire(broker)
            await is_registered_again(harness, broker)
        assert len(writes) == 2 + 5 + 1, "a write waits for the one under way in its directory"
        disk(harness, "/b").come_back()
        await broker.stamps.written()
        assert len(writes) == 2 + 5 + 2
        found = await owners.read_owners({each.directory: each for each in broker._lanes})
        assert [each.stamp for each in found.values()] == [broker.broker_epoch] * 2
        await broker.stop()

    broker = harness.broker(log_dirs="/a,/b")
    harness.tell(story())


@pytest.mark.rule("V4", "E8")
def test_a_session_that_expires_in_a_start_registers_no_broker_before_its_directories_are_open(
    harness: SessionHarness,
) -> None:
    """Neither its endpoints nor its logs are known then."""

    async def story() -> None:
        seen: list[bool] = []

        def opening() -> None:
            harness.expire(broker)

        before_each(broker, "stamp", lambda _: seen.append(broker.services.identity.is_registered))
        listen = broker.server.listen

        async def listening() -> None:
            await harness.cluster.sleep(SOON_MS)
            assert harness.node() is None, "registered before it listens"
            assert simulated(broker).session_id is not None, "the start has no session"
            await listen()

        broker.server.listen = listening  # type: ignore[method-assign]  # replaced by the test
        await broker.start(opening)
        assert seen == [True]
        await is_registered_again(harness, broker)
        await broker.stop()

    broker = harness.broker()
    harness.tell(story())


@pytest.mark.rule("V4")
def test_a_session_that_expires_as_soon_as_it_is_open_does_not_end_the_start(
    harness: SessionHarness,
) -> None:
    async def story() -> None:
        store, left = simulated(broker), 3
        get = store.get

        async def expired(*arguments: Any) -> Any:
            nonlocal left
            if left and store.session_id is not None:
                left -= 1
                harness.expire(broker)
            return await get(*arguments)

        store.get = expired  # type: ignore[method-assign,assignment]  # replaced by the test
        await broker.start()
        assert left == 0
        await is_registered_again(harness, broker)
        await broker.stop()

    broker = harness.broker()
    harness.tell(story())


async def configure(broker: Broker, size: str) -> None:
    """Have `message.max.bytes` stored as the default of all brokers."""
    changed = {"message.max.bytes": size}
    await ConfigStore(broker.services).change(
        BROKERS, layout.DEFAULT_ENTITY, lambda _: changed, False
    )


@pytest.mark.rule("V4")
@pytest.mark.parametrize("moment", ["directories are opened", "the registration is answered"])
def test_a_start_whose_session_expires_misses_no_change_of_configuration(
    harness: SessionHarness, moment: str
) -> None:
    """Neither while it has no session, nor later: its watches went too (seed 740010019)."""

    async def story() -> None:
        other = await harness.registered(2)
        store = simulated(broker)
        transact, expired = store.transact, False

        async def expire() -> None:
            nonlocal expired
            if not expired:
                expired = True
                harness.expire(broker)
                await configure(other, "2000")

        async def answered_late(ops: Any) -> Any:
            results = await transact(ops)
            if any(op.path == layout.broker_path(1) for op in ops):
                await expire()
            return results

        open_directories = broker._open_directories

        async def opened() -> Any:
            await expire()
            return await open_directories()

        if moment == "directories are opened":
            broker._open_directories = opened  # type: ignore[method-assign]  # replaced by the test
        else:
            store.transact = answered_late  # type: ignore[method-assign]  # replaced by the test
        await broker.start()
        await is_registered_again(harness, broker)
        assert expired
        assert broker.services.config.message_max_bytes == 2000, "a change before it registered"
        await configure(other, "3000")
        await harness.cluster.sleep(SOON_MS)
        assert broker.services.config.message_max_bytes == 3000, "a change after that"
        await broker.stop()

    broker = harness.broker()
    harness.tell(story())
