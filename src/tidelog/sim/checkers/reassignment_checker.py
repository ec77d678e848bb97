"""Invariants of reassignments: changed targets (R10) and the replication throttle (R15).

If a reassignment gets a new target, a replica of the earlier target is dropped, unless the new
target or the original replicas contain it. The first partition state after the new target must have
no dropped replica in its ISR, unless the replica leads or the ISR would shrink below the effective
min.insync.replicas. A dropped replica must not join the ISR again during the reassignment, except
as a leader elected from the eligible replicas. If the controller changed or members restarted, the
checker requires only that no dropped replica joins the ISR.

A leader must send followers outside the ISR at most the throttled bytes that its rate and windows
allow, plus one read per follower. The throttle must not delay members of the ISR, or partitions
outside the lists of throttled replicas; the checker allows `_NEWS_NS` until a broker knows the
state. The checker counts the bytes of responses, and parses the lists of throttled replicas itself.
The final phase checks that all replicas catch up after the throttle is removed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tidelog.broker.server.requests import Pending, Request
from tidelog.broker.server.served import Served
from tidelog.core.dataclass import dataclass
from tidelog.sim.checkers.checker import CheckedRun, Checker
from tidelog.sim.loop import NS_PER_MS
from tidelog.sim.observed.moves import PublishedMove
from tidelog.sim.observed.published_state import PublishedPartition, PublishedTopic
from tidelog.sim.observed.replica_logs import LogKey
from tidelog.wire.registry import FETCH

if TYPE_CHECKING:
    from tidelog.broker.broker import Broker
    from tidelog.broker.replicas.hosting.partition import Partition
    from tidelog.wire.messages.fetch import FetchRequest, FetchResponse

_MS_PER_S: Final = 1_000
_UNLIMITED: Final = 2**63 - 1
#: Maximum time in ns until a broker notices that a throttled replica need no longer wait.
_NEWS_NS: Final = 700 * NS_PER_MS
#: Replica that waits for the throttle of a broker: (broker id, partition, follower id).
_Waiting = tuple[int, "Partition", int]


class _Redirected(NamedTuple):
    """A reassignment whose target has been changed, by a write of the topic's node."""

    #: Replicas of earlier targets that neither the new target nor the original replicas contain.
    dropped: frozenset[int]
    #: Number of replicas before the reassignment.
    originals: int
    #: Leader epoch of the partition when the topic's node got the new target; `controller_epoch` is
    #: the controller epoch at that time.
    leader_epoch: int
    controller_epoch: int


class RedirectedMoveChecker(Checker):
    """Checker of the reassignments of one run that get a new target."""

    def __init__(self, run: CheckedRun) -> None:
        super().__init__(run)
        self._redirected: dict[LogKey, _Redirected] = {}
        #: Number of dropped replicas that were in the ISR when the new target dropped them.
        self.dropped = 0
        run.published.on_moves.append(self._moved)
        run.published.on_state.append(self._changed)

    def _moved(self, topic: PublishedTopic, _: int, before: dict[int, PublishedMove]) -> None:
        for number, former in before.items():
            key = self._published.key(topic.topic_id, number)
            move = topic.moving.get(number)
            state = self._published.partitions.get(key)
            if move is None or state is None or not move.original:
                self._redirected.pop(key, None)
            elif move != former:
                self._redirected[key] = _Redirected(
                    frozenset(move.removing) - frozenset(move.original),
                    len(move.original),
                    state.leader_epoch,
                    self._published.controller_epoch,
                )

    def _changed(self, before: PublishedPartition | None, state: PublishedPartition) -> None:
        move = self._redirected.get(state.key)
        if move is None or before is None or not move.dropped:
            return
        if before.leader_epoch == move.leader_epoch < state.leader_epoch:
            self._check_dropped(move, before, state)
        elif before.leader_epoch > move.leader_epoch:
            self._check_joined(move, before, state)

    def _check_dropped(
        self, move: _Redirected, before: PublishedPartition, state: PublishedPartition
    ) -> None:
        """Check a partition's first published state after its reassignment got another target."""
        registered = self._published.brokers
        if (
            state.controller_epoch != move.controller_epoch
            or state.leader != before.leader
            or any(registered.get(each) != before.epoch_of(each) for each in before.isr)
        ):
            return
        unwanted = [each for each in before.isr if each in move.dropped and each != state.leader]
        self.dropped += len(unwanted)
        kept = [each for each in unwanted if each in state.isr]
        minimum = min(self._published.effective_minimum(state.key), move.originals)
        if kept and len(state.isr) > minimum:
            name = self._published.name(state.key)
            self._violate(
                f"{name}: {kept} of the ISR {state.isr} stay in sync, although no target wants"
                f" them any more and {minimum} are enough (R10)"
            )

    def _check_joined(
        self, move: _Redirected, before: PublishedPartition, state: PublishedPartition
    ) -> None:
        joined = [
            each
            for each in state.isr
            if each in move.dropped and each not in before.members and each != state.leader
        ]
        if joined:
            name = self._published.name(state.key)
            self._violate(
                f"{name}: {joined} join the ISR {state.isr}, although no target wants them any"
                " more (R10)"
            )


