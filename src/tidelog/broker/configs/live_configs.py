"""Live configuration: the changes in `/config/changes`, applied while the broker runs (KIP-226).

Every broker watches the change notifications and reads the entities that they name. Changed topic
settings go to the logs and leaders of the topic (V60, V64) and, on the controller, to elections
(V13). Stored broker settings override the static configuration, with which this broker was started;
`reload` replaces the static configuration. If another broker purged a notification before this
broker saw it, this broker sees a gap in the numbers of the notifications. After such a gap, and
after a new session, the broker reads all configuration again. The broker purges a notification 15
minutes after it first saw it. Kafka purges a notification 15 minutes after its creation; tidelog
does not, because that would compare the clocks of two machines.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Sequence

from tidelog.broker.configs.config_store import BROKERS, TOPICS
from tidelog.broker.replicas.replica_set import ReplicaSet
from tidelog.broker.services import Services
from tidelog.broker.store_access import RETRY_MS, UNREACHED, patiently
from tidelog.core.config import BrokerConfig
from tidelog.core.dynamic_config import DynamicConfigs, broker_config, reloaded
from tidelog.core.tasks import Signal
from tidelog.metadata import layout
from tidelog.metadata.layout import LayoutError
from tidelog.metadata.store import ANY_VERSION, Delete, Node, TransactionFailed, WatchEvent

#: Milliseconds after which a broker purges a change notification that it has seen, as many as
#: Kafka's ZkNodeChangeNotificationListener.changeExpirationMs.
EXPIRATION_MS = 15 * 60_000


class LiveConfigs:
    """The configuration of one broker and its topics, kept up to date with the store."""

    def __init__(
        self,
        services: Services,
        replicas: ReplicaSet,
        on_topics: Callable[[Sequence[str]], None],
        on_every_config: Callable[[], None],
        on_defaults: Callable[[], None],
    ) -> None:
        """Configuration changes also go to the controller, if this broker is the controller.

        `on_topics` gets the topics whose configuration changed. `on_every_config` is called if any
        topic's configuration may have changed, and `on_defaults` if this broker's configuration has
        changed.
        """
        self._services = services
        self._replicas = replicas
        self._on_topics = on_topics
        self._on_every_config = on_every_config
        self._on_defaults = on_defaults
        self._static = services.config
        self._wake = Signal(services.ports.loop)
        self._closing = False
        self._changed = False
        #: Whether all configuration must be read again.
        self._everything = True
        #: Monotonic time at which this broker first saw each notification, by name.
        self._seen: dict[str, float] = {}
        self._last_number: int | None = None

    @property
    def static(self) -> BrokerConfig:
        """The static configuration: given at the start, or reloaded since then."""
        return self._static

    async def open(self) -> None:
        """Watch the notifications and apply stored broker settings; wait for the store (S3)."""

        async def read() -> list[str]:
            names = await self._names()
            await self._read_broker_settings()
            return names

        self._take(await patiently(self._services.tasks, read, errors=UNREACHED))
        self._everything = False

    def start(self) -> None:
        """Start to apply configuration changes that other brokers announce."""
        self._services.tasks.spawn("live configs", self._run())

    def close(self) -> None:
        """Stop applying changes."""
        self._closing = True
        self._wake.set()

    def reload(self, offered: BrokerConfig) -> None:
        """Replace the static configuration, as far as its keys may change while a broker runs.

        Raises ConfigError, and changes nothing, if the values contradict each other.
        """
        self._static, changed, need_restart = reloaded(self._static, offered)
        found = f"new values of {', '.join(changed)}" if changed else "no new value to take over"
        self._log(logging.INFO, f"configuration read again: {found}")
        if need_restart:
            self._log(
                logging.WARNING,
                f"the next start of this broker takes over {', '.join(need_restart)}; changes of"
                " these keys have no effect before",
            )
        if changed:
            self._everything = True
            self._wake.set()

    def session_renewed(self) -> None:
        """Read all configuration again: the broker re-registered and may have missed changes."""
        self._everything = True
        self._wake.set()

    def _on_change(self, event: WatchEvent) -> None:
        self._changed = True
        self._wake.set()

    async def _run(self) -> None:
        while not self._closing:
            await self._wake.wait()
            while (self._changed or self._everything) and not self._closing:
                try:
                    await self._follow()
                except UNREACHED as error:
                    self._everything = True
                    self._log(logging.WARNING, f"waiting for the store: {error}")
                    await self._services.tasks.sleep(RETRY_MS)

    async def _follow(self) -> None:
        everything, self._everything, self._changed = self._everything, False, False
        names = await self._names()
        new = [name for name in names if name not in self._seen]
        everything = not self._take(names) or everything
        paths = [f"{layout.CONFIG_CHANGES}/{name}" for name in new]
        nodes = await self._services.store.get_many(paths) if new and not everything else []
        if everything or any(node is None for node in nodes):
            await self._read_broker_settings()
            await self._topics_changed(list(self._replicas.topics()))
            self._on_every_config()
        else:
            await self._apply(self._entities(paths, nodes))
        await self._purge()

    async def _names(self) -> list[str]:
        return await self._services.store.children(layout.CONFIG_CHANGES, self._on_change) or []

    def _take(self, names: Sequence[str]) -> bool:
        """Note notifications as seen; return False if this broker may have missed a change."""
        now_ms = self._services.clock.monotonic_ms()
        new = [name for name in names if name not in self._seen]
        self._seen = {name: self._seen.get(name, now_ms) for name in names}
        numbers = [int(name[-10:]) for name in new if name[-10:].isdigit()]
        if len(numbers) < len(new):
            return False
        if not numbers:
            return True
        expected = None if self._last_number is None else self._last_number + 1
        self._last_number = numbers[-1]
        return numbers == list(range(numbers[0], numbers[-1] + 1)) and numbers[0] == expected

    def _entities(
        self, paths: Sequence[str], nodes: Sequence[Node | None]
    ) -> list[tuple[str, str]]:
        """Return (type, name) of each changed entity, without duplicates."""
        found: dict[tuple[str, str], None] = {}
        for path, node in zip(paths, nodes, strict=True):
            assert node is not None
            try:
                found[layout.decode_config_change(path, node.data)] = None
            except LayoutError as error:
                self._log(logging.ERROR, f"configuration change skipped: {error}")
        return list(found)

    async def _apply(self, entities: Sequence[tuple[str, str]]) -> None:
        own = (layout.DEFAULT_ENTITY, str(self._services.broker_id))
        if any(kind == BROKERS and name in own for kind, name in entities):
            await self._read_broker_settings()
        topics = [name for kind, name in entities if kind == TOPICS]
        if topics:
            await self._topics_changed(topics)
            self._on_topics(topics)

    async def _topics_changed(self, topics: Sequence[str]) -> None:
        replicas = self._replicas
        hosted = replicas.topics()
        here = [topic for topic in topics if topic in hosted]
        if here:
            await replicas.load_configs(here)
            replicas.configs_changed(here)
            self._services.tracer.event("topic_configs_applied", topics=tuple(here))

    async def _read_broker_settings(self) -> None:
        """Apply the stored cluster-wide settings and this broker's own over the static settings."""
        services = self._services
        names = (layout.DEFAULT_ENTITY, str(services.broker_id))
        paths = [layout.config_path(BROKERS, name) for name in names]
        nodes = await services.store.get_many(paths)
        layers = []
        for path, node in zip(paths, nodes, strict=True):
            try:
                layers.append(layout.decode_config(path, b"" if node is None else node.data))
            except LayoutError as error:
                self._log(logging.ERROR, f"stored broker configuration skipped: {error}")
                layers.append({})
        config, problems = broker_config(self._static, DynamicConfigs(layers[0], layers[1]))
        for problem in problems:
            self._log(logging.ERROR, f"stored broker configuration skipped: {problem}")
        before, services.settings.in_force = services.config, config
        if config != before:
            self._log(logging.INFO, "the configuration of this broker has changed")
            services.tracer.event("broker_config_applied", broker=services.broker_id)
            self._replicas.defaults_changed()
            self._on_defaults()

    async def _purge(self) -> None:
        """Remove expired notifications; every broker does so."""
        now_ms = self._services.clock.monotonic_ms()
        for name, seen_ms in list(self._seen.items()):
            if now_ms - seen_ms < EXPIRATION_MS:
                continue
            path = f"{layout.CONFIG_CHANGES}/{name}"
            with contextlib.suppress(TransactionFailed):  # another broker removed the notification
                await self._services.store.transact([Delete(path, ANY_VERSION)])
            del self._seen[name]

    def _log(self, level: int, message: str) -> None:
        self._services.tracer.log("server", level, message)
