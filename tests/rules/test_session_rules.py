"""Rules of a broker's session with the store, held by the code that brokers run.

V4 (the registration), V40 and S3 (what ends with it, and what does not), S2 (an unknown outcome),
S5 (an id that a dying session holds), E3 (what a clean shutdown proves, and once).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.rules.session_harness import TIMEOUT_MS, SessionHarness, simulated
from tests.support.store.clusters import interrupt

from tidelog.broker.membership.session import BrokerIdInUseError
from tidelog.core.types import CleanEpochs
from tidelog.metadata import layout
from tidelog.metadata.store import Create, OutcomeUnknown, StoreUnavailable


@pytest.fixture
def harness() -> Iterator[SessionHarness]:
    made = SessionHarness()
    yield made
    made.cluster.close()


@pytest.mark.rule("V4")
def test_a_broker_registers_itself_with_an_ephemeral_node_whose_creation_id_is_its_epoch(
    harness: SessionHarness,
) -> None:
    async def story() -> None:
        broker = await harness.registered(7)
        node = harness.node(7)
        assert node is not None
        assert node.stat.ephemeral_owner == broker.services.store.session_id
        assert broker.broker_epoch == node.stat.czxid
        assert json.loads(node.data)["endpoints"] == ["PLAINTEXT://host:9092"]
        await broker.session.close()
        assert harness.node(7) is None

    harness.tell(story())


@pytest.mark.rule("V4", "V40", "S3")
def test_after_an_expiry_a_broker_leads_nothing_and_registers_under_a_higher_epoch(
    harness: SessionHarness,
) -> None:
    async def story() -> None:
        broker = await harness.registered()
        first = broker.broker_epoch
        ended: list[tuple[str, int]] = []

        def end(what: str) -> Callable[[str], None]:
            return lambda reason: ended.append((what, broker.broker_epoch))

        broker.controller.resign = end("resigned")  # type: ignore[method-assign,assignment]  # replaced by the test
        broker.replicas.stop_leading = end("stopped leading")  # type: ignore[method-assign,assignment]  # replaced by the test
        renewed: list[int] = []
        broker.controller.session_renewed = lambda: renewed.append(  # type: ignore[method-assign]  # replaced by the test
            broker.broker_epoch
        )
        harness.expire(broker)
        await harness.cluster.until(lambda: bool(renewed))
        assert ended == [("resigned", -1), ("stopped leading", -1)]
        node = harness.node()
        assert node is not None
        assert renewed == [broker.broker_epoch] == [node.stat.czxid]
        assert broker.broker_epoch > first

    harness.tell(story())


@pytest.mark.rule("V4", "E7")
def test_a_broker_whose_registration_was_deleted_by_hand_registers_again_in_its_session(
    harness: SessionHarness,
) -> None:
    async def story() -> None:
        broker = await harness.registered()
        first, session = broker.broker_epoch, broker.services.store.session_id
        ended: list[str] = []
        broker.controller.resign = ended.append  # type: ignore[method-assign,assignment]  # replaced by the test
        broker.replicas.stop_leading = ended.append  # type: ignore[method-assign,assignment]  # replaced by the test
        await harness.cluster.sleep(TIMEOUT_MS)
        harness.cluster.server.remove_from_outside(layout.broker_path(1))
        await harness.cluster.until(lambda: broker.broker_epoch > first)
        node = harness.node()
        assert node is not None
        assert node.stat.ephemeral_owner == session == broker.services.store.session_id
        assert broker.broker_epoch == node.stat.czxid
        assert json.loads(node.data)["previous_broker_epoch"] == first
        # The controller took it for dead meanwhile.
        assert ended == ["/brokers/ids/1 was deleted while the session lives"] * 2

    harness.tell(story())


@pytest.mark.rule("V4")
def test_a_registration_whose_session_expires_before_its_answer_is_handled_is_made_again(
    harness: SessionHarness,
) -> None:
    # Simulator seed 641: the broker believed that it was registered, and never registered again.
    async def story() -> None:
        broker = await harness.registered()
        store = simulated(broker)
        transact = store.transact
        sessions: list[int | None] = []

        async def handled_late(ops: Any) -> Any:
            results = await transact(ops)
            sessions.append(store.session_id)
            if len(sessions) == 1:
                harness.expire(broker)
                await harness.cluster.until(lambda: store.session_id is None)
            return results

        store.transact = handled_late  # type: ignore[method-assign]  # replaced by the test
        renewed: list[int] = []
        broker.controller.session_renewed = lambda: renewed.append(  # type: ignore[method-assign]  # replaced by the test
            broker.broker_epoch
        )
        harness.expire(broker)
        await harness.cluster.until(lambda: bool(renewed))
        node = harness.node()
        assert node is not None
        assert node.stat.ephemeral_owner == store.session_id == sessions[-1] != sessions[0]
        assert renewed == [broker.broker_epoch] == [node.stat.czxid]

    harness.tell(story())


@pytest.mark.rule("S3")
def test_a_store_that_cannot_be_reached_ends_neither_leadership_nor_registration(
    harness: SessionHarness,
) -> None:
    async def story() -> None:
        broker = await harness.registered()
        first = broker.broker_epoch
        ended: list[str] = []
        broker.controller.resign = ended.append  # type: ignore[method-assign,assignment]  # replaced by the test
        broker.replicas.stop_leading = ended.append  # type: ignore[method-assign,assignment]  # replaced by the test
        harness.cluster.reachable = False
        await harness.cluster.sleep(TIMEOUT_MS * 0.7)
        harness.cluster.reachable = True
        await harness.cluster.sleep(TIMEOUT_MS)
        assert ended == []
        assert broker.broker_epoch == first

    harness.tell(story())


@pytest.mark.rule("S2")
@pytest.mark.parametrize("lost", ["lose_next_answer", "lose_next_request"])
def test_a_registration_of_unknown_outcome_is_read_back(harness: SessionHarness, lost: str) -> None:
    async def story() -> None:
        broker = harness.broker()
        await broker.session.open()
        getattr(simulated(broker), lost)()
        await broker.session.register()
        node = harness.node()
        assert node is not None
        assert broker.broker_epoch == node.stat.czxid
        assert json.loads(node.data)["version"] == 5

    harness.tell(story())


@pytest.mark.rule("S5")
def test_an_id_that_a_dying_session_holds_is_waited_for(harness: SessionHarness) -> None:
    async def story() -> None:
        dying = await harness.cluster.open(timeout_ms=TIMEOUT_MS)
        broker = harness.broker()
        await broker.session.open()
        await dying.transact([Create(layout.broker_path(1), b"old", ephemeral=True)])
        harness.cluster.silence(dying)
        await broker.session.register()
        node = harness.node()
        assert node is not None
        assert node.stat.ephemeral_owner == broker.services.store.session_id

    harness.tell(story())


@pytest.mark.rule("S2", "S3")
@pytest.mark.parametrize("lost", ["lose_next_answer", "lose_next_request"])
def test_a_registration_is_read_back_however_often_the_store_cannot_be_read(
    harness: SessionHarness, lost: str
) -> None:
    async def story() -> None:
        broker = harness.broker()
        await broker.session.open()
        getattr(simulated(broker), lost)()
        left = interrupt(
            broker.services.store, "get", StoreUnavailable("cut off"), OutcomeUnknown("broke"),
            StoreUnavailable("cut off"),
        )  # fmt: skip
        await broker.session.register()
        node = harness.node()
        assert left == [] and node is not None
        assert broker.broker_epoch == node.stat.czxid

    harness.tell(story())


@pytest.mark.rule("S3")
def test_a_registration_that_cannot_reach_the_store_is_tried_again(harness: SessionHarness) -> None:
    async def story() -> None:
        broker = harness.broker()
        await broker.session.open()
        left = interrupt(broker.services.store, "transact", *[StoreUnavailable("cut off")] * 3)
        await broker.session.register()
        node = harness.node()
        assert left == [] and node is not None
        assert broker.broker_epoch == node.stat.czxid

    harness.tell(story())


@pytest.mark.rule("S5")
def test_an_id_that_the_own_session_holds_already_is_not_waited_for(
    harness: SessionHarness,
) -> None:
    async def story() -> None:
        broker = await harness.registered()
        first = broker.broker_epoch
        clock = harness.cluster.ports.clock
        began_ms = clock.monotonic_ms()
        await broker.session.register()
        assert broker.broker_epoch == first
        assert clock.monotonic_ms() - began_ms < TIMEOUT_MS / 2

    harness.tell(story())


@pytest.mark.rule("S2", "S5")
def test_after_an_unknown_outcome_an_id_that_another_session_holds_is_waited_for(
    harness: SessionHarness,
) -> None:
    """The node that is read back is another's: it is no registration of ours."""

    async def story() -> None:
        dying = await harness.cluster.open(timeout_ms=TIMEOUT_MS)
        broker = harness.broker()
        await broker.session.open()
        await dying.transact([Create(layout.broker_path(1), b"old", ephemeral=True)])
        old = harness.node()
        harness.cluster.silence(dying)
        simulated(broker).lose_next_request()
        await broker.session.register()
        node = harness.node()
        assert old is not None and node is not None
        assert node.stat.ephemeral_owner == broker.services.store.session_id
        assert broker.broker_epoch == node.stat.czxid > old.stat.czxid

    harness.tell(story())


