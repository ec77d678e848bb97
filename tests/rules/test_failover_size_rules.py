"""A failover of ten thousand partitions: its cost, and the leaders that clients get: V18, V82.

Times are measured by `python -m bench scale controller`; here stands what makes them what they are:
how many transactions, how many requests. Clients are followed in whole simulated clusters.
"""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.controller.values import (
    brokers,
    loaded,
    state,
    step,
    topic,
)

from tidelog.broker import apis
from tidelog.broker.apis.support.context import ApiContext
from tidelog.broker.controller import store_ops
from tidelog.broker.server.requests import Pending, Request
from tidelog.broker.server.served import Served
from tidelog.controller.commands import Sender
from tidelog.controller.registrations import BrokersRead
from tidelog.controller.topics.changes import TopicFound
from tidelog.core.types import TopicPartition
from tidelog.sim.observed.replica_logs import LogKey
from tidelog.sim.run import SeedRun
from tidelog.sim.simulator import CollectorPaused
from tidelog.wire.messages.metadata import API as METADATA
from tidelog.wire.messages.metadata import MetadataResponse

TOPICS, PARTITIONS = 10, 1_000


@pytest.mark.rule("V18")
def test_a_failover_of_ten_thousand_partitions_is_a_few_transactions_and_requests() -> None:
    """The design counts a write of 4 ms for each partition: 40 s."""
    assignments = {n: ((1, 2, 3), (2, 3, 1), (3, 1, 2))[n % 3] for n in range(PARTITIONS)}
    states = {n: state(replicas, replicas[0]) for n, replicas in assignments.items()}
    found = [TopicFound(topic(f"t{n}", assignments), states) for n in range(TOPICS)]
    controller = loaded(*found)
    writes, effects = step(controller, BrokersRead(brokers(2, 3)))
    assert len(writes) == TOPICS * PARTITIONS
    units = [
        unit for index, write in enumerate(writes) for unit in store_ops.units_of(index, write)
    ]
    transactions = list(store_ops.batches(units))
    assert len(transactions) <= 20
    assert sorted(effects.commands) == [2, 3]
    for commands in effects.commands.values():
        assert len(commands.requests(Sender(1, 1, "PLAINTEXT"), 5)) == 3
        assert len(commands.roles) == len(commands.shown) == TOPICS * PARTITIONS
    image = controller.image
    led = [image.states[TopicPartition(f"t{n}", p)].leader for n in (0, 9) for p in range(3)]
    assert led == [2, 2, 3] * 2


class Told:
    """Every leader that a client got, compared with the state published by then."""

    def __init__(self, run: SeedRun) -> None:
        self.published: dict[tuple[LogKey, int], int] = {}
        self.answers = self.transitions = 0
        self.unpublished: list[str] = []
        self._run = run
        self._last: dict[LogKey, int] = {}

    def look(self) -> None:
        """Note what is published now."""
        for key, partition in self._run.cluster.published.partitions.items():
            self.published[key, partition.leader_epoch] = partition.leader

    def compare(self, answer: MetadataResponse) -> None:
        """Note an answer, and what is wrong in it."""
        self.answers += 1
        for one in answer.topics:
            for partition in one.partitions:
                key = LogKey(one.topic_id, partition.partition_index)
                if partition.leader_id < 0 or not any(one.topic_id):
                    continue
                self.transitions += self._last.get(key, partition.leader_id) != partition.leader_id
                self._last[key] = partition.leader_id
                led = self.published.get((key, partition.leader_epoch))
                if led != partition.leader_id:
                    self.unpublished.append(f"{key}: {partition}, published is {led}")


@pytest.mark.rule("V82")
def test_clients_get_published_leaders_only_and_find_each_next_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Clients get only published leaders through the crashes of a seed, if old ones from a broker
    that is cut off. All their operations end, because they ask again."""
    told: list[Told] = []
    handlers = apis.handlers

    def watched(context: ApiContext) -> dict[int, Served]:
        served = handlers(context)
        entry = served[METADATA.key]

        def handle(request: Request[Any]) -> Any:
            answer = entry.handle(request)
            if not isinstance(answer, Pending):
                told[0].compare(answer)
                return answer
            later = Pending()

            def compare(message: MetadataResponse) -> None:
                told[0].compare(message)
                later.complete(message)

            later.on_cancel(answer.cancel)
            answer.deliver_to(compare)
            return later

        return {**served, METADATA.key: Served(entry.card, handle)}

    monkeypatch.setattr(apis, "handlers", watched)
    with CollectorPaused():
        run = SeedRun(3, "default")
        told.append(Told(run))
        run.cluster.store.on_commit(lambda *_: told[0].look())
        result = run.run()
    assert result.violation == ""
    assert told[0].unpublished == []
    assert told[0].answers > 20 and told[0].transitions >= 1
