"""Configuration in the store: written by any broker, followed by all (on the simulated store)."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import pytest
from tests.support.broker.fakes import services_of
from tests.support.controller.harness import ControllerHarness, controller_harness

from tidelog.broker.configs.config_store import BROKERS, TOPICS, ConfigStore
from tidelog.broker.configs.live_configs import EXPIRATION_MS, LiveConfigs
from tidelog.broker.services import Services
from tidelog.core.config import BrokerConfig
from tidelog.core.errors import ErrorCode, KafkaError
from tidelog.core.tasks import Tasks
from tidelog.metadata import layout
from tidelog.metadata.store import Create, Op, SessionEvent

T = TypeVar("T")


class Replicas:
    """What a broker hosts; keeps what it is told."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self.hosted = ["t", "u"]
        self.loaded: list[tuple[str, ...]] = []
        self.changed: list[tuple[str, ...]] = []
        self.defaults: list[int] = []

    def topics(self) -> dict[str, None]:
        return dict.fromkeys(self.hosted)

    async def load_configs(self, topics: Iterable[str]) -> None:
        self.loaded.append(tuple(topics))

    def configs_changed(self, topics: Iterable[str]) -> None:
        self.changed.append(tuple(topics))

    def defaults_changed(self) -> None:
        self.defaults.append(self._services.config.message_max_bytes)


class Controller:
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.topics: list[str] = []
        self.everything = 0
        self.defaults = 0

    def configs_changed(self, topics: Sequence[str]) -> None:
        self.topics.extend(topics)

    def every_config_changed(self) -> None:
        self.everything += 1

    def defaults_changed(self) -> None:
        self.defaults += 1


class FollowingBroker:
    """A broker that does nothing but follow configurations. Passes for a `Broker`."""

    def __init__(
        self,
        around: ControllerHarness,
        broker_id: int,
        reload_while_opening: BrokerConfig | None = None,
    ) -> None:
        self._around = around
        self._reload_while_opening = reload_while_opening
        self.broker_id = broker_id
        self.node = around.world.add_node(broker_id, f"broker{broker_id}")
        self.ports = self.node.start()
        self.clock, self.tracer = self.ports.clock, self.ports.tracer
        self.tasks = Tasks(self.ports.loop, self.clock, self._failed)
        self.store = around.client(self.node, f"b{broker_id}")
        self.config = BrokerConfig.from_properties(
            {"broker.id": str(broker_id), "message.max.bytes": "1000"}
        )
        self.services = services_of(self)
        self.replicas = Replicas(self.services)
        self.controller = Controller()
        self.config_store = ConfigStore(self.services)
        self.live = LiveConfigs(
            self.services,
            self.replicas,  # type: ignore[arg-type]  # a fake
            self.controller.configs_changed,
            self.controller.every_config_changed,
            self.controller.defaults_changed,
        )
        self.store.on_session(self._session)
        self.do(self._start())

    async def _start(self) -> None:
        await self.store.open()
        self._beat()
        if self._reload_while_opening is not None:
            opening = self.tasks.spawn("open", self.live.open())
            await self.tasks.sleep(0)
            self.live.reload(self._reload_while_opening)
            await opening
        else:
            await self.live.open()
        self.live.start()

    def _beat(self) -> None:
        self.store.beat()
        self.clock.call_later(50, self._beat)

    def _session(self, event: SessionEvent) -> None:
        if event is SessionEvent.EXPIRED:
            self.tasks.spawn("again", self._again())

    async def _again(self) -> None:
        await self.store.open()
        self.live.session_renewed()

    def _failed(self, name: str, error: BaseException) -> None:
        self._around.world.violate(f"{name} failed: {error!r}")

    def do(self, story: Coroutine[Any, Any, T]) -> T:
        """Run something to its end on this broker."""
        task = asyncio.Task(story, loop=self.ports.loop)
        self._around.until(task.done)
        return task.result()

    def set(self, kind: str, name: str, validate_only: bool = False, **keys: str) -> None:
        """Have settings written by this broker."""
        settings = {key.replace("_", "."): value for key, value in keys.items()}

        def change(before: Mapping[str, str]) -> dict[str, str]:
            return {**before, **settings}

        self.do(self.config_store.change(kind, name, change, validate_only))

    def read(self, kind: str, name: str) -> dict[str, str]:
        """Settings as they are stored."""
        [settings] = self.do(self.config_store.read([(kind, name)]))
        return settings


