"""V47: a broker that was stopped serves nothing until the store has confirmed its session.

A whole simulated process is stopped, as SIGSTOP does. Requests come over a connection of the
broker's own code. V82: clients never see an empty view of the cluster.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.rules.session_harness import TIMEOUT_MS, SessionHarness, simulated
from tests.support.broker.connections import FakeTransport

from tidelog.broker.broker import Broker
from tidelog.broker.cluster_view import PartitionView, TopicView
from tidelog.broker.server.connections import Connection
from tidelog.broker.server.requests import Pending, Request
from tidelog.core.limits import MAX_REQUEST_HOLD_MS
from tidelog.core.types import NO_BROKER_EPOCH, BrokerInfo, Endpoint
from tidelog.wire.codec import decode_response, encode_request
from tidelog.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from tidelog.wire.messages.update_metadata import (
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataRequest,
)
from tidelog.wire.registry import FIND_COORDINATOR, METADATA

VERSION = 12
FULL, INCREMENTAL = 2, 1
TOPIC_ID = b"t" * 16


@pytest.fixture
def harness() -> Iterator[SessionHarness]:
    made = SessionHarness()
    yield made
    made.cluster.close()


async def serving(harness: SessionHarness) -> tuple[Broker, Connection, FakeTransport]:
    """A registered broker that knows the cluster, and a client's connection to it."""
    broker = await harness.registered()
    known(broker)
    broker.admission.is_serving = True
    broker.admission.changed()
    return broker, *connected(broker)


def connected(broker: Broker) -> tuple[Connection, FakeTransport]:
    transport = FakeTransport()
    connection = broker.server.accept("PLAINTEXT", transport)
    assert isinstance(connection, Connection)
    return connection, transport


def known(broker: Broker) -> None:
    """The broker has the controller's whole view, with one topic that it leads."""
    broker.view.is_known = True
    broker.view.brokers = {1: BrokerInfo(1, 0, (Endpoint("PLAINTEXT", "host", 9092, "PLAINTEXT"),))}
    state = PartitionView(1, 0, (1,), (1,), (), 0)
    broker.view.topics = {"t": TopicView("t", TOPIC_ID, {0: state})}


def metadata(correlation_id: int = 1) -> memoryview:
    message = MetadataRequest(
        topics=[MetadataRequestTopic(name="t")], allow_auto_topic_creation=True
    )
    parts = encode_request(METADATA, VERSION, correlation_id, "tester", message)
    return memoryview(b"".join(bytes(part) for part in parts))[4:]


def answered(transport: FakeTransport) -> list[Any]:
    return [decode_response(METADATA, VERSION, memoryview(data)[4:])[1] for data in transport.sent]


async def stopped(harness: SessionHarness, milliseconds: float) -> None:
    """Stop the process for a while; returns in the turn that follows."""
    cluster = harness.cluster
    after, life = cluster.world.scheduler.after, cluster.incarnation
    after(0, None, life.pause)
    after(int(milliseconds * 1_000_000), None, life.resume)
    await cluster.sleep(1)


@pytest.mark.rule("V47")
def test_after_a_pause_requests_wait_until_the_store_confirms_the_session(
    harness: SessionHarness,
) -> None:
    async def story() -> None:
        broker, connection, transport = await serving(harness)
        session = broker.services.store.session_id
        await stopped(harness, TIMEOUT_MS * 0.7)  # the renewals before it keep the session
        assert broker.services.store.session_id == session
        connection.frames_received([metadata()])
        assert transport.sent == []
        assert not transport.reading
        await harness.cluster.until(lambda: bool(transport.sent))
        assert broker.services.store.session_id == session
        assert [len(answer.brokers) for answer in answered(transport)] == [1]
        assert transport.reading

    harness.tell(story())


