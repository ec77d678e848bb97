"""The kit in a running event loop: coroutines, and blocking calls that would stop the loop."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Callable

import pytest
from aiokafka import AIOKafkaProducer

from tidelog.testing import BlockedLoopError, BlockedLoopWarning, Cluster, WaitTimeout


def test_a_client_of_the_loop_goes_on_while_a_test_awaits(tidelog_cluster_module: Cluster) -> None:
    cluster = tidelog_cluster_module

    async def scenario() -> None:
        topic = await cluster.aio.topic(config={"min.insync.replicas": 2})
        lost = cluster.on_request("Produce").where(topic=topic).times(2).after().disconnect()
        async with AIOKafkaProducer(
            bootstrap_servers=cluster.bootstrap_servers, enable_idempotence=True
        ) as producer:
            sent = asyncio.create_task(producer.send_and_wait(topic, b"paid"))
            await lost.struck(2)
            assert (await sent).offset == 0
            first = await cluster.aio.leader(topic)
            await cluster.aio.kill(first)
            now, second = await asyncio.gather(
                cluster.aio.wait_for(running=2, leaderless=0), cluster.aio.leader(topic)
            )
            assert (now.leaderless, second != first) == (0, True)
            assert (await producer.send_and_wait(topic, b"again")).offset == 1
        await cluster.aio.start(first)
        assert await cluster.aio.controller() in cluster.brokers
        assert topic in await cluster.aio.describe()

    with warnings.catch_warnings():
        warnings.simplefilter("error", BlockedLoopWarning)
        asyncio.run(scenario())


@pytest.mark.parametrize(
    ("wait", "instead"),
    [
        (lambda cluster: cluster.wait_for(running=3), "`await cluster.aio.wait_for(...)`"),
        (lambda cluster: cluster.leader("t"), "`await cluster.aio.leader(...)`"),
        (lambda cluster: cluster.controller(), "`await cluster.aio.controller(...)`"),
        (lambda cluster: cluster.on_request("Fetch").watch().wait(3), "`await fault.struck(3)`"),
    ],
)
def test_a_wait_that_would_stop_its_loop_is_an_error(
    tidelog_cluster_module: Cluster, wait: Callable[[Cluster], object], instead: str
) -> None:
    async def scenario() -> None:
        wait(tidelog_cluster_module)

    with pytest.raises(BlockedLoopError) as raised:
        asyncio.run(scenario())
    assert instead in str(raised.value)


def test_other_calls_that_take_time_warn_at_the_line_of_the_test(
    tidelog_cluster_module: Cluster,
) -> None:
    async def scenario() -> None:
        tidelog_cluster_module.delete_topic(tidelog_cluster_module.topic())

    with pytest.warns(BlockedLoopWarning) as caught:
        asyncio.run(scenario())
    assert [str(each.message).split(": ")[1] for each in caught] == [
        "`await cluster.aio.topic(...)`",
        "`await cluster.aio.delete_topic(...)`",
    ]
    assert [each.filename for each in caught] == [__file__] * 2


def test_a_cluster_that_is_made_in_a_loop_warns_at_the_line_of_the_test(
    tidelog_cluster_factory: Callable[..., Cluster],
) -> None:
    async def scenario() -> Cluster:
        return tidelog_cluster_factory(brokers=1)

    with pytest.warns(BlockedLoopWarning, match="`await asyncio.to_thread") as caught:
        asyncio.run(scenario()).close()
    assert [each.filename for each in caught] == [__file__]


def test_acts_of_a_moment_need_no_coroutine(tidelog_cluster_module: Cluster) -> None:
    async def scenario() -> None:
        tidelog_cluster_module.pause(2)
        tidelog_cluster_module.resume(2)
        tidelog_cluster_module.on_request("Fetch").drop().remove()

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        asyncio.run(scenario())


def test_awaiting_ends_by_timeout_and_by_cancellation(tidelog_cluster_module: Cluster) -> None:
    cluster = tidelog_cluster_module

    async def scenario() -> None:
        with pytest.raises(WaitTimeout, match="after 0 s not under_replicated=99; last seen"):
            await cluster.aio.wait_for(under_replicated=99, timeout=0)
        with pytest.raises(WaitTimeout, match="after 0 s not struck 1 times"):
            await cluster.on_request("Fetch").watch().struck(timeout=0)
        forever = asyncio.create_task(cluster.aio.leader("no-such-topic", timeout=3600))
        await asyncio.sleep(0)
        forever.cancel()
        with pytest.raises(asyncio.CancelledError):
            await forever

    asyncio.run(scenario())  # which also waits for threads
