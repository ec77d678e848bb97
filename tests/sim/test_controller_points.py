"""A controller that dies before and after each of its writes and sends (V41, V2, S2).

One story, told with the crash at another point each time, until every point was visited: a topic is
made, a broker dies and returns, a topic is deleted and made again. A point is a transaction before
it is sent, when the store has applied it, and when its answer has come; a command before it is sent
and after. The next port call of the controller's broker ends it, every second time with its power.
However it was, the next controller finishes: clients get what they asked for, every partition is
led with its full ISR, and no checker has anything to say.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random
from typing import Any

import pytest
from tests.sim.fault_harness import FaultHarness

from tidelog.broker.controller.store_reader import StoreReader
from tidelog.broker.controller.store_writer import StoreWriter
from tidelog.broker.peers import PeerConnection
from tidelog.controller.topics.deletion import DeletionsRead
from tidelog.metadata import layout
from tidelog.metadata.store import Check
from tidelog.sim.disk import Loss
from tidelog.sim.node import Strike
from tidelog.sim.simulator import CollectorPaused
from tidelog.sim.workload.administrator import Administrator

#: Points of the story, none of which may be left out: more is fine, fewer means a look elsewhere.
LEAST_POINTS = 60
#: The points are visited in so many parts, side by side where there are cores.
PARTS = 4
KINDS = ("before write", "written", "after write", "before send", "after send")


class Points:
    """Counts the points of a story; at the chosen one the controller is struck."""

    def __init__(self, chosen: int | None = None) -> None:
        self.chosen = chosen
        self.count = 0
        self.kinds: Counter[str] = Counter()
        self.struck = self.deaths = 0
        self.harness: FaultHarness | None = None

    def reached(self, kind: str, broker_id: int) -> None:
        """The controller, on this broker, is at a point."""
        if self.harness is None:
            return
        self.kinds[kind] += 1
        if self.count == self.chosen:
            life = self.harness.cluster.brokers[broker_id].life
            if life is not None:
                loss = Loss.ALL_UNSYNCED if self.count % 2 else Loss.NONE
                life.plan_strike(Strike(1, loss))
                self.struck += 1
        self.count += 1

    def died(self) -> None:
        """A broker has."""
        self.deaths += 1


@contextmanager
def watched(points: Points) -> Iterator[None]:
    """Points of every controller are counted."""
    transact, send = StoreWriter._transact, PeerConnection.send

    async def transact_watched(writer: StoreWriter, ops: Any) -> Any:
        broker_id = controller_of(points)
        points.reached("before write", broker_id)
        done = await transact(writer, ops)
        points.reached("after write", broker_id)
        return done

    def send_watched(connection: PeerConnection, *arguments: Any) -> None:
        is_command = connection._purpose == "controller"
        if is_command:
            points.reached("before send", connection._peers.broker_id)
        send(connection, *arguments)
        if is_command:
            points.reached("after send", connection._peers.broker_id)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(StoreWriter, "_transact", transact_watched)
        patch.setattr(PeerConnection, "send", send_watched)
        yield


def controller_of(points: Points) -> int:
    """Whose controller is writing: there is one at a time in this story, but for its last word."""
    if points.harness is None:
        return -1
    found = points.harness.context().controller()
    return -1 if found is None else found.node_id


def story(points: Points) -> None:
    """What happens, with the crash at the chosen point."""
    with CollectorPaused(), watched(points):
        harness = FaultHarness()
        try:
            points.harness = harness
            harness.cluster.budget.is_kept = False
            harness.simulator.on_death.append(lambda *_: points.died())
            harness.cluster.store.on_commit(lambda *commit: _committed(points, *commit))
            _tell(harness)
            points.harness = None
            harness.until(lambda: not harness.cluster.health())
            harness.run(500)
        finally:
            points.harness = None
            harness.simulator.close()


def _committed(points: Points, *commit: Any) -> None:
    """A transaction that a controller fences with its epoch is applied, and not answered yet."""
    ops = next(one for one in commit if isinstance(one, list | tuple))
    if ops and isinstance(ops[0], Check) and ops[0].path == layout.CONTROLLER_EPOCH:
        points.reached("written", controller_of(points))


def _tell(harness: FaultHarness) -> None:
    admin = Administrator(harness.client, Random(4))
    admin.takes_existing = True
    _patiently(harness, lambda: harness.client.tasks.spawn("make", admin.create("u", 3, 3, {})))
    victim = next(one for one in harness.brokers if one is not harness.controller)
    victim.crash(Loss.NONE, "a broker dies")
    harness.run(400)
    _patiently(harness, lambda: harness.client.tasks.spawn("delete", admin.delete("u")))
    _patiently(harness, lambda: harness.client.tasks.spawn("again", admin.create("u", 2, 3, {})))


def _patiently(harness: FaultHarness, begin: Callable[[], Any]) -> None:
    """Let something be done, and whoever dies meanwhile return."""
    task = begin()

    def is_over() -> bool:
        harness.cluster.start()
        return bool(task.done()) and not harness.cluster.health()

    harness.until(is_over, 60_000)


def test_the_story_has_every_kind_of_point() -> None:
    points = Points()
    story(points)
    assert points.count >= LEAST_POINTS
    assert sorted(points.kinds) == sorted(KINDS) and min(points.kinds.values()) >= 5


@pytest.mark.parametrize("part", range(PARTS))
def test_a_controller_may_die_at_any_point(part: int) -> None:
    whole = Points()
    story(whole)
    for number in range(part, whole.count, PARTS):
        points = Points(number)
        story(points)
        assert points.struck == 1 and points.deaths == 2, f"point {number} of {whole.count}"


def test_a_controller_that_forgets_deletions_is_found_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """The story notices what a new controller does not take up."""
    lists = StoreReader.lists

    async def without_deletions(*arguments: Any) -> Any:
        brokers, topics, _ = await lists(*arguments)
        return brokers, topics, []

    monkeypatch.setattr(StoreReader, "lists", without_deletions)
    monkeypatch.setattr(StoreReader, "deletions", _no_deletions)
    whole = Points()
    story(whole)
    # The topic is deleted in the middle of the story: points there show it first.
    middle = whole.count // 2
    with pytest.raises(AssertionError):
        for number in sorted(range(whole.count), key=lambda each: abs(each - middle)):
            story(Points(number))


async def _no_deletions(*_: Any) -> DeletionsRead:
    return DeletionsRead([])