@pytest.mark.rule("V47")
def test_a_broker_whose_session_ended_meanwhile_answers_when_it_is_registered_again(
    harness: SessionHarness,
) -> None:
    async def story() -> None:
        broker, connection, transport = await serving(harness)
        first = broker.broker_epoch
        epochs: list[int] = []
        transport.send = lambda parts: epochs.append(broker.broker_epoch)  # type: ignore[method-assign]  # replaced by the test
        await stopped(harness, TIMEOUT_MS * 3)
        connection.frames_received([metadata()])
        await harness.cluster.until(lambda: broker.broker_epoch not in (first, NO_BROKER_EPOCH))
        await harness.cluster.until(lambda: not broker.services.fence.is_fenced)
        assert epochs == []  # what it knows of the cluster is older than the pause
        broker.view.apply(view(FULL))
        broker.admission.changed()
        assert epochs == [broker.broker_epoch]

    harness.tell(story())


@pytest.mark.rule("V47")
def test_an_answer_that_is_made_in_doubt_reaches_no_client_when_the_session_is_over(
    harness: SessionHarness,
) -> None:
    async def story() -> None:
        broker, connection, transport = await serving(harness)
        waiting = Pending()

        def wait(request: Request[Any]) -> Pending:
            return waiting

        broker.put_around_handlers(lambda served: served._replace(handle=wait))
        connection.frames_received([metadata()])
        in_doubt: list[bool] = []

        def turned() -> None:
            if broker.services.fence.is_fenced and not waiting.done:
                in_doubt.append(broker.services.fence.is_in_doubt)
                waiting.complete(MetadataResponse())

        harness.cluster.ports.on_turn(turned)
        await stopped(harness, TIMEOUT_MS * 3)
        assert in_doubt == [True]
        await harness.cluster.until(lambda: transport.closed is not None)
        assert transport.sent == []

    harness.tell(story())


@pytest.mark.rule("V47")
def test_no_timeout_of_a_request_fires_before_the_session_is_confirmed(
    harness: SessionHarness,
) -> None:
    async def story() -> None:
        broker, _, _ = await serving(harness)
        fenced: list[bool] = []
        broker.services.serving_timers.after(
            TIMEOUT_MS * 0.5, lambda: fenced.append(broker.services.fence.is_fenced)
        )
        await stopped(harness, TIMEOUT_MS * 0.7)
        assert broker.services.fence.is_fenced
        await harness.cluster.until(lambda: bool(fenced))
        assert fenced == [False]

    harness.tell(story())


@pytest.mark.rule("V47")
def test_a_pause_within_a_turn_is_noticed_before_the_next_request(harness: SessionHarness) -> None:
    async def story() -> None:
        _, connection, transport = await serving(harness)
        # The rest of this turn runs after the process was stopped.
        harness.cluster.world.scheduler.now_ns += TIMEOUT_MS * 700_000
        connection.frames_received([metadata()])
        assert transport.sent == []
        await harness.cluster.until(lambda: bool(transport.sent))

    harness.tell(story())


@pytest.mark.rule("V47")
def test_what_the_store_answers_to_an_earlier_question_confirms_nothing_after_another_pause(
    harness: SessionHarness,
) -> None:
    async def story() -> None:
        broker, _, _ = await serving(harness)
        asked: list[int] = []
        transact = broker.services.store.transact

        async def answered_late(ops: Any) -> Any:
            results = await transact(ops)
            asked.append(1)
            if len(asked) == 1:
                broker.services.fence.late_from_ms = 0  # the next turn comes too late, too
                await harness.cluster.sleep(1)
            return results

        broker.services.store.transact = answered_late  # type: ignore[method-assign]  # replaced
        await stopped(harness, TIMEOUT_MS * 0.7)
        await harness.cluster.until(lambda: not broker.services.fence.is_fenced)
        assert len(asked) == 2

    harness.tell(story())


@pytest.mark.rule("V47", "S3")
def test_a_store_that_is_away_fences_no_broker_that_turned_all_the_time(
    harness: SessionHarness,
) -> None:
    async def story() -> None:
        broker, connection, transport = await serving(harness)
        harness.cluster.reachable = False
        await harness.cluster.sleep(TIMEOUT_MS * 3)
        assert not broker.services.fence.is_fenced
        connection.frames_received([metadata()])
        assert len(transport.sent) == 1

    harness.tell(story())