@pytest.fixture
def around() -> Iterator[ControllerHarness]:
    with controller_harness(0) as made:
        made.place_topic("t", {0: (1, 2)})
        made.place_topic("u", {0: (1, 2)})
        yield made


@pytest.fixture
def two(around: ControllerHarness) -> tuple[FollowingBroker, FollowingBroker]:
    return FollowingBroker(around, 1), FollowingBroker(around, 2)


def notes(around: ControllerHarness) -> list[str]:
    return around.children(layout.CONFIG_CHANGES) or []


class TestWriting:
    def test_settings_and_notification_are_kafkas(
        self, around: ControllerHarness, two: tuple[FollowingBroker, ...]
    ) -> None:
        two[0].set(TOPICS, "t", retention_ms="5")
        node = around.read("/config/topics/t")
        assert node is not None
        assert node.data == b'{"version":1,"config":{"retention.ms":"5"}}'
        [name] = notes(around)
        assert name.startswith("config_change_")
        note = around.read(f"/config/changes/{name}")
        assert note is not None
        assert note.data == b'{"version":2,"entity_path":"topics/t"}'

    def test_brokers_of_one_cluster_change_the_same_settings(
        self, two: tuple[FollowingBroker, ...]
    ) -> None:
        two[0].set(TOPICS, "t", retention_ms="5")
        two[1].set(TOPICS, "t", flush_ms="7")
        assert two[0].read(TOPICS, "t") == {"retention.ms": "5", "flush.ms": "7"}

    def test_what_stays_as_it_is_is_not_written(
        self, around: ControllerHarness, two: tuple[FollowingBroker, ...]
    ) -> None:
        for _ in range(2):
            two[0].set(TOPICS, "t", retention_ms="5")
        assert len(notes(around)) == 1

    def test_checking_only_writes_nothing(
        self, around: ControllerHarness, two: tuple[FollowingBroker, ...]
    ) -> None:
        two[0].set(TOPICS, "t", validate_only=True, retention_ms="5")
        assert notes(around) == []
        assert two[0].read(TOPICS, "t") == {}

    def test_a_topic_that_goes_is_not_configured(
        self, around: ControllerHarness, two: tuple[FollowingBroker, ...]
    ) -> None:
        around.remove(layout.topic_path("t"))
        with pytest.raises(KafkaError) as caught:
            two[0].set(TOPICS, "t", retention_ms="5")
        assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert around.read("/config/topics/t") is None

    def test_who_is_overtaken_works_it_out_again(
        self, two: tuple[FollowingBroker, ...], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The other broker's change comes between reading and writing."""
        first, second = two
        really = first.store.transact

        async def overtaken(ops: Sequence[Op]) -> Any:
            monkeypatch.setattr(first.store, "transact", really)
            theirs = second.config_store.change(TOPICS, "t", lambda _: {"flush.ms": "7"}, False)
            task = asyncio.Task(theirs, loop=second.ports.loop)
            while not task.done():
                await first.tasks.sleep(1)
            return await really(ops)

        monkeypatch.setattr(first.store, "transact", overtaken)
        first.set(TOPICS, "t", retention_ms="5")
        assert second.read(TOPICS, "t") == {"flush.ms": "7", "retention.ms": "5"}

    @pytest.mark.parametrize("lost", ["answer", "request"])
    def test_an_unknown_outcome_is_read_back(
        self, around: ControllerHarness, two: tuple[FollowingBroker, ...], lost: str
    ) -> None:
        store = two[0].store
        if lost == "answer":
            store.lose_next_answer()
        else:
            store.lose_next_request()
        two[0].set(TOPICS, "t", retention_ms="5")
        assert two[0].read(TOPICS, "t") == {"retention.ms": "5"}
        assert len(notes(around)) == 1

    def test_without_the_store_the_request_times_out(
        self, around: ControllerHarness, two: tuple[FollowingBroker, ...]
    ) -> None:
        around.cut_off.append("b1")
        with pytest.raises(KafkaError) as caught:
            two[0].set(TOPICS, "t", retention_ms="5")
        assert caught.value.code is ErrorCode.REQUEST_TIMED_OUT
        with pytest.raises(KafkaError) as caught:
            two[0].read(TOPICS, "t")
        assert caught.value.code is ErrorCode.REQUEST_TIMED_OUT

    def test_settings_that_cannot_be_read_count_as_none(
        self, around: ControllerHarness, two: tuple[FollowingBroker, ...]
    ) -> None:
        around.write(Create("/config/topics/t", b"not JSON"))
        assert two[0].read(TOPICS, "t") == {}


class TestFollowing:
    def test_every_broker_takes_over_the_topics_that_it_hosts(
        self, around: ControllerHarness, two: tuple[FollowingBroker, ...]
    ) -> None:
        two[1].replicas.hosted = ["u"]
        two[0].set(TOPICS, "t", retention_ms="5")
        two[0].set(TOPICS, "u", retention_ms="5")
        around.until(lambda: "u" in two[1].controller.topics or two[1].controller.everything > 1)
        around.until(lambda: ("u",) in two[0].replicas.changed)
        assert all("t" not in topics for topics in two[1].replicas.changed)
        for one in two:
            assert one.replicas.loaded == one.replicas.changed

    def test_the_controller_hears_of_topics_that_its_broker_does_not_host(
        self, around: ControllerHarness, two: tuple[FollowingBroker, ...]
    ) -> None:
        two[0].set(TOPICS, "u", retention_ms="4")
        around.until(lambda: two[1].controller.everything == 1)
        two[1].replicas.hosted = []
        two[0].set(TOPICS, "t", retention_ms="5")
        around.until(lambda: two[1].controller.topics == ["t"])

    def test_settings_of_brokers_are_laid_over_what_they_were_started_with(
        self, around: ControllerHarness, two: tuple[FollowingBroker, ...]
    ) -> None:
        two[0].set(BROKERS, layout.DEFAULT_ENTITY, message_max_bytes="2000")
        around.until(lambda: [one.services.config.message_max_bytes for one in two] == [2000, 2000])
        two[0].set(BROKERS, "2", message_max_bytes="3000")
        around.until(lambda: two[1].services.config.message_max_bytes == 3000)
        assert two[0].services.config.message_max_bytes == 2000
        assert two[1].replicas.defaults == [2000, 3000]
        assert two[1].controller.defaults == 2
        assert two[0].live.static.message_max_bytes == 1000

    def test_settings_that_are_stored_already_hold_from_the_start(
        self, around: ControllerHarness
    ) -> None:
        settings = layout.encode_config({"message.max.bytes": "2000", "broker.id": "9"})
        around.write(Create("/config/brokers/1", settings))
        started = FollowingBroker(around, 1)
        assert started.services.config.message_max_bytes == 2000
        assert started.services.config.broker_id == 1

    def test_settings_that_cannot_be_read_leave_what_lies_below(
        self, around: ControllerHarness
    ) -> None:
        around.write(Create("/config/brokers/1", b"not JSON"))
        assert FollowingBroker(around, 1).services.config.message_max_bytes == 1000

    def test_notifications_of_other_kinds_and_bad_ones_are_passed_over(
        self, around: ControllerHarness, two: tuple[FollowingBroker, ...]
    ) -> None:
        note(around, layout.encode_config_change("users", "alice"))
        around.until(lambda: all(one.controller.everything == 1 for one in two))
        note(around, b"not JSON")
        note(around, layout.encode_config_change("clients", "c"))
        note(around, layout.encode_config_change(BROKERS, "7"))
        note(around, layout.encode_config_change(TOPICS, "t"))
        around.until(lambda: all(one.controller.topics == ["t"] for one in two))
        assert all(one.controller.everything == 1 for one in two)

    def test_a_notification_that_went_before_it_was_seen_has_everything_read(
        self, around: ControllerHarness, two: tuple[FollowingBroker, ...]
    ) -> None:
        two[0].set(TOPICS, "t", retention_ms="5")
        around.until(lambda: two[1].controller.everything == 1)
        around.cut_off.append("b2")
        note(around, layout.encode_config_change(TOPICS, "t"))
        around.remove(f"{layout.CONFIG_CHANGES}/{notes(around)[-1]}")
        note(around, layout.encode_config_change(TOPICS, "u"))
        around.pass_time(100)
        around.cut_off.remove("b2")
        around.until(lambda: two[1].controller.everything == 2)
        assert two[1].replicas.changed[-1] == ("t", "u")

    def test_after_a_new_session_everything_is_read(
        self, around: ControllerHarness, two: tuple[FollowingBroker, ...]
    ) -> None:
        around.cut_off.append("b2")
        around.pass_time(3_000)
        two[0].set(BROKERS, "2", message_max_bytes="3000")
        around.cut_off.remove("b2")
        around.until(lambda: two[1].services.config.message_max_bytes == 3000)
        assert two[1].replicas.changed[-1] == ("t", "u")

    def test_what_is_closed_follows_nothing(
        self, around: ControllerHarness, two: tuple[FollowingBroker, ...]
    ) -> None:
        two[1].live.close()
        two[0].set(BROKERS, layout.DEFAULT_ENTITY, message_max_bytes="2000")
        around.until(lambda: two[0].services.config.message_max_bytes == 2000)
        assert two[1].services.config.message_max_bytes == 1000


class TestPurging:
    def test_notifications_go_fifteen_minutes_after_they_were_seen(
        self, around: ControllerHarness, two: tuple[FollowingBroker, ...]
    ) -> None:
        two[0].set(TOPICS, "t", retention_ms="5")
        [old] = notes(around)
        around.pass_time(EXPIRATION_MS + 1_000)
        assert notes(around) == [old]
        two[0].set(TOPICS, "t", retention_ms="6")
        around.until(lambda: old not in notes(around))
        assert len(notes(around)) == 1
        two[0].set(TOPICS, "t", retention_ms="7")
        around.until(lambda: len(notes(around)) == 2)

    def test_one_that_is_gone_already_is_no_error(
        self, around: ControllerHarness, two: tuple[FollowingBroker, ...]
    ) -> None:
        """Both brokers find the same notifications old at the same time."""
        for value in ("5", "6", "7"):
            two[0].set(TOPICS, "t", retention_ms=value)
        around.pass_time(EXPIRATION_MS + 1_000)
        two[0].set(TOPICS, "t", retention_ms="8")
        around.until(lambda: len(notes(around)) == 1)
        two[1].set(TOPICS, "u", retention_ms="8")
        around.until(lambda: all(("u",) in one.replicas.changed for one in two))


def note(around: ControllerHarness, data: bytes) -> None:
    """Somebody else leaves a notification."""
    around.write(Create(layout.CONFIG_CHANGE_PREFIX, data, sequence=True))


class TestReloading:
    """The configuration at start is read again (SIGHUP)."""

    @staticmethod
    def offered(**keys: str) -> BrokerConfig:
        given = {"broker.id": "1", "message.max.bytes": "1000"}
        given |= {key.replace("_", "."): value for key, value in keys.items()}
        return BrokerConfig.from_properties(given)

    def test_keys_that_can_change_take_effect(
        self, around: ControllerHarness, two: tuple[FollowingBroker, ...]
    ) -> None:
        broker = two[0]
        broker.live.reload(self.offered(message_max_bytes="2000", log_retention_hours="2"))
        around.until(lambda: broker.services.config.message_max_bytes == 2000)
        assert broker.services.config.log_retention_ms == 2 * 3_600_000
        assert broker.replicas.defaults == [2000]
        assert broker.controller.defaults == 1

    def test_stored_settings_stay_above(
        self, around: ControllerHarness, two: tuple[FollowingBroker, ...]
    ) -> None:
        broker = two[0]
        broker.set(BROKERS, "1", message_max_bytes="3000")
        around.until(lambda: broker.services.config.message_max_bytes == 3000)
        broker.live.reload(self.offered(message_max_bytes="2000", max_connections="9"))
        around.until(lambda: broker.services.config.max_connections == 9)
        assert broker.services.config.message_max_bytes == 3000
        assert broker.live.static.message_max_bytes == 2000

    def test_keys_that_need_a_restart_wait(
        self, around: ControllerHarness, two: tuple[FollowingBroker, ...]
    ) -> None:
        broker = two[0]
        before = broker.live.static
        broker.live.reload(self.offered(num_replica_fetchers="3"))
        assert broker.live.static == before
        broker.live.reload(self.offered(num_replica_fetchers="3", message_max_bytes="2000"))
        around.until(lambda: broker.services.config.message_max_bytes == 2000)
        assert broker.services.config.num_replica_fetchers == before.num_replica_fetchers

    def test_a_key_that_is_no_longer_set_has_its_default(
        self, around: ControllerHarness, two: tuple[FollowingBroker, ...]
    ) -> None:
        broker = two[0]
        broker.live.reload(BrokerConfig.from_properties({"broker.id": "1"}))
        default = BrokerConfig.from_properties({"broker.id": "1"}).message_max_bytes
        around.until(lambda: broker.services.config.message_max_bytes == default)

    def test_a_reload_during_the_start_is_not_lost(self, around: ControllerHarness) -> None:
        broker = FollowingBroker(around, 1, reload_while_opening=self.offered(max_connections="9"))
        around.until(lambda: broker.services.config.max_connections == 9)