@dataclass(slots=True)
class _Sent:
    """Count of the throttled bytes that one broker sent to followers outside the ISR."""

    rate: int = _UNLIMITED
    at_ms: int = 0
    #: How many throttled bytes the broker has sent beyond what its rate has allowed so far.
    level: float = 0.0
    #: Size of the largest read of each follower.
    reads: dict[int, int] = field(default_factory=dict)


class ThrottleChecker(Checker):
    """Checker of the throttles of one run."""

    def __init__(self, run: CheckedRun) -> None:
        super().__init__(run)
        self._sent: dict[Broker, _Sent] = {}
        #: Replicas that wait although no throttle applies to them, with the time when this was
        #: first seen.
        self._waiting_since_ns: dict[_Waiting, int] = {}

    # bytes

    def watching(self, broker: Broker) -> Callable[[Served], Served]:
        """Return a function that wraps a request handler of the broker and counts the bytes of
        responses to followers.
        """

        def wrap(served: Served) -> Served:
            if served.card.api_key != FETCH:
                return served
            return Served(served.card, lambda request: self._watched(broker, served, request))

        return wrap

    def _watched(self, broker: Broker, served: Served, request: Request[FetchRequest]) -> Any:
        message = request.message
        follower = max(message.replica_id, message.replica_state.replica_id)
        response = served.handle(request)
        if follower < 0 or response is None:
            return response
        if not isinstance(response, Pending):
            self._count(broker, follower, response)
            return response
        outer = Pending()
        outer.on_cancel(response.cancel)

        def deliver(late: FetchResponse) -> None:
            self._count(broker, follower, late)
            outer.complete(late)

        response.deliver_to(deliver)
        return outer

    def _count(self, broker: Broker, follower: int, response: FetchResponse) -> None:
        total = largest = 0
        for topic in response.responses:
            for data in topic.partitions:
                partition = broker.replicas.by_topic_id(topic.topic_id, data.partition_index)
                if not data.records or partition is None:
                    continue
                throttles = broker.replicas.throttles
                if throttles.spares(partition.topic_partition, follower, throttles.leader):
                    continue
                if _is_outside(partition, follower) and _is_listed(broker, partition, "leader"):
                    size = len(data.records)
                    total, largest = total + size, max(largest, size)
        if total:
            self._judge(broker, follower, total, largest)

    def _judge(self, broker: Broker, follower: int, total: int, largest: int) -> None:
        config = broker.config
        now_ms = broker.services.clock.monotonic_ms()
        sent = self._under_present_rate(broker)
        if sent.rate == _UNLIMITED:
            return
        paid = sent.rate * (now_ms - sent.at_ms) / _MS_PER_S
        sent.level, sent.at_ms = max(0.0, sent.level - paid) + total, now_ms
        sent.reads[follower] = max(sent.reads.get(follower, 0), largest)
        span_s = config.replication_quota_window_num * config.replication_quota_window_size_seconds
        limit = sent.rate * span_s + sum(sent.reads.values())
        if sent.level > limit:
            self._violate(
                f"broker {broker.broker_id} sent throttled followers {sent.level:.0f} bytes more"
                f" than {sent.rate} bytes/s allow; at most {limit} may be ahead (R15)"
            )

    def _under_present_rate(self, broker: Broker) -> _Sent:
        """Return the broker's count of sent bytes; start a new count if the broker's rate has
        changed.
        """
        sent = self._sent.setdefault(broker, _Sent())
        moves = broker.replicas.throttles.moves.rates.values()
        rate = min(broker.config.leader_replication_throttled_rate, *moves, _UNLIMITED)
        if sent.rate != rate:
            sent.rate, sent.at_ms = rate, broker.services.clock.monotonic_ms()
            sent.level, sent.reads = 0.0, {}
        return sent

    # which replicas wait

    def after_event(self, node_id: int) -> None:
        """Check the replicas that wait at a broker, after one of its events."""
        node = self._brokers[node_id]
        broker = node.broker
        if broker is None or not node.is_up:
            return
        # Note a change of the broker's rate now, even if the broker sends no bytes before the next
        # change.
        self._under_present_rate(broker)
        present: dict[_Waiting, int] = {}
        for session in broker.fetch_sessions.all():
            for item in session.throttled:
                partition = item.watched
                if partition is None or partition.leadership is None or item in session.dirty:
                    # Skip: the leader checks this partition again at the follower's next fetch.
                    continue
                if not _is_outside(partition, session.replica_id, confirmed=True):
                    self._violate(
                        f"leader {node_id} of {partition.topic_partition} throttles follower"
                        f" {session.replica_id}, a member of the ISR (R15)"
                    )
                # The leader checks throttled partitions again only while a fetch of the follower
                # waits.
                if session.waiting is not None and not _is_listed(broker, partition, "leader"):
                    what = f"leader {node_id} throttles a partition that is not listed"
                    self._waits(present, (node_id, partition, session.replica_id), what)
        for partition in broker.fetchers.throttled():
            published = broker.view.partition(partition.topic_partition)
            key = (node_id, partition, node_id)
            if published is not None and node_id in published.isr:
                self._waits(present, key, f"follower {node_id} throttles itself in the ISR")
            elif not _is_listed(broker, partition, "follower"):
                what = f"follower {node_id} throttles a partition that is not listed"
                self._waits(present, key, what)
        others = {key: at for key, at in self._waiting_since_ns.items() if key[0] != node_id}
        self._waiting_since_ns = {**others, **present}

    def _waits(self, present: dict[_Waiting, int], key: _Waiting, what: str) -> None:
        """Note a replica that waits without reason; report it after `_NEWS_NS`."""
        now_ns = self._now_ns()
        present[key] = self._waiting_since_ns.get(key, now_ns)
        if now_ns - present[key] > _NEWS_NS:
            self._violate(f"{key[1].topic_partition}: {what} (R15)")


def _is_outside(partition: Partition, follower: int, *, confirmed: bool = False) -> bool:
    leadership = partition.leadership
    if leadership is None or follower not in leadership.followers:
        return False
    if confirmed:
        return follower not in leadership.isr.committed
    return not leadership.followers[follower].in_maximal_isr


def _is_listed(broker: Broker, partition: Partition, side: str) -> bool:
    """Return whether a list of throttled replicas, or a reassignment, throttles the partition (R4,
    R10).
    """
    topic, number = partition.topic_partition
    throttles = broker.replicas.throttles
    if partition.topic_partition in throttles.moves:
        return True
    if side == "follower" and partition.topic_partition in throttles.idle:
        return True
    config = broker.replicas.topic_config(topic)
    listed = getattr(config, f"{side}_replication_throttled_replicas")
    return "*" in listed or f"{number}:{broker.broker_id}" in listed