@pytest.mark.rule("V47")
def test_a_request_that_waits_for_a_store_that_is_away_loses_its_connection(
    harness: SessionHarness,
) -> None:
    async def story() -> None:
        broker, connection, transport = await serving(harness)
        harness.cluster.reachable = False
        await stopped(harness, TIMEOUT_MS * 0.7)
        connection.frames_received([metadata()])
        await harness.cluster.sleep(MAX_REQUEST_HOLD_MS - 100)
        assert transport.closed is None
        await harness.cluster.sleep(200)
        assert transport.closed is not None
        assert transport.sent == []
        assert broker.services.fence.is_fenced

    harness.tell(story())


@pytest.mark.rule("V82")
def test_a_broker_that_registers_again_keeps_its_view_of_the_cluster(
    harness: SessionHarness,
) -> None:
    async def story() -> None:
        broker, connection, transport = await serving(harness)
        first = broker.broker_epoch
        harness.expire(broker)
        await harness.cluster.until(lambda: broker.broker_epoch > first)
        connection.frames_received([metadata()])
        (answer,) = answered(transport)
        assert [each.node_id for each in answer.brokers] == [1]
        assert [(each.name, each.error_code) for each in answer.topics] == [("t", 0)]

    harness.tell(story())


def view(kind: int) -> UpdateMetadataRequest:
    endpoint = UpdateMetadataEndpoint(9092, "host", "PLAINTEXT", 0)
    return UpdateMetadataRequest(
        type=kind, live_brokers=[UpdateMetadataBroker(1, [endpoint], None)], topic_states=[]
    )


@pytest.mark.rule("V82")
def test_clients_of_a_broker_that_has_just_started_wait_for_the_whole_view(
    harness: SessionHarness,
) -> None:
    async def story() -> None:
        broker = await harness.registered()
        broker.admission.is_serving = True
        connection, transport = connected(broker)
        connection.frames_received([metadata()])
        assert transport.sent == []
        asked: list[str] = []
        broker.auto_creation.create = asked.extend  # type: ignore[method-assign,assignment]  # replaced by the test
        broker.view.apply(view(INCREMENTAL))  # the live brokers, ahead of the topics
        broker.admission.changed()
        assert transport.sent == []
        broker.view.apply(view(FULL))
        broker.admission.changed()
        (answer,) = answered(transport)
        assert [each.node_id for each in answer.brokers] == [1]
        assert asked == ["t"]

    harness.tell(story())


@pytest.mark.rule("V82")
def test_before_the_first_view_a_broker_has_no_topic_made(harness: SessionHarness) -> None:
    async def story() -> None:
        broker = await harness.registered()
        spawned: list[str] = []
        broker.services.tasks.spawn = lambda name, _: spawned.append(name)  # type: ignore[method-assign,assignment,return-value]  # replaced
        broker.auto_creation.create(["t"])
        assert broker.auto_creation.offsets_topic() is None
        assert spawned == []

    harness.tell(story())


@pytest.mark.rule("V47")
def test_coordinators_wait_like_leaders(harness: SessionHarness) -> None:
    async def story() -> None:
        broker, _, _ = await serving(harness)
        await stopped(harness, TIMEOUT_MS * 0.7)
        frame = memoryview(FIND_COORDINATOR.to_bytes(2, "big") + bytes(6))
        assert broker.admission.holds(frame)
        await harness.cluster.until(lambda: not broker.services.fence.is_fenced)
        assert not broker.admission.holds(frame)

    harness.tell(story())


@pytest.mark.rule("V47")
def test_the_limit_of_a_pause_follows_the_session_that_the_store_has_granted(
    harness: SessionHarness,
) -> None:
    async def story() -> None:
        broker = harness.broker()
        store = simulated(broker)
        store.session_timeout_ms *= 3  # what the broker asks for
        open_session = store.open

        async def grant_less() -> None:
            store.session_timeout_ms = TIMEOUT_MS
            await open_session()

        store.open = grant_less  # type: ignore[method-assign]  # replaced
        await broker.session.open()
        await broker.session.register()
        await stopped(harness, TIMEOUT_MS * 0.7)
        assert broker.services.fence.is_fenced

    harness.tell(story())