@pytest.mark.rule("S5")
def test_an_id_that_a_live_broker_holds_is_refused_after_the_session_timeout(
    harness: SessionHarness,
) -> None:
    async def story() -> None:
        await harness.registered()
        second = harness.broker()
        await second.session.open()
        clock = harness.cluster.ports.clock
        began_ms = clock.monotonic_ms()
        with pytest.raises(BrokerIdInUseError, match="broker id 1 is registered by another"):
            await second.session.register()
        assert clock.monotonic_ms() - began_ms >= TIMEOUT_MS
        assert second.broker_epoch == -1

    harness.tell(story())


@pytest.mark.rule("E3", "E7")
def test_a_registration_proves_a_clean_shutdown_and_a_later_one_the_process_that_lived_on(
    harness: SessionHarness,
) -> None:
    async def story() -> None:
        broker = harness.broker()
        identity = broker.services.identity
        identity.clean_epochs = CleanEpochs(41, (37,))
        await broker.session.open()
        await broker.session.register()
        assert registered() == (41, [37])
        first = broker.broker_epoch
        harness.expire(broker)
        assert identity.epochs_so_far() == (first, (37, 41)), (
            "a stop without a registration proves it too"
        )
        await harness.cluster.until(lambda: broker.broker_epoch > first)
        assert registered() == (first, [37, 41])
        assert identity.epochs_so_far() == (broker.broker_epoch, (37, 41, first))

    def registered() -> tuple[int, list[int]]:
        node = harness.node()
        assert node is not None
        value = json.loads(node.data)
        return value["previous_broker_epoch"], value["earlier_broker_epochs"]

    harness.tell(story())


@pytest.mark.rule("E3")
@pytest.mark.parametrize(
    ("epochs", "proved"), [((5, 5), 5), ((5, 6), -1), ((None, 5), -1), ((5, None), -1)]
)
def test_every_log_directory_must_prove_the_same_clean_shutdown(
    harness: SessionHarness, epochs: tuple[int | None, int | None], proved: int
) -> None:
    async def story() -> None:
        first = harness.broker(log_dirs="/a,/b")
        opened = await first._open_directories()
        for directory, epoch in zip(opened, epochs, strict=True):
            if epoch is not None:
                await directory.close(CleanEpochs(epoch))
        second = harness.broker(log_dirs="/a,/b")
        await second._open_directories()
        assert second.services.identity.clean_epochs.last == proved

    harness.tell(story())
