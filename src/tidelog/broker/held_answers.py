"""Metadata and FindCoordinator responses that wait for new leaders after a broker ended (V83).

A client asks for the new leader once, at the moment when its connection breaks. When a broker ends,
the controller publishes new leaders within some milliseconds. A client that gets the old leader
asks again only after its retry timer: usually 100 ms, in librdkafka a second. If a response would
name an ended broker as leader, the response therefore waits until the controller publishes another
leader. A response also waits if a LeaderAndIsr request already named a newer leader, and the
UpdateMetadata of that decision has not arrived yet. No response waits longer than
`metadata.leader.wait.max.ms`. All other responses are sent at once. The broker makes a response
from its view at the moment when it sends the response (V82). The number of waiting responses and
the number of partitions in them are limited; a response above a limit is sent at once.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple

from tidelog.broker.cluster_view import ClusterView
from tidelog.broker.ended_brokers import EndedBrokers
from tidelog.broker.server.requests import Pending, Request
from tidelog.broker.server.timers import BUCKET_MS, TimerWheel
from tidelog.core import limits
from tidelog.core.ports import Clock, Tracer
from tidelog.core.types import BrokerInfo, TopicPartition


class Question(NamedTuple):
    """The topics and partitions whose leaders a response would name."""

    #: Topics whose leaders the response names; None means all topics.
    topics: Collection[str] | None = ()
    #: Partitions whose leaders the response names.
    partitions: Collection[TopicPartition] = ()


class _Held:
    """One response that waits for new leaders."""

    __slots__ = ("deadline_ms", "make", "partitions", "pending", "question", "request")

    def __init__(
        self,
        request: Request[Any],
        question: Question,
        make: Callable[[], Any],
        partitions: int,
        deadline_ms: int,
    ) -> None:
        self.request = request
        self.question = question
        self.make = make
        #: How many partitions the response names.
        self.partitions = partitions
        #: Monotonic time at which the response is sent at the latest.
        self.deadline_ms = deadline_ms
        self.pending = Pending()


class HeldAnswers:
    """The responses of one broker that wait for new leaders."""

    def __init__(
        self,
        view: ClusterView,
        clock: Clock,
        timers: TimerWheel,
        tracer: Tracer,
        max_ms: Callable[[], int],
        look: Callable[[], None],
        request_failed: Callable[[Request[Any], Exception], Any],
    ) -> None:
        """Begin with no held response and no ended broker.

        `max_ms` returns how long a response may wait. `look` checks the connections to brokers now,
        before the event loop reports that they ended. `request_failed` returns the response of a
        failed request.
        """
        self._view = view
        self._clock = clock
        self._timers = timers
        self._tracer = tracer
        self._max_ms = max_ms
        self._look = look
        self._looked_ms = -1
        self._request_failed = request_failed
        self._ended = EndedBrokers()
        self._held: dict[_Held, None] = {}
        #: Number of partitions that the waiting responses name.
        self._held_partitions = 0
        #: The set of brokers that have just ended, and the topics that these brokers lead; None if
        #: the topics must be found again.
        self._waiting_topics: tuple[frozenset[int], frozenset[str]] | None = None

    def __len__(self) -> int:
        return len(self._held)

    # events which show that a broker has ended, or that it runs

    def lost(self, broker_id: int) -> None:
        """Note that a connection to a broker was reset or refused."""
        if self._ended.lost(broker_id, self._clock.monotonic_ms()):
            self._waiting_topics = None

    def reached(self, broker_id: int) -> None:
        """Note that a broker responded on a new connection, so it runs."""
        if self._ended.reached(broker_id):
            self._look_again()

    def view_changed(self, before: Mapping[int, BrokerInfo]) -> None:
        """Note an applied UpdateMetadata request; `before` are the earlier live brokers."""
        self._ended.published(before, self._view.brokers, self._clock.monotonic_ms())
        self._look_again()

    def kept(self) -> Mapping[int, BrokerInfo]:
        """Return brokers that ended seconds ago, for responses that name topics."""
        return self._ended.kept(self._clock.monotonic_ms())

    # responses

    def answer(
        self, request: Request[Any], ask: Callable[[], Question], make: Callable[[], Any]
    ) -> Any:
        """Return the response of `make`, or a Pending while a new leader is expected.

        `ask` returns the leaders that the response would name. `make` reads the broker's view of
        the cluster, and is called once, when the response is sent.
        """
        now_ms, max_ms = self._clock.monotonic_ms(), self._max_ms()
        if max_ms and now_ms != self._looked_ms:
            self._looked_ms = now_ms
            self._look()
        if not self._view.commanded and not self._ended.expected(now_ms, max_ms):
            return make()
        question = ask()
        ends_ms = self._expected_until_ms(question, now_ms)
        deadline_ms = now_ms + max_ms
        if ends_ms is None or min(ends_ms, deadline_ms) - now_ms <= BUCKET_MS:
            return make()
        partitions = self._count(question)
        if (
            len(self._held) >= limits.MAX_HELD_ANSWERS
            or self._held_partitions + partitions > limits.MAX_HELD_PARTITIONS
        ):
            return make()
        held = _Held(request, question, make, partitions, deadline_ms)
        self._held[held] = None
        self._held_partitions += partitions
        held.pending.on_cancel(lambda: self._drop(held))
        self._arm(held, min(ends_ms, deadline_ms), now_ms)
        self._tracer.mark("answer_waits_for_leader")
        return held.pending

    def _arm(self, held: _Held, at_ms: int, now_ms: int) -> None:
        """Set a timer that examines a held response at `at_ms` or before.

        Timers fire up to `BUCKET_MS` late, so the timer is set that much earlier.
        """
        self._timers.after(at_ms - BUCKET_MS - now_ms, lambda: self._due(held))

    def _due(self, held: _Held) -> None:
        if held not in self._held:
            return
        now_ms = self._clock.monotonic_ms()
        ends_ms = self._expected_until_ms(held.question, now_ms + BUCKET_MS)
        if ends_ms is None or held.deadline_ms <= now_ms + BUCKET_MS:
            self._tracer.mark("leader_wait_over")
            self._release(held)
        else:
            self._arm(held, min(ends_ms, held.deadline_ms), now_ms)

    def _look_again(self) -> None:
        """Send the held responses that name partitions whose leaders have changed."""
        self._waiting_topics = None
        if not self._held:
            return
        now_ms = self._clock.monotonic_ms()
        for held in list(self._held):
            if self._expected_until_ms(held.question, now_ms) is None:
                self._release(held)

    def _release(self, held: _Held) -> None:
        self._drop(held)
        try:
            response = held.make()
        except AssertionError:
            raise
        except Exception as error:  # a defect of the broker fails this request only
            response = self._request_failed(held.request, error)
        held.pending.complete(response)

    def _drop(self, held: _Held) -> None:
        del self._held[held]
        self._held_partitions -= held.partitions

    # leaders

    def _expected_until_ms(self, question: Question, now_ms: int) -> int | None:
        """Return the time until which a response waits for a leader; None for no wait."""
        return max(
            self._ended_until_ms(question, now_ms),
            self._commanded_until_ms(question, now_ms),
            key=lambda until_ms: -1 if until_ms is None else until_ms,
        )

    def _ended_until_ms(self, question: Question, now_ms: int) -> int | None:
        """Return the time until which a response waits because it would name an ended leader.

        Returns None if the response need not wait.
        """
        expected = self._ended.expected(now_ms, self._max_ms())
        if not expected:
            return None
        is_waiting = any(self._leader(each) in expected for each in question.partitions)
        if not is_waiting:
            waiting = self._topics_of(frozenset(expected))
            if question.topics is None:
                is_waiting = bool(waiting)
            else:
                is_waiting = not waiting.isdisjoint(question.topics)
        return max(expected.values()) if is_waiting else None

    def _commanded_until_ms(self, question: Question, now_ms: int) -> int | None:
        """Return the time until which a response waits for the UpdateMetadata of a new leader."""
        commanded = self._view.commanded
        if not commanded:
            return None
        names = commanded if question.topics is None else question.topics
        since_ms = [commanded[name].since_ms for name in names if name in commanded]
        for name, number in question.partitions:
            if name in commanded and number in commanded[name].leaders:
                since_ms.append(commanded[name].since_ms)
        until_ms = max(since_ms, default=-1) + self._max_ms()
        return until_ms if since_ms and now_ms < until_ms else None

    def _leader(self, partition: TopicPartition) -> int | None:
        view = self._view.partition(partition)
        return None if view is None else view.leader

    def _topics_of(self, ended: frozenset[int]) -> frozenset[str]:
        """Return the topics in which one of these brokers leads a partition."""
        if self._waiting_topics is None or self._waiting_topics[0] != ended:
            found = frozenset(
                name
                for name, topic in self._view.topics.items()
                if any(partition.leader in ended for partition in topic.partitions.values())
            )
            self._waiting_topics = ended, found
        return self._waiting_topics[1]

    def _count(self, question: Question) -> int:
        topics = self._view.topics
        if question.topics is None:
            return sum(len(topic.partitions) for topic in topics.values())
        named = (topics[name] for name in question.topics if name in topics)
        return len(question.partitions) + sum(len(topic.partitions) for topic in named)
